// SPDX-License-Identifier: Apache-2.0
//
// A rank number that comes again with another life: its peers meet it as they met the first.
#include "support.hpp"

using namespace hixl;
using namespace hixl::test;

TEST_CASE("S61 a rank that comes again is no reason to warn of a slower link") {
  World world(2);
  for (int life = 0; life < rounds(20); ++life) {
    if (life > 0) {
      world.slot(1).reset();
      auto again = Runtime::create(options_for(1, 2, world.store_url()));
      require_ok(again);
      world.slot(1) = std::move(*again);
    }
    const auto mine = world[0].allocate(64);
    const auto theirs = world[1].allocate(64);
    require_ok(mine);
    require_ok(theirs);
    const auto remote = world.exchange_all({*mine, *theirs})[0][1];
    require_ok(world[0].put_sync(mine->data, remote.at(0), 64));
    require_ok(world[0].deregister(*mine));
    CHECK(world[1].counters().fallbacks == 0);
  }
  CHECK(world[0].counters().fallbacks == 0);
}
