// SPDX-License-Identifier: Apache-2.0
//
// How the simulated RDMA cards fail: as real ones do, at the worst time, and no worse.
#include "verbs_world.hpp"

#include <cerrno>

using namespace hixl;
using namespace hixl::test;

TEST_CASE("a failed queue pair flushes what is open, each queue in its order") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    VerbsWorld world(calm(), seed);
    world.connect();
    for (std::uint64_t i = 1; i <= 5; ++i) REQUIRE(world.left().want(100 + i).has_value());
    for (std::size_t i = 0; i < 5; ++i) world.write(i * 4096, 4096);
    world.left().fail();
    CHECK(world.left().ends.empty());                                           // not in the call
    REQUIRE(world.left().ask(world.ask(IBV_WR_RDMA_WRITE, 0, 8)).has_value());  // is taken, and flushed
    REQUIRE(world.ended(11));
    std::uint64_t sends = 0, receives = 100;
    for (const ibv_wc& wc : world.left().ends) {
      CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
      std::uint64_t& before = wc.wr_id > 100 ? receives : sends;
      CHECK(wc.wr_id == ++before);
    }
    CHECK(sends == 6);
    CHECK(receives == 105);
    REQUIRE(world.left().want(1).has_value());
    REQUIRE(world.ended(12));
  }
}

TEST_CASE("what a failed queue pair had sent lands as long as the target's lives") {
  RdmaPlan plan = calm();
  plan.sent_per_mille = 1000;
  plan.late_per_mille = 1000;
  enum class Target : std::uint8_t { lives, failed, gone, replaced };
  for (const Target fate : {Target::lives, Target::failed, Target::gone, Target::replaced}) {
    CAPTURE(static_cast<int>(fate));
    const bool landed = fate == Target::lives;
    VerbsWorld world(plan);
    world.connect();
    world.write(0, 4096);
    world.left().fail();
    REQUIRE(world.ended(1));
    CHECK(world.left().ends[0].status == IBV_WC_WR_FLUSH_ERR);
    std::memset(world.left().memory.data(), 7, 4096);  // it is the owner's again
    const std::vector<std::byte> before = world.right().memory;
    if (fate == Target::failed) world.right().fail();
    if (fate >= Target::gone) world.right().pair.reset();
    if (fate == Target::replaced) {  // by one that has its number and counts from elsewhere
      const std::uint32_t psn = world.left().wish.psn;
      world.right().wish.psn += 1000;
      world.left().wish.psn = psn + 1000;
      world.left().make_pair();
      world.right().make_pair();
      world.left().connect(world.right());
      world.right().connect(world.left());
    }
    world.world.run_for(std::chrono::seconds(5));
    CHECK((world.right().memory != before) == landed);
    CHECK((world.fabric.counts().ghosts_landed > 0) == landed);
    CHECK((world.fabric.counts().ghosts_refused > 0) == !landed);
  }
}

TEST_CASE("a late packet finds a new queue pair that has the old number, and counts from the old one's start") {
  RdmaPlan plan = calm();
  plan.sent_per_mille = plan.late_per_mille = plan.reuse_per_mille = 1000;
  VerbsWorld world(plan);
  world.connect();
  const std::uint32_t number = world.right().pair->number();
  world.write(0, 4096);
  world.left().fail();
  REQUIRE(world.ended(1));
  const std::vector<std::byte> before = world.right().memory;
  for (VerbsEnd* end : {&world.left(), &world.right()}) end->pair.reset(), end->make_pair();
  CHECK(world.right().pair->number() == number);
  world.left().connect(world.right());
  world.right().connect(world.left());
  world.world.run_for(std::chrono::seconds(5));
  CHECK(world.right().memory != before);
}

TEST_CASE("completions of a queue pair that was destroyed do not come out, and its number comes again") {
  RdmaPlan plan = calm();
  plan.reuse_per_mille = 1000;
  VerbsWorld world(plan);
  world.connect();
  world.write(0, 8);
  world.world.run_for(std::chrono::milliseconds(100));
  const std::uint32_t number = world.left().pair->number();
  world.left().pair.reset();
  world.left().make_pair();
  CHECK(world.left().pair->number() == number);
  REQUIRE(world.left().poll());
  CHECK(world.left().ends.empty());
}

TEST_CASE("without an answer the card tries again, so often and no more") {
  VerbsWorld world;
  world.connect({.retry = 3, .timeout = 10});  // 4 ms a try
  const Instant begin = world.world.now();
  SUBCASE("the target is gone") { world.right().pair.reset(); }
  SUBCASE("the target failed") { world.right().fail(); }
  SUBCASE("its port is down") { world.fabric.flap(1, 0, std::chrono::seconds(10)); }
  SUBCASE("the own port is down") { world.fabric.flap(0, 0, std::chrono::seconds(10)); }
  SUBCASE("its process died") { world.fabric.kill(*world.ports[1]); }
  world.write(0, 8);
  world.write(0, 8);
  REQUIRE(world.ended(2));
  CHECK(world.left().ends[0].status == IBV_WC_RETRY_EXC_ERR);
  CHECK(world.left().ends[1].status == IBV_WC_WR_FLUSH_ERR);
  CHECK(world.world.now() - begin > std::chrono::milliseconds(12));
  CHECK(world.world.now() - begin < std::chrono::milliseconds(20));
}

TEST_CASE("a port that comes back in time, with its address, has cost nothing but time") {
  VerbsWorld world;
  world.connect({.retry = 7, .timeout = 14});
  world.fabric.flap(1, 0, std::chrono::milliseconds(100));
  CHECK(world.right().device->port(1).value().state == IBV_PORT_DOWN);
  CHECK(world.right().device->gids(1).value().empty());
  world.write(0, 4096);
  REQUIRE(world.ended(1));
  CHECK(world.left().ends[0].status == IBV_WC_SUCCESS);
  CHECK(world.equal(0, 4096));
  CHECK(world.right().device->next_event()->type == IBV_EVENT_PORT_ERR);
  CHECK(world.right().device->next_event()->type == IBV_EVENT_PORT_ACTIVE);
  CHECK_FALSE(world.right().device->next_event().has_value());
}

TEST_CASE("with another address nothing reaches the old one, and new queue pairs the new one") {
  RdmaPlan plan = calm();
  plan.new_gid_per_mille = 1000;
  VerbsWorld world(plan);
  world.connect({.retry = 2, .timeout = 10});
  const ibv_gid old = world.right().gid();
  world.fabric.flap(1, 0, std::chrono::milliseconds(1));
  world.world.run_for(std::chrono::milliseconds(2));
  CHECK(std::memcmp(old.raw, world.right().gid().raw, sizeof(old.raw)) != 0);
  std::vector<ibv_event_type> events;
  while (const auto event = world.right().device->next_event()) events.push_back(event->type);
  CHECK(events.size() == 3);
  CHECK(std::count(events.begin(), events.end(), IBV_EVENT_GID_CHANGE) == 1);
  world.write(0, 4096);
  REQUIRE(world.ended(1));
  CHECK(world.left().ends[0].status == IBV_WC_RETRY_EXC_ERR);
  for (VerbsEnd* end : {&world.left(), &world.right()}) end->pair.reset(), end->make_pair();
  world.left().connect(world.right());
  world.right().connect(world.left());
  world.write(0, 4096);
  REQUIRE(world.ended(2));
  CHECK(world.left().ends[1].status == IBV_WC_SUCCESS);
}

TEST_CASE("an answer that is lost makes a failure of what was executed") {
  RdmaPlan plan = calm();
  plan.path_per_mille = 1000;
  std::uint64_t executed = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    VerbsWorld world(plan, seed);
    world.connect({.retry = 1});
    world.write(0, 4096);
    REQUIRE(world.ended(1));
    if (world.left().ends[0].status == IBV_WC_RETRY_EXC_ERR && world.equal(0, 4096)) ++executed;
  }
  CHECK(executed > 0);
}

TEST_CASE("a message that finds no receive waits for one, so often as was agreed") {
  VerbsWorld world;
  world.connect({.rnr_retry = 3});
  const VerbsEnd::Ask message = world.ask(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 8);
  REQUIRE(world.left().ask(message).has_value());
  SUBCASE("none comes") {
    REQUIRE(world.ended(1));
    CHECK(world.left().ends[0].status == IBV_WC_RNR_RETRY_EXC_ERR);
    CHECK(world.right().pair->state().value() == IBV_QPS_RTS);  // no fault of the target's
  }
  SUBCASE("one comes") {
    world.world.run_for(std::chrono::microseconds(25));
    REQUIRE(world.right().want(1).has_value());
    REQUIRE(world.ended(1));
    CHECK(world.left().ends[0].status == IBV_WC_SUCCESS);
  }
}

TEST_CASE("a message brings its bytes into the receive, and no more than that has room for") {
  VerbsWorld world;
  world.connect();
  const std::size_t size = 100;
  std::size_t room = 128;
  SUBCASE("enough room") {}
  SUBCASE("too little") { room = 64; }
  REQUIRE(world.right().want(1, 30'000, room).has_value());
  VerbsEnd::Ask send = world.ask(IBV_WR_SEND, 0, size);
  REQUIRE(world.left().ask(send).has_value());
  REQUIRE(world.ended(1));
  REQUIRE(world.right().poll());
  REQUIRE(world.right().ends.size() == 1);
  const bool fits = room >= size;
  CHECK(world.left().ends[0].status == (fits ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR));
  CHECK(world.right().ends[0].status == (fits ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR));
  CHECK(std::memcmp(world.left().memory.data(), world.right().memory.data() + 30'000, std::min(size, room)) == 0);
}

TEST_CASE("a queue that overruns is lost, with its queue pairs") {
  VerbsWorld world;
  world.connect({.queue_depth = 3});
  for (int i = 0; i < 4; ++i) world.write(0, 8);
  world.world.run_for(std::chrono::seconds(1));
  CHECK_FALSE(world.left().poll());
  CHECK(world.left().pair->state().value() == IBV_QPS_ERR);
  std::vector<ibv_event_type> events;
  while (const auto event = world.left().device->next_event()) events.push_back(event->type);
  CHECK(std::count(events.begin(), events.end(), IBV_EVENT_CQ_ERR) == 1);
  CHECK(std::count(events.begin(), events.end(), IBV_EVENT_QP_FATAL) == 1);
}

TEST_CASE("a card that is pulled answers nothing any more, and another one comes in its place") {
  VerbsWorld world;
  world.connect();
  world.write(0, 8192);
  world.fabric.remove(1, 0, std::chrono::seconds(1));
  const std::vector<std::byte> then = world.right().memory;
  VerbsEnd& end = world.right();
  CHECK(end.device->next_event()->type == IBV_EVENT_DEVICE_FATAL);
  CHECK_FALSE(end.poll());
  CHECK(end.device->port(1).error().detail.os_error == EIO);
  CHECK_FALSE(end.device->gids(1).has_value());
  CHECK_FALSE(end.pair->state().has_value());
  CHECK_FALSE(end.want(1).has_value());
  CHECK_FALSE(end.ask({.size = 0}).has_value());
  CHECK_FALSE(end.device->register_memory(end.memory.data(), 64, 0).has_value());
  CHECK(world.verbs[1]->device_names().value().empty());
  CHECK(world.verbs[1]->open("sim0").error().code == ErrorCode::transport_unavailable);
  REQUIRE(world.ended(1));
  CHECK(world.left().ends[0].status == IBV_WC_RETRY_EXC_ERR);
  CHECK(end.memory == then);
  end.pair.reset();
  end.queue.reset();
  end.region.reset();
  world.world.run_for(std::chrono::seconds(2));
  REQUIRE(world.verbs[1]->device_names().value().size() == 1);
  end.device = std::move(world.verbs[1]->open("sim0").value());
  end.make({});
  world.left().make_pair();
  world.left().connect(end);
  end.connect(world.left());
  world.write(0, 8);
  REQUIRE(world.ended(2));
  CHECK(world.left().ends[1].status == IBV_WC_SUCCESS);
}

TEST_CASE("what a process sent before it died lands until its target closes; what is for it is lost") {
  RdmaPlan plan = calm();
  plan.sent_per_mille = 1000;
  VerbsWorld world(plan);
  world.connect();
  world.write(0, 4096);
  Duration held{};
  SUBCASE("at once") {}
  SUBCASE("a child holds its descriptors") { held = std::chrono::seconds(1); }
  world.world.kill(*world.ports[0], held);
  world.fabric.kill(*world.ports[0], held);
  VerbsEnd& right = world.right();
  REQUIRE(
      right.ask({.from = 8192, .size = 64, .to = world.left().address(8192), .key = world.left().region->remote_key()})
          .has_value());
  world.world.run_for(std::chrono::milliseconds(500));
  CHECK(world.equal(0, 4096));
  CHECK(world.equal(8192, 64) == (held != Duration{}));
  REQUIRE(right.poll());
  REQUIRE(right.ends.size() == 1);
  CHECK(right.ends[0].status == (held == Duration{} ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS));
  world.world.run_for(std::chrono::seconds(1));
  if (held != Duration{}) {
    REQUIRE(right.ask({.from = 0, .size = 8, .to = world.left().address(0), .key = world.left().region->remote_key()})
                .has_value());
    world.world.run_for(std::chrono::seconds(1));
    REQUIRE(right.poll());
    CHECK(right.ends.back().status == IBV_WC_RETRY_EXC_ERR);
  }
}

TEST_CASE("both ends must agree on a packet's size, and none may be larger than its card's") {
  RdmaPlan plan = calm();
  VerbsWorld world(plan);
  world.connect({.mtu = IBV_MTU_4096}, {.mtu = IBV_MTU_1024});
  world.write(0, 1024);
  world.write(0, 1025);
  REQUIRE(world.ended(2));
  CHECK(world.left().ends[0].status == IBV_WC_SUCCESS);
  CHECK(world.left().ends[1].status == IBV_WC_REM_INV_REQ_ERR);
  plan.mtu_per_mille = 1000;
  VerbsWorld small(plan);
  CHECK(small.left().device->port(1).value().active_mtu == IBV_MTU_1024);
  small.left().make({.mtu = IBV_MTU_4096});
  small.right().make({});
  REQUIRE(small.left().pair->modify(VerbsEnd::init_attributes(0), VerbsEnd::k_init_mask).has_value());
  CHECK_FALSE(small.left().pair->modify(small.left().receive_attributes(small.right()), VerbsEnd::k_receive_mask));
}

TEST_CASE("queue pairs and regions that cannot be made say why") {
  RdmaPlan plan = calm();
  VerbsWorld world(plan);
  VerbsEnd& end = world.left();
  end.make({});
  CHECK(end.device->register_memory(end.memory.data(), std::size_t{1} << 33U, 0).error().code ==
        ErrorCode::limit_reached);
  CHECK(end.device->register_memory(end.memory.data(), 64, IBV_ACCESS_REMOTE_WRITE).error().detail.os_error == EINVAL);
  plan.create_per_mille = plan.register_per_mille = plan.open_per_mille = 1000;
  world.fabric.set_plan(plan);
  const auto region = end.device->register_memory(end.memory.data(), 64, 0);
  CHECK(region.error().code == ErrorCode::memlock_limit);
  CHECK(region.error().detail.limit == 64U << 10U);
  roce::Device::QueuePairOptions options{.send_depth = 1, .receive_depth = 1};
  CHECK(end.device->create_queue_pair(*end.queue, options).error().detail.os_error == ENOMEM);
  CHECK_FALSE(world.verbs[0]->open("sim0").has_value());
  REQUIRE(end.pair->modify(VerbsEnd::init_attributes(0), VerbsEnd::k_init_mask).has_value());
}

TEST_CASE("whatever the seed brings, every request has one end at most, in order, and a success is true") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    Choices choices(seed);
    VerbsWorld world(calm(), seed);
    world.connect({.depth = 40});
    world.fabric.set_plan(RdmaPlan::draw(choices));
    for (std::size_t i = 0; i < 30; ++i) {
      world.write(i * 2048, 2048);
      if (choices.chance(20)) world.fabric.flap(choices.next() % 2, 0, Duration(choices.below(100'000'000)));
      if (choices.chance(5)) world.left().fail();
      world.world.run_for(Duration(choices.below(100'000)));
      static_cast<void>(world.left().poll());
    }
    world.world.run_for(std::chrono::seconds(10));
    const bool alive = world.left().poll();
    while (alive && world.left().ends.size() < 30) {
      const std::size_t before = world.left().ends.size();
      REQUIRE(world.left().poll());
      REQUIRE(world.left().ends.size() > before);
    }
    world.right().pair.reset();
    bool failed = false;
    for (std::size_t i = 0; i < world.left().ends.size(); ++i) {
      const ibv_wc& wc = world.left().ends[i];
      CHECK(wc.wr_id == i + 1);
      if (wc.status == IBV_WC_SUCCESS) CHECK((!failed && world.equal(i * 2048, 2048)));
      failed = failed || wc.status != IBV_WC_SUCCESS;
    }
  }
}
