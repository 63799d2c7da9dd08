// SPDX-License-Identifier: Apache-2.0
//
// The simulated RDMA cards keep the rules of reliable connections: states, rights, order, what a completion says and
// what it does not. A link that is shown correct on cards which are kinder than real ones is shown nothing.
#include "verbs_world.hpp"

#include <cerrno>

#include "runtime/loop.hpp"

using namespace hixl;
using namespace hixl::test;
using links::make_sim_verbs;

TEST_CASE("a queue pair is brought up step by step, with all that each step needs") {
  VerbsWorld world;
  VerbsEnd& end = world.left();
  end.make({});
  world.right().make({});
  const auto errno_of = [](const Result<void>& result) { return result ? 0 : result.error().detail.os_error; };
  // Not in this order.
  CHECK(errno_of(end.pair->modify(end.receive_attributes(world.right()), VerbsEnd::k_receive_mask)) == EINVAL);
  CHECK(errno_of(end.pair->modify(end.send_attributes(), VerbsEnd::k_send_mask)) == EINVAL);
  // Not posted before it can be sent, nor received before it can be kept.
  CHECK(errno_of(end.ask({.size = 0})) == EINVAL);
  CHECK(errno_of(end.want(1)) == EINVAL);
  for (const int missing : {IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS}) {
    CHECK(errno_of(end.pair->modify(VerbsEnd::init_attributes(0), VerbsEnd::k_init_mask & ~missing)) == EINVAL);
  }
  REQUIRE(end.pair->modify(VerbsEnd::init_attributes(0), VerbsEnd::k_init_mask).has_value());
  CHECK(end.want(1).has_value());
  CHECK(errno_of(end.ask({.size = 0})) == EINVAL);
  ibv_qp_attr receive = end.receive_attributes(world.right());
  for (const int missing :
       {IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_DEST_QPN, IBV_QP_RQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER}) {
    CHECK(errno_of(end.pair->modify(receive, VerbsEnd::k_receive_mask & ~missing)) == EINVAL);
  }
  CHECK(errno_of(end.pair->modify(receive, VerbsEnd::k_receive_mask | IBV_QP_TIMEOUT)) == EINVAL);
  receive.ah_attr.is_global = 0;  // RoCE has no other addresses
  CHECK(errno_of(end.pair->modify(receive, VerbsEnd::k_receive_mask)) == EINVAL);
  receive.ah_attr.is_global = 1;
  receive.ah_attr.grh.sgid_index = 2;
  CHECK(errno_of(end.pair->modify(receive, VerbsEnd::k_receive_mask)) == EINVAL);
  receive.ah_attr.grh.sgid_index = 1;
  REQUIRE(end.pair->modify(receive, VerbsEnd::k_receive_mask).has_value());
  CHECK(errno_of(end.ask({.size = 0})) == EINVAL);
  for (const int missing :
       {IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_SQ_PSN, IBV_QP_MAX_QP_RD_ATOMIC}) {
    CHECK(errno_of(end.pair->modify(end.send_attributes(), VerbsEnd::k_send_mask & ~missing)) == EINVAL);
  }
  REQUIRE(end.pair->modify(end.send_attributes(), VerbsEnd::k_send_mask).has_value());
  CHECK(end.pair->state().value() == IBV_QPS_RTS);
  end.fail();
  CHECK(end.pair->state().value() == IBV_QPS_ERR);
  ibv_qp_attr reset{};
  REQUIRE(end.pair->modify(reset, IBV_QP_STATE).has_value());
  CHECK(end.pair->state().value() == IBV_QPS_RESET);
}

TEST_CASE("a write completes, and a read behind it finds its bytes") {
  VerbsWorld world;
  world.connect();
  world.write(4096, 5000);
  REQUIRE(world.ended(1));
  CHECK(world.left().ends[0].status == IBV_WC_SUCCESS);
  CHECK(world.left().ends[0].opcode == IBV_WC_RDMA_WRITE);
  CHECK(world.left().ends[0].wr_id == 1);
  CHECK(world.equal(4096, 5000));
  CHECK_FALSE(world.equal(0, 4096));
  REQUIRE(world.left().ask(world.ask(IBV_WR_RDMA_READ, 0, 4096)).has_value());
  REQUIRE(world.ended(2));
  CHECK(world.left().ends[1].opcode == IBV_WC_RDMA_READ);
  CHECK(world.equal(0, 4096));
}

TEST_CASE("a write may be told as complete before it is seen; only what answers behind it proves it") {
  RdmaPlan plan = calm();
  plan.hidden_per_mille = 1000;
  plan.hidden_max = Duration(1'000'000'000'000);
  SUBCASE("a read") {
    VerbsWorld world(plan);
    world.connect();
    world.write(0, 8192);
    REQUIRE(world.ended(1));
    CHECK(world.left().ends[0].status == IBV_WC_SUCCESS);
    CHECK_FALSE(world.equal(0, 64));
    VerbsEnd::Ask read = world.ask(IBV_WR_RDMA_READ, 0, 8);
    read.from = 60'000;
    REQUIRE(world.left().ask(read).has_value());
    REQUIRE(world.ended(2));
    CHECK(world.equal(0, 8192));
  }
  SUBCASE("an atomic") {
    VerbsWorld world(plan);
    world.connect();
    world.write(0, 8192);
    VerbsEnd::Ask add = world.ask(IBV_WR_ATOMIC_FETCH_AND_ADD, 60'000, 8);
    REQUIRE(world.left().ask(add).has_value());
    REQUIRE(world.ended(2));
    CHECK(world.equal(0, 8192));
  }
  SUBCASE("the target's own completion of a message behind it") {
    VerbsWorld world(plan);
    world.connect();
    REQUIRE(world.right().want(9).has_value());
    world.write(0, 8192);
    VerbsEnd::Ask message = world.ask(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0);
    REQUIRE(world.left().ask(message).has_value());
    REQUIRE(world.ended(2));
    REQUIRE(world.right().poll());
    REQUIRE(world.right().ends.size() == 1);
    CHECK(world.right().ends[0].opcode == IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK(world.right().ends[0].wr_id == 9);
    CHECK(world.equal(0, 8192));
  }
  SUBCASE("the end of the target's queue pair") {
    VerbsWorld world(plan);
    world.connect();
    world.write(0, 8192);
    REQUIRE(world.ended(1));
    world.right().pair.reset();
    CHECK(world.equal(0, 8192));
  }
  SUBCASE("not its failure") {
    VerbsWorld world(plan);
    world.connect();
    world.write(0, 64);
    REQUIRE(world.ended(1));
    world.right().fail();
    CHECK_FALSE(world.equal(0, 64));
  }
}

TEST_CASE("of two writes to one place the later one stays") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    RdmaPlan plan = calm();
    plan.hidden_per_mille = 500;
    VerbsWorld world(plan, seed);
    world.connect();
    for (std::uint64_t value = 1; value <= 20; ++value) {
      std::memcpy(world.left().memory.data(), &value, sizeof(value));
      VerbsEnd::Ask ask = world.ask(IBV_WR_RDMA_WRITE, 0, 8);
      ask.flags |= IBV_SEND_INLINE;
      REQUIRE(world.left().ask(ask).has_value());
    }
    REQUIRE(world.ended(20));
    world.world.run_for(std::chrono::seconds(1));
    CHECK(world.equal(0, 8));
  }
}

TEST_CASE("inline bytes are taken in the call, others until the completion") {
  VerbsWorld world;
  world.connect();
  VerbsEnd::Ask copied = world.ask(IBV_WR_RDMA_WRITE, 0, 64);
  copied.flags |= IBV_SEND_INLINE;
  REQUIRE(world.left().ask(copied).has_value());
  world.write(128, 64);
  world.left().memory[0] = world.left().memory[128] = std::byte{255};
  REQUIRE(world.ended(2));
  CHECK(world.right().memory[0] != std::byte{255});
  CHECK(world.right().memory[128] == std::byte{255});
  VerbsEnd::Ask too_long = world.ask(IBV_WR_RDMA_WRITE, 0, 65);
  too_long.flags |= IBV_SEND_INLINE;
  CHECK(world.left().ask(too_long).error().detail.os_error == EINVAL);
}

TEST_CASE("a place in the queue becomes free when a completion of it or of a later one is taken") {
  VerbsWorld world;
  world.connect({.depth = 4});
  VerbsEnd::Ask silent = world.ask(IBV_WR_RDMA_WRITE, 0, 8);
  silent.flags = 0;
  for (int i = 0; i < 3; ++i) REQUIRE(world.left().ask(silent).has_value());
  world.write(0, 8);
  CHECK(world.left().ask(silent).error().code == ErrorCode::limit_reached);
  world.world.run_for(std::chrono::seconds(1));
  CHECK(world.left().ask(silent).error().code == ErrorCode::limit_reached);
  REQUIRE(world.left().poll());
  REQUIRE(world.left().ends.size() == 1);  // the silent ones have none
  for (int i = 0; i < 4; ++i) CHECK(world.left().ask(silent).has_value());
}

TEST_CASE("atomics change an aligned word once and give its value before") {
  VerbsWorld world;
  world.connect();
  const std::uint64_t five = 5;
  std::memcpy(world.right().memory.data() + 64, &five, sizeof(five));
  const auto word = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, world.left().memory.data() + at, sizeof(value));
    return value;
  };
  VerbsEnd::Ask add = world.ask(IBV_WR_ATOMIC_FETCH_AND_ADD, 64, 8);
  add.compare_add = 3;
  REQUIRE(world.left().ask(add).has_value());
  VerbsEnd::Ask swap = world.ask(IBV_WR_ATOMIC_CMP_AND_SWP, 64, 8);
  swap.from = 72;
  swap.compare_add = 8;
  swap.swap = 100;
  REQUIRE(world.left().ask(swap).has_value());
  swap.from = 80;  // it holds 100 by then
  REQUIRE(world.left().ask(swap).has_value());
  REQUIRE(world.ended(3));
  CHECK(word(64) == 5);
  CHECK(word(72) == 8);
  CHECK(word(80) == 100);
  VerbsEnd::Ask askew = world.ask(IBV_WR_ATOMIC_FETCH_AND_ADD, 68, 8);
  REQUIRE(world.left().ask(askew).has_value());
  REQUIRE(world.ended(4));
  CHECK(world.left().ends[3].status == IBV_WC_REM_INV_REQ_ERR);
}

TEST_CASE("what was not granted is refused, and both ends fail") {
  VerbsWorld world;
  VerbsEnd::Ask ask;
  ibv_wc_status status = IBV_WC_REM_ACCESS_ERR;
  SUBCASE("a key that opens nothing") {
    world.connect();
    ask = world.ask(IBV_WR_RDMA_WRITE, 0, 64);
    ask.key += 2;
  }
  SUBCASE("a local key") {
    world.connect();
    ask = world.ask(IBV_WR_RDMA_WRITE, 0, 64);
    ask.key = world.right().region->local_key();
  }
  SUBCASE("beyond the region, of which not even the beginning is written") {
    world.connect();
    ask = world.ask(IBV_WR_RDMA_WRITE, 0, 8192);
    ask.to = world.right().address(60U << 10U);
  }
  SUBCASE("before it, with an overflow") {
    world.connect();
    ask = world.ask(IBV_WR_RDMA_READ, 0, 64);
    ask.to = ~std::uint64_t{0} - 10;
  }
  SUBCASE("a right that the region lacks") {
    world.connect({}, {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ});
    ask = world.ask(IBV_WR_RDMA_WRITE, 0, 64);
  }
  SUBCASE("a right that the queue pair lacks") {
    world.connect({}, {.pair_access = IBV_ACCESS_REMOTE_READ});
    ask = world.ask(IBV_WR_RDMA_WRITE, 0, 64);
    status = IBV_WC_REM_INV_REQ_ERR;
  }
  const std::vector<std::byte> before = world.right().memory;
  REQUIRE(world.left().ask(ask).has_value());
  world.write(128, 8);
  REQUIRE(world.ended(2));
  CHECK(world.left().ends[0].status == status);
  CHECK(world.left().ends[1].status == IBV_WC_WR_FLUSH_ERR);
  CHECK(world.left().pair->state().value() == IBV_QPS_ERR);
  CHECK(world.right().pair->state().value() == IBV_QPS_ERR);
  CHECK(world.right().memory == before);
  const auto event = world.right().device->next_event();
  REQUIRE(event.has_value());
  CHECK(event->type == (status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR));
  CHECK(event->queue_pair == world.right().pair->number());
}

TEST_CASE("memory that was deregistered is not touched any more") {
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    RdmaPlan plan = calm();
    plan.hidden_per_mille = 500;
    VerbsWorld world(plan, seed);
    world.connect();
    for (std::size_t i = 0; i < 8; ++i) world.write(i * 4096, 4096);
    for (std::uint64_t i = 0; i < seed; ++i) static_cast<void>(world.world.step());
    world.right().region.reset();
    const std::vector<std::byte> then = world.right().memory;
    REQUIRE(world.ended(8));
    world.world.run_for(std::chrono::seconds(10));
    CHECK(world.right().memory == then);
    for (const ibv_wc& wc : world.left().ends) refused += wc.status == IBV_WC_REM_ACCESS_ERR ? 1 : 0;
  }
  CHECK(refused > 10);
}

TEST_CASE("memory that was deregistered is not read any more") {
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    VerbsWorld world(calm(), seed);
    world.connect();
    for (std::size_t i = 0; i < 8; ++i) world.write(i * 4096, 4096);
    for (std::uint64_t i = 0; i < seed; ++i) static_cast<void>(world.world.step());
    world.left().region.reset();
    std::fill(world.left().memory.begin(), world.left().memory.end(), std::byte{255});
    REQUIRE(world.ended(8));
    for (const ibv_wc& wc : world.left().ends) refused += wc.status == IBV_WC_LOC_PROT_ERR ? 1 : 0;
    CHECK(std::count(world.right().memory.begin(), world.right().memory.end(), std::byte{255}) == 0);
  }
  CHECK(refused > 5);
}

TEST_CASE("an armed queue tells of its next completion, once, and of none that came before") {
  struct Bell final : runtime::WatchEvents {
    explicit Bell(roce::CompletionQueue& of) : queue(of) {}
    void on_ready() override {
      ++rings;
      if (acknowledges) queue.acknowledge();
    }
    roce::CompletionQueue& queue;
    int rings = 0;
    bool acknowledges = true;
  };
  VerbsWorld world;
  world.connect();
  Bell bell(*world.left().queue);
  const auto watch = world.left().queue->watch_completions(*world.ports[0], bell);
  REQUIRE(watch.has_value());
  world.write(0, 8);
  world.world.run_for(std::chrono::milliseconds(10));
  CHECK(bell.rings == 0);  // nobody had armed
  REQUIRE(world.left().queue->arm().has_value());
  world.world.run_for(std::chrono::milliseconds(10));
  CHECK(bell.rings == 0);  // that one came before: only a poll finds it
  world.write(0, 8);
  world.write(0, 8);
  world.world.run_for(std::chrono::milliseconds(10));
  CHECK(bell.rings == 1);
  bell.acknowledges = false;  // then it goes on, a level
  REQUIRE(world.left().queue->arm().has_value());
  world.write(0, 8);
  world.world.run_for(std::chrono::milliseconds(10));
  CHECK(bell.rings > 3);
  world.world.pause(*world.ports[0], std::chrono::seconds(1));
  const int before = bell.rings;
  world.world.run_for(std::chrono::milliseconds(500));
  CHECK(bell.rings == before);
}

TEST_CASE("work given away is done on the loop, later") {
  struct Count final : roce::Job {
    void work() override { ++works; }
    void done() override { ++dones; }
    int works = 0, dones = 0;
  };
  VerbsWorld world;
  runtime::Loop loop(*world.ports[0], 1, 64);
  world.world.add(loop, *world.ports[0]);
  auto worker = world.verbs[0]->make_worker(loop, 2);
  REQUIRE(worker.has_value());
  Count jobs[3];
  for (Count& job : jobs) (*worker)->run(job);
  CHECK(jobs[0].works == 0);
  world.world.run_for(std::chrono::seconds(1));
  for (const Count& job : jobs) CHECK((job.works == 1 && job.dones == 1));
  Count last;
  (*worker)->run(last);
  worker->reset();  // ends what is under way
  CHECK((last.works == 1 && last.dones == 1));
  world.world.run_for(std::chrono::seconds(1));
  CHECK(last.dones == 1);
  world.world.remove(*world.ports[0]);
}
