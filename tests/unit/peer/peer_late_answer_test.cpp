// SPDX-License-Identifier: Apache-2.0
//
// Answers about a session that come when the session has begun, or has gone on, meanwhile. A rank that accepts a hello
// dials its other links at once, before the dialler has heard the welcome; on a path that is narrow one way the two
// hear of each other in any order.
#include "stranger.hpp"
#include "stranger_door.hpp"

using namespace hixl;
using namespace hixl::peer::test;

namespace {

constexpr Rank k_stranger = 1;
constexpr Incarnation k_life = 0x5151;

wire::Reject refusal(wire::RejectReason reason, SessionId session) {
  return {.reason = reason,
          .peer_id = {.high = 7, .low = k_stranger + 1U},
          .incarnation = k_life,
          .session = session,
          .link_gen = 0};
}

/// A rank with two links to a peer that the test plays, both ways.
struct TwoLinks {
  PeerWorld world{35, 1, false, 1, {.tcp_links = 2}};
  Stranger stranger{world, "stranger"};
  StrangerDoor door{world, "door"};
  Life& rank = world[0];
  const LinkId first = rank.services->links[0].id;
  const LinkId second = rank.services->links[1].id;

  [[nodiscard]] wire::Hello hello() const { return Stranger::hello_to(rank, k_stranger, k_life); }
  void tell_address() {
    rank.watchers.at(k_stranger)->on_address(door.endpoints(k_stranger, k_life));
    rank.wake();
  }
  /// The rank accepts our hello for its first link, and its own hello for the second one arrives here.
  StrangerDoor::Caller& joined() {
    stranger.say(rank, hello());
    REQUIRE(stranger.welcome);
    REQUIRE(stranger.welcome->session == 1);
    tell_address();
    StrangerDoor::Caller& caller = door.caller(0);
    CHECK(caller.hello->link_id == second);
    CHECK(caller.hello->join == 1);
    CHECK(caller.hello->session == 1);
    REQUIRE(rank.links_up(k_stranger) == 1);
    return caller;
  }
};

}  // namespace

TEST_CASE("S4 a late answer that a session is over does not end it while a link of it stands") {
  for (const wire::Reject& late : {refusal(wire::RejectReason::dead, 0), refusal(wire::RejectReason::old_session, 1),
                                   refusal(wire::RejectReason::old_session, 9)}) {
    CAPTURE(static_cast<int>(late.reason));
    CAPTURE(late.session);
    TwoLinks test;
    test.joined().answer(wire::FrameType::reject, late);
    // It has been read when the link is dialled again.
    const StrangerDoor::Caller& again = test.door.caller(1);
    CHECK(again.hello->link_id == test.second);
    CHECK(again.hello->session == 1);
    CHECK(test.rank.downs.empty());
    CHECK(test.rank.links_up(k_stranger) == 1);
    // And the session works: what comes over its first link is answered, and its second link joins it.
    test.stranger.send(
        wire::FrameType::fence_request,
        wire::FenceRequest{.link_id = test.second, .link_gen = again.hello->link_gen - 1, .reason = 0, .executed = {}});
    const auto answered = [&] {
      for (const wire::FrameHeader& frame : test.stranger.frames) {
        if (frame.type == wire::FrameType::fence_answer && frame.session == 1) return true;
      }
      return false;
    };
    CHECK(test.world.run(answered, seconds(1)));
    CHECK(test.rank.downs.empty());
  }
}

TEST_CASE("an answer that a session is over is believed when no link of it stands") {
  TwoLinks test;
  test.joined();
  test.stranger.hang_up();
  REQUIRE(test.world.run([&] { return test.rank.links_up(k_stranger) == 0; }));
  CHECK(test.rank.downs.empty());
  test.door.caller(0).answer(wire::FrameType::reject, refusal(wire::RejectReason::dead, 0));
  REQUIRE(test.world.run([&] { return !test.rank.downs.empty(); }, seconds(1)));
  CHECK(test.rank.downs == std::vector{ErrorCode::fenced});
}

TEST_CASE("who has a hello under way does not call a session dead that may be the answer to it") {
  TwoLinks test;
  test.joined();
  test.stranger.hang_up();
  // The rank gives the session up by its lease, and wants a new one.
  test.rank.to(k_stranger)
      .prewarm({.deadline = test.world.world.now() + seconds(60), .done = [](void*, const Result<void>&) {}});
  REQUIRE(test.world.run([&] { return !test.rank.downs.empty(); }, seconds(10)));
  CHECK(test.rank.downs == std::vector{ErrorCode::peer_lost});
  const std::size_t latest = test.door.callers();
  StrangerDoor::Caller* caller = &test.door.caller(latest, seconds(60));
  CHECK(caller->hello->join == 0);
  // We have accepted that, and dial our second link before our welcome has got there.
  const SessionId session = caller->hello->session + 1;
  wire::Hello join = test.hello();
  join.link_id = test.second;
  join.link_gen = 100;
  join.join = 1;
  join.session = session;
  test.stranger.say(test.rank, join);
  REQUIRE(test.stranger.reject);
  CHECK(test.stranger.reject->reason == wire::RejectReason::duplicate_dial);
  wire::Welcome welcome;
  welcome.peer_id = {.high = 7, .low = k_stranger + 1U};
  welcome.incarnation = k_life;
  welcome.birth = 1;
  welcome.rank = k_stranger;
  welcome.session = session;
  welcome.link_gen = caller->hello->link_gen;
  welcome.lease_ms = 2000;
  welcome.tx_depth = welcome.rx_depth = 32;
  caller->answer(wire::FrameType::welcome, welcome);
  REQUIRE(test.world.run([&] { return test.rank.links_up(k_stranger) == 1; }, seconds(1)));
  // Now it is known, and the other link joins it.
  const StrangerDoor::Caller& joins = test.door.caller(latest + 1);
  CHECK(joins.hello->link_id == test.second);
  CHECK(joins.hello->join == 1);
  CHECK(joins.hello->session == session);
}

TEST_CASE("a session that nobody here has asked for is over") {
  TwoLinks test;
  test.stranger.say(test.rank, test.hello());
  REQUIRE(test.stranger.welcome);
  wire::Hello join = test.hello();
  join.link_id = test.second;
  join.join = 1;
  join.session = 9;
  test.stranger.say(test.rank, join);
  REQUIRE(test.stranger.reject);
  CHECK(test.stranger.reject->reason == wire::RejectReason::dead);
}
