// SPDX-License-Identifier: Apache-2.0
//
// ForeignMemory: bytes between two processes, whatever device they lie on here, and who is meant by a number.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "base/random.hpp"
#include "memory/foreign_memory.hpp"

using namespace hixl;
using namespace hixl::memory;

namespace {

using Direction = ForeignMemory::Direction;
using Outcome = ForeignMemory::Outcome;

/// Memory that the CPU may not touch, so everybody has to ask.
class FarDevice final : public Device {
 public:
  [[nodiscard]] const DeviceCaps& caps() const noexcept override { return caps_; }
  void write(std::byte* dst, const std::byte* src, std::size_t size) noexcept override {
    std::memcpy(dst, src, size);
    ++calls;
  }
  void read(std::byte* dst, const std::byte* src, std::size_t size) noexcept override {
    std::memcpy(dst, src, size);
    ++calls;
  }
  int calls = 0;

 private:
  DeviceCaps caps_{.name = "far"};
};

/// A process that waits to be killed, and a copy of all memory of this one.
class Twin {
 public:
  Twin() : pid_(fork()) {
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      for (;;) pause();
    }
    pidfd_ = static_cast<int>(syscall(434, pid_, 0));  // pidfd_open
    REQUIRE(pidfd_ >= 0);
  }
  ~Twin() {
    end();
    close(pidfd_);
  }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] int pidfd() const noexcept { return pidfd_; }

 private:
  pid_t pid_;
  int pidfd_ = -1;
};

std::vector<std::byte> noise(std::size_t bytes, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> data(bytes);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random.next());
  return data;
}

std::uint64_t address_of(const std::byte* data) { return reinterpret_cast<std::uint64_t>(data); }

}  // namespace

TEST_CASE("foreign memory: many pieces there and back, empty ones too, from any device here") {
  std::vector<std::byte> place(200'000);  // the twin's copy is where the bytes go; ours stays as it is
  const Twin twin;
  const ForeignMemory memory(twin.pid(), twin.pidfd());
  FarDevice far;
  for (Device* device : {&host_device(), static_cast<Device*>(&far)}) {
    auto source = noise(100'000, 3);
    std::vector<std::byte> back(source.size());
    std::vector<ForeignSegment> out, in;
    std::uint32_t at = 0;
    for (const std::uint32_t bytes : {0U, 1U, 4095U, 4096U, 4097U, 0U, 60'000U}) {
      out.push_back({source.data() + at, address_of(place.data()) + 2 * at, bytes});
      in.push_back({back.data() + at, address_of(place.data()) + 2 * at, bytes});
      at += bytes;
    }
    CHECK(memory.move(Direction::to_peer, *device, out).outcome == Outcome::done);
    CHECK(memory.move(Direction::from_peer, *device, in).outcome == Outcome::done);
    CHECK(std::memcmp(back.data(), source.data(), at) == 0);
    CHECK(back[at] == std::byte{0});
  }
  CHECK(far.calls > 2 * (60'000 / 4096));
  CHECK(place == std::vector<std::byte>(place.size()));
}

TEST_CASE("foreign memory: a number that may mean another process by now does nothing") {
  Twin twin;
  const pid_t old = twin.pid();
  CHECK(!process_ended(twin.pidfd()));
  twin.end();
  CHECK(process_ended(twin.pidfd()));
  CHECK(!process_ended(-1));
  std::array<std::byte, 8> here{std::byte{1}}, there{};
  const ForeignSegment segment{here.data(), address_of(there.data()), sizeof here};
  SUBCASE("the pid is ours: as good as reused") {
    const ForeignMemory reused(getpid(), twin.pidfd());
    CHECK(reused.move(Direction::to_peer, host_device(), {&segment, 1}).outcome == Outcome::ended);
    CHECK(there == std::array<std::byte, 8>{});
  }
  SUBCASE("the pid is nobody's") {
    const ForeignMemory gone(old, -1);
    CHECK(gone.move(Direction::to_peer, host_device(), {&segment, 1}).outcome == Outcome::ended);
  }
}

TEST_CASE("foreign memory: a hole is named by its first byte, at the side where it is, and what lies before it moved") {
  constexpr std::size_t k_page = 4096;
  auto* const pages =
      static_cast<std::byte*>(mmap(nullptr, 3 * k_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(pages != MAP_FAILED);
  REQUIRE(munmap(pages + k_page, k_page) == 0);
  std::vector<std::byte> whole(3 * k_page, std::byte{9});
  const ForeignMemory self(getpid(), -1);
  for (const Direction direction : {Direction::to_peer, Direction::from_peer}) {
    const ForeignSegment there{whole.data(), address_of(pages), 3 * k_page};
    const auto missing_there = self.move(direction, host_device(), {&there, 1});
    CHECK(missing_there.outcome == Outcome::unmapped_there);
    CHECK(missing_there.address == address_of(pages) + k_page);
    CHECK(missing_there.os_error == EFAULT);
    const ForeignSegment here{pages, address_of(whole.data()), 3 * k_page};
    const auto missing_here = self.move(direction, host_device(), {&here, 1});
    CHECK(missing_here.outcome == Outcome::unmapped_here);
    CHECK(missing_here.address == address_of(pages) + k_page);
  }
  CHECK(pages[k_page - 1] == std::byte{9});
  munmap(pages, 3 * k_page);
}
