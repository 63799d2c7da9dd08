// SPDX-License-Identifier: Apache-2.0
//
// A prefill that pushes each request's KV to the decode with the least to do. Every decode counts what it has finished
// in a word at the prefill, so the prefill knows all loads without asking anybody. Of several decodes the first stands
// still for a while: it gets no more than it has places for, and holds nobody up.
//   hixl_run -n 4 load_aware
#include <algorithm>
#include <array>
#include <atomic>

#include "ranks.hpp"

namespace {

constexpr std::size_t k_block_words = 16 * 1024;
constexpr std::uint64_t k_requests = 60, k_places = 4;  // places a decode has
constexpr std::uint64_t k_still = 40;                   // as many are pushed while the first decode stands still
constexpr hixl::Rank k_ranks_max = 64;

// Words: whether to go on (at a decode); requests finished by each decode (at the prefill); the request in each place
// (at a decode); then the places.
constexpr std::size_t k_go_on = 0;
std::size_t finished(hixl::Rank decode) { return decode; }
std::size_t come(std::uint64_t n) { return k_ranks_max + n % k_places; }
std::size_t place(std::uint64_t n) { return k_ranks_max + k_places + n % k_places * k_block_words; }
std::uint64_t kv(std::uint64_t request, std::size_t i) { return request * 1'000'000 + i; }

void prefill(hixl::Runtime& runtime, const Shared& memory) {
  const hixl::Region blocks = need(runtime.allocate(k_requests * k_block_words * 8));
  std::vector<std::uint64_t> sent(runtime.world_size());
  std::vector<hixl::Request> puts;
  const auto load = [&](hixl::Rank decode) {
    return sent[decode] - std::atomic_ref(*memory.word(finished(decode))).load();
  };
  for (std::uint64_t request = 1; request <= k_requests; ++request) {
    auto* const block = reinterpret_cast<std::uint64_t*>(blocks.data) + (request - 1) * k_block_words;
    for (std::size_t i = 0; i < k_block_words; ++i) block[i] = kv(request, i);
    hixl::Rank to = 1;
    for (hixl::Rank decode = 2; decode < runtime.world_size(); ++decode) to = load(decode) <= load(to) ? decode : to;
    if (load(to) == k_places) {  // all are full: the next place that becomes free will be there
      need(runtime.wait_signal(memory.word(finished(to)), hixl::Compare::greater_equal, sent[to] - k_places + 1));
    }
    puts.push_back(need(runtime.put_with_signal(block, memory.word_of(to, place(sent[to])), k_block_words * 8,
                                                {memory.word_of(to, come(sent[to])), request})));
    sent[to] += 1;
    if (request != k_still) continue;
    need(need(runtime.put_with_signal(nullptr, memory.of[1].at(0), 0, {memory.word_of(1, k_go_on)})).wait());
  }
  need(hixl::wait_all(puts));
  for (hixl::Rank decode = 1; decode < runtime.world_size(); ++decode) {  // the end is a request without a number
    need(runtime.wait_signal(memory.word(finished(decode)), hixl::Compare::equal, sent[decode]));
    need(need(runtime.put_with_signal(nullptr, memory.of[decode].at(0), 0,
                                      {memory.word_of(decode, come(sent[decode])), ~std::uint64_t{0}}))
             .wait());
  }
  std::printf("%llu requests pushed\n", static_cast<unsigned long long>(k_requests));
}

bool decode(hixl::Runtime& runtime, const Shared& memory) {
  if (runtime.rank() == 1 && runtime.world_size() > 2) {
    need(runtime.wait_signal(memory.word(k_go_on), hixl::Compare::equal, 1));
  }
  for (std::uint64_t n = 0;; ++n) {
    const std::uint64_t request = need(runtime.wait_signal(memory.word(come(n)), hixl::Compare::not_equal, 0));
    if (request == ~std::uint64_t{0}) return true;
    std::atomic_ref(*memory.word(come(n))).store(0);
    for (std::size_t i = 0; i < k_block_words; ++i) {
      if (memory.word(place(n))[i] != kv(request, i)) return false;
    }
    need(runtime.put_with_signal(nullptr, memory.of[0].at(0), 0,
                                 {memory.word_of(0, finished(runtime.rank())), 1, hixl::SignalOp::add}));
  }
}

}  // namespace

int main() {
  auto runtime = start(2, k_ranks_max);
  const Shared memory(*runtime, (place(0) + k_places * k_block_words) * 8);
  bool right = true;
  if (runtime->rank() == 0) {
    prefill(*runtime, memory);
  } else {
    right = decode(*runtime, memory);
    std::printf("decode %u: %s\n", runtime->rank(), right ? "all right" : "WRONG");
  }
  need(runtime->barrier());
  return right ? 0 : 1;
}
