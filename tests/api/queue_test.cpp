// SPDX-License-Identifier: Apache-2.0
//
// Completion queues with real operations: by descriptor, by waiting, shared by runtimes, full, and destroyed early. And
// runtimes that are destroyed or stopped where their own callbacks run.
#include <poll.h>
#include <uv.h>

#include <array>
#include <optional>
#include <stdexcept>
#include <thread>

#include <hixl/completion_queue.hpp>

#include "support.hpp"
#include "wait_parts.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

TEST_CASE("F93: a queue brings every end once, with result, number and bytes") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    WaitPair pair(links);
    Runtime& runtime = pair.world[0];
    auto queue = *CompletionQueue::create(32);
    std::array<Completion, 7> out;
    const bool by_descriptor = text(links) != "tcp";
    const int fd = by_descriptor ? queue->fd() : -1;
    std::vector<int> seen(500);
    std::size_t posted = 0, ended = 0, busy = 0;
    std::vector<Request> held;
    while (ended < seen.size()) {
      while (posted < seen.size()) {
        const Timeout timeout = posted % 5 == 0 ? Timeout(0) : Timeout(k_patience);
        auto request = runtime.put(pair.a.data, pair.remote.at(0), posted,
                                   {.timeout = timeout, .user_data = posted, .queue = queue.get()});
        if (!request) {
          REQUIRE(code_of(request) == ErrorCode::busy);
          CHECK(request.error().detail.limit == 32);
          busy += 1;
          break;
        }
        if (posted % 7 == 0) held.push_back(std::move(*request));
        posted += 1;
      }
      std::size_t count = 0;
      if (by_descriptor) {
        pollfd look{fd, POLLIN, 0};
        REQUIRE(::poll(&look, 1, 30'000) == 1);
        count = queue->poll(out);
      } else {
        const auto waited = queue->wait(out, k_patience);
        require_ok(waited);
        count = *waited;
      }
      for (const Completion& completion : std::span(out).first(count)) {
        seen[completion.user_data] += 1;
        const bool late = completion.user_data % 5 == 0;
        CHECK(code_of(completion.result) == (late ? ErrorCode::deadline_exceeded : ErrorCode::ok));
        CHECK(completion.bytes == (late ? 0 : completion.user_data));
      }
      ended += count;
    }
    CHECK(busy > 0);
    for (const int count : seen) CHECK(count == 1);
    CHECK(queue->in_use() == 0);
    CHECK(queue->poll(out) == 0);
    for (Request& request : held) CHECK(request.done());
    CHECK(runtime.counters().failed_unseen == 0);
  }
}

TEST_CASE("a queue may be shared by runtimes, and combined with a callback and waiting") {
  WaitPair pair({});
  WaitPair other({LinkKind::tcp});
  auto queue = *CompletionQueue::create(100);
  Noted noted, late;
  auto one = pair.world[0].put(pair.a.data, pair.remote.at(0), 8,
                               {.callback = noted.callback(), .user_data = 1, .queue = queue.get()});
  auto two = other.world[0].put(other.a.data, other.remote.at(0), 8, {.user_data = 2, .queue = queue.get()});
  require_ok(one);
  require_ok(two);
  require_ok(two->then(late.callback()));
  require_ok(one->wait());
  require_ok(two->wait());
  REQUIRE(noted.events.wait_for(1));
  REQUIRE(late.events.wait_for(1));
  std::uint64_t sum = 0;
  std::array<Completion, 4> out;
  for (int left = 2; left > 0;) {
    const auto count = queue->wait(out, k_patience);
    require_ok(count);
    for (std::size_t i = 0; i < *count; ++i) sum += out[i].user_data;
    left -= static_cast<int>(*count);
  }
  CHECK(sum == 3);
  // Where the ends would have to come from, nobody can wait for them.
  struct Call {
    CompletionQueue& queue;
    ErrorCode code = ErrorCode::ok;
    Events events{};
  } call{*queue};
  require_ok(pair.world[0].put(pair.a.data, pair.remote.at(0), 8,
                               {.callback = {[](void* context, const Completion&) {
                                               auto& c = *static_cast<Call*>(context);
                                               std::array<Completion, 1> none;
                                               c.code = code_of(c.queue.wait(none, k_patience));
                                               c.events.add();
                                             },
                                             &call}}));
  REQUIRE(call.events.wait_for(1));
  CHECK(call.code == ErrorCode::would_deadlock);
}

TEST_CASE("a queue that is destroyed while operations are open costs only their entries") {
  WaitPair pair({});
  Runtime& runtime = pair.world[0];
  auto queue = *CompletionQueue::create(64);
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 64; ++i) {
    requests.push_back(*runtime.put(pair.a.data, pair.remote.at(i * 16'000), 16'000, {.queue = queue.get()}));
  }
  queue.reset();
  require_ok(wait_all(requests, k_patience));
  require_ok(runtime.flush(1));
  CHECK(runtime.counters().completions_dropped <= 64);
  require_ok(runtime.put_sync(pair.a.data, pair.remote.at(0), 8));
  // A queue that outlives its runtimes keeps what they brought.
  auto left = *CompletionQueue::create(4);
  require_ok(runtime.put(pair.a.data, pair.remote.at(0), 8, {.queue = left.get()}));
  pair.world.slot(0).reset();
  std::array<Completion, 4> out;
  CHECK(left->poll(out) == 1);
}

TEST_CASE("a hosted runtime destroyed in its own callback ends while the host turns its loop") {
  uv_loop_t loop;
  REQUIRE(uv_loop_init(&loop) == 0);
  struct Program {
    std::unique_ptr<Runtime> runtime;
    bool destroyed = false;
    int ends = 0;
  } program;
  program.runtime = std::move(*Runtime::create_on(&loop, options_for(0, 1, "")));
  while (!program.runtime->joined().done()) uv_run(&loop, UV_RUN_NOWAIT);
  const auto region = *program.runtime->allocate(8 << 20);
  const RemoteAddress self{0, region.address(), {}, 0};
  require_ok(program.runtime->put(region.data, self, 8,
                                  {.callback = {[](void* context, const Completion&) {
                                                  auto& p = *static_cast<Program*>(context);
                                                  p.runtime.reset();
                                                  p.destroyed = true;
                                                },
                                                &program}}));
  require_ok(program.runtime->put(
      region.data, self, 4 << 20,
      {.callback = {[](void* context, const Completion&) { static_cast<Program*>(context)->ends += 1; }, &program}}));
  // Its handles are the loop's only ones: they are gone when nothing is left.
  uv_run(&loop, UV_RUN_DEFAULT);
  CHECK(program.destroyed);
  CHECK(program.ends == 1);
  CHECK(uv_loop_close(&loop) == 0);
}

TEST_CASE("asynchronous calls never call back inline, not even on the loop; what they throw is counted") {
  WaitPair pair({});
  Runtime& runtime = pair.world[0];
  struct Call {
    Runtime& runtime;
    Region region;
    int told = 0;
    bool inside = false, inline_seen = false;
    Events events{};
    void note() {
      inline_seen = inline_seen || inside;
      events.add();
      throw std::runtime_error("a user's mistake");
    }
  } call{runtime, *runtime.allocate(4096)};
  const auto done = [](void* context, const Result<void>&) { static_cast<Call*>(context)->note(); };
  const auto learned = [](void* context, std::vector<PeerAddresses>&&) { static_cast<Call*>(context)->note(); };
  static const auto ask = [done, learned](Call& c) {
    const Rank self[] = {0};
    const Rank nobody[] = {0, 0};
    const auto results = {c.runtime.barrier_async(self, k_patience, done, &c),
                          c.runtime.barrier_async(nobody, k_patience, done, &c),
                          c.runtime.exchange_async({}, self, k_patience, learned, &c),
                          c.runtime.exchange_async({}, {}, k_patience, learned, &c),
                          c.runtime.deregister_async(c.region, k_patience, done, &c),
                          c.runtime.deregister_async(Region{}, k_patience, done, &c)};
    for (const auto& result : results) require_ok(result);
  };
  SUBCASE("from a callback") {
    require_ok(runtime.put(pair.a.data, pair.remote.at(0), 8,
                           {.callback = {[](void* context, const Completion&) {
                                           auto& c = *static_cast<Call*>(context);
                                           c.inside = true;
                                           ask(c);
                                           c.inside = false;
                                         },
                                         &call}}));
  }
  SUBCASE("from another thread") { ask(call); }
  REQUIRE(call.events.wait_for(6));
  CHECK_FALSE(call.inline_seen);
  require_ok(runtime.flush(1));
  require_ok(runtime.barrier(k_patience, std::array<Rank, 1>{0}));
  CHECK(runtime.counters().callback_errors == 6);
  CHECK(call.events.count() == 6);
}

TEST_CASE("a loop that has no room for a call says BUSY, and looking inside still works") {
  uv_loop_t loop;
  REQUIRE(uv_loop_init(&loop) == 0);
  auto runtime = std::move(*Runtime::create_on(&loop, options_for(0, 1, "")));
  while (!runtime->joined().done()) uv_run(&loop, UV_RUN_NOWAIT);
  // The host does not turn its loop meanwhile.
  Events told;
  const auto done = [](void* context, const Result<void>&) { static_cast<Events*>(context)->add(); };
  int begun = 0;
  Result<void> asked;
  while (begun < 100'000) {
    asked = runtime->barrier_async({}, k_patience, done, &told);
    if (!asked) break;
    begun += 1;
  }
  CHECK(code_of(asked) == ErrorCode::busy);
  CHECK(asked.error().detail.limit == 256);
  CHECK(told.count() == 0);
  Counters counters{};
  std::thread looker([&] { counters = runtime->counters(); });
  std::atomic<bool> looked{false};
  std::thread waiter([&] {
    looker.join();
    looked = true;
  });
  while (!looked) uv_run(&loop, UV_RUN_NOWAIT);
  waiter.join();
  while (told.count() < begun) uv_run(&loop, UV_RUN_NOWAIT);
  runtime.reset();
  uv_run(&loop, UV_RUN_DEFAULT);
  CHECK(uv_loop_close(&loop) == 0);
  CHECK(told.count() == begun);
}

TEST_CASE("a runtime destroyed in its own callback returns at once, and everything open ends once") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    struct Program {
      std::unique_ptr<Runtime>* runtime = nullptr;
      Events posted, destroyed, ends;
    };
    std::size_t before = 0;
    for (int round = 0; round < 5; ++round) {
      Program program;
      std::vector<Request> requests;
      {
        WaitPair pair(links);
        program.runtime = &pair.world.slot(0);
        Runtime& runtime = pair.world[0];
        for (std::uint64_t i = 0; i < 20; ++i) {
          requests.push_back(*runtime.put(
              pair.a.data, pair.remote.at(64 + i * 50'000), 50'000,
              {.callback = {[](void* context, const Completion&) { static_cast<Program*>(context)->ends.add(); },
                            &program}}));
        }
        require_ok(runtime.put(pair.a.data, pair.remote.at(0), 8,
                               {.callback = {[](void* context, const Completion&) {
                                               auto& p = *static_cast<Program*>(context);
                                               if (p.posted.wait_for(1)) p.runtime->reset();
                                               p.destroyed.add();
                                             },
                                             &program}}));
        program.posted.add();
        REQUIRE(program.destroyed.wait_for(1));
        REQUIRE(program.ends.wait_for(20));
        for (Request& request : requests) {
          const ErrorCode code = code_of(request.wait(k_patience));
          CHECK((code == ErrorCode::ok || code == ErrorCode::stopped));
        }
        CHECK(program.ends.count() == 20);
      }
      if (round == 0) {
        before = open_descriptors();  // perhaps with some that are just being closed
        continue;
      }
      // The thread that ends it goes on by itself.
      const auto patience_over = std::chrono::steady_clock::now() + k_patience;
      while (open_descriptors() > before && std::chrono::steady_clock::now() < patience_over) std::this_thread::yield();
      CHECK(open_descriptors() <= before);
    }
  }
}
