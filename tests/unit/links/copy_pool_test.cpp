// SPDX-License-Identifier: Apache-2.0
#include "links/copy_pool.hpp"

#include <thread>

#include <doctest/doctest.h>

#include "../runtime/fake_port.hpp"

using namespace hixl;

namespace {

struct Client final : links::CopyClient {
  int copied = 0;
  void on_copied(memory::CopyJob&) override { ++copied; }
};

}  // namespace

TEST_CASE("P53 a copy that ends while the loop is awake keeps it from sleeping") {
  test::FakePort port;
  runtime::Loop loop(port, 1, 16);
  links::CopyPool pool(loop, 1);
  REQUIRE(pool.start());
  Client client;
  for (int round = 0; round < 100; ++round) {
    CAPTURE(round);
    memory::CopyJob job;  // without segments: nothing is copied, it only goes through the engine
    const int wakes = port.wakes();
    REQUIRE(pool.submit(job, client));
    // Mostly the job ends meanwhile. The loop is awake, so the engine does not wake it: its last look must see the end.
    constexpr int k_yields = 200;
    for (int i = 0; i < k_yields; ++i) std::this_thread::yield();
    if (loop.prepare_sleep()) {  // it had not ended yet: then the engine must wake the loop
      constexpr int k_yields_max = 10'000'000;
      for (int i = 0; i < k_yields_max && port.wakes() == wakes; ++i) std::this_thread::yield();
      REQUIRE(port.wakes() > wakes);
    }
    loop.awake();
    while (client.copied == round) pool.poll();
  }
}
