// SPDX-License-Identifier: Apache-2.0
//
// Every way to learn of an end, and to bring it about: cancel, then, co_await, wait for all and any; deadlines that are
// over before they begin; calls that refuse; a program that throws.
#include <coroutine>
#include <optional>
#include <stdexcept>
#include <thread>

#include "support.hpp"
#include "wait_parts.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

struct Story {
  Runtime& runtime;
  std::thread::id home = std::this_thread::get_id();
  std::vector<ErrorCode> codes{};
  bool on_loop = true;
  Events events{};
  void note(const Result<void>& result) {
    codes.push_back(code_of(result));
    on_loop = on_loop && std::this_thread::get_id() != home;
  }
};

}  // namespace

TEST_CASE("F94: cancel ends what is under way, and no byte of it moves later") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    WaitPair pair(links);
    Runtime& runtime = pair.world[0];
    int cancelled = 0;
    for (int round = 0; round < rounds(30); ++round) {
      std::vector<Request> requests;
      // Each has bytes of its own.
      constexpr std::uint64_t part = k_wait_bytes / 8;
      for (std::uint64_t i = 0; i < 6; ++i) {
        requests.push_back(*runtime.put(pair.a.data + i * part, pair.remote.at(i * part), part));
      }
      std::byte* rest = pair.a.data + 6 * part;
      const BatchEntry entries[] = {
          {TransferVerb::get, rest, pair.remote.at(6 * part), part / 4},
          {TransferVerb::put, rest + part / 2, pair.remote.at(6 * part + part / 2), part / 2}};
      requests.push_back(*runtime.batch(entries));
      requests.push_back(*runtime.put_with_signal(rest + part, pair.remote.at(7 * part + 8), part / 2,
                                                  {.word = pair.remote.at(7 * part), .value = 1}));
      requests.push_back(*runtime.flush_async(1));
      requests.push_back(*runtime.put(pair.a.data, {0, pair.a.address() + 7 * part + part / 2, {}, 0}, part / 2));
      // From other threads too, whose question may overtake the post.
      std::atomic<int> refused{0};
      std::thread other([copies = requests, &refused]() mutable {
        for (std::size_t i = copies.size(); i-- > 0;) {
          const ErrorCode code = code_of(copies[i].cancel());  // INVALID_REQUEST: the end has been seen meanwhile
          if (code != ErrorCode::ok && code != ErrorCode::invalid_request) refused.fetch_add(1);
        }
      });
      for (std::size_t i = 0; i < requests.size(); i += 2) require_ok(requests[i].cancel());
      for (Request& request : requests) {
        const auto result = request.wait(k_patience);
        CHECK((result || code_of(result) == ErrorCode::cancelled));
        cancelled += result ? 0 : 1;
        require_ok(request.cancel());  // after its end: what it is
        CHECK(code_of(request.query()) == code_of(result));
      }
      other.join();
      CHECK(refused == 0);
      // All that was written there; what was only read may still be read for an answer that nobody wants any more.
      const std::uint64_t after = 6 * part + part / 2;
      std::memset(pair.b.data, 0x33, 6 * part);
      std::memset(pair.b.data + after, 0x33, k_wait_bytes - after);
      std::memset(pair.a.data, 0x44, k_wait_bytes);
      require_ok(runtime.put_sync(pair.a.data, pair.remote.at(0), 1));
      CHECK(all_bytes(pair.b.data + 1, 6 * part - 1, std::byte{0x33}));
      CHECK(all_bytes(pair.b.data + after, k_wait_bytes - after, std::byte{0x33}));
      CHECK(all_bytes(pair.a.data, k_wait_bytes, std::byte{0x44}));
    }
    CHECK(cancelled > 0);
    Request empty;
    CHECK(code_of(empty.cancel()) == ErrorCode::invalid_request);
    require_ok(runtime.joined().cancel());
    require_ok(runtime.joined().wait());
  }
}

TEST_CASE("then: one call on the loop, never inline, before and after the end") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    WaitPair pair(links);
    Runtime& runtime = pair.world[0];
    for (int round = 0; round < rounds(200); ++round) {
      Noted noted, second;
      auto request = runtime.put(pair.a.data, pair.remote.at(0), 1000, {.user_data = 7});
      require_ok(request);
      const bool late = round % 2 == 0;
      if (late) {
        while (!Request(*request).done()) std::this_thread::yield();
        CHECK(code_of(request->then(noted.callback())) == ErrorCode::invalid_request);  // a copy saw that end
        auto again = runtime.put(pair.a.data, pair.remote.at(0), 1000, {.user_data = 7});
        require_ok(runtime.flush(1));
        require_ok(again->then(noted.callback()));
        CHECK(code_of(again->then(second.callback())) == ErrorCode::invalid_request);
      } else {
        require_ok(request->then(noted.callback()));
        CHECK_FALSE(request->then(second.callback()));
        require_ok(request->wait());  // both
      }
      REQUIRE(noted.events.wait_for(1));
      CHECK(noted.elsewhere);
      CHECK(noted.completion.user_data == 7);
      CHECK(noted.completion.bytes == 1000);
      require_ok(noted.completion.result);
      CHECK(second.events.count() == 0);
      CHECK(noted.events.count() == 1);
    }
    Noted noted;
    auto mine = runtime.put(pair.a.data, pair.remote.at(0), 8, {.callback = noted.callback()});
    CHECK(code_of(mine->then(noted.callback())) == ErrorCode::invalid_argument);
    require_ok(mine->wait());
    // After the runtime's end nobody is left to call it.
    auto late = runtime.put(pair.a.data, pair.remote.at(0), 8);
    require_ok(runtime.stop());
    CHECK(code_of(late->then(noted.callback())) == ErrorCode::stopped);
    require_ok(late->query());
    CHECK(noted.events.count() == 1);
  }
}

namespace {

Detached tell(Story& story, WaitPair& pair) {
  Runtime& runtime = story.runtime;
  auto first = runtime.put(pair.a.data, pair.remote.at(0), k_wait_bytes);
  story.note(co_await *first);
  story.note(co_await *first);  // seen: goes on at once
  story.note(co_await *runtime.get(pair.a.data, pair.remote.at(0), 64));
  // On the loop thread now: blocking calls would never end.
  auto third = runtime.put(pair.a.data, pair.remote.at(0), k_wait_bytes);
  story.codes.push_back(code_of(third->wait()));
  story.codes.push_back(code_of(runtime.barrier()));
  require_ok(third->cancel());
  const auto ended = co_await std::move(*third);
  story.note(ended ? Result<void>(fail(ErrorCode::cancelled)) : ended);  // or it was quicker
  auto told = runtime.put(pair.a.data, pair.remote.at(0), 8, {.callback = {[](void*, const Completion&) {}, nullptr}});
  story.note(co_await *told);
  Request empty;
  story.note(co_await empty);
  story.events.add();
}

Detached blunder(Story& story, WaitPair& pair) {
  const auto result = co_await *story.runtime.put(pair.a.data, pair.remote.at(0), 8);
  story.events.add();
  if (result) throw std::runtime_error("a user's mistake");
}

Detached wait_late(Story& story, Request request) {
  story.note(co_await request);
  story.events.add();
}

}  // namespace

TEST_CASE("co_await gives the result and goes on on the loop thread") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    WaitPair pair(links);
    Runtime& runtime = pair.world[0];
    Story story{runtime};
    tell(story, pair);
    REQUIRE(story.events.wait_for(1));
    CHECK(story.codes == std::vector<ErrorCode>{ErrorCode::ok, ErrorCode::ok, ErrorCode::ok, ErrorCode::would_deadlock,
                                                ErrorCode::would_deadlock, ErrorCode::cancelled,
                                                ErrorCode::invalid_argument, ErrorCode::invalid_request});
    CHECK(story.on_loop);
    // One that has ended already resumes there as well.
    Story late{runtime};
    auto request = runtime.put(pair.a.data, pair.remote.at(0), 8);
    require_ok(runtime.flush(1));
    wait_late(late, std::move(*request));
    REQUIRE(late.events.wait_for(1));
    CHECK(late.on_loop);
    CHECK(late.codes == std::vector<ErrorCode>{ErrorCode::ok});

    Story blunders{runtime};
    const Detached blundered = blunder(blunders, pair);
    REQUIRE(blunders.events.wait_for(1));
    require_ok(runtime.flush(1));
    CHECK(runtime.counters().callback_errors == 1);
    REQUIRE(blundered.frame.done());
    blundered.frame.destroy();

    // Without a loop it goes on where it is.
    Story after{runtime};
    auto kept = runtime.put(pair.a.data, pair.remote.at(0), 8);
    require_ok(runtime.stop());
    wait_late(after, std::move(*kept));
    CHECK(after.events.count() == 1);
    CHECK_FALSE(after.on_loop);
    CHECK(after.codes == std::vector<ErrorCode>{ErrorCode::ok});
  }
}

TEST_CASE("P42: a deadline of 0 ends at once and moves nothing; a negative one is refused") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    WaitPair pair(links);
    Runtime& runtime = pair.world[0];
    std::memset(pair.b.data, 0x55, k_wait_bytes);
    std::memset(pair.a.data, 0x66, k_wait_bytes);
    const BatchEntry entry{TransferVerb::put, pair.a.data, pair.remote.at(0), 8};
    for (const std::uint64_t size : {std::uint64_t{8}, std::uint64_t{k_wait_bytes}}) {
      CAPTURE(size);
      for (int round = 0; round < rounds(50); ++round) {
        std::vector<Request> requests;
        requests.push_back(*runtime.put(pair.a.data, pair.remote.at(0), size, {.timeout = 0ns}));
        requests.push_back(*runtime.get(pair.a.data, pair.remote.at(0), size, {.timeout = 0ns}));
        requests.push_back(*runtime.batch(std::span(&entry, 1), {.timeout = 0ns}));
        requests.push_back(
            *runtime.put_with_signal(pair.a.data, pair.remote.at(8), 8, {.word = pair.remote.at(0)}, {.timeout = 0ns}));
        requests.push_back(*runtime.put(pair.a.data, {0, pair.a.address() + 64, {}, 0}, 8, {.timeout = 0ns}));
        for (Request& request : requests) CHECK(code_of(request.wait()) == ErrorCode::deadline_exceeded);
        CHECK(code_of(runtime.put_sync(pair.a.data, pair.remote.at(0), size, 0ns)) == ErrorCode::deadline_exceeded);
        CHECK(code_of(runtime.get_sync(pair.a.data, pair.remote.at(0), size, 0ns)) == ErrorCode::deadline_exceeded);
      }
      CHECK(code_of(runtime.put_sync(pair.a.data, pair.remote.at(0), size, -5ns)) == ErrorCode::invalid_argument);
      CHECK(code_of(runtime.get_sync(pair.a.data, pair.remote.at(0), size, -5ns)) == ErrorCode::invalid_argument);
      CHECK(code_of(runtime.put(pair.a.data, pair.remote.at(0), size, {.timeout = -5ns})) ==
            ErrorCode::invalid_argument);
    }
    CHECK(all_bytes(pair.b.data, k_wait_bytes, std::byte{0x55}));
    CHECK(all_bytes(pair.a.data, k_wait_bytes, std::byte{0x66}));
    const Rank one[] = {1};
    Answer<Result<void>> never;
    Answer<std::vector<PeerAddresses>> nobody;
    CHECK(code_of(runtime.deregister_async(pair.a, -5ns, store_result, &never)) == ErrorCode::invalid_argument);
    CHECK(code_of(runtime.barrier_async({}, -5ns, store_result, &never)) == ErrorCode::invalid_argument);
    CHECK(code_of(runtime.exchange_async({}, one, -5ns, store_answers, &nobody)) == ErrorCode::invalid_argument);
    CHECK(code_of(runtime.stop_async(-5ns, store_result, &never)) == ErrorCode::invalid_argument);
    CHECK(code_of(runtime.quiet_async(-5ns, store_result, &never)) == ErrorCode::invalid_argument);
    CHECK(code_of(runtime.quiet_async(1s, nullptr, nullptr)) == ErrorCode::invalid_argument);
    CHECK(code_of(runtime.quiet(0ns)) == ErrorCode::deadline_exceeded);
    CHECK(code_of(runtime.deregister_async(pair.a, 1s, nullptr, nullptr)) == ErrorCode::invalid_argument);
    CHECK(code_of(runtime.barrier_async({}, 1s, nullptr, nullptr)) == ErrorCode::invalid_argument);
    CHECK(code_of(runtime.exchange_async({}, one, 1s, nullptr, nullptr)) == ErrorCode::invalid_argument);
    CHECK(code_of(runtime.stop_async(1s, nullptr, nullptr)) == ErrorCode::invalid_argument);
    require_ok(runtime.stop());
    CHECK(never.events.count() + nobody.events.count() == 0);
  }
}

TEST_CASE("F97: wait for all gives the first error and leaves each its own, also across runtimes") {
  WaitPair pair({});
  WaitPair other({LinkKind::tcp});
  std::uint64_t place = 0;
  const auto post = [&place](WaitPair& at, Timeout timeout) {
    place += 100'000;
    return *at.world[0].put(at.a.data, at.remote.at(place), 100'000, {.timeout = timeout});
  };
  std::vector<Request> requests;
  requests.push_back(post(pair, k_patience));
  requests.push_back(post(other, 0ns));
  requests.push_back(post(pair, k_patience));
  requests.push_back(post(other, k_patience));
  requests.push_back(Request());
  const auto all = wait_all(requests, k_patience);
  CHECK(code_of(all) == ErrorCode::deadline_exceeded);
  CHECK(all.error().detail.stage == Stage::transfer);  // the operation's end, not the wait's
  const ErrorCode wanted[] = {ErrorCode::ok, ErrorCode::deadline_exceeded, ErrorCode::ok, ErrorCode::ok,
                              ErrorCode::invalid_request};
  for (std::size_t i = 0; i < requests.size(); ++i) CHECK(code_of(requests[i].query()) == wanted[i]);

  requests = {post(pair, k_patience), post(other, k_patience)};
  for (int left = 2; left > 0; --left) {
    const auto index = wait_any(requests, k_patience);
    require_ok(index);
    require_ok(requests[*index].query());
    requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(*index));
  }
  CHECK(code_of(wait_any({}, 1s)) == ErrorCode::invalid_argument);
}

TEST_CASE("P50: operations that time out, 10^4 times, leave nothing behind") {
  WaitPair pair({});
  Runtime& runtime = pair.world[0];
  for (int round = 0; round < rounds(10'000); ++round) {
    auto request = runtime.put(pair.a.data, pair.remote.at(0), 100, {.timeout = 0ns});
    require_ok(request);
    if (round % 3 == 0) continue;  // dropped
    CHECK(code_of(request->wait()) == ErrorCode::deadline_exceeded);
  }
  require_ok(runtime.flush(1));
  // All of the table's places can be taken at once.
  std::vector<Request> all;
  for (;;) {
    auto request = runtime.put(pair.a.data, pair.remote.at(0), 8);
    if (!request) break;
    all.push_back(std::move(*request));
  }
  CHECK(all.size() == 256);
  require_ok(wait_all(all, k_patience));
}

TEST_CASE("S34: a request's last copy goes inside its callback, or beside it") {
  WaitPair pair({});
  Runtime& runtime = pair.world[0];
  struct Call {
    std::optional<Request> request;
    Events events;
  };
  for (int round = 0; round < rounds(2000); ++round) {
    Call call;
    call.request = *runtime.put(pair.a.data, pair.remote.at(0), 8);
    Request beside = *call.request;
    const auto asked = beside.then({[](void* context, const Completion&) {
                                      auto& c = *static_cast<Call*>(context);
                                      c.request.reset();
                                      c.events.add();
                                    },
                                    &call});
    require_ok(asked);
    beside = Request();
    REQUIRE(call.events.wait_for(1));
  }
  require_ok(runtime.flush(1));
  CHECK(runtime.counters().failed_unseen == 0);
}

TEST_CASE("S12: a put with a signal that fails here leaves its waiter there with an error, in time") {
  WaitPair pair({});
  for (const bool cancelled : {false, true}) {
    auto request = pair.world[0].put_with_signal(pair.a.data, pair.remote.at(8), k_wait_bytes - 8,
                                                 {.word = pair.remote.at(0), .value = 1},
                                                 {.timeout = cancelled ? Timeout(k_patience) : Timeout(0)});
    require_ok(request);
    if (cancelled) require_ok(request->cancel());
    const auto result = request->wait();
    const auto seen = pair.world[1].wait_signal(pair.b.data, Compare::equal, 1, result ? Timeout(k_patience) : 20ms);
    CHECK(code_of(seen) == (result ? ErrorCode::ok : ErrorCode::deadline_exceeded));
  }
}

TEST_CASE("S35: operations for which no link is usable end once each, 10^5 times, and leave nothing") {
  World world(2, {LinkKind::hccs});
  std::vector<std::byte> plain(4096);
  const auto a = *world[0].allocate(4096);
  const auto b = *world[1].register_memory(plain.data(), plain.size());  // no window
  const RemoteRegion remote = world.exchange_all({a, b})[0][1];
  const int full = rounds(100'000);
  Noted told;
  int callbacks = 0;
  for (int round = 0; round < full; ++round) {
    const bool with_callback = round % 4 == 0;
    auto request = world[0].put(a.data, remote.at(0), 4096, {.callback = with_callback ? told.callback() : Callback{}});
    require_ok(request);
    if (round % 3 == 0) require_ok(request->cancel());
    const ErrorCode code = code_of(request->wait());
    if (code != ErrorCode::transport_unavailable && code != ErrorCode::cancelled) CHECK(code == ErrorCode::cancelled);
    callbacks += with_callback ? 1 : 0;
  }
  require_ok(world[0].flush(1));
  CHECK(told.events.count() == callbacks);
  const Counters counters = world[0].counters();
  CHECK(counters.failed == static_cast<std::uint64_t>(full));
  CHECK(counters.failed_unseen == 0);
}
