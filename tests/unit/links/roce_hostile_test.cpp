// SPDX-License-Identifier: Apache-2.0
//
// The RDMA link and a peer that lies: every lie ends the link with a reason, and never this process.
#include <doctest/doctest.h>

#include <functional>

#include "roce_liar.hpp"

using namespace hixl;
using namespace hixl::roce_test;
using wire::FrameType;

namespace {

/// One of the same network that nobody has.
wire::RoceGid address_of_nobody(const wire::RoceGid& gid) {
  ibv_gid raw = links::roce::verbs_gid(gid);
  raw.raw[15] ^= 0x40;
  return links::roce::wire_gid(raw);
}

wire::RoceGid of_another_family() {
  ibv_gid raw{};
  raw.raw[0] = 0xfd;
  raw.raw[15] = 1;
  return links::roce::wire_gid(raw);
}

}  // namespace

TEST_CASE("roce set-up: an honest peer, for comparison") {
  for (const bool dialled : {false, true}) {
    Attack attack(dialled);
    attack.set_up();
    CHECK(attack.victim.record.down == 0);
  }
}

TEST_CASE("roce set-up: offers that are none") {
  using Spoil = std::function<void(wire::RoceOffer&)>;
  const Spoil spoils[] = {
      [](auto& offer) { offer.queue_pair = 0; },
      [](auto& offer) { offer.queue_pair = 1; },
      [](auto& offer) { offer.queue_pair = 1U << 24U; },
      [](auto& offer) { offer.queue_pair = ~0U; },
      [](auto& offer) { offer.packet_number = 1U << 24U; },
      [](auto& offer) { offer.packet_number = ~0U; },
      [](auto& offer) { offer.mtu = 0; },
      [](auto& offer) { offer.mtu = 6; },
      [](auto& offer) { offer.mtu = 255; },
      [](auto& offer) { offer.chosen = wire::k_roce_gids_max; },
      [](auto& offer) { offer.page_address = 0; },
      [](auto& offer) { offer.page_address += 4; },
      [](auto& offer) { offer.gids.clear(); },
      [](auto& offer) { offer.gids = {wire::RoceGid{}}; },
  };
  for (const bool dialled : {false, true}) {
    for (const Spoil& spoil : spoils) {
      CAPTURE(dialled);
      CAPTURE(&spoil - spoils);
      Attack attack(dialled);
      wire::RoceOffer offer = attack.liar->honest();
      spoil(offer);
      attack.answer(offer);
      CHECK(attack.end() == ErrorCode::malformed_frame);
      CHECK(attack.victim.record.up == 0);
    }
  }
}

TEST_CASE("roce set-up: offers that could be, of somebody who is not there") {
  using Spoil = std::function<void(wire::RoceOffer&)>;
  struct Row {
    const char* what;
    Spoil spoil;
    ErrorCode accepted;
    ErrorCode dialled;
  };
  constexpr ErrorCode k_none = ErrorCode::transport_unavailable;
  const Row rows[] = {
      {"a queue pair of nobody", [](auto& offer) { offer.queue_pair = 0xfffffe; }, k_none, k_none},
      {"an address of nobody", [](auto& offer) { offer.gids = {address_of_nobody(offer.gids[0])}; }, k_none, k_none},
      {"an address of another family", [](auto& offer) { offer.gids = {of_another_family()}; }, ErrorCode::no_route,
       k_none},
      {"a key of nothing", [](auto& offer) { offer.page_key ^= 0x5555; }, k_none, k_none},
      {"a page that is nowhere", [](auto& offer) { offer.page_address = ~std::uint64_t{7}; }, k_none, k_none},
      {"a page without the challenge", [](auto& offer) { offer.challenge += 1; }, ErrorCode::access_denied,
       ErrorCode::access_denied},
  };
  for (const bool dialled : {false, true}) {
    for (const Row& row : rows) {
      CAPTURE(dialled);
      CAPTURE(row.what);
      Attack attack(dialled);
      wire::RoceOffer offer = attack.liar->honest();
      row.spoil(offer);
      attack.answer(offer);
      CHECK(attack.end() == (dialled ? row.dialled : row.accepted));
      CHECK(attack.victim.record.up == 0);
    }
  }
}

TEST_CASE(
    "roce set-up: reads that nobody answers at once, and packets of any size, are brought to what this side has") {
  for (const std::uint8_t reads : {0, 255}) {
    for (const std::uint8_t mtu : {1, 5}) {
      Attack attack(true);
      wire::RoceOffer offer = attack.liar->honest();
      offer.reads_in = offer.reads_out = reads;
      offer.mtu = mtu;
      attack.answer(offer);
      // Of the same connection the liar sees packets of another size than the victim, which is its own business.
      REQUIRE(attack.until([&] { return attack.liar->ready.has_value() || attack.victim.record.down == 1; }));
    }
  }
}

TEST_CASE("roce set-up: frames that are cut, or too long") {
  for (const bool dialled : {false, true}) {
    const std::size_t whole = Liar::bytes_of(Attack(dialled).liar->honest()).size();
    for (std::size_t bytes = 0; bytes <= whole + 1; ++bytes) {
      if (bytes == whole) continue;
      CAPTURE(dialled);
      CAPTURE(bytes);
      Attack attack(dialled);
      std::vector<std::byte> body = Liar::bytes_of(attack.liar->honest());
      body.resize(bytes);
      attack.liar->say_bytes(FrameType::roce_offer, body);
      CHECK(attack.end() == ErrorCode::malformed_frame);
    }
  }
}

TEST_CASE("roce set-up: frames out of turn") {
  for (const bool dialled : {false, true}) {
    CAPTURE(dialled);
    Attack attack(dialled);
    Liar& liar = *attack.liar;
    ErrorCode expected = ErrorCode::malformed_frame;
    SUBCASE("ready before any offer") { liar.say(FrameType::roce_ready, wire::RoceReady{}); }
    SUBCASE("two offers") {
      liar.say(FrameType::roce_offer, liar.honest());
      liar.say(FrameType::roce_offer, liar.honest());
    }
    SUBCASE("ready twice") {
      attack.answer(liar.honest());
      if (dialled) {
        REQUIRE(attack.until([&] { return liar.ready.has_value(); }));
        liar.say(FrameType::roce_ready, wire::RoceReady{});
      }
      liar.say(FrameType::roce_ready, wire::RoceReady{});
    }
    SUBCASE("a refusal of no known kind") {
      const std::array<std::byte, 6> body{std::byte{0xff}, std::byte{0xff}};
      liar.say_bytes(FrameType::roce_ready, body);
    }
    SUBCASE("a refusal") {
      liar.say(FrameType::roce_ready, wire::RoceReady{.code = static_cast<std::uint16_t>(ErrorCode::memlock_limit)});
      expected = ErrorCode::memlock_limit;
    }
    SUBCASE("a question for a key") { liar.say(FrameType::roce_ask, wire::RoceAsk{.key = {1, 1}}); }
    SUBCASE("a key") { liar.say(FrameType::roce_key, wire::RoceKey{.key = {1, 1}}); }
    SUBCASE("what is for others") { liar.say(FrameType::barrier, wire::Barrier{}); }
    CHECK(attack.end() == expected);
    CHECK(attack.victim.record.control.empty());
  }
}

TEST_CASE("roce set-up: an answer chooses one address, of those that were offered") {
  Attack attack(true);
  wire::RoceOffer offer = attack.liar->honest();
  SUBCASE("another one") { offer.chosen = static_cast<std::uint8_t>(attack.liar->offer->gids.size()); }
  SUBCASE("two of its own") { offer.gids.push_back(offer.gids[0]); }
  attack.answer(offer);
  CHECK(attack.end() == ErrorCode::malformed_frame);
}

TEST_CASE("roce: lies after set-up") {
  Attack attack(false);
  attack.set_up();
  Liar& liar = *attack.liar;
  std::vector<std::byte> memory(4096);
  const memory::RegionInfo info = attack.victim.add(memory);
  SUBCASE("another set-up") { liar.say(FrameType::roce_offer, liar.honest()); }
  SUBCASE("ready again") { liar.say(FrameType::roce_ready, wire::RoceReady{}); }
  SUBCASE("a key that nobody asked for") { liar.say(FrameType::roce_key, wire::RoceKey{.key = {1, 1}}); }
  SUBCASE("wants back what it never gave") { liar.say(FrameType::roce_drop, wire::RoceDrop{{1, 1}}); }
  SUBCASE("gives back what nobody wants") {
    liar.say(FrameType::roce_ask, wire::RoceAsk{info.key, info.token});
    REQUIRE(attack.until([&] { return !liar.keys.empty(); }));
    CHECK(liar.keys[0].code == 0);
    liar.say(FrameType::roce_dropped, wire::RoceDrop{info.key});
  }
  SUBCASE("acknowledges what was never sent") { liar.say(FrameType::ack, wire::Ack{1001}); }
  SUBCASE("refuses what was never posted") { liar.say(FrameType::nack, wire::Nack{.seq = 1}); }
  SUBCASE("answers what was never asked") { liar.say(FrameType::atomic_result, wire::AtomicResult{.seq = 1}); }
  SUBCASE("a write, which does not come this way") { liar.say(FrameType::write, wire::Ack{}); }
  CHECK(attack.end() == ErrorCode::malformed_frame);
  CHECK(attack.victim.record.control.empty());
}

TEST_CASE("roce: keys are given for the right token only, and of what is there") {
  Attack attack(false);
  attack.set_up();
  Liar& liar = *attack.liar;
  std::vector<std::byte> memory(4096);
  const memory::RegionInfo info = attack.victim.add(memory);
  const auto answer = [&](RegionKey key, Token token) {
    const std::size_t before = liar.keys.size();
    liar.say(FrameType::roce_ask, wire::RoceAsk{key, token});
    REQUIRE(attack.until([&] { return liar.keys.size() > before; }));
    return static_cast<ErrorCode>(liar.keys.back().code);
  };
  CHECK(answer(info.key, {info.token.high, info.token.low + 1}) == ErrorCode::access_denied);
  CHECK(answer({info.key.id, info.key.generation + 1}, info.token) == ErrorCode::stale);
  CHECK(answer({info.key.id + 1, 1}, info.token) == ErrorCode::stale);
  CHECK(answer({~0U, 1}, info.token) == ErrorCode::stale);
  CHECK(answer(info.key, info.token) == ErrorCode::ok);
  CHECK(liar.keys.back().address == reinterpret_cast<std::uint64_t>(memory.data()));
  CHECK(attack.victim.record.down == 0);
}
