// SPDX-License-Identifier: Apache-2.0
//
// Small parts that several tests of the public interface share: waiting with a deadline, the share of rounds to run,
// seeds, and one function for all forms of a transfer.
#pragma once

#include <dirent.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <utility>
#include <vector>

#include "world.hpp"

namespace hixl::test {

/// Long enough for every machine that tests run on; a test that needs it has failed.
inline constexpr std::chrono::seconds k_patience{30};

/// Rounds of a loop, scaled by HIXL_TEST_SCALE (0 … 1); at least one.
inline int rounds(int full) {
  const char* scale = std::getenv("HIXL_TEST_SCALE");
  const double factor = scale == nullptr ? 1.0 : std::clamp(std::strtod(scale, nullptr), 0.0, 1.0);
  return std::max(1, static_cast<int>(full * factor));
}

inline std::uint64_t base_seed() {
  const char* seed = std::getenv("HIXL_TEST_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 0);
}

/// Counts events of other threads; whoever waits for one gives up after k_patience.
class Events {
 public:
  void add() {
    const std::scoped_lock lock(mutex_);
    count_ += 1;
    changed_.notify_all();  // inside the lock: who sees the count may destroy this
  }
  [[nodiscard]] int count() {
    const std::scoped_lock lock(mutex_);
    return count_;
  }
  [[nodiscard]] bool wait_for(int wanted) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, k_patience, [&] { return count_ >= wanted; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

/// The answer of an asynchronous call, for its `done` and `context`.
template <class Value>
struct Answer {
  Events events;
  Value value{};
  [[nodiscard]] bool wait() { return events.wait_for(1); }
};
inline void store_result(void* context, const Result<void>& result) {
  auto& answer = *static_cast<Answer<Result<void>>*>(context);
  answer.value = result;
  answer.events.add();
}
inline void store_answers(void* context, std::vector<PeerAddresses>&& answers) {
  auto& answer = *static_cast<Answer<std::vector<PeerAddresses>>*>(context);
  answer.value = std::move(answers);
  answer.events.add();
}

enum class Form { sync, async, batch };
inline constexpr Form k_forms[] = {Form::sync, Form::async, Form::batch};

/// One transfer in a given form, to its end.
inline Result<void> transfer(Runtime& runtime, Form form, TransferVerb verb, void* local, const RemoteAddress& remote,
                             std::uint64_t size) {
  if (form == Form::sync) {
    return verb == TransferVerb::put ? runtime.put_sync(local, remote, size) : runtime.get_sync(local, remote, size);
  }
  const BatchEntry entry{verb, local, remote, size};
  auto request = form == Form::batch         ? runtime.batch(std::span(&entry, 1))
                 : verb == TransferVerb::put ? runtime.put(local, remote, size)
                                             : runtime.get(local, remote, size);
  if (!request) return fail(request.error());
  return request->wait();
}

inline bool all_bytes(const std::byte* data, std::size_t size, std::byte value) {
  return std::all_of(data, data + size, [value](std::byte b) { return b == value; });
}

inline std::uint64_t moved_bytes(const Counters& counters) {
  std::uint64_t sum = 0;
  for (std::size_t kind = 0; kind < k_link_kinds; ++kind) sum += counters.bytes_out[kind] + counters.bytes_in[kind];
  return sum;
}

inline std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  REQUIRE(directory != nullptr);
  while (::readdir(directory) != nullptr) count += 1;
  ::closedir(directory);
  return count;
}

}  // namespace hixl::test
