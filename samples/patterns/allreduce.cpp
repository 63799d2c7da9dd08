// SPDX-License-Identifier: Apache-2.0
//
// A one-sided AllReduce: put, add up, put back. Rank i adds up the i-th part of everybody's numbers and puts the sums
// back to all. No rank calls anything to receive; each sleeps until its words count all arrivals.
//   hixl_run -n 4 allreduce
#include <algorithm>

#include "ranks.hpp"

int main() {
  constexpr std::size_t k_numbers = 1U << 20U;
  auto runtime = start();
  const std::size_t n = runtime->world_size(), me = runtime->rank(), part = (k_numbers + n - 1) / n;
  // Two words that count arrivals, the numbers, and for each rank a place for its share of my part.
  const std::size_t numbers = 2, inbox = numbers + n * part;
  const Shared memory(*runtime, (inbox + n * part) * 8);
  for (std::size_t i = 0; i < k_numbers; ++i) memory.word(numbers)[i] = (me + 1) * 1000003 + i * (me + 7);

  std::vector<hixl::Request> puts;
  for (hixl::Rank owner = 0; owner < n; ++owner) {
    puts.push_back(
        need(runtime->put_with_signal(memory.word(numbers + owner * part), memory.word_of(owner, inbox + me * part),
                                      part * 8, {memory.word_of(owner, 0), 1, hixl::SignalOp::add})));
  }
  need(runtime->wait_signal(memory.word(0), hixl::Compare::equal, n));
  need(hixl::wait_all(puts));  // my numbers have left, their place is free for sums

  std::uint64_t* const sums = memory.word(inbox);
  for (std::size_t rank = 1; rank < n; ++rank) {
    for (std::size_t i = 0; i < part; ++i) sums[i] += sums[rank * part + i];
  }
  puts.clear();
  for (hixl::Rank to = 0; to < n; ++to) {
    puts.push_back(need(runtime->put_with_signal(sums, memory.word_of(to, numbers + me * part), part * 8,
                                                 {memory.word_of(to, 1), 1, hixl::SignalOp::add})));
  }
  need(runtime->wait_signal(memory.word(1), hixl::Compare::equal, n));
  need(hixl::wait_all(puts));

  std::size_t right = 0;
  for (std::size_t i = 0; i < k_numbers; ++i) {
    std::uint64_t sum = 0;
    for (std::size_t rank = 0; rank < n; ++rank) sum += (rank + 1) * 1000003 + i * (rank + 7);
    right += memory.word(numbers)[i] == sum ? 1 : 0;
  }
  std::printf("rank %zu: %zu of %zu sums are right\n", me, right, k_numbers);
  need(runtime->barrier());
  return right == k_numbers ? 0 : 1;
}
