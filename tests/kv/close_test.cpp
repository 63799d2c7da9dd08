// SPDX-License-Identifier: Apache-2.0
//
// close() among other threads, and what is left of a DataDist after it: answers, and nothing that is looked at.
#include <atomic>
#include <thread>

#include "kv_world.hpp"

using namespace hixl;
using namespace hixl::kv;
using namespace hixl::kv::test;

namespace {

constexpr Timeout k_long = std::chrono::minutes(20);

LeaseOptions pushed_into() {
  return {.holder = 0, .access = Access::push, .blocks = k_there, .layer_arrivals = true, .on_end = {}};
}

}  // namespace

TEST_CASE("close ends the waits of other threads, and returns when the last thread has come out") {
  for (int round = 0; round < rounds(12); ++round) {
    Couple couple;
    DataDist& sender = couple.world[0];
    DataDist& receiver = couple.world[1];
    const auto lease = receiver.grant(couple.to, pushed_into());
    require_ok(lease);
    const auto open = sender.push(couple.from, couple.target_seen, two_blocks(),
                                  {.timeout = k_long, .ticket = &lease->ticket, .layered = true});
    require_ok(open);
    require_ok(open->ready(0));
    require_ok(receiver.wait_layer(lease->id, 0, k_patience));
    std::vector<std::thread> threads;
    std::atomic<int> begun{0};
    const auto run = [&](auto&& call) {
      threads.emplace_back([&begun, call] {
        begun += 1;
        call();
      });
    };
    // Each of these would wait for minutes. What waits for the push may see its end first.
    const auto ended = [](const Result<void>& result) { return result || code_of(result) == ErrorCode::stopped; };
    run([&] {
      const ErrorCode code = code_of(receiver.wait_layer(lease->id, 1, k_long));
      CHECK((code == ErrorCode::stopped || code == ErrorCode::lease_ended));  // with its cache
    });
    run([&] { CHECK(ended(receiver.unregister_cache(couple.to, k_long))); });
    run([&] { CHECK(ended(receiver.switch_role(Role::prefill, k_long))); });
    run([&] { CHECK(ended(sender.unlink(1, k_long))); });
    run([&] { CHECK(code_of(open->wait(k_long)) == ErrorCode::stopped); });
    // These are in and out all the time, to the end.
    run([&] {
      for (;;) {
        const ErrorCode code = code_of(receiver.layer_arrived(lease->id, 1));
        if (code == ErrorCode::stopped) break;
        CHECK((code == ErrorCode::ok || code == ErrorCode::lease_ended));
        static_cast<void>(receiver.link_state(0));
        static_cast<void>(receiver.role());
      }
    });
    run([&] {
      ErrorCode code = ErrorCode::ok;
      while (code != ErrorCode::stopped) code = code_of(receiver.find(0, paged().key, k_long));
    });
    while (begun.load() < static_cast<int>(threads.size())) std::this_thread::yield();
    // The receiver's end waits for the push that is inside, which the sender's ends.
    std::thread closing([&] { CHECK(receiver.close(k_patience)); });
    CHECK(sender.close(k_patience));
    closing.join();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_CASE(
    "a DataDist made anew in the same process is another one: what names things of the first means nothing to it") {
  Couple couple;
  LeaseOptions options = pushed_into();
  options.layer_arrivals = false;
  const auto first = couple.world[1].grant(couple.to, options);
  require_ok(first);
  CHECK(end_of(couple.world[0].push(couple.from, couple.target_seen, two_blocks(), {.sequence = 5})) == ErrorCode::ok);
  couple.target.load(make_memory(paged()));
  couple.world.slot(1).reset();
  couple.world.open(1);
  CHECK(couple.world[0].link_state(1) != LinkState::linked);
  couple.world.link(0, 1);
  // The same steps, so that whatever is counted from one comes to the same.
  const auto to = couple.world[1].register_cache(paged(), couple.target.places());
  require_ok(to);
  const auto second = couple.world[1].grant(*to, options);
  require_ok(second);
  CHECK(code_of(couple.world[0].push(couple.from, couple.target_seen, two_blocks())) == ErrorCode::stale);
  const auto seen = couple.world[0].find(1, paged().key);
  require_ok(seen);
  CHECK(code_of(couple.world[0].push(couple.from, *seen, two_blocks(), {.ticket = &first->ticket})) ==
        ErrorCode::lease_ended);
  CHECK(code_of(couple.world[0].release(first->ticket)) == ErrorCode::lease_ended);
  CHECK(code_of(couple.world[1].end_lease(first->id)) == ErrorCode::lease_ended);
  CHECK(code_of(couple.world[1].unregister_cache(couple.to)) == ErrorCode::cache_stale);
  CHECK(couple.target.unchanged());
  CHECK(couple.world[1].lease_state(second->id) == LeaseState::open);
  // What was moved into the first counts for nothing.
  const auto moved = couple.world[0].push(couple.from, *seen, two_blocks(), {.ticket = &second->ticket, .sequence = 5});
  CHECK(end_of(moved) == ErrorCode::ok);
  CHECK(moved->progress().bytes_done == kv_bytes(paged().layout, 32).value());
  CHECK(couple.same_block(3, 0));
  // The other way round: the one that lived on is linked with the new one, by both.
  const auto source = couple.world[1].find(0, paged().key);
  require_ok(source);
  CHECK(end_of(couple.world[1].pull(*to, *source, two_blocks(k_here))) == ErrorCode::ok);
}

TEST_CASE("after close nothing touches the runtime, which may be gone") {
  Couple couple;
  const auto open = couple.world[0].push(couple.from, couple.target_seen, two_blocks(), {.layered = true});
  require_ok(open);
  for (const Rank rank : {0U, 1U}) {
    require_ok(couple.world[rank].close(k_patience));
    couple.world.world().slot(rank).reset();
  }
  DataDist& dist = couple.world[0];
  const Rank one = 1;
  CHECK(code_of(dist.register_cache(paged(), couple.source.places())) == ErrorCode::stopped);
  CHECK(code_of(dist.unregister_cache(couple.from)) == ErrorCode::stopped);
  CHECK(code_of(dist.describe(couple.from)) == ErrorCode::stopped);
  CHECK(code_of(dist.link({&one, 1}).front()) == ErrorCode::stopped);
  CHECK(code_of(dist.unlink(1)) == ErrorCode::stopped);
  CHECK(dist.link_state(1) == LinkState::none);
  CHECK(dist.role() == Role::both);
  CHECK(code_of(dist.switch_role(Role::decode)) == ErrorCode::stopped);
  CHECK(code_of(dist.find(1, paged().key)) == ErrorCode::stopped);
  CHECK(code_of(dist.push(couple.from, couple.target_seen, two_blocks())) == ErrorCode::stopped);
  CHECK(code_of(dist.pull(couple.from, couple.target_seen, two_blocks())) == ErrorCode::stopped);
  dist.rewind(1, 0);
  CHECK(code_of(dist.grant(couple.from, {})) == ErrorCode::stopped);
  CHECK(code_of(dist.extend({}, std::chrono::seconds(1))) == ErrorCode::stopped);
  CHECK(code_of(dist.end_lease({})) == ErrorCode::stopped);
  CHECK(dist.lease_state({}) == LeaseState::ended);
  CHECK(code_of(dist.layer_arrived({}, 0)) == ErrorCode::stopped);
  CHECK(code_of(dist.wait_layer({}, 0)) == ErrorCode::stopped);
  CHECK(code_of(dist.release({})) == ErrorCode::stopped);
  require_ok(dist.close());
  CHECK(code_of(open->query()) == ErrorCode::stopped);
  CHECK(code_of(open->wait()) == ErrorCode::stopped);
  CHECK(code_of(open->ready(0)) == ErrorCode::stopped);
  open->cancel();
}
