// SPDX-License-Identifier: Apache-2.0
//
// Runtimes that the program turns by hand: everything ends while it polls, blocking calls of the driving thread turn
// by themselves, and no other thread is needed.
#include <poll.h>

#include <functional>
#include <thread>

#include "polled_parts.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

/// Ranks that one thread turns, only when their descriptors say so.
struct Hosts {
  std::vector<Runtime*> ranks;
  [[nodiscard]] bool until(const std::function<bool()>& reached) const {
    while (!reached()) {
      std::vector<pollfd> fds;
      for (Runtime* rank : ranks) fds.push_back({rank->fd(), POLLIN, 0});
      if (::poll(fds.data(), fds.size(), static_cast<int>(k_patience / 1ms)) <= 0) return reached();
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (fds[i].revents != 0) ranks[i]->poll();
      }
    }
    return true;
  }
  template <class Value>
  void wait(Answer<Value>& answer) const {
    REQUIRE(until([&] { return answer.events.count() > 0; }));
    CHECK(answer.events.count() == 1);
  }
};

}  // namespace

TEST_CASE("two polled ranks on one thread exchange, transfer, meet and stop, driven by their descriptors alone") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    const auto store = Store::create("tcp://127.0.0.1:0");
    std::unique_ptr<Runtime> ranks[2];
    Region regions[2];
    for (Rank rank = 0; rank < 2; ++rank) ranks[rank] = start_polled(options_for(rank, 2, (*store)->url(), links));
    const Hosts hosts{{ranks[0].get(), ranks[1].get()}};
    for (auto& rank : ranks) {
      Request joined = rank->joined();
      REQUIRE(hosts.until([&] { return joined.done(); }));
      require_ok(joined.query());
    }
    Answer<std::vector<PeerAddresses>> answers[2];
    const Rank all[] = {0, 1};
    for (Rank rank = 0; rank < 2; ++rank) {
      regions[rank] = *ranks[rank]->allocate(k_polled_bytes);
      require_ok(
          ranks[rank]->exchange_async(std::span(&regions[rank], 1), all, k_patience, store_answers, &answers[rank]));
    }
    for (auto& answer : answers) hosts.wait(answer);
    for (const PeerAddresses& answer : answers[0].value) require_ok(answer.result);
    const RemoteRegion remote = answers[0].value[1].regions.front();
    for (const std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{4096}, k_polled_bytes}) {
      CAPTURE(size);
      fill_pattern(regions[0].data, k_polled_bytes, size + 1);
      Answer<Result<void>> done;
      require_ok(ranks[0]->put(
          regions[0].data, remote.at(0), size,
          {.callback = {[](void* context, const Completion& completion) { store_result(context, completion.result); },
                        &done}}));
      CHECK(done.events.count() == 0);  // never inside the post
      hosts.wait(done);
      require_ok(done.value);
      CHECK(holds_pattern(regions[1].data, size, size + 1));
    }
    Answer<Result<void>> met[2], stopped[2];
    for (Rank rank = 0; rank < 2; ++rank)
      require_ok(ranks[rank]->barrier_async({}, k_patience, store_result, &met[rank]));
    for (auto& answer : met) {
      hosts.wait(answer);
      require_ok(answer.value);
    }
    for (Rank rank = 0; rank < 2; ++rank) require_ok(ranks[rank]->stop_async(k_patience, store_result, &stopped[rank]));
    for (auto& answer : stopped) {
      hosts.wait(answer);
      require_ok(answer.value);
    }
    for (auto& rank : ranks) {
      require_ok(rank->stop());
      CHECK(rank->poll() == 0);
      pollfd quiet{rank->fd(), POLLIN, 0};
      CHECK(::poll(&quiet, 1, 0) == 0);
      CHECK(code_of(rank->put(regions[0].data, remote.at(0), 8)) == ErrorCode::stopped);
      CHECK(rank->links().empty());
    }
  }
}

TEST_CASE("every blocking call of the driving thread turns the runtime itself") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    PolledCouple world(links);
    Runtime& mine = *world.mine;
    const RemoteRegion& r = world.remote;
    fill_pattern(world.here.data, k_polled_bytes, 3);
    require_ok(mine.put_sync(world.here.data, r.at(0), k_polled_bytes));
    CHECK(holds_pattern(world.there.data, k_polled_bytes, 3));
    require_ok(mine.get_sync(world.here.data, r.at(0), k_polled_bytes));
    const BatchEntry entry{TransferVerb::put, world.here.data, r.at(0), k_polled_bytes / 2};
    require_ok(mine.batch_sync(std::span(&entry, 1)));
    require_ok(mine.flush(1));
    auto one = mine.put(world.here.data, r.at(0), k_polled_bytes);
    require_ok(one->wait());
    std::vector<Request> many;
    for (int i = 0; i < 100; ++i) many.push_back(*mine.put(world.here.data, r.at(0), 4096));
    REQUIRE(wait_any(many).has_value());
    require_ok(wait_all(many));
    // Slots that only turns make free: the sync form waits for room, and turns.
    int full = 0;
    while (full < 4) {
      const auto request =
          mine.put(world.here.data, r.at(0), 4096, {.callback = {[](void*, const Completion&) {}, nullptr}});
      if (request) continue;
      CHECK(code_of(request) == ErrorCode::busy);
      require_ok(mine.put_sync(world.here.data, r.at(4096), k_polled_bytes - 4096));
      ++full;
    }
    CHECK(mine.counters().operations >= many.size());
    CHECK(!mine.links().empty());

    // The peer signals; over a window no descriptor tells of it.
    std::thread peer([&] {
      require_ok(world.theirs->put_with_signal(world.there.data, world.back.at(64), 8, {.word = world.back.at(0)}));
      require_ok(world.theirs->barrier(k_patience));
    });
    const auto seen = mine.wait_signal(world.here.data, Compare::equal, 1, k_patience);
    require_ok(seen);
    require_ok(mine.barrier(k_patience));
    peer.join();
    CHECK(code_of(mine.wait_signal(world.here.data, Compare::equal, 99, 3ms)) == ErrorCode::deadline_exceeded);

    // A deadline that passes without traffic: a barrier that the other rank never enters.
    CHECK(code_of(mine.barrier(20ms)) == ErrorCode::deadline_exceeded);
    require_ok(mine.deregister(world.here));
    require_ok(mine.stop(k_patience));
    CHECK(code_of(mine.barrier()) == ErrorCode::stopped);
  }
}

TEST_CASE("inside a callback blocking calls answer WOULD_DEADLOCK, posts work, and poll does nothing") {
  PolledCouple world({LinkKind::tcp});
  struct Seen {
    PolledCouple* world;
    ErrorCode codes[6]{};
    std::size_t polled = 99;
    Result<Request> posted = fail(ErrorCode::internal);
    bool called = false;
  } seen{&world};
  auto request = world.mine->put(
      world.here.data, world.remote.at(0), k_polled_bytes,
      {.callback = {[](void* context, const Completion&) {
                      auto& s = *static_cast<Seen*>(context);
                      Runtime& mine = *s.world->mine;
                      s.posted = mine.put(s.world->here.data, s.world->remote.at(0), 64);
                      s.codes[0] = code_of(mine.put_sync(s.world->here.data, s.world->remote.at(0), k_polled_bytes));
                      s.codes[1] = code_of(mine.barrier());
                      s.codes[2] = code_of(mine.stop());
                      s.codes[3] = code_of(s.posted->wait());
                      s.codes[4] = code_of(mine.deregister(s.world->here));
                      s.codes[5] = code_of(mine.flush(1));
                      s.polled = mine.poll();
                      s.called = true;
                    },
                    &seen}});
  require_ok(request);
  CHECK(Hosts{{world.mine.get()}}.until([&] { return seen.called; }));
  for (const ErrorCode code : seen.codes) CHECK(code == ErrorCode::would_deadlock);
  CHECK(seen.polled == 0);
  require_ok(seen.posted->wait());
}

TEST_CASE("callbacks that post go on for as long as they like") {
  PolledCouple world;
  struct Chain {
    PolledCouple* world;
    int left;
    static void next(void* context, const Completion& completion) {
      auto& chain = *static_cast<Chain*>(context);
      if (!completion.result) FAIL_CHECK(completion.result.error().message());
      if (--chain.left > 0) chain.post();
    }
    void post() {
      const auto posted =
          world->mine->put(world->here.data, world->remote.at(0), 64, {.callback = {Chain::next, this}});
      if (!posted) FAIL_CHECK(posted.error().message());
    }
  } chain{&world, rounds(2000)};
  chain.post();
  CHECK(Hosts{{world.mine.get()}}.until([&] { return chain.left == 0; }));
}

TEST_CASE("P53 posts of other threads, while the host sleeps on the descriptor, are all found") {
  PolledCouple world;
  const int posts = rounds(20'000);
  INFO("posts ", posts);
  Events ended;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < posts / 2 + 1; ++i) {
        // Blocks until the host has turned: each wake-up counts.
        const auto done = world.mine->put(world.here.data, world.remote.at(0), 64 + static_cast<unsigned>(thread));
        if (!done || !Request(*done).wait(k_patience)) FAIL_CHECK("a post was lost");
        ended.add();
      }
    });
  }
  CHECK(Hosts{{world.mine.get()}}.until([&] { return ended.count() >= posts; }));
  std::atomic<bool> joined{false};
  std::thread joiner([&] {
    for (std::thread& thread : threads) thread.join();
    joined = true;
  });
  while (!joined.load()) world.mine->poll();
  joiner.join();
}

TEST_CASE("other threads block as usual while the host turns, and go on by themselves when nobody does") {
  PolledCouple world({LinkKind::tcp}, 2s);  // the lease, by which a waiting thread takes over; a starved rank needs it
  std::atomic<int> left{2};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < rounds(50); ++round) {
        const auto done =
            world.mine->put_sync(world.here.data, world.remote.at(i * (k_polled_bytes / 2)), k_polled_bytes / 2);
        if (!done) FAIL_CHECK(done.error().message());
      }
      left.fetch_sub(1);
    });
  }
  CHECK(Hosts{{world.mine.get()}}.until([&] {
    if (left.load() > 0 && world.mine->fd() >= 0) world.mine->poll();
    return left.load() == 0;
  }));
  for (std::thread& thread : threads) thread.join();
  // Nobody polls: a wait with a limit ends by it, one without one takes the turning over.
  std::thread([&] {
    auto request = world.mine->put(world.here.data, world.remote.at(0), 4096);
    if (!request) {
      FAIL_CHECK(request.error().message());
      return;
    }
    CHECK(code_of(request->wait(1ms)) == ErrorCode::deadline_exceeded);
    // That is after a lease without a turn, by which time the peer may have fenced this rank; then they meet again.
    const ErrorCode ended = code_of(request->wait());
    CHECK((ended == ErrorCode::ok || ended == ErrorCode::fenced || ended == ErrorCode::peer_lost));
    const auto again = [&] { return world.mine->put_sync(world.here.data, world.remote.at(0), k_polled_bytes); };
    const auto limit = std::chrono::steady_clock::now() + k_patience;
    while (!again() && std::chrono::steady_clock::now() < limit) world.mine->poll();  // it drives now
    CHECK(code_of(again()) == ErrorCode::ok);
    CHECK(code_of(world.mine->stop(k_patience)) == ErrorCode::ok);
  }).join();
}

TEST_CASE("only a polled runtime has a descriptor, and a start that fails leaves none open") {
  const auto plain = Runtime::create(options_for(0, 1, ""));
  CHECK((*plain)->fd() == -1);
  CHECK((*plain)->poll() == 0);
  const std::size_t before = open_descriptors();
  for (int round = 0; round < 3; ++round) {
    CHECK(code_of(Runtime::create_polled(options_for(0, 1, "", {LinkKind::ub}))) == ErrorCode::transport_unavailable);
    auto options = options_for(0, 1, "");
    options.bind = "0.0.0.0";
    CHECK(code_of(Runtime::create_polled(options)) == ErrorCode::security_required);
    options = options_for(0, 2, "tcp://127.0.0.1:1");
    options.connect_timeout = 20ms;
    const auto nobody = start_polled(options);
    CHECK(code_of(nobody->joined().wait()) == ErrorCode::rendezvous_unreachable);
  }
  CHECK(open_descriptors() == before);
}
