// SPDX-License-Identifier: Apache-2.0
//
// What is said of a peer that cannot be reached: the step, the address, the number, and who was found instead.
#include "peer_world.hpp"

#include <cerrno>

namespace hixl::peer::test {
namespace {

using std::chrono::milliseconds;

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

}  // namespace
}  // namespace hixl::peer::test
