// SPDX-License-Identifier: Apache-2.0
//
// A counter, a lock and a barrier, all from atomics on words of rank 0. The lock is a queue: who comes later sleeps on
// a word of its own until the one before hands over; nobody asks again and again over the network. It knows no rank
// that dies while it holds the lock: then the others end with an error by their deadline.
//   hixl_run -n 4 locks
#include <atomic>

#include "ranks.hpp"

namespace {

enum Word : std::size_t { counter, tail, guarded, arrived, next, turn, left, scratch };  // the first four are rank 0's

class Lock {
 public:
  Lock(hixl::Runtime& runtime, const Shared& memory) : runtime_(runtime), memory_(memory) {}
  void lock() {
    const std::uint64_t before = need(runtime_.swap_sync(memory_.word_of(0, tail), runtime_.rank() + 1));
    if (before == 0) return;
    tell(static_cast<hixl::Rank>(before - 1), next, runtime_.rank() + 1);
    need(runtime_.wait_signal(memory_.word(turn), hixl::Compare::equal, 1));
    std::atomic_ref(*memory_.word(turn)).store(0);
  }
  void unlock() {
    const std::uint64_t self = runtime_.rank() + 1;
    if (need(runtime_.compare_swap_sync(memory_.word_of(0, tail), self, 0)) == self) return;  // nobody behind
    const std::uint64_t behind = need(runtime_.wait_signal(memory_.word(next), hixl::Compare::not_equal, 0));
    std::atomic_ref(*memory_.word(next)).store(0);
    tell(static_cast<hixl::Rank>(behind - 1), turn, 1);
  }

 private:
  /// Sets a word of another rank, which may sleep on it.
  void tell(hixl::Rank rank, Word word, std::uint64_t value) {
    need(need(runtime_.put_with_signal(nullptr, memory_.of[rank].at(0), 0, {memory_.word_of(rank, word), value}))
             .wait());
  }
  hixl::Runtime& runtime_;
  const Shared& memory_;
};

/// The last to come lets all go.
void barrier(hixl::Runtime& runtime, const Shared& memory, std::uint64_t round) {
  const std::uint64_t all = runtime.world_size() * round;
  if (need(runtime.fetch_add_sync(memory.word_of(0, arrived), 1)) + 1 == all) {
    for (hixl::Rank rank = 0; rank < runtime.world_size(); ++rank) {
      need(
          need(runtime.put_with_signal(nullptr, memory.of[rank].at(0), 0, {memory.word_of(rank, left), round})).wait());
    }
  }
  need(runtime.wait_signal(memory.word(left), hixl::Compare::greater_equal, round));
}

}  // namespace

int main() {
  constexpr std::uint64_t k_counts = 500, k_turns = 500;
  auto runtime = start();
  const Shared memory(*runtime, 4096);
  for (std::uint64_t i = 0; i < k_counts; ++i) need(runtime->atomic_add_sync(memory.word_of(0, counter), 1));
  barrier(*runtime, memory, 1);

  Lock lock(*runtime, memory);
  for (std::uint64_t i = 0; i < k_turns; ++i) {
    lock.lock();
    std::uint64_t* const value = memory.word(scratch);  // read, add, write back: wrong without the lock
    need(runtime->get_sync(value, memory.word_of(0, guarded), sizeof *value));
    *value += 1;
    need(runtime->put_sync(value, memory.word_of(0, guarded), sizeof *value));
    lock.unlock();
  }
  for (std::uint64_t round = 2; round <= 10; ++round) barrier(*runtime, memory, round);

  const std::uint64_t ranks = runtime->world_size();
  const bool right =
      runtime->rank() != 0 || (*memory.word(counter) == ranks * k_counts && *memory.word(guarded) == ranks * k_turns);
  std::printf("rank %u: %s\n", runtime->rank(), right ? "counted, locked and met" : "WRONG");
  need(runtime->barrier());
  return right ? 0 : 1;
}
