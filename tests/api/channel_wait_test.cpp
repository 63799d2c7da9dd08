// SPDX-License-Identifier: Apache-2.0
//
// Channel: threads that wait in it, which hold up neither each other nor the loop thread; and shapes that do not match.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <set>
#include <thread>

#include <hixl/channel.hpp>

#include "channel_pair.hpp"
#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

constexpr char k_text[8] = "message";

/// Runs it on the runtime's loop thread, to its end.
void run_on_loop(Runtime& runtime, const std::function<void()>& what) {
  struct Run {
    const std::function<void()>& what;
    Events events{};
  } run{what};
  const auto call = [](void* context, const Completion&) {
    auto& mine = *static_cast<Run*>(context);
    mine.what();
    mine.events.add();
  };
  require_ok(runtime.flush_async(runtime.rank(), {.callback = {call, &run}}));
  REQUIRE(run.events.wait_for(1));
}

}  // namespace

TEST_CASE("threads that wait for room and for a message hold up neither the loop thread nor others") {
  Pair pair({LinkKind::tcp}, {.slots = 4, .bytes = 4096});
  for (int i = 0; i < 4; ++i) require_ok(pair.a->sender().send(k_text, sizeof k_text));
  std::thread sending([&] { require_ok(pair.a->sender().send("the last", 8, k_patience)); });
  std::thread receiving([&] { require_ok(pair.a->receiver().receive(k_patience)); });
  for (int i = 0; i < rounds(300); ++i) {
    run_on_loop(pair.world[0], [&] {
      CHECK(code_of(pair.a->receiver().receive(0ms)) == ErrorCode::deadline_exceeded);
      CHECK(code_of(pair.a->receiver().receive(1s)) == ErrorCode::would_deadlock);
      CHECK(code_of(pair.a->sender().send(k_text, sizeof k_text, 1s)) == ErrorCode::would_deadlock);
      CHECK(code_of(pair.a->sender().post(k_text, sizeof k_text)) == ErrorCode::busy);
    });
    CHECK(code_of(pair.a->receiver().receive(0ms)) == ErrorCode::deadline_exceeded);
  }
  for (std::uint64_t i = 0; i < 5; ++i) {  // and nothing of what was refused
    const auto message = pair.b->receiver().receive(k_patience);
    require_ok(message);
    CHECK(std::memcmp(message->data, i < 4 ? k_text : "the last", 8) == 0);
    require_ok(pair.b->receiver().release(message->number));
  }
  CHECK(code_of(pair.b->receiver().receive(0ms)) == ErrorCode::deadline_exceeded);
  require_ok(pair.b->sender().send(k_text, sizeof k_text));
  sending.join();
  receiving.join();
}

TEST_CASE("a send that is refused on the loop thread has sent nothing, also where there is room") {
  Pair pair({LinkKind::tcp});
  run_on_loop(pair.world[0], [&] {
    CHECK(code_of(pair.a->sender().send(k_text, sizeof k_text)) == ErrorCode::would_deadlock);
    require_ok(pair.a->sender().post("the one", 8));
  });
  const auto message = pair.b->receiver().receive(k_patience);
  require_ok(message);
  CHECK(std::memcmp(message->data, "the one", 8) == 0);
  CHECK(code_of(pair.b->receiver().receive(0ms)) == ErrorCode::deadline_exceeded);
}

TEST_CASE("who only posts learns of the room that was given back") {
  for (const LinkKind kind : {LinkKind::hccs, LinkKind::tcp}) {
    Pair pair({kind}, {.slots = 4, .bytes = 4096});
    const int messages = rounds(500);
    std::thread posting([&] {
      for (int i = 0; i < messages; ++i) {
        auto posted = pair.a->sender().post(k_text, sizeof k_text);
        for (; code_of(posted) == ErrorCode::busy; posted = pair.a->sender().post(k_text, sizeof k_text)) {
          std::this_thread::yield();
        }
        require_ok(posted);
        require_ok(posted->wait());
      }
    });
    for (int i = 0; i < messages; ++i) {
      const auto message = pair.b->receiver().receive(k_patience);
      require_ok(message);
      require_ok(pair.b->receiver().release(message->number));
    }
    posting.join();
  }
}

TEST_CASE("many threads send memory of the program and receive: each message comes once") {
  Pair pair({LinkKind::tcp}, {.slots = 16, .bytes = 65536});
  constexpr std::uint64_t k_threads = 12;  // more than send() has copies for
  const auto each = static_cast<std::uint64_t>(rounds(40));
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < k_threads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < each; ++i) {
        const std::vector<std::uint64_t> words(64, t * each + i);
        require_ok(pair.a->sender().send(words.data(), 512, k_patience));
      }
    });
  }
  std::mutex mutex;
  std::set<std::uint64_t> seen;
  for (std::uint64_t t = 0; t < k_threads; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < each; ++i) {
        const auto message = pair.b->receiver().receive(k_patience);
        require_ok(message);
        std::vector<std::uint64_t> words(64);
        std::memcpy(words.data(), message->data, 512);
        CHECK(std::ranges::count(words, words.front()) == 64);
        require_ok(pair.b->receiver().release(message->number));
        const std::scoped_lock lock(mutex);
        seen.insert(words.front());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(seen.size() == k_threads * each);
}

TEST_CASE("closing a channel ends the calls that wait in it") {
  Pair pair({}, {.slots = 4, .bytes = 4096});
  for (int i = 0; i < 4; ++i) require_ok(pair.a->sender().send(k_text, sizeof k_text));
  std::thread sending(
      [&] { CHECK(code_of(pair.a->sender().send(k_text, sizeof k_text, k_patience)) == ErrorCode::cancelled); });
  std::vector<std::thread> receiving;
  for (int i = 0; i < 2; ++i) {
    receiving.emplace_back([&] { CHECK(code_of(pair.a->receiver().receive(k_patience)) == ErrorCode::cancelled); });
  }
  pair.a->close();
  sending.join();
  for (std::thread& thread : receiving) thread.join();
  CHECK(code_of(pair.a->sender().post(k_text, sizeof k_text)) == ErrorCode::cancelled);
  CHECK(code_of(pair.a->receiver().receive(0ms)) == ErrorCode::cancelled);
}

TEST_CASE("both sides connect again and again, in their own time, and mean the same channel") {
  for (const LinkKind kind : {LinkKind::hccs, LinkKind::tcp}) {
    World world(2, {kind});
    const auto use = [&world](Rank rank) {
      for (int round = 0; round < rounds(12); ++round) {
        // Every other time of another shape.
        const RingShape shape{.slots = 4, .bytes = round % 2 == 0 ? 4096U : 65536U};
        auto channel = Channel::connect(world[rank], 1 - rank, shape, k_patience);
        require_ok(channel);
        require_ok((*channel)->sender().send(&round, sizeof round, k_patience));
        const auto message = (*channel)->receiver().receive(k_patience);
        require_ok(message);
        int theirs = -1;
        std::memcpy(&theirs, message->data, sizeof theirs);
        REQUIRE(theirs == round);
      }
    };
    std::thread other(use, 1);
    use(0);
    other.join();
  }
}

TEST_CASE("both sides of a channel are told what the other one means") {
  World world(2);
  const auto refused = [&](Rank rank, const RingShape& shape, std::uint64_t mine, std::uint64_t theirs) {
    const auto channel = Channel::connect(world[rank], 1 - rank, shape, k_patience);
    CHECK(code_of(channel) == ErrorCode::invalid_argument);
    CHECK((channel.has_value() || channel.error().detail.length == mine));
    CHECK((channel.has_value() || channel.error().detail.limit == theirs));
  };
  for (int round = 0; round < rounds(5); ++round) {
    std::thread other([&] { refused(1, {.slots = 16, .bytes = 8128}, 16, 8); });
    refused(0, {.slots = 8, .bytes = 8192}, 8, 16);
    other.join();
  }
}

TEST_CASE("in a forked child a channel says so, whatever the parent's threads hold") {
  Pair pair;
  std::atomic<bool> over{false};
  std::thread busy([&] {
    while (!over) {
      static_cast<void>(pair.a->receiver().receive(0ms));
      require_ok(pair.a->sender().send(k_text, sizeof k_text));
      require_ok(pair.b->receiver().release(pair.b->receiver().receive(k_patience)->number));
    }
  });
  for (int round = 0; round < 10; ++round) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const bool told = code_of(pair.a->receiver().receive(1s)) == ErrorCode::forked &&
                        code_of(pair.a->receiver().release(0)) == ErrorCode::forked &&
                        code_of(pair.a->sender().send(k_text, sizeof k_text)) == ErrorCode::forked &&
                        code_of(pair.a->sender().post(k_text, sizeof k_text)) == ErrorCode::forked;
      pair.a->close();
      _exit(told ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  over = true;
  busy.join();
}

TEST_CASE("two sides that mean other shapes are told both, also where the memory is as long") {
  World world(2);
  const RingShape theirs{.slots = 8, .bytes = 8192};
  const RingShape slots{.slots = 16, .bytes = 8128};
  const RingShape bytes{.slots = 8, .bytes = 4096};
  const RingShape longer{.slots = 8, .bytes = 1U << 20U};
  REQUIRE(theirs.region_bytes() == slots.region_bytes());
  auto region = world[1].allocate(theirs.region_bytes());
  require_ok(region);
  auto dummy = world[0].allocate(4096);
  require_ok(dummy);
  const auto known = world.exchange_all({*dummy, *region});
  const auto attach = [&](const RingShape& shape) { return MessageSender::attach(world[0], known[0][1].at(0), shape); };
  CHECK(code_of(attach(theirs)) == ErrorCode::version_mismatch);  // there is no ring yet
  const auto receiver = MessageReceiver::create(world[1], *region, 0, theirs);
  require_ok(receiver);
  const auto refused = [&](const RingShape& shape, std::uint64_t mine, std::uint64_t other) {
    const auto sender = attach(shape);
    REQUIRE(code_of(sender) == ErrorCode::invalid_argument);
    CHECK(sender.error().detail.length == mine);
    CHECK(sender.error().detail.limit == other);
  };
  refused(slots, 16, 8);
  refused(bytes, 4096, 8192);
  refused(longer, 1U << 20U, 8192);
  require_ok(attach(theirs));
}
