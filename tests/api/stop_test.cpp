// SPDX-License-Identifier: Apache-2.0
//
// Stopping: everything open ends once, everything after it says STOPPED, and nobody hangs.
#include <thread>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k_size = 1U << 20U;

/// Looks inside from a place where the loop can no longer be asked: it must answer, whatever.
struct Look {
  Runtime* runtime;
  Counters counters{};
  Result<void> result{};
  Events events;
  static void done(void* context, const Result<void>& result) {
    auto& look = *static_cast<Look*>(context);
    look.result = result;
    look.counters = look.runtime->counters();
    static_cast<void>(look.runtime->links());
    look.events.add();
  }
};

}  // namespace

TEST_CASE("after stop every function answers STOPPED, and what was learned can still be looked at") {
  World world(2);
  const auto a = world[0].allocate(k_size);
  const auto b = world[1].allocate(k_size);
  const auto table = world.exchange_all({*a, *b});
  const RemoteAddress to = table[0][1].at(0);
  Runtime& runtime = world[0];
  require_ok(runtime.put_sync(a->data, to, 8));
  auto seen = runtime.put(a->data, to, k_size);
  require_ok(seen);
  require_ok(runtime.stop());

  std::uint64_t word = 0;
  const BatchEntry entry{TransferVerb::put, a->data, to, 8};
  const Rank one[] = {1};
  CHECK(code_of(runtime.put(a->data, to, 8)) == ErrorCode::stopped);
  CHECK(code_of(runtime.get(a->data, to, 8)) == ErrorCode::stopped);
  CHECK(code_of(runtime.put_sync(&word, to, 8)) == ErrorCode::stopped);
  CHECK(code_of(runtime.get_sync(a->data, to, 8)) == ErrorCode::stopped);
  CHECK(code_of(runtime.batch(std::span(&entry, 1))) == ErrorCode::stopped);
  CHECK(code_of(runtime.batch_sync(std::span(&entry, 1))) == ErrorCode::stopped);
  CHECK(code_of(runtime.put_with_signal(a->data, to, 8, {.word = table[0][1].at(64)})) == ErrorCode::stopped);
  CHECK(code_of(runtime.wait_signal(a->data, Compare::equal, 77)) == ErrorCode::stopped);
  CHECK(code_of(runtime.atomic_add(to, 1)) == ErrorCode::stopped);
  CHECK(code_of(runtime.fetch_add(to, 1)) == ErrorCode::stopped);
  CHECK(code_of(runtime.compare_swap(to, 0, 1)) == ErrorCode::stopped);
  CHECK(code_of(runtime.swap(to, 1)) == ErrorCode::stopped);
  CHECK(code_of(runtime.atomic_add_sync(to, 1)) == ErrorCode::stopped);
  CHECK(code_of(runtime.fetch_add_sync(to, 1)) == ErrorCode::stopped);
  CHECK(code_of(runtime.compare_swap_sync(to, 0, 1)) == ErrorCode::stopped);
  CHECK(code_of(runtime.swap_sync(to, 1)) == ErrorCode::stopped);
  CHECK(code_of(runtime.flush(1)) == ErrorCode::stopped);
  CHECK(code_of(runtime.flush_async(1)) == ErrorCode::stopped);
  CHECK(code_of(runtime.barrier()) == ErrorCode::stopped);
  CHECK(code_of(runtime.register_memory(&word, sizeof(word))) == ErrorCode::stopped);
  CHECK(code_of(runtime.allocate(4096)) == ErrorCode::stopped);
  CHECK(code_of(runtime.deregister(*a)) == ErrorCode::stopped);
  const auto answers = runtime.exchange(std::span(&*a, 1), one);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].rank == 1);
  CHECK(code_of(answers[0].result) == ErrorCode::stopped);
  Answer<Result<void>> gone, met;
  Answer<std::vector<PeerAddresses>> learned;
  CHECK(code_of(runtime.deregister_async(*a, 1s, store_result, &gone)) == ErrorCode::stopped);
  CHECK(code_of(runtime.barrier_async({}, 1s, store_result, &met)) == ErrorCode::stopped);
  CHECK(code_of(runtime.exchange_async({}, one, 1s, store_answers, &learned)) == ErrorCode::stopped);

  require_ok(seen->wait());
  require_ok(runtime.joined().wait());
  CHECK(runtime.counters().operations == 2);
  CHECK(runtime.links().empty());
  require_ok(runtime.stop());
  CHECK(code_of(runtime.stop_async(1s, store_result, &gone)) == ErrorCode::stopped);
  CHECK(code_of(runtime.quiet_async(1s, store_result, &met)) == ErrorCode::stopped);
  CHECK(gone.events.count() + met.events.count() + learned.events.count() == 0);
}

TEST_CASE("what is open at stop ends once: with its own end, or STOPPED") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    World world(3, links);
    const auto a = world[0].allocate(k_size);
    const auto b = world[1].allocate(k_size);
    const auto c = world[2].allocate(k_size);
    const auto table = world.exchange_all({*a, *b, *c});
    require_ok(world[2].stop());
    Runtime& runtime = world[0];

    // Calls that nothing but the stop will end.
    Answer<Result<void>> met;
    Answer<std::vector<PeerAddresses>> learned;
    const Rank ranks[] = {0, 1};
    require_ok(runtime.barrier_async(ranks, k_patience, store_result, &met));
    require_ok(runtime.exchange_async(std::span(&*a, 1), ranks, k_patience, store_answers, &learned));
    std::atomic<int> waiters{0};
    std::vector<std::thread> threads;
    std::vector<ErrorCode> codes(4, ErrorCode::ok);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      threads.emplace_back([&, i] {
        waiters.fetch_add(1);
        codes[i] = i % 2 == 0 ? code_of(runtime.wait_signal(a->data + 8 * i, Compare::equal, 99, k_patience))
                              : code_of(runtime.barrier(k_patience, ranks));
      });
    }
    while (waiters.load() < 4) std::this_thread::yield();
    // Transfers that are good, and a flood of callbacks.
    Events calls;
    int posted = 0;
    for (; posted < 200; ++posted) {
      auto request = runtime.put(
          a->data, table[0][1].at(static_cast<std::uint64_t>(posted) * 5000), 5000,
          {.callback = {[](void* context, const Completion&) { static_cast<Events*>(context)->add(); }, &calls}});
      if (!request) break;
    }
    std::vector<Result<void>> stops(3, fail(ErrorCode::internal));
    for (std::size_t i = 0; i < stops.size(); ++i)
      threads.emplace_back([&, i] { stops[i] = runtime.stop(k_patience); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& stop : stops) require_ok(stop);
    for (const ErrorCode code : codes) CHECK(code == ErrorCode::stopped);
    CHECK(calls.count() == posted);
    REQUIRE((met.wait() && learned.wait()));
    CHECK(code_of(met.value) == ErrorCode::stopped);
    require_ok(learned.value.at(0).result);
    CHECK(code_of(learned.value.at(1).result) == ErrorCode::stopped);
    world.slot(0).reset();
    CHECK(calls.count() == posted);
    CHECK(met.events.count() == 1);
    CHECK(learned.events.count() == 1);
  }
}

TEST_CASE("stop in time 0 fences what is open, and says that it had to") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    for (int round = 0; round < rounds(20); ++round) {
      World world(2, links);
      const auto a = world[0].allocate(8 * k_size);
      const auto b = world[1].allocate(8 * k_size);
      const auto table = world.exchange_all({*a, *b});
      std::vector<Request> requests;
      for (int i = 0; i < 16; ++i) requests.push_back(*world[0].put(a->data, table[0][1].at(0), 8 * k_size));
      const auto stopped = world[0].stop(0ns);
      CHECK((stopped || code_of(stopped) == ErrorCode::deadline_exceeded));
      CHECK(code_of(world[0].stop()) == code_of(stopped));
      bool cut = false;
      for (Request& request : requests) {
        CHECK(request.done());
        const ErrorCode code = code_of(request.query());
        CHECK((code == ErrorCode::ok || code == ErrorCode::stopped));
        cut = cut || code == ErrorCode::stopped;
      }
      CHECK(cut == !stopped.has_value());
      // No ghost writes: what the target holds now stays.
      std::memset(b->data, 0x33, 8 * k_size);
      world.slot(0).reset();
      CHECK(all_bytes(b->data, 8 * k_size, std::byte{0x33}));
    }
  }
}

TEST_CASE("stop_async may be called in a callback; its end comes on the loop, and may look inside") {
  World world(1);
  const auto a = world[0].allocate(4096);
  struct Call {
    Runtime* runtime;
    Look look;
  } call{&world[0], {&world[0], {}, fail(ErrorCode::internal), {}}};
  require_ok(world[0].put(a->data, {0, a->address(), {}, 0}, 8,
                          {.callback = {[](void* context, const Completion&) {
                                          auto& c = *static_cast<Call*>(context);
                                          require_ok(c.runtime->stop_async(k_patience, Look::done, &c.look));
                                        },
                                        &call}}));
  REQUIRE(call.look.events.wait_for(1));
  require_ok(call.look.result);
  CHECK(call.look.counters.operations == 1);
  CHECK(world[0].counters().operations == 1);  // from another thread, before anybody joined the loop
  CHECK(code_of(world[0].put(a->data, {0, a->address(), {}, 0}, 8)) == ErrorCode::stopped);
  require_ok(world[0].stop());
}

TEST_CASE("who leaves as soon as its exchange has ended does not take it from the other") {
  for (int round = 0; round < rounds(60); ++round) {
    World world(2);
    Result<void> other = fail(ErrorCode::internal);
    const Rank zero = 0;
    const Rank one = 1;
    std::thread waiting([&] { other = world[1].exchange({}, {&zero, 1}, k_patience)[0].result; });
    require_ok(world[0].exchange({}, {&one, 1}, k_patience)[0].result);
    require_ok(world[0].stop());
    waiting.join();
    require_ok(other);
  }
}

TEST_CASE("ranks come and go without leaving anything behind") {
  auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  std::size_t before = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::unique_ptr<Runtime>> ranks;
    for (Rank rank = 0; rank < 2; ++rank) {
      auto runtime = Runtime::create(options_for(rank, 2, (*store)->url()));
      require_ok(runtime);
      ranks.push_back(std::move(*runtime));
    }
    const auto a = ranks[0]->allocate(65536);
    const auto b = ranks[1]->allocate(65536);
    Answer<std::vector<PeerAddresses>> answer;
    const Rank zero[] = {0}, one[] = {1};
    require_ok(ranks[1]->exchange_async(std::span(&*b, 1), zero, k_patience, store_answers, &answer));
    const auto learned = ranks[0]->exchange(std::span(&*a, 1), one, k_patience);
    require_ok(learned.front().result);
    REQUIRE(answer.wait());
    require_ok(ranks[0]->put_sync(a->data, learned.front().regions.front().at(0), 65536));
    if (round % 2 == 0) require_ok(ranks[0]->stop());
    ranks.clear();
    if (round == 0) before = open_descriptors();
  }
  // The store closes its side of the last two connections when it next turns.
  for (int look = 0; look < 1000 && open_descriptors() > before; ++look) {
    auto probe = Runtime::create(options_for(0, 2, (*store)->url()));
    require_ok(probe);
  }
  CHECK(open_descriptors() <= before);
}
