// SPDX-License-Identifier: Apache-2.0
//
// What is counted at gates of others: known steps need no question, doubtful ones are read and put right, and nothing
// is taken away that somebody has added.
#include <doctest/doctest.h>

#include "gate_book.hpp"

using namespace hixl;
using namespace hixl::kv;

namespace {

using End = GateBook::End;
constexpr End k_in{.inside = GateBook::k_entered};
constexpr End k_out{.inside = GateBook::k_left};
constexpr End k_unknown{.doubtful = true};
constexpr End k_out_perhaps{.inside = GateBook::k_left, .doubtful = true};

GateThere gate_at(std::uint64_t address, Access access = Access::pull) {
  GateThere gate;
  gate.at = {.rank = 1, .address = address, .region = {.id = 3, .generation = 1}, .incarnation = 7};
  gate.access = access;
  return gate;
}

void step(GateBook& book, const GateThere& gate, const End& how) {
  book.begin(gate);
  book.end(gate, how);
}

std::vector<GateBook::Question> ask(GateBook& book, RankLook look = RankLook::reached) {
  return book.ask([&](const GateThere&) { return look; });
}

}  // namespace

TEST_CASE("steps whose ends are known are no question, and leave nothing behind") {
  GateBook book;
  step(book, gate_at(8), k_in);
  step(book, gate_at(8), {});
  CHECK(book.size() == 1);
  CHECK(ask(book).empty());
  step(book, gate_at(8), k_out);
  CHECK(book.size() == 0);
  CHECK_FALSE(book.doubtful());
}

TEST_CASE("a step that may have been executed: too many are taken away, and only ours, and only these") {
  GateBook book;
  const GateThere pull = gate_at(8);
  const GateThere push = gate_at(8, Access::push);
  step(book, pull, k_in);
  step(book, push, k_unknown);
  step(book, pull, k_unknown);
  const auto asked = ask(book);
  REQUIRE(asked.size() == 1);
  CHECK(ask(book).empty());  // once at a time
  const std::uint64_t rest = gate::opened(9, gate::k_allowed_mask) | gate::k_closing;
  const std::uint64_t right = rest + gate::one(Access::pull);
  CHECK(book.heard(asked[0], right + gate::one(Access::pull) + gate::one(Access::push)) == right);
  book.settle(asked[0], true);
  CHECK_FALSE(book.doubtful());
  step(book, pull, k_out);
  CHECK(book.size() == 0);
}

TEST_CASE("a step out that may have been executed, and was: the word is right") {
  GateBook book;
  step(book, gate_at(8), k_in);
  step(book, gate_at(8), k_out_perhaps);
  const auto asked = ask(book);
  REQUIRE(asked.size() == 1);
  CHECK_FALSE(book.heard(asked[0], gate::opened(9, gate::k_allowed_mask)).has_value());
  CHECK(book.size() == 0);
}

TEST_CASE("steps that are under way, or were taken meanwhile: it is asked again") {
  GateBook book;
  const GateThere gate = gate_at(8);
  step(book, gate, k_unknown);
  book.begin(gate);
  CHECK(ask(book).empty());
  book.end(gate, k_in);
  auto asked = ask(book);
  REQUIRE(asked.size() == 1);
  step(book, gate, k_in);
  CHECK_FALSE(book.heard(asked[0], 3 * gate::one(Access::pull)).has_value());
  asked = ask(book);
  REQUIRE(asked.size() == 1);
  CHECK(book.heard(asked[0], 3 * gate::one(Access::pull)) == 2 * gate::one(Access::pull));
  book.settle(asked[0], false);  // the word had changed
  CHECK(ask(book).size() == 1);
}

TEST_CASE("a doubt that comes while a word is exchanged outlives the exchange") {
  GateBook book;
  const GateThere gate = gate_at(8);
  step(book, gate, k_unknown);
  const auto asked = ask(book);
  REQUIRE(asked.size() == 1);
  CHECK(book.heard(asked[0], gate::one(Access::pull)) == 0);
  step(book, gate, k_unknown);
  book.settle(asked[0], true);
  CHECK(book.doubtful());
  CHECK(book.any_doubtful([](const GateThere& at) { return at.at.address == 8; }));
  CHECK_FALSE(book.any_doubtful([](const GateThere& at) { return at.at.address == 16; }));
  CHECK(ask(book).size() == 1);
}

TEST_CASE("what cannot be reached waits, and what is over is forgotten") {
  GateBook book;
  step(book, gate_at(8), k_unknown);
  step(book, gate_at(16), k_in);
  CHECK(ask(book, RankLook::away).empty());
  CHECK(book.doubtful());
  CHECK(ask(book, RankLook::over).empty());
  CHECK_FALSE(book.doubtful());
  CHECK(book.size() == 1);
  book.forget(gate_at(0).at);
  CHECK(book.size() == 0);
  book.end(gate_at(16), k_out);  // an end that comes late
}
