// SPDX-License-Identifier: Apache-2.0
//
// What is said of a peer that cannot be reached: the step, the address, the number, and who was found instead.
#include <cerrno>

#include "fake_link.hpp"
#include "peer_world.hpp"
#include "stranger.hpp"

namespace hixl::peer::test {
namespace {

using std::chrono::milliseconds;

/// Its links are never up. Their streams end before the world does.
struct EndlessSetUp final : links::LinkFactory {
  using Streams = std::vector<std::unique_ptr<links::FrameStream>>;
  [[nodiscard]] const links::LinkCaps& caps() const noexcept override { return all; }
  [[nodiscard]] Result<void> available() const override { return {}; }
  [[nodiscard]] std::unique_ptr<links::Link> make(const links::LinkIdentity& identity,
                                                  std::unique_ptr<links::FrameStream> stream,
                                                  const links::LinkServices&, links::LinkEvents& events) override {
    streams->push_back(std::move(stream));
    return std::make_unique<FakeLink>(all, identity, events);
  }
  links::LinkCaps all{.kind = LinkKind::roce};
  Streams* streams = nullptr;
};

TEST_CASE("S53 another process at the peer's address: WRONG_PEER names the life expected and the one found") {
  PeerWorld world(1, 3);
  world[1].endpoints.addresses = world[2].endpoints.addresses;
  auto& wait = world[0].exchange(world[1], milliseconds(500));
  REQUIRE(world.run([&] { return wait.ends > 0; }));
  REQUIRE_FALSE(wait.answer.result.has_value());
  const Error& error = wait.answer.result.error();
  CHECK(error.code == ErrorCode::wrong_peer);
  CHECK(error.detail.rank == 1);
  CHECK(error.detail.stage == Stage::handshake);
  CHECK(error.detail.limit == world[1].services->incarnation);
  CHECK(error.detail.length == world[2].services->incarnation);
  CHECK(error.message().find("at " + world[2].endpoints.addresses.front()) != std::string::npos);
}

TEST_CASE("F182 an operation that ends because nothing connected says where, at which step and with which errno") {
  PeerWorld world(2);
  world.meet(0, 1);
  runtime::FaultPlan plan;
  plan.refuse_per_mille = 1000;
  world.world.set_plan(plan);
  world.world.reset(world[0].port, world[1].port);
  REQUIRE(world.run([&] { return world[0].links_up(1) == 0; }));
  auto& put = world[0].put(world[1], 0, 64, milliseconds(300));
  REQUIRE(world.run([&] { return put.ended(); }));
  CHECK(put.code == ErrorCode::deadline_exceeded);
  CHECK(put.error.detail.rank == 1);
  CHECK(put.error.detail.stage == Stage::connect);
  CHECK(put.error.detail.os_error == ECONNREFUSED);
  CHECK(put.error.message().find("at " + world[1].endpoints.addresses.front()) != std::string::npos);
}

TEST_CASE("why the peer has no link is heard also when its fence comes first, and said once") {
  const auto told = [](ErrorCode reason, std::uint64_t warnings) {
    EndlessSetUp never;
    PeerWorld world(3, 1, true, 1);
    EndlessSetUp::Streams streams;
    never.streams = &streams;
    world[0].services->links.front().factory = &never;
    wire::Hello hello = Stranger::hello_to(world[0], 1, 99);
    Stranger standing(world, "standing");
    hello.link_id = world[0].services->links.back().id;
    hello.kind = LinkKind::tcp;
    standing.say(world[0], hello);
    REQUIRE(standing.welcome.has_value());
    Stranger beginning(world, "beginning");
    hello.session = standing.welcome->session;
    hello.join = 1;
    hello.link_id = world[0].services->links.front().id;
    hello.kind = LinkKind::roce;
    beginning.say(world[0], hello);
    REQUIRE(beginning.welcome.has_value());
    standing.send(wire::FrameType::fence_request, wire::FenceRequest{.link_id = hello.link_id,
                                                                     .link_gen = hello.link_gen,
                                                                     .reason = static_cast<std::uint16_t>(reason),
                                                                     .executed = {}});
    world.world.run_for(milliseconds(10));
    CHECK(world[0].counters.fallbacks == warnings);
    const auto links = world[0].links(1);
    const auto row =
        std::find_if(links.begin(), links.end(), [](const auto& link) { return link.kind == LinkKind::roce; });
    REQUIRE(row != links.end());
    CHECK(row->failures == 1);
    return row->last_error.code;
  };
  for (const ErrorCode reason :
       {ErrorCode::transport_unavailable, ErrorCode::no_route, ErrorCode::memlock_limit, ErrorCode::access_denied}) {
    CHECK(told(reason, 1) == reason);
  }
  CHECK(told(ErrorCode::stale, 0) == ErrorCode::link_failed);
}

}  // namespace
}  // namespace hixl::peer::test
