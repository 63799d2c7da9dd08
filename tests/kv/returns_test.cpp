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
  std::vector<Return> step() {
    return book.step([this](const GateThere& gate) { return looks.at(gate.at.rank); });
  }
};

}  // namespace

TEST_CASE("a gate is left once its rank is reached, with what was to be done there; others stay") {
  Book at;
  at.book.add(gate_at(1), true);
  at.book.add(gate_at(2), false);
  at.looks = {{1, RankLook::away}, {2, RankLook::away}};
  CHECK(at.step().empty());
  CHECK(at.step().empty());  // a life may be away for long
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

TEST_CASE("of a DataDist that was made anew nothing is left") {
  Book at;
  at.looks = {{1, RankLook::away}, {2, RankLook::away}};
  at.book.add(gate_at(1), false);
  at.book.add(gate_at(2), false);
  at.book.forget(gate_at(1).at);
  CHECK_FALSE(at.book.any([](const Return& row) { return row.gate.at.rank == 1; }));
  CHECK(at.book.any([](const Return& row) { return row.gate.at.rank == 2; }));
}
