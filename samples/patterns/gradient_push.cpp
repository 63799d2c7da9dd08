// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous gradients: every worker puts its gradient into a place of its own at rank 0 and computes on; rank 0
// applies what has come, in any order, and no worker waits for another. Two places a worker, so that one may travel
// while the other is applied; the server gives a place back with a signal.
//   hixl_run -n 4 gradient_push
#include <atomic>

#include "ranks.hpp"

namespace {

constexpr std::size_t k_parameters = 64 * 1024;
constexpr std::uint64_t k_steps = 20;

/// Whole numbers, so that the sum is exact in whatever order it is formed.
std::uint64_t gradient(hixl::Rank worker, std::uint64_t step, std::size_t i) { return worker * 17 + step * 5 + i % 3; }

// Words: a bell and each worker's last step (at rank 0), what was applied of mine (at a worker); then the places.
enum Word : std::size_t { bell, applied, steps };
std::size_t place(const hixl::Runtime& runtime, hixl::Rank worker, std::uint64_t step) {
  return steps + runtime.world_size() + (worker * 2 + step % 2) * k_parameters;
}

void work(hixl::Runtime& runtime, const Shared& memory) {
  const hixl::Rank me = runtime.rank();
  hixl::Request puts[2];
  for (std::uint64_t step = 1; step <= k_steps; ++step) {
    // A place is free there when the server has applied what lay in it, and here when its put has ended.
    if (step > 2) {
      need(runtime.wait_signal(memory.word(applied), hixl::Compare::greater_equal, step - 2));
      need(puts[step % 2].wait());
    }
    const std::size_t at = place(runtime, me, step);
    for (std::size_t i = 0; i < k_parameters; ++i) memory.word(at)[i] = gradient(me, step, i);
    puts[step % 2] = need(runtime.put_with_signal(memory.word(at), memory.word_of(0, at), k_parameters * 8,
                                                  {memory.word_of(0, steps + me), step}));
    need(runtime.fence(0));  // the server sleeps on one bell for all workers, which rings when the step is there
    need(runtime.put_with_signal(nullptr, memory.of[0].at(0), 0, {memory.word_of(0, bell), 1, hixl::SignalOp::add}));
  }
  need(runtime.flush(0));
}

bool serve(hixl::Runtime& runtime, const Shared& memory) {
  const std::uint64_t all = (runtime.world_size() - 1) * k_steps;
  std::vector<std::uint64_t> sums(k_parameters), seen(runtime.world_size());
  for (std::uint64_t done = 0; done < all;) {
    need(runtime.wait_signal(memory.word(bell), hixl::Compare::greater_equal, done + 1));
    for (hixl::Rank worker = 1; worker < runtime.world_size(); ++worker) {
      for (; seen[worker] < std::atomic_ref(*memory.word(steps + worker)).load(); ++done) {
        const std::uint64_t* const there = memory.word(place(runtime, worker, ++seen[worker]));
        for (std::size_t i = 0; i < k_parameters; ++i) sums[i] += there[i];
        need(runtime.put_with_signal(nullptr, memory.of[worker].at(0), 0,
                                     {memory.word_of(worker, applied), 1, hixl::SignalOp::add}));
      }
    }
  }
  for (std::size_t i = 0; i < k_parameters; ++i) {
    for (hixl::Rank worker = 1; worker < runtime.world_size(); ++worker) {
      for (std::uint64_t step = 1; step <= k_steps; ++step) sums[i] -= gradient(worker, step, i);
    }
    if (sums[i] != 0) return false;
  }
  std::printf("%llu gradients applied, every sum is right\n", static_cast<unsigned long long>(all));
  return true;
}

}  // namespace

int main() {
  auto runtime = start(2);
  const Shared memory(*runtime, place(*runtime, runtime->world_size(), 0) * 8);
  bool right = true;
  if (runtime->rank() == 0) {
    right = serve(*runtime, memory);
  } else {
    work(*runtime, memory);
  }
  need(runtime->barrier());
  return right ? 0 : 1;
}
