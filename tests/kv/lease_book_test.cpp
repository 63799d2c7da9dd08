// SPDX-License-Identifier: Apache-2.0
//
// When leases end, with time and holders made up; and the word by which a holder says that it is inside.
#include <map>

#include <doctest/doctest.h>

#include "lease_book.hpp"

using namespace hixl;
using namespace hixl::kv;

namespace {

struct Office {
  explicit Office(std::uint32_t slots = 8) : book({.slots = slots, .after = 0}) {}
  LeaseId open(std::uint32_t gate, int ms) {
    LeaseEntry entry;
    entry.gate = gate;
    entry.deadline = at(ms);
    entry.blocks = {gate, gate + 100};
    LeaseEntry* const opened = book.open(std::move(entry));
    if (opened == nullptr) return {};
    words[gate] = gate::opened(static_cast<std::uint32_t>(opened->id.generation), gate::k_allowed_mask);
    return opened->id;
  }
  static Instant at(int ms) { return Instant{} + std::chrono::milliseconds(ms); }
  std::vector<LeaseEntry> step(int ms) { return step(book.begin_look(at(ms))); }
  std::vector<LeaseEntry> step(const LeaseLook& look) {
    return book.step(
        look,
        [&](const LeaseEntry& entry) {
          return HolderLook{.gate = words[entry.gate], .released = released[entry.gate], .alive = !dead[entry.gate]};
        },
        [&](const LeaseEntry& entry) { words[entry.gate] |= gate::k_closing; });
  }
  LeaseBook book;
  std::map<std::uint32_t, std::uint64_t> words;
  std::map<std::uint32_t, bool> released;
  std::map<std::uint32_t, bool> dead;
};

}  // namespace

TEST_CASE("P51 a lease ends by time, by its holder's word, and by its holder's death") {
  Office office;
  const LeaseId timed = office.open(0, 100);
  const LeaseId given = office.open(1, 1000);
  const LeaseId dead = office.open(2, 1000);
  CHECK(office.book.due() == Office::at(100));
  CHECK(office.step(99).empty());
  office.released[1] = true;
  auto ended = office.step(99);
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].id == given);
  CHECK(ended[0].end == LeaseEnd::released);
  CHECK(ended[0].blocks == std::vector<std::uint32_t>{1, 101});
  ended = office.step(100);
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].id == timed);
  CHECK(ended[0].end == LeaseEnd::expired);
  CHECK(office.book.find(timed) == nullptr);
  office.words[2] += gate::one(Access::push);  // it died inside
  office.dead[2] = true;
  CHECK(office.step(101).empty());
  ended = office.step(102);  // asked for after the gate had been shut
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].id == dead);
  CHECK(ended[0].end == LeaseEnd::peer_lost);
  CHECK(office.book.size() == 0);
  CHECK_FALSE(office.book.due());
}

TEST_CASE("a lease in which somebody still is has not ended, whatever the time; the first reason stays") {
  for (const Access access : {Access::pull, Access::push}) {
    Office office;
    const LeaseId id = office.open(0, 100);
    office.words[0] += gate::one(access);
    CHECK(office.step(5'000).empty());
    REQUIRE(office.book.find(id) != nullptr);
    CHECK(office.book.find(id)->state == LeaseState::ending);
    CHECK((office.words[0] & gate::k_closing) != 0);
    office.released[0] = true;
    CHECK(office.step(6'000).empty());
    office.words[0] -= gate::one(access);
    const auto ended = office.step(7'000);
    REQUIRE(ended.size() == 1);
    CHECK(ended[0].end == LeaseEnd::expired);
  }
}

TEST_CASE("a death that was asked for before the gate was shut, or the lease granted, says nothing of who came since") {
  Office office;
  const LeaseId old = office.open(0, 100);
  LeaseLook look = office.book.begin_look(Office::at(1));
  office.dead[0] = true;
  // The session was lost when that was asked for, and stands again: its holder comes in, and the owner takes it back.
  office.words[0] += gate::one(Access::push);
  office.book.begin_end(*office.book.find(old), LeaseEnd::taken_back,
                        [&](const LeaseEntry& entry) { office.words[entry.gate] |= gate::k_closing; });
  CHECK(office.step(look).empty());
  REQUIRE(office.book.find(old) != nullptr);
  office.dead[0] = false;
  CHECK(office.step(2).empty());
  office.dead[0] = true;
  REQUIRE(office.step(3).size() == 1);
  look = office.book.begin_look(Office::at(4));
  const LeaseId fresh = office.open(0, 100);
  CHECK(office.step(look).empty());
  CHECK(office.book.find(fresh)->state == LeaseState::open);
  CHECK(office.step(5).size() == 1);
}

TEST_CASE("numbers of leases are not used twice, and there are no more than slots") {
  Office office(2);
  const LeaseId first = office.open(0, 10);
  CHECK(office.open(1, 1000).generation != 0);
  CHECK(office.open(2, 1000).generation == 0);
  CHECK(office.step(10).size() == 1);
  const LeaseId again = office.open(0, 1000);
  CHECK(again.slot == first.slot);
  CHECK(again.generation != first.generation);
  CHECK(office.book.find(first) == nullptr);
  CHECK(office.book.find({}) == nullptr);
  CHECK(office.book.find({.slot = 77, .generation = 1}) == nullptr);
}

TEST_CASE("the gate's word: counts of both kinds apart, generation, rights and closing") {
  const std::uint64_t word = gate::opened(0x123456, gate::allowed(Access::pull));
  CHECK(gate::generation(word) == 0x123456);
  CHECK(gate::ask(word, 0x123456, Access::pull) == gate::Answer::admitted);
  CHECK(gate::ask(word, 0x123456, Access::push) == gate::Answer::not_allowed);
  CHECK(gate::ask(word, 0x123457, Access::pull) == gate::Answer::over);
  CHECK(gate::ask(word | gate::k_closing, 0x123456, Access::pull) == gate::Answer::over);
  std::uint64_t used = word + 3 * gate::one(Access::pull) + 5 * gate::one(Access::push);
  CHECK(gate::users(used, Access::pull) == 3);
  CHECK(gate::users(used, Access::push) == 5);
  CHECK(gate::in_use(used));
  CHECK(gate::generation(used) == 0x123456);
  used += std::uint64_t{0} - gate::one(Access::push) * 5;
  used += std::uint64_t{0} - gate::one(Access::pull) * 3;
  CHECK(used == word);
  CHECK(gate::ask(word + gate::k_count_mask / 2, 0x123456, Access::pull) == gate::Answer::full);
}
