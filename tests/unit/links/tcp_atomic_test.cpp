// SPDX-License-Identifier: Apache-2.0
//
// Atomics over a tcp link: their answers, their refusals, and peers that do not keep to the protocol.
#include <doctest/doctest.h>

#include "tcp_world.hpp"

using namespace hixl;
using namespace hixl::links;
using namespace hixl::test;
using wire::FrameType;

namespace {

struct AtomicWorld : TcpWorld {
  explicit AtomicWorld(bool second = true) : TcpWorld({.tx_depth = 8, .rx_depth = 4, .second = second}) {}
  Answer atomic(Verb verb, std::uint64_t cookie, std::uint64_t value, const AtomicTerms& terms,
                std::uint64_t offset = 0) {
    return post({.verb = verb,
                 .cookie = cookie,
                 .region = &region,
                 .segments = {{nullptr, offset, 8}},
                 .value = value,
                 .atomic = terms});
  }
  /// Posts and gives the value before.
  std::uint64_t run(Verb verb, std::uint64_t value, const AtomicTerms& terms) {
    REQUIRE(atomic(verb, 1, value, terms) == Answer::posted);
    REQUIRE(pair.settle());
    REQUIRE(owner().completions.size() == 1);
    const Completion done = owner().completions[0];
    owner().completions.clear();
    REQUIRE(done.error.code == ErrorCode::ok);
    return done.value;
  }
  [[nodiscard]] std::uint64_t word(std::size_t side = 1) {
    return memory::load_word(memory::host_device(), (side == 1 ? target : own).data());
  }
  [[nodiscard]] wire::AtomicBody body(AtomicSeq number, AtomicSeq acked) {
    return {.region = mine.key, .token = mine.token, .number = number, .acked_upto = acked, .value = 1};
  }
  Guarded target{64};
  Guarded own{64};
  memory::RegionInfo region = sides[1].add(target.span());
  memory::RegionInfo mine = sides[0].add(own.span());
};

wire::FrameHeader numbered(FrameType type, LinkSeq seq) { return Stranger::header(type, seq); }

wire::Nack nack_of(const ByteVector& body) {
  wire::Nack nack;
  REQUIRE(wire::decode_body(ConstBytes(body), nack));
  return nack;
}

}  // namespace

TEST_CASE("F20 F21 F22: add, swap and compare-and-swap give the value before; sums wrap") {
  AtomicWorld w;
  CHECK(w.run(Verb::atomic_add, 5, {.number = 1}) == 0);
  CHECK(w.run(Verb::atomic_add, ~std::uint64_t{0}, {.number = 2, .acked_upto = 1}) == 5);
  CHECK(w.word() == 4);
  CHECK(w.run(Verb::atomic_compare_swap, 9, {.number = 3, .acked_upto = 2, .expected = 5}) == 4);
  CHECK(w.word() == 4);
  CHECK(w.run(Verb::atomic_compare_swap, 9, {.number = 4, .acked_upto = 3, .expected = 4}) == 4);
  CHECK(w.run(Verb::atomic_swap, 11, {.number = 5, .acked_upto = 4}) == 9);
  CHECK(w.word() == 11);
  CHECK(w.target.canaries_whole());
  CHECK(w.link(1).executed().contains(5));
}

TEST_CASE("the same number again is answered and not executed; only asking never executes") {
  AtomicWorld w;
  CHECK(w.run(Verb::atomic_add, 5, {.number = 1}) == 0);
  CHECK(w.run(Verb::atomic_add, 5, {.number = 1}) == 0);
  CHECK(w.run(Verb::atomic_add, 5, {.number = 1, .ask = true}) == 0);
  CHECK(w.word() == 5);
  CHECK(w.atomic(Verb::atomic_add, 2, 5, {.number = 2, .ask = true}) == Answer::posted);
  CHECK(w.only_code() == ErrorCode::cancelled);
  CHECK(w.atomic(Verb::atomic_add, 2, 5, {.number = 2}) == Answer::posted);  // "never" is kept
  CHECK(w.only_code() == ErrorCode::cancelled);
  CHECK(w.word() == 5);
}

TEST_CASE("beyond the window is BUSY, and the link is none the worse for it") {
  AtomicWorld w;  // a window of 4
  CHECK(w.atomic(Verb::atomic_add, 1, 1, {.number = 5}) == Answer::posted);
  CHECK(w.only_code() == ErrorCode::busy);
  CHECK(w.run(Verb::atomic_add, 1, {.number = 5, .acked_upto = 1}) == 0);
  CHECK_FALSE(w.owner().down);
}

TEST_CASE("each refusal of a peer's atomic names its reason and executes nothing") {
  AtomicWorld w(false);
  Stranger stranger(w);
  struct Row {
    wire::AtomicBody body;
    ErrorCode code;
  };
  std::vector<Row> rows(6, {w.body(1, 0), ErrorCode::ok});
  rows[0].body.offset = 4, rows[0].code = ErrorCode::unaligned;
  rows[1].body.offset = 57, rows[1].code = ErrorCode::out_of_range;
  rows[2].body.offset = ~std::uint64_t{0} - 7, rows[2].code = ErrorCode::out_of_range;
  rows[3].body.token.low ^= 1, rows[3].code = ErrorCode::access_denied;
  rows[4].body.region.id += 7, rows[4].code = ErrorCode::stale;
  rows[5].body.number = 5, rows[5].code = ErrorCode::busy;  // beyond the window of 4
  LinkSeq seq = 0;
  for (const Row& row : rows) {
    stranger.send(numbered(FrameType::atomic, ++seq), row.body);
    REQUIRE(w.pair.settle());
    REQUIRE(stranger.headers.size() >= 2);
    const std::size_t at = stranger.headers.size() - 2;  // the last is the acknowledgement
    REQUIRE(stranger.headers[at].type == FrameType::nack);
    CHECK(nack_of(stranger.bodies[at]).seq == seq);
    CHECK(nack_of(stranger.bodies[at]).code == static_cast<std::uint16_t>(row.code));
    CHECK_FALSE(w.link().executed().contains(seq));
  }
  CHECK(w.own.all(std::byte{0}));
  CHECK_FALSE(w.owner().down);
}

TEST_CASE("a peer that replays an acknowledged number, or answers what was not asked, loses its link") {
  AtomicWorld w(false);
  Stranger stranger(w);
  SUBCASE("a number that was acknowledged") {
    stranger.send(numbered(FrameType::atomic, 1), w.body(1, 0));
    stranger.send(numbered(FrameType::atomic, 2), w.body(2, 1));
    stranger.send(numbered(FrameType::atomic, 3), w.body(1, 0));
    REQUIRE(w.pair.settle());
    CHECK(w.word(0) == 2);
  }
  SUBCASE("a result of nothing") { stranger.send(numbered(FrameType::atomic_result, 0), wire::AtomicResult{1, 7}); }
  SUBCASE("a result of a read") {
    REQUIRE(w.post({.verb = Verb::read, .cookie = 1, .region = &w.region, .segments = {{w.own.data(), 0, 8}}}) ==
            Answer::posted);
    stranger.send(numbered(FrameType::atomic_result, 0), wire::AtomicResult{1, 7});
  }
  SUBCASE("a numbered result") {
    REQUIRE(w.atomic(Verb::atomic_add, 1, 1, {.number = 1}) == Answer::posted);
    stranger.send(numbered(FrameType::atomic_result, 1), wire::AtomicResult{1, 7});
  }
  SUBCASE("an empty atomic") { stranger.send_raw(numbered(FrameType::atomic, 1), {}); }
  SUBCASE("an empty result") { stranger.send_raw(numbered(FrameType::atomic_result, 0), {}); }
  REQUIRE(w.pair.settle());
  REQUIRE(w.owner().down);
  CHECK(w.owner().down->code == ErrorCode::malformed_frame);
}

TEST_CASE("an acknowledgement does not end an atomic: its value has to come") {
  AtomicWorld w(false);
  Stranger stranger(w);
  REQUIRE(w.atomic(Verb::atomic_add, 1, 1, {.number = 1}) == Answer::posted);
  REQUIRE(w.pair.settle());
  stranger.send(numbered(FrameType::ack, 0), wire::Ack{1});
  REQUIRE(w.pair.settle());
  CHECK(w.owner().completions.empty());
  CHECK(w.link().sequence_of(1) == 1);
  stranger.send(numbered(FrameType::atomic_result, 0), wire::AtomicResult{1, 77});
  REQUIRE(w.pair.settle());
  REQUIRE(w.owner().completions.size() == 1);
  CHECK(w.owner().completions[0].value == 77);
}
