// SPDX-License-Identifier: Apache-2.0
//
// Sizes above 4 GiB: no number on the way is a 32-bit one. The range is 2 MiB of real memory mapped again and again,
// but for its last pages, so that the tail of the transfer can be told from everything else.
#include <sys/mman.h>
#include <unistd.h>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_piece = 2U << 20U;
constexpr std::size_t k_range = std::size_t{5} << 30U;
constexpr std::size_t k_tail_at = std::size_t{4} << 30U;  // a piece of its own begins here

class Folded {
 public:
  Folded() : fd_(::memfd_create("hixl-test", MFD_CLOEXEC)) {
    REQUIRE(::ftruncate(fd_, 2 * k_piece) == 0);
    void* range = ::mmap(nullptr, k_range, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(range != MAP_FAILED);
    data_ = static_cast<std::byte*>(range);
    for (std::size_t at = 0; at < k_range; at += k_piece) {
      const auto offset = static_cast<off_t>(at == k_tail_at ? k_piece : 0);
      REQUIRE(::mmap(data_ + at, k_piece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_, offset) != MAP_FAILED);
    }
  }
  ~Folded() {
    ::munmap(data_, k_range);
    ::close(fd_);
  }
  Folded(const Folded&) = delete;
  Folded& operator=(const Folded&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  int fd_;
  std::byte* data_ = nullptr;
};

}  // namespace

TEST_CASE("a put and a get of more than 4 GiB end at the right byte") {
  constexpr std::size_t k_tail = 4097;
  if (rounds(10) < 10) {
    MESSAGE("skipped: more than 4 GiB takes too long at HIXL_TEST_SCALE below 1");
    return;
  }
  World world(2, {LinkKind::tcp});
  Folded source, target;
  const auto a = world[0].register_memory(source.data(), k_range);
  const auto b = world[1].register_memory(target.data(), k_range);
  require_ok(a);
  require_ok(b);
  CHECK(b->size == k_range);
  const auto table = world.exchange_all({*a, *b});
  const RemoteRegion remote = table[0][1];
  CHECK(remote.length == k_range);
  fill_pattern(source.data(), k_piece, 1);
  fill_pattern(source.data() + k_tail_at, k_piece, 2);

  // A trial of 1/16, so that a slow machine says that it is one.
  const auto begin = std::chrono::steady_clock::now();
  require_ok(world[0].put_sync(source.data(), remote.at(0), k_tail_at / 16));
  const auto expected = 16 * (std::chrono::steady_clock::now() - begin);
  if (expected > std::chrono::seconds(8)) {
    MESSAGE("skipped: tcp on this machine needs ", std::chrono::duration<double>(expected).count(), " s for 4 GiB");
    return;
  }
  std::memset(target.data(), 0, k_piece);
  std::memset(target.data() + k_tail_at, 0, k_piece);
  const std::uint64_t before = world[0].counters().bytes_out[static_cast<std::size_t>(LinkKind::tcp)];
  require_ok(world[0].put_sync(source.data(), remote.at(0), k_tail_at + k_tail));
  CHECK(world[0].counters().bytes_out[static_cast<std::size_t>(LinkKind::tcp)] - before == k_tail_at + k_tail);
  CHECK(holds_pattern(target.data(), k_piece, 1));
  CHECK(std::memcmp(source.data() + k_tail_at, target.data() + k_tail_at, k_tail) == 0);
  CHECK(all_bytes(target.data() + k_tail_at + k_tail, k_piece - k_tail, std::byte{0}));

  // Offsets beyond 4 GiB, both ways and as one batch.
  std::memset(target.data() + k_tail_at, 0, k_piece);
  require_ok(world[0].put_sync(source.data() + k_tail_at + 5, remote.at(k_tail_at + 100), k_tail));
  CHECK(std::memcmp(source.data() + k_tail_at + 5, target.data() + k_tail_at + 100, k_tail) == 0);
  CHECK(all_bytes(target.data() + k_tail_at, 100, std::byte{0}));
  CHECK(holds_pattern(target.data(), k_piece, 1));
  const BatchEntry entries[] = {{TransferVerb::get, source.data() + k_tail_at, remote.at(k_tail_at + 100), k_tail},
                                {TransferVerb::put, source.data(), remote.at(k_range - k_piece), k_piece}};
  require_ok(world[0].batch_sync(entries));
  CHECK(std::memcmp(source.data() + k_tail_at, target.data() + k_tail_at + 100, k_tail) == 0);
  CHECK(holds_pattern(target.data(), k_piece, 1));
}
