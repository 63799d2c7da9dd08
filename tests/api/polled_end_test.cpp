// SPDX-License-Identifier: Apache-2.0
//
// Runtimes that the program turns by hand: how they end, and who waits for them elsewhere.
#include <thread>

#include <hixl/completion_queue.hpp>

#include "polled_parts.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

TEST_CASE("P64 P65 destruction without stop: every open call ends once, none comes later") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    for (int turns = 0; turns < std::max(4, rounds(12)); ++turns) {
      for (const bool stopping : {false, true}) {
        CAPTURE(turns);
        CAPTURE(stopping);
        PolledCouple world(links);
        Events calls;
        for (int i = 0; i < 40; ++i) {
          require_ok(world.mine->put(
              world.here.data, world.remote.at(0), i % 2 == 0 ? 8 : k_polled_bytes / 2,
              {.callback = {[](void* context, const Completion& completion) {
                              const ErrorCode code = code_of(completion.result);
                              // STALE: the region goes while they are open.
                              CHECK((code == ErrorCode::ok || code == ErrorCode::stopped || code == ErrorCode::stale));
                              static_cast<Events*>(context)->add();
                            },
                            &calls}}));
        }
        Request kept = *world.mine->put(world.here.data, world.remote.at(4096), k_polled_bytes / 2);
        Answer<Result<void>> met, gone, stopped;
        const Rank one[] = {1};
        require_ok(world.mine->barrier_async({}, k_patience, store_result, &met));
        require_ok(world.mine->exchange_async({}, one, k_patience, store_answers, &world.met));
        require_ok(world.mine->deregister_async(world.here, k_patience, store_result, &gone));
        if (stopping) require_ok(world.mine->stop_async(k_patience, store_result, &stopped));
        for (int i = 0; i < turns; ++i) world.mine->poll();
        world.mine.reset();
        CHECK(calls.count() == 40);
        CHECK(kept.done());
        CHECK(met.events.count() == 1);
        CHECK(gone.events.count() == 1);
        CHECK(world.met.events.count() == 2);
        CHECK(stopped.events.count() == (stopping ? 1 : 0));
      }
    }
  }
}

TEST_CASE("a polled runtime may be destroyed in the end of its stop, and while a request of it is waited for") {
  const auto store = Store::create("tcp://127.0.0.1:0");
  struct Owner {
    std::unique_ptr<Runtime> runtime;
    Answer<Result<void>> stopped;
  } owner;
  owner.runtime = start_polled(options_for(0, 1, (*store)->url()));
  require_ok(owner.runtime->joined().wait());
  require_ok(owner.runtime->stop_async(
      k_patience,
      [](void* context, const Result<void>& result) {
        auto& o = *static_cast<Owner*>(context);
        o.runtime.reset();
        store_result(&o.stopped, result);
      },
      &owner));
  while (owner.runtime) owner.runtime->poll();
  CHECK(owner.stopped.events.count() == 1);
  require_ok(owner.stopped.value);
  for (int turns = 0; turns < 6; ++turns) {
    auto early = start_polled(options_for(0, 2, (*store)->url()));
    Request joined = early->joined();
    for (int i = 0; i < turns; ++i) early->poll();
    early.reset();
    CHECK(joined.done());
    CHECK((joined.query() || code_of(joined.query()) == ErrorCode::stopped));
  }
}

TEST_CASE("a polled runtime may be destroyed in a callback of its own: what is open ends with that turn") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    for (int at = 0; at < 6; ++at) {
      PolledCouple world(links);
      struct Call {
        PolledCouple* world;
        int left;
        Events events;
        static void end(void* context, const Completion&) {
          auto& call = *static_cast<Call*>(context);
          if (call.left-- == 0) call.world->mine.reset();
          call.events.add();
        }
      } call{&world, at, {}};
      constexpr std::uint64_t k_place_bytes = k_polled_bytes / 8;  // puts that are open together do not overlap
      for (std::uint64_t i = 0; i < 6; ++i) {
        require_ok(world.mine->put(world.here.data, world.remote.at(i * k_place_bytes), i % 2 == 0 ? 8 : k_place_bytes,
                                   {.callback = {Call::end, &call}}));
      }
      Request kept = *world.mine->put(world.here.data, world.remote.at(6 * k_place_bytes), k_place_bytes);
      Answer<Result<void>> quiet;
      require_ok(world.mine->quiet_async(k_patience, store_result, &quiet));
      while (world.mine) world.mine->poll();
      CHECK(call.events.count() == 6);
      CHECK(quiet.events.count() == 1);
      CHECK(kept.done());
    }
  }
}

TEST_CASE("F97: who waits at a completion queue turns the polled runtimes that it drives") {
  PolledCouple world;
  const auto queue = CompletionQueue::create(8);
  require_ok(queue);
  for (int round = 0; round < rounds(200); ++round) {
    const std::uint64_t size = round % 2 == 0 ? 8 : k_polled_bytes / 2;
    require_ok(world.mine->put(world.here.data, world.remote.at(0), size, {.user_data = 5, .queue = queue->get()}));
    Completion ended[2];
    const auto count = (*queue)->wait(ended, k_patience);
    require_ok(count);
    CHECK(*count == 1);
    require_ok(ended[0].result);
    CHECK(ended[0].user_data == 5);
  }
  Completion none[1];
  CHECK(code_of((*queue)->wait(none, 20ms)) == ErrorCode::deadline_exceeded);
  // Another thread waits as long as this one turns.
  std::thread other([&] {
    Completion ended[1];
    require_ok((*queue)->wait(ended, k_patience));
  });
  require_ok(world.mine->put(world.here.data, world.remote.at(0), 8, {.queue = queue->get()}));
  while ((*queue)->in_use() > 0) world.mine->poll();
  other.join();
}
