// SPDX-License-Identifier: Apache-2.0
//
// Taking memory back from an initiator that stands still in the middle of its copies: after success not a byte changes;
// otherwise the answer is HELD, and the memory goes back when that process runs again or dies.
#include <algorithm>

#include <doctest/doctest.h>

#include <sys/mman.h>
#include <unistd.h>

#include "home.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_bytes = (4U << 20U) + 4096;  // a size that no other memory here has
constexpr std::size_t k_put_bytes = 4U << 20U;

/// The pages of a window, seen past the library: they stay here when it has let go of them.
class Witness {
 public:
  explicit Witness(std::size_t bytes) : bytes_(bytes), fd_(open_window_of(bytes)) {
    REQUIRE(fd_ >= 0);
    data_ = static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
    REQUIRE(data_ != MAP_FAILED);
  }
  ~Witness() {
    munmap(data_, bytes_);
    ::close(fd_);
  }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;
  void mark() { std::memset(data_, 0xee, bytes_); }
  [[nodiscard]] bool untouched() const {
    return std::all_of(data_, data_ + bytes_, [](std::byte byte) { return byte == std::byte{0xee}; });
  }

 private:
  std::size_t bytes_;
  int fd_;
  std::byte* data_ = nullptr;
};

/// A rank that hammers puts of k_put_bytes into `target`, stopped at some point of it.
void hammer_and_stop(Home& home, Guest& initiator, const Region& target) {
  initiator->tell("renew 0 4096");
  home.meet(1, target);
  REQUIRE(initiator->hear() == "ok");
  REQUIRE(initiator->ask("hammer 0 " + std::to_string(k_put_bytes)) == "hammering");
  REQUIRE(eventually([&] { return reinterpret_cast<volatile std::byte&>(target.data[0]) != std::byte{0}; }));
  initiator->stop();
}

}  // namespace

TEST_CASE("P16 deregister while the initiator stands still in the middle of a put") {
  for (const std::string links : {"hccs", "tcp"}) {
    CAPTURE(links);
    Home home(2, links);
    int clean = 0;
    int held = 0;
    for (int round = 0; round < 12; ++round) {
      CAPTURE(round);
      const auto target = home->allocate(k_bytes);
      require_ok(target);
      Witness witness(k_bytes);
      Guest initiator(home, 1);
      hammer_and_stop(home, initiator, *target);
      const ErrorCode code = code_of(home->deregister(*target, std::chrono::milliseconds(300)));
      REQUIRE((code == ErrorCode::ok || code == ErrorCode::held));
      (code == ErrorCode::ok ? clean : held) += 1;
      if (code == ErrorCode::ok) witness.mark();
      // A new region of the same size is never the same pages while the old ones may still be written.
      const auto next = home->allocate(k_bytes);
      require_ok(next);

      if (round % 2 == 0) {
        initiator->resume();
        static_cast<void>(initiator->ask("on"));
        CHECK(initiator->ask("put 0 0 4096 1") == "STALE");
        if (code == ErrorCode::ok) CHECK(witness.untouched());
        // What was held goes back by itself; then it stays as it is.
        REQUIRE(eventually(
            [&] { return code_of(home->deregister(*target, std::chrono::milliseconds(1))) == ErrorCode::stale; }));
      } else {
        initiator->kill();
        if (code == ErrorCode::ok) CHECK(witness.untouched());
      }
      CHECK(std::all_of(next->data, next->data + k_bytes, [](std::byte byte) { return byte == std::byte{0}; }));
      require_ok(home->deregister(*next, k_patience));
    }
    MESSAGE(links << ": " << clean << " clean, " << held << " held");
    if (links == "tcp") CHECK(held == 0);  // the target copies: it can always say no
  }
}

TEST_CASE("memory that was held goes back when the initiator runs again, and when it dies") {
  Home home(2, "hccs");
  // With nobody met: the home's own. Later counts would hold what the death of an earlier guest has yet to release.
  const std::size_t mappings = library_mappings();
  int held = 0;
  for (int round = 0; round < 60 && held < 2; ++round) {
    CAPTURE(round);
    const auto target = home->allocate(k_bytes);
    require_ok(target);
    Guest initiator(home, 1);
    hammer_and_stop(home, initiator, *target);
    if (code_of(home->deregister(*target, std::chrono::milliseconds(20))) != ErrorCode::held) continue;
    CHECK(home->counters().held_bytes == k_bytes);
    if (held++ == 0) {
      initiator->resume();
      static_cast<void>(initiator->ask("on"));
      CHECK(initiator->ask("put 0 0 4096 1") == "STALE");
      CHECK(eventually([&] { return home->counters().held_bytes == 0; }));
    }
    initiator->kill();
    CHECK(eventually([&] { return library_mappings() == mappings; }));
    CHECK(home->counters().held_bytes == 0);
  }
  MESSAGE(held << " times held");
}
