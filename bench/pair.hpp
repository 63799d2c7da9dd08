// SPDX-License-Identifier: Apache-2.0
//
// Two ranks in two processes, which hixl_pair_bench asks its questions of. Rank 0 measures; rank 1 looks at the bytes
// with its own CPU when it is told to, and sleeps meanwhile.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <hixl/runtime.hpp>

#include "measure.hpp"

namespace hixl::bench {

constexpr Timeout k_patience = std::chrono::seconds(60);

[[noreturn]] inline void give_up(const std::string& why, int code = 1) {
  std::cerr << "hixl_pair_bench: " << why << "\n";
  std::exit(code);
}
template <class T>
T need(Result<T> result) {
  if (!result) give_up(result.error().message());
  return std::move(*result);
}
inline void need(const Result<void>& result) {
  if (!result) give_up(result.error().message());
}

struct Settings {
  std::vector<std::string> questions;
  std::size_t rounds = 1000;   ///< of a latency
  std::size_t megabytes = 32;  ///< moved for a bandwidth
  std::size_t window = 64;     ///< puts under way for a bandwidth
  std::size_t regions = 64;    ///< registered under pings
  bool polled = false;
};

/// Both ranks have the same region: words of control, then room for the bytes.
constexpr std::uint64_t k_control_bytes = 4096;

/// What rank 0 asks of rank 1: to look at `slots` blocks of `bytes`, the i-th filled from seed + i.
struct Order {
  std::uint64_t number = 0;  ///< the signal, written last
  std::uint64_t bytes = 0;
  std::uint64_t slots = 0;  ///< 0: it is over
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  ///< of the first block
};
constexpr std::uint64_t k_answer_offset = 64;    ///< at rank 0: twice the order's number, and one more if all was well
constexpr std::uint64_t k_process_offset = 512;  ///< at both: the process's number

class Pair {
 public:
  Pair(const Settings& settings, std::size_t room) : settings_(settings) {
    RuntimeOptions options = need(RuntimeOptions::from_environment());
    if (options.world_size != 2) give_up("needs two ranks: hixl_run -n 2, or HIXL_RANK and HIXL_WORLD_SIZE=2");
    // The rank that measures may turn its runtime itself and never sleep, as perftest does.
    const bool polled = settings.polled && options.rank == 0;
    if (polled) options.poll = PollMode::busy;
    runtime_ = need(polled ? Runtime::create_polled(options) : Runtime::create(options));
    need(runtime_->joined().wait(k_patience));
    region_ = need(runtime_->allocate(k_control_bytes + room));
    const std::uint64_t process = getpid();
    std::memcpy(region_.data + k_process_offset, &process, sizeof process);
    const Rank other[] = {1 - options.rank};
    auto answers = runtime_->exchange(std::span(&region_, 1), other, k_patience);
    need(answers.front().result);
    remote_ = answers.front().regions.front();
    need(runtime_->prewarm(other, k_patience));
  }
  Runtime& runtime() { return *runtime_; }
  std::byte* data() { return region_.data + k_control_bytes; }
  [[nodiscard]] RemoteAddress there(std::uint64_t offset) const { return remote_.at(k_control_bytes + offset); }
  const Settings& settings() const { return settings_; }

  /// Of the other rank; means something on the same host only.
  [[nodiscard]] pid_t other_process() {
    std::byte* const staged = region_.data + 2 * k_process_offset;
    need(runtime_->get_sync(staged, remote_.at(k_process_offset), sizeof(std::uint64_t), k_patience));
    std::uint64_t process = 0;
    std::memcpy(&process, staged, sizeof process);
    return static_cast<pid_t>(process);
  }
  /// Rank 0: has rank 1 look at the bytes with its own eyes.
  void need_bytes(std::uint64_t bytes, std::uint64_t slots, std::uint64_t seed) {
    need_bytes({.bytes = bytes, .slots = slots, .seed = seed});
  }
  void need_bytes(Order order) {
    order.number = ++orders_;
    if (!said(send(order))) {
      give_up("the bytes at the target are not the bytes that were put", k_exit_wrong_bytes);
    }
  }
  void finish() {
    static_cast<void>(said(send({.number = ++orders_})));
    need(runtime_->stop());
  }
  /// Rank 1.
  void serve() {
    for (std::uint64_t number = 1;; ++number) {
      need(runtime_->wait_signal(region_.data, Compare::equal, number, std::chrono::hours(1)));
      Order order;
      std::memcpy(&order, region_.data, sizeof order);
      bool well = true;
      for (std::uint64_t slot = 0; slot < order.slots; ++slot) {
        well = verify(data() + order.offset + slot * order.bytes, order.bytes, order.seed + slot) && well;
      }
      need(need(runtime_->put_with_signal(region_.data, remote_.at(0), 0,
                                          {.word = remote_.at(k_answer_offset), .value = 2 * number + (well ? 1 : 0)}))
               .wait(k_patience));
      if (order.slots == 0) break;
    }
    need(runtime_->stop());
  }

 private:
  std::uint64_t send(Order order) {
    // Staged beside the answer; the order's first word is the signal.
    std::byte* const staged = region_.data + 2 * k_answer_offset;
    std::memcpy(staged, &order, sizeof order);
    need(need(runtime_->put_with_signal(staged + 8, remote_.at(8), sizeof order - 8,
                                        {.word = remote_.at(0), .value = order.number}))
             .wait(k_patience));
    return order.number;
  }
  bool said(std::uint64_t number) {
    return need(runtime_->wait_signal(region_.data + k_answer_offset, Compare::greater_equal, 2 * number,
                                      k_patience)) == 2 * number + 1;
  }

  const Settings settings_;
  std::unique_ptr<Runtime> runtime_;
  Region region_;
  RemoteRegion remote_;
  std::uint64_t orders_ = 0;
};

}  // namespace hixl::bench
