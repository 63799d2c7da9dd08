// SPDX-License-Identifier: Apache-2.0
//
// Two tcp links of one peer, each through a fault proxy of its own: one stands still, breaks or falsifies under
// operations that both carry, and the other takes over. What the first still had on its way comes when everything is
// over, and goes nowhere.
#include <numeric>
#include <set>
#include <thread>

#include <doctest/doctest.h>

#include "oracle.hpp"
#include "pair.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k_bytes = 16U << 20U;

struct TwoLinks : Pair {
  explicit TwoLinks(const PairOptions& options = {.links = 2}) : Pair(k_bytes, options) {
    REQUIRE(meet().empty());
    REQUIRE(eventually([&] { return stands(); }));
    for (std::size_t rank = 0; rank < 2; ++rank) fill_block(region(rank).data, k_bytes, rank + 1);
  }
  void require_still(std::size_t rank, std::uint64_t transfer) {
    const std::string fault = fault_of(region(rank).data, k_bytes, transfer);
    REQUIRE_MESSAGE(fault.empty(), "a byte moved after the end of its operation; " << fault);
  }
};

}  // namespace

TEST_CASE("S1 P16 a batch of sixteen over two links, one of which stands still: it ends well, and no late byte lands") {
  for (const std::size_t silent : {0U, 1U}) {
    for (const bool get : {false, true}) {
      CAPTURE(silent);
      CAPTURE(get);
      TwoLinks pair;
      pair.strike(Fate::Kind::stall, 1'000'000, silent);
      std::vector<BatchEntry> entries;
      constexpr std::size_t k_entry = k_bytes / 16;
      for (std::size_t i = 0; i < 16; ++i) {
        entries.push_back({.verb = get ? TransferVerb::get : TransferVerb::put,
                           .local = pair.region(0).data + i * k_entry,
                           .remote = pair.seen_by(0).at(i * k_entry),
                           .size = k_entry});
      }
      require_ok(pair[0].batch_sync(entries, k_patience));
      static_cast<void>(pair[1].counters());
      const std::size_t changed = get ? 0 : 1;
      pair.require_still(changed, get ? 2 : 1);
      fill_block(pair.region(changed).data, k_bytes, 3);
      pair.heal(silent);
      // The links talk until both stand again, with whatever was held up delivered or thrown away.
      REQUIRE(eventually([&] { return pair.stands(); }));
      pair.require_still(changed, 3);
      CHECK(pair[0].counters().failed == 0);
      CHECK(pair[0].counters().peers_lost == 0);
    }
  }
}

TEST_CASE("F21 S5 atomics over two links that break in turn: each is executed once, and each value comes once") {
  TwoLinks pair;
  std::memset(pair.region(1).data, 0, 8);
  std::multiset<std::uint64_t> values;
  constexpr std::size_t k_adds = 600;
  for (std::size_t i = 0; i < k_adds; ++i) {
    if (i % 100 == 50) {
      for (std::size_t rank = 0; rank < 2; ++rank) pair.door(rank, i / 100 % 2).cut();
    }
    std::vector<Request> open;
    for (; open.size() < 20; ++i) {
      auto add = pair[0].fetch_add(pair.seen_by(0).at(0), 1, {.timeout = k_patience});
      require_ok(add);
      open.push_back(*add);
    }
    i -= 1;
    for (Request& add : open) {
      require_ok(add.wait(k_patience));
      values.insert(*add.value());
    }
  }
  CHECK(values.size() == k_adds);
  std::uint64_t expected = 0;
  for (const std::uint64_t value : values) CHECK(value == expected++);
  std::uint64_t word = 0;
  std::memcpy(&word, pair.region(1).data, 8);
  CHECK(word == k_adds);
}

TEST_CASE("P11 H3 signals over two links of which one drips: no signal is seen before its data") {
  TwoLinks pair;
  pair.strike(Fate::Kind::drip, 500'000, 1);
  constexpr std::size_t k_put = 1U << 20U;
  for (std::uint64_t round = 1; round <= 12; ++round) {
    const std::size_t at = round % 8 * k_put;
    fill_block(pair.region(0).data + at, k_put, round);
    const RemoteAddress word = pair.seen_by(0).at(k_bytes - 8);
    auto put = pair[0].put_with_signal(pair.region(0).data + at, pair.seen_by(0).at(at), k_put,
                                       {.word = word, .value = round}, {.timeout = k_patience});
    require_ok(put);
    require_ok(pair[1].wait_signal(pair.region(1).data + k_bytes - 8, Compare::equal, round, k_patience));
    CHECK(fault_of(pair.region(1).data + at, k_put, round) == "");
    require_ok(put->wait(k_patience));
  }
}
