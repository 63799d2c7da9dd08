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

/// The loop thread stands still in a callback, and no request slot is free, until end().
class Jam {
 public:
  Jam(Runtime& runtime, const Region& word) {
    const RemoteAddress at{
        .rank = runtime.rank(), .address = word.address(), .region = word.key, .incarnation = runtime.incarnation()};
    const auto stand = [](void* context, const Completion&) {
      auto& here = *static_cast<Jam*>(context);
      here.stands_ = true;
      here.stands_.notify_all();
      here.ended_.wait(false);
    };
    require_ok(runtime.atomic_add(at, 0, {.callback = {stand, this}}));
    stands_.wait(false);
    Result<Request> posted = runtime.atomic_add(at, 0, {.callback = k_nothing});
    while (posted) posted = runtime.atomic_add(at, 0, {.callback = k_nothing});
    CHECK(code_of(posted) == ErrorCode::busy);
  }
  ~Jam() { end(); }
  void end() {
    ended_ = true;
    ended_.notify_all();
  }

 private:
  static constexpr Callback k_nothing{[](void*, const Completion&) {}, nullptr};
  std::atomic<bool> stands_{false};
  std::atomic<bool> ended_{false};
};

}  // namespace

TEST_CASE("a close that cannot wait: what found no room until then is told all the same, once, and nothing is kept") {
  for (int round = 0; round < rounds(10); ++round) {
    std::atomic<int> told{0};
    Couple couple;
    DataDist& sender = couple.world[0];
    TransferOptions options{.layered = true};
    options.callback = {[](void* context, const Result<void>& result, const Progress& progress) {
                          CHECK(code_of(result) == ErrorCode::cancelled);
                          CHECK(progress.layers_done == 1);
                          *static_cast<std::atomic<int>*>(context) += 1;
                        },
                        &told};
    const auto open = sender.push(couple.from, couple.target_seen, two_blocks(), options);
    require_ok(open);
    require_ok(open->ready(0));
    while (open->progress().layers_done == 0) std::this_thread::yield();
    const auto word = couple.world.runtime(0).allocate(4096);
    require_ok(word);
    Jam jam(couple.world.runtime(0), *word);
    open->cancel();
    CHECK(code_of(open->query()) == ErrorCode::cancelled);
    std::thread asking([&] { CHECK(code_of(sender.find(1, paged().key, k_long)) == ErrorCode::stopped); });
    std::thread closing([&] { CHECK(code_of(sender.close(Timeout{})) == ErrorCode::deadline_exceeded); });
    // Told while the loop still stands, unless the keeper had kept a slot to itself: then by the loop, later.
    const auto later = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (told.load() == 0 && std::chrono::steady_clock::now() < later) std::this_thread::yield();
    jam.end();
    closing.join();
    asking.join();
    couple.world.slot(0).reset();
    // The source's memory and the word: the directory and what was fetched into are gone.
    const auto until = std::chrono::steady_clock::now() + k_patience;
    const auto regions = [&] { return couple.world.runtime(0).dump_regions().value().own.size(); };
    while (regions() != 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    CHECK(regions() == 2);
    couple.world.world().slot(0).reset();
    REQUIRE(told.load() == 1);
  }
}

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
