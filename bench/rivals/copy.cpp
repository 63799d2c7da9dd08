// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "rival.hpp"

namespace hixl::bench {

namespace {

/// Memory as the library's windows have it: shared, and touched by fill().
class Shared {
 public:
  explicit Shared(std::size_t size) : size_(size) {
    data_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) give_up("no memory for " + std::to_string(size) + " bytes");
  }
  ~Shared() { munmap(data_, size_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t size_;
  void* data_;
};

void copy_bytes(std::byte* target, const std::byte* source, std::size_t size) {
  std::memcpy(target, source, size);
  asm volatile("" : : "r"(target) : "memory");
}

}  // namespace

nlohmann::json copied(const Ask& ask, int threads) {
  const std::uint64_t bytes = ask.bytes();
  const Shared source(bytes), target(bytes);
  fill(source.data(), bytes, ask.size);
  const std::uint64_t half = threads == 2 ? bytes / 2 : 0;
  // The second thread spins for its half: waking it would be measured with it.
  std::atomic<std::uint64_t> begun{0}, ended{0};
  std::atomic<bool> over{false};
  std::thread second;
  if (half > 0) {
    second = std::thread([&] {
      for (std::uint64_t round = 1;; ++round) {
        while (begun.load(std::memory_order_acquire) < round) {
          if (over.load(std::memory_order_acquire)) return;
        }
        copy_bytes(target.data(), source.data(), half);
        ended.store(round, std::memory_order_release);
      }
    });
  }
  std::uint64_t round = 0;
  nlohmann::json answer = timed(
      ask,
      [&] {
        ++round;
        begun.store(round, std::memory_order_release);
        copy_bytes(target.data() + half, source.data() + half, bytes - half);
        while (half > 0 && ended.load(std::memory_order_acquire) < round) {
        }
      },
      cpu_seconds);
  over.store(true, std::memory_order_release);
  if (second.joinable()) second.join();
  need_bytes(verify(target.data(), bytes, ask.size));
  return answer;
}

}  // namespace hixl::bench
