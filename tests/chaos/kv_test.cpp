// SPDX-License-Identifier: Apache-2.0
//
// KV over links that fail in one direction: a step at a gate is executed, and nobody hears of it.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include <hixl/kv/data_dist.hpp>

#include "pair.hpp"

using namespace hixl;
using namespace hixl::kv;
using namespace hixl::test;

namespace {

constexpr CacheDesc k_desc{.key = {.model = 1, .name = 1},
                           .layout = {.layers = 2, .kv_heads = 2, .head_dim = 8, .block_tokens = 4},
                           .blocks = 8,
                           .shard = {}};

/// Rank 1 hears rank 0 and is not heard, nor can they connect anew.
void silence(Pair& pair) {
  for (const std::size_t rank : {0U, 1U}) pair.door(rank).close_door(true);
  pair.door(1).strike({.kind = Fate::Kind::stall, .way = Way::back, .after = 0});
  pair.door(0).strike({.kind = Fate::Kind::stall, .way = Way::there, .after = 0});
}

/// What a rank keeps for others to step at: its directory, which is its largest region here.
std::vector<std::uint64_t> directory_of(Runtime& rank) {
  const auto dump = rank.dump_regions();
  require_ok(dump);
  const auto larger = [](const OwnRegion& a, const OwnRegion& b) { return a.region.size < b.region.size; };
  const Region& largest = std::max_element(dump->own.begin(), dump->own.end(), larger)->region;
  std::vector<std::uint64_t> words(largest.size / sizeof(std::uint64_t));
  auto* const at = reinterpret_cast<std::uint64_t*>(largest.data);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = std::atomic_ref<std::uint64_t>(at[i]).load();
  return words;
}

}  // namespace

TEST_CASE("a step at a gate whose answer is lost with the session counts nobody when the next one stands") {
  Pair pair(1 << 16, {.lease = std::chrono::seconds(1)});
  auto one = DataDist::open(pair[0]);
  auto two = DataDist::open(pair[1]);
  require_ok(one);
  require_ok(two);
  DataDist& user = **one;
  DataDist& owner = **two;
  const Rank first = 0;
  const Rank second = 1;
  std::thread other([&] { require_ok(owner.link({&first, 1}, k_patience).front()); });
  require_ok(user.link({&second, 1}, k_patience).front());
  other.join();
  const TensorPlace here{.region = pair.region(0)};
  const TensorPlace there{.region = pair.region(1)};
  const auto from = user.register_cache(k_desc, {&here, 1}, k_patience);
  const auto to = owner.register_cache(k_desc, {&there, 1}, k_patience);
  require_ok(from);
  require_ok(to);
  const auto seen = user.find(1, k_desc.key, k_patience);
  require_ok(seen);
  const std::vector<std::uint32_t> blocks{1, 5};
  Slice slice;
  slice.source = slice.target = blocks;

  const auto before = directory_of(pair[1]);
  silence(pair);
  const auto lost = user.push(*from, *seen, slice, {.timeout = k_patience});
  require_ok(lost);
  CHECK(eventually([&] { return directory_of(pair[1]) != before; }));  // it is counted there
  CHECK(code_of(lost->wait(k_patience)) == ErrorCode::peer_lost);
  for (const std::size_t rank : {0U, 1U}) pair.door(rank).close_door(false);
  pair.heal();
  CHECK(eventually([&] { return user.find(1, k_desc.key).has_value(); }));
  CHECK(eventually([&] { return owner.link_state(0) == LinkState::linked; }));  // else nobody could be inside
  require_ok(user.push(*from, *seen, slice)->wait(k_patience));
  // Nobody is inside.
  CHECK(code_of(owner.unregister_cache(*to, k_patience)) == ErrorCode::ok);
  std::thread closing([&] { CHECK(owner.close(k_patience)); });
  CHECK(user.close(k_patience));
  closing.join();
}
