// SPDX-License-Identifier: Apache-2.0
//
// Runtimes on a libuv loop of the host program: nothing blocks its thread, everything ends while it turns, and it can
// be closed afterwards.
#include <uv.h>

#include <functional>
#include <thread>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k_size = 1U << 20U;

/// A host's loop. A guard timer ends a wait that would otherwise be for ever.
class Host {
 public:
  Host() {
    REQUIRE(uv_loop_init(&loop_) == 0);
    uv_timer_init(&loop_, &guard_);
    uv_unref(reinterpret_cast<uv_handle_t*>(&guard_));
  }
  /// Whoever used the loop has let go of it: not one handle is left.
  ~Host() {
    uv_close(reinterpret_cast<uv_handle_t*>(&guard_), nullptr);
    CHECK(turn_until([this] { return uv_loop_alive(&loop_) == 0; }, false));
    CHECK(uv_loop_close(&loop_) == 0);
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  [[nodiscard]] uv_loop_t* loop() { return &loop_; }
  void turn_once() { uv_run(&loop_, UV_RUN_NOWAIT); }
  [[nodiscard]] bool turn_until(const std::function<bool()>& reached, bool guarded = true) {
    const auto end = std::chrono::steady_clock::now() + k_patience;
    if (guarded)
      uv_timer_start(
          &guard_, [](uv_timer_t*) {}, 100, 100);
    while (!reached() && std::chrono::steady_clock::now() < end) uv_run(&loop_, guarded ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    if (guarded) uv_timer_stop(&guard_);
    return reached();
  }
  [[nodiscard]] std::unique_ptr<Runtime> start(const RuntimeOptions& options) {
    auto runtime = Runtime::create_on(&loop_, options);
    require_ok(runtime);
    return std::move(*runtime);
  }
  void join(Runtime& runtime) {
    Request joined = runtime.joined();
    REQUIRE(turn_until([&] { return joined.done(); }));
    require_ok(joined.query());
  }
  template <class Value>
  void wait(Answer<Value>& answer) {
    REQUIRE(turn_until([&] { return answer.events.count() > 0; }));
    CHECK(answer.events.count() == 1);
  }

 private:
  uv_loop_t loop_{};
  uv_timer_t guard_{};
};

/// Two ranks on one loop that know each other's window.
struct HostedPair {
  HostedPair(Host& on, const std::vector<LinkKind>& links) : host(on) {
    store = *Store::create("tcp://127.0.0.1:0");
    for (Rank rank = 0; rank < 2; ++rank) ranks[rank] = host.start(options_for(rank, 2, store->url(), links));
    for (auto& rank : ranks) host.join(*rank);
    for (Rank rank = 0; rank < 2; ++rank) regions[rank] = *ranks[rank]->allocate(k_size);
    Answer<std::vector<PeerAddresses>> answers[2];
    const Rank all[] = {0, 1};
    for (Rank rank = 0; rank < 2; ++rank) {
      require_ok(
          ranks[rank]->exchange_async(std::span(&regions[rank], 1), all, k_patience, store_answers, &answers[rank]));
    }
    for (auto& answer : answers) host.wait(answer);
    for (const PeerAddresses& answer : answers[0].value) require_ok(answer.result);
    remote = answers[0].value[1].regions.front();
  }
  /// Posts, turns the loop until the callback, and gives its completion.
  [[nodiscard]] Result<void> run(const std::function<Result<Request>(const OpOptions&)>& post) {
    Answer<Result<void>> answer;
    require_ok(post(
        {.callback = {[](void* context, const Completion& completion) { store_result(context, completion.result); },
                      &answer}}));
    CHECK(answer.events.count() == 0);  // never inside the post
    host.wait(answer);
    return answer.value;
  }
  Host& host;
  std::unique_ptr<Store> store;
  std::unique_ptr<Runtime> ranks[2];
  Region regions[2];
  RemoteRegion remote;
};

}  // namespace

TEST_CASE("two ranks on one loop exchange, transfer, meet and stop") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Host host;
    HostedPair pair(host, links);
    Runtime& runtime = *pair.ranks[0];
    Region& a = pair.regions[0];
    Region& b = pair.regions[1];
    for (const std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{4096}, k_size}) {
      CAPTURE(size);
      fill_pattern(a.data, k_size, size);
      std::memset(b.data, 0, k_size);
      require_ok(
          pair.run([&](const OpOptions& options) { return runtime.put(a.data, pair.remote.at(0), size, options); }));
      CHECK(holds_pattern(b.data, size, size));
      std::memset(a.data, 0, k_size);
      require_ok(
          pair.run([&](const OpOptions& options) { return runtime.get(a.data, pair.remote.at(0), size, options); }));
      CHECK(holds_pattern(a.data, size, size));
    }
    require_ok(pair.run([&](const OpOptions& options) {
      return runtime.put_with_signal(a.data, pair.remote.at(0), 64, {.word = pair.remote.at(4096), .value = 5},
                                     options);
    }));
    require_ok(pair.ranks[1]->wait_signal(b.data + 4096, Compare::equal, 5));
    require_ok(pair.run([&](const OpOptions& options) { return runtime.flush_async(1, options); }));

    Answer<Result<void>> met[2], gone, stopped[2];
    for (Rank rank = 0; rank < 2; ++rank)
      require_ok(pair.ranks[rank]->barrier_async({}, k_patience, store_result, &met[rank]));
    for (auto& answer : met) {
      host.wait(answer);
      require_ok(answer.value);
    }
    require_ok(pair.ranks[1]->deregister_async(b, k_patience, store_result, &gone));
    host.wait(gone);
    require_ok(gone.value);
    CHECK(code_of(pair.run([&](const OpOptions& options) {
            return runtime.put(a.data, pair.remote.at(0), k_size, options);
          })) == ErrorCode::stale);

    for (Rank rank = 0; rank < 2; ++rank)
      require_ok(pair.ranks[rank]->stop_async(k_patience, store_result, &stopped[rank]));
    for (auto& answer : stopped) {
      host.wait(answer);
      require_ok(answer.value);
    }
    for (auto& rank : pair.ranks) {
      require_ok(rank->stop());
      CHECK(code_of(rank->put(a.data, pair.remote.at(0), 8)) == ErrorCode::stopped);
      CHECK(rank->links().empty());
    }
    CHECK(runtime.counters().operations == 11);
  }
}

TEST_CASE("blocking calls answer WOULD_DEADLOCK on the thread that turns the loop") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Host host;
    HostedPair pair(host, links);
    Runtime& runtime = *pair.ranks[0];
    const auto& r = pair.remote;
    const BatchEntry entry{TransferVerb::put, pair.regions[0].data, r.at(0), 8};
    const Rank one[] = {1};
    CHECK(code_of(runtime.put_sync(pair.regions[0].data, r.at(0), k_size)) == ErrorCode::would_deadlock);
    CHECK(code_of(runtime.get_sync(pair.regions[0].data, r.at(0), k_size)) == ErrorCode::would_deadlock);
    CHECK(code_of(runtime.batch_sync(std::span(&entry, 1))) == ErrorCode::would_deadlock);
    CHECK(code_of(runtime.flush(1)) == ErrorCode::would_deadlock);
    CHECK(code_of(runtime.barrier()) == ErrorCode::would_deadlock);
    CHECK(code_of(runtime.deregister(pair.regions[0])) == ErrorCode::would_deadlock);
    CHECK(code_of(runtime.exchange({}, one).front().result) == ErrorCode::would_deadlock);
    CHECK(code_of(runtime.wait_signal(pair.regions[0].data, Compare::equal, 9)) == ErrorCode::would_deadlock);
    CHECK(code_of(runtime.stop()) == ErrorCode::would_deadlock);
    auto request = runtime.put(pair.regions[0].data, r.at(0), k_size);
    require_ok(request);
    CHECK(code_of(request->wait()) == ErrorCode::would_deadlock);
    CHECK(code_of(wait_any(std::span(&*request, 1))) == ErrorCode::would_deadlock);
    REQUIRE(host.turn_until([&] { return request->done(); }));
    require_ok(request->wait());
    const auto late = host.start(options_for(0, 1, ""));
    CHECK((late->joined().done() || code_of(late->joined().wait()) == ErrorCode::would_deadlock));
    // Answered at once, on this thread too.
    CHECK(runtime.counters().operations == 1);
    CHECK(!runtime.links().empty());
  }
}

TEST_CASE("other threads may block on a runtime whose loop the host turns") {
  Host host;
  HostedPair pair(host, {});
  std::atomic<int> left{3};
  Result<void> stopped = fail(ErrorCode::internal);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      std::byte* const mine = pair.regions[0].data + i * (k_size / 2);
      fill_pattern(mine, k_size / 2, i);
      for (int round = 0; round < rounds(50); ++round) {
        const auto done = pair.ranks[0]->put_sync(mine, pair.remote.at(i * (k_size / 2)), k_size / 2);
        if (!done) FAIL_CHECK(done.error().message());
      }
      left.fetch_sub(1);
    });
  }
  threads.emplace_back([&] {
    while (left.load() > 1) std::this_thread::yield();
    stopped = pair.ranks[0]->stop(k_patience);
    left.fetch_sub(1);
  });
  CHECK(host.turn_until([&] { return left.load() == 0; }));
  for (std::thread& thread : threads) thread.join();
  require_ok(stopped);
  for (std::size_t i = 0; i < 2; ++i) CHECK(holds_pattern(pair.regions[1].data + i * (k_size / 2), k_size / 2, i));
}

TEST_CASE("destruction without stop, at any moment: every open call ends once, and the loop can be closed") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    // How far the host turns its loop before it destroys the runtime; with and without a stop under way.
    for (int turns = 0; turns < std::max(4, rounds(12)); ++turns) {
      for (const bool stopping : {false, true}) {
        CAPTURE(turns);
        CAPTURE(stopping);
        Host host;
        HostedPair pair(host, links);
        Events calls;
        int posted = 0;
        for (; posted < 40; ++posted) {
          const bool small = posted % 2 == 0;
          require_ok(pair.ranks[0]->put(
              pair.regions[0].data, pair.remote.at(small ? 0 : 4096), small ? 8 : k_size / 2,
              {.callback = {[](void* context, const Completion& completion) {
                              const ErrorCode code = code_of(completion.result);
                              // STALE: the deregistration below came first.
                              CHECK((code == ErrorCode::ok || code == ErrorCode::stale || code == ErrorCode::stopped));
                              static_cast<Events*>(context)->add();
                            },
                            &calls}}));
        }
        Request kept = *pair.ranks[0]->put(pair.regions[0].data, pair.remote.at(4096), k_size / 2);
        Answer<Result<void>> met, gone, stopped;
        Answer<std::vector<PeerAddresses>> learned;
        const Rank one[] = {1};
        require_ok(pair.ranks[0]->barrier_async({}, k_patience, store_result, &met));
        require_ok(pair.ranks[0]->exchange_async({}, one, k_patience, store_answers, &learned));
        require_ok(pair.ranks[0]->deregister_async(pair.regions[0], k_patience, store_result, &gone));
        if (stopping) require_ok(pair.ranks[0]->stop_async(k_patience, store_result, &stopped));
        for (int i = 0; i < turns; ++i) host.turn_once();
        pair.ranks[0].reset();
        CHECK(calls.count() == posted);
        CHECK(kept.done());
        CHECK(met.events.count() == 1);
        CHECK(code_of(met.value) == ErrorCode::stopped);
        CHECK(learned.events.count() == 1);
        CHECK(gone.events.count() == 1);
        CHECK(stopped.events.count() == (stopping ? 1 : 0));
        host.turn_once();
        pair.ranks[1].reset();
        CHECK(calls.count() == posted);
      }
    }
  }
}

TEST_CASE("a runtime may be destroyed before it joined, and in the end of its stop") {
  Host host;
  const auto store = Store::create("tcp://127.0.0.1:0");
  for (int turns = 0; turns < 6; ++turns) {
    auto runtime = host.start(options_for(0, 1, (*store)->url()));
    Request joined = runtime->joined();
    for (int i = 0; i < turns; ++i) host.turn_once();
    runtime.reset();
    CHECK(joined.done());
    CHECK((joined.query() || code_of(joined.query()) == ErrorCode::stopped));
  }
  struct Owner {
    std::unique_ptr<Runtime> runtime;
    Answer<Result<void>> first, second;
  } owner;
  owner.runtime = host.start(options_for(0, 1, (*store)->url()));
  host.join(*owner.runtime);
  require_ok(owner.runtime->stop_async(
      k_patience,
      [](void* context, const Result<void>& result) {
        auto& o = *static_cast<Owner*>(context);
        o.runtime.reset();
        store_result(&o.first, result);
      },
      &owner));
  require_ok(owner.runtime->stop_async(k_patience, store_result, &owner.second));
  host.wait(owner.first);
  require_ok(owner.first.value);
  CHECK(owner.second.events.count() == 1);
}

TEST_CASE("while the last handles of a stop close, the runtime still answers") {
  Host host;
  auto runtime = host.start(options_for(0, 1, ""));
  const auto region = runtime->allocate(4096);
  Answer<Result<void>> stopped;
  require_ok(runtime->stop_async(k_patience, store_result, &stopped));
  // After every single turn: no moment at which a look inside hangs, and no second end before the first.
  std::vector<std::unique_ptr<Answer<Result<void>>>> more;
  CHECK(host.turn_until([&] {
    static_cast<void>(runtime->counters());
    static_cast<void>(runtime->links());
    CHECK(code_of(runtime->put(region->data, {0, region->address(), {}, 0}, 8)) == ErrorCode::stopped);
    more.push_back(std::make_unique<Answer<Result<void>>>());
    if (stopped.events.count() == 0) {
      require_ok(runtime->stop_async(k_patience, store_result, more.back().get()));
      CHECK(more.back()->events.count() == 0);
    } else {
      CHECK(code_of(runtime->stop_async(k_patience, store_result, more.back().get())) == ErrorCode::stopped);
      more.pop_back();
    }
    return stopped.events.count() == 1;
  }));
  for (const auto& answer : more) CHECK(answer->events.count() == 1);
}

TEST_CASE("a start that fails leaves nothing on the loop") {
  Host host;
  for (int round = 0; round < 3; ++round) {
    auto options = options_for(0, 1, "", {LinkKind::ub});
    CHECK(code_of(Runtime::create_on(host.loop(), options)) == ErrorCode::transport_unavailable);
    options.links.clear();
    options.bind = "0.0.0.0";
    CHECK(code_of(Runtime::create_on(host.loop(), options)) == ErrorCode::security_required);
    options.spin_us = 1'000'000;
    CHECK(code_of(Runtime::create_on(host.loop(), options)) == ErrorCode::invalid_argument);
    CHECK(code_of(Runtime::create_on(nullptr, options_for(0, 1, ""))) == ErrorCode::invalid_argument);
    // Nobody there: joined() says so, and the runtime can be looked at and destroyed.
    options = options_for(0, 2, "tcp://127.0.0.1:1");
    options.connect_timeout = 20ms;
    auto runtime = host.start(options);
    Request joined = runtime->joined();
    REQUIRE(host.turn_until([&] { return joined.done(); }));
    CHECK(code_of(joined.query()) == ErrorCode::rendezvous_unreachable);
    CHECK(code_of(runtime->joined().query()) == ErrorCode::rendezvous_unreachable);
  }
}

TEST_CASE("hosted ranks come and go without leaving descriptors behind") {
  std::size_t before = 0;
  for (int round = 0; round < 50; ++round) {
    {
      Host host;
      HostedPair pair(host, {});
      require_ok(pair.run([&](const OpOptions& options) {
        return pair.ranks[0]->put(pair.regions[0].data, pair.remote.at(0), k_size, options);
      }));
      Answer<Result<void>> stopped;
      if (round % 2 == 0) {
        require_ok(pair.ranks[0]->stop_async(k_patience, store_result, &stopped));
        host.wait(stopped);
      }
    }
    if (round == 0) before = open_descriptors();
  }
  CHECK(open_descriptors() == before);
}
