// SPDX-License-Identifier: Apache-2.0
//
// Gates that could not be left: kept as long as somebody may count us there, and not longer.
#include <doctest/doctest.h>

#include <map>

#include "returns.hpp"

using namespace hixl;
using namespace hixl::kv;

namespace {

GateThere gate_at(Rank rank) {
  GateThere gate;
  gate.at.rank = rank;
  return gate;
}

struct Book {
  ReturnBook book;
  std::map<Rank, RankLook> looks;
  Instant now{};

  std::vector<Return> step(std::chrono::milliseconds later = {}) {
    now += later;
    return book.step(now, [this](const GateThere& gate) { return looks.at(gate.at.rank); });
  }
};

}  // namespace

TEST_CASE("a gate is left once its rank is reached, with what was to be done there; others stay") {
  Book at;
  at.book.add(gate_at(1), true);
  at.book.add(gate_at(2), false);
  at.looks = {{1, RankLook::away}, {2, RankLook::away}};
  CHECK(at.step().empty());
  CHECK(at.step(std::chrono::hours(24)).empty());  // a life may be away for long
  at.looks[1] = RankLook::reached;
  const auto ready = at.step();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].gate.at.rank == 1);
  CHECK(ready[0].release);
  CHECK(at.book.any([](const Return& row) { return row.gate.at.rank == 2; }));
  at.looks[2] = RankLook::over;
  CHECK(at.step().empty());
  CHECK(at.book.empty());
}

TEST_CASE("a rank that stands and tells of no directory has closed it: after a while there is nothing to be left") {
  Book at;
  at.book.add(gate_at(1), false);
  at.looks[1] = RankLook::silent;
  CHECK(at.step().empty());
  CHECK(at.step(ReturnBook::k_silence_max - std::chrono::milliseconds(1)).empty());
  CHECK_FALSE(at.book.empty());
  // Only silence that lasts counts: in another session it begins anew.
  at.looks[1] = RankLook::away;
  CHECK(at.step(std::chrono::milliseconds(1)).empty());
  at.looks[1] = RankLook::silent;
  CHECK(at.step().empty());
  CHECK(at.step(ReturnBook::k_silence_max - std::chrono::milliseconds(1)).empty());
  CHECK_FALSE(at.book.empty());
  CHECK(at.step(std::chrono::milliseconds(1)).empty());
  CHECK(at.book.empty());
}
