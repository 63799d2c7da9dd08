// SPDX-License-Identifier: Apache-2.0
//
// Three stages, each a rank: a micro-batch is worked on and put into the next stage's ring; the next stage gives places
// back as it goes. All three work at the same time, each on another micro-batch.
//   hixl_run -n 3 pipeline
#include "ranks.hpp"

namespace {

constexpr std::size_t k_batch_words = 32 * 1024;
constexpr std::uint64_t k_batches = 64, k_places = 4;

// Words: places given back by the next stage, the batch in each place; then the places.
enum Word : std::size_t { given_back, come };
std::size_t come_word(std::uint64_t batch) { return come + batch % k_places; }
std::size_t place(std::uint64_t batch) { return come + k_places + batch % k_places * k_batch_words; }
std::uint64_t input(std::uint64_t batch, std::size_t i) { return batch * 1000 + i; }
std::uint64_t stage(hixl::Rank rank, std::uint64_t value) { return value * (rank + 2) + rank; }

}  // namespace

int main() {
  auto runtime = start();
  const hixl::Rank me = runtime->rank(), last = runtime->world_size() - 1;
  const Shared memory(*runtime, place(0) * 8 + k_places * k_batch_words * 8);
  const hixl::Region out = need(runtime->allocate(k_places * k_batch_words * 8));
  std::vector<hixl::Request> puts(k_places);
  std::uint64_t right = 0;
  for (std::uint64_t batch = 0; batch < k_batches; ++batch) {
    auto* const result = reinterpret_cast<std::uint64_t*>(out.data) + batch % k_places * k_batch_words;
    if (me != last && batch >= k_places) {  // its place must be free there and here
      need(runtime->wait_signal(memory.word(given_back), hixl::Compare::greater_equal, batch + 1 - k_places));
      need(puts[batch % k_places].wait());
    }
    if (me != 0) need(runtime->wait_signal(memory.word(come_word(batch)), hixl::Compare::equal, batch + 1));
    bool all = true;
    for (std::size_t i = 0; i < k_batch_words; ++i) {
      result[i] = stage(me, me == 0 ? input(batch, i) : memory.word(place(batch))[i]);
      if (me != last) continue;
      std::uint64_t wanted = input(batch, i);
      for (hixl::Rank rank = 0; rank <= last; ++rank) wanted = stage(rank, wanted);
      all = all && result[i] == wanted;
    }
    right += all ? 1 : 0;
    if (me != 0) {
      need(runtime->put_with_signal(nullptr, memory.of[me - 1].at(0), 0,
                                    {memory.word_of(me - 1, given_back), 1, hixl::SignalOp::add}));
    }
    if (me != last) {
      puts[batch % k_places] =
          need(runtime->put_with_signal(result, memory.word_of(me + 1, place(batch)), k_batch_words * 8,
                                        {memory.word_of(me + 1, come_word(batch)), batch + 1}));
    }
  }
  if (me == last) {
    std::printf("%llu of %llu micro-batches went through %u stages and are right\n",
                static_cast<unsigned long long>(right), static_cast<unsigned long long>(k_batches), last + 1);
  }
  need(runtime->barrier());
  return right == k_batches ? 0 : 1;
}
