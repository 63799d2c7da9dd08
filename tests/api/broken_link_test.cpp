// SPDX-License-Identifier: Apache-2.0
//
// Connections that end under the library: while nobody uses them, and in the middle of a burst. The program notices
// nothing, nothing piles up, and what does fail says all about itself.
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <map>
#include <thread>

#include <hixl/completion_queue.hpp>

#include "support.hpp"
#include "vanishing.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k_bytes = 1U << 20U;

std::uint16_t port_of(const sockaddr_in& address) { return ntohs(address.sin_port); }

/// Calls `each` with the descriptor and both ports of every tcp connection of this process.
template <class Each>
void for_each_connection(Each&& each) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_in near{}, far{};
    socklen_t near_size = sizeof near, far_size = sizeof far;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&near), &near_size) != 0 || near.sin_family != AF_INET) continue;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&far), &far_size) == 0) each(fd, port_of(near), port_of(far));
  }
}

/// Two ranks on tcp whose connection this test can reach.
struct Fragile {
  Fragile()
      : world(2, {LinkKind::tcp}), store_port(static_cast<std::uint16_t>(std::stoi(world.store_url().substr(16)))) {
    a = *world[0].allocate(k_bytes);
    b = *world[1].allocate(k_bytes);
    remote = world.exchange_all({a, b})[0][1];
    require_ok(world[0].put_sync(a.data, remote.at(0), 8));
  }
  /// As a network does that forgets a connection: `how` as for shutdown(), at the end with the lower or higher port.
  int break_connection(int how, bool lower_end) {
    int broken = 0;
    for_each_connection([&](int fd, std::uint16_t near, std::uint16_t far) {
      if (near == store_port || far == store_port || (near < far) != lower_end) return;
      broken += ::shutdown(fd, how) == 0 ? 1 : 0;
    });
    return broken;
  }
  std::size_t connections() {
    std::size_t count = 0;
    for_each_connection([&](int, std::uint16_t, std::uint16_t) { count += 1; });
    return count;
  }

  World world;
  std::uint16_t store_port;
  Region a, b;
  RemoteRegion remote;
};

}  // namespace

TEST_CASE("S19 P46 a connection that ended while idle, or half of it: the next transfer works at the first try") {
  std::uint64_t seed = 0;
  for (const int how : {SHUT_RDWR, SHUT_RD, SHUT_WR}) {
    for (const TransferVerb verb : {TransferVerb::put, TransferVerb::get}) {
      CAPTURE(how);
      Fragile pair;  // its first failure: dialled again after 50 ms at most
      const bool put = verb == TransferVerb::put;
      fill_pattern(put ? pair.a.data : pair.b.data, k_bytes, ++seed);
      REQUIRE(pair.break_connection(how, seed % 4 < 2) == 1);
      require_ok(transfer(pair.world[0], Form::sync, verb, pair.a.data, pair.remote.at(0), k_bytes));
      static_cast<void>(pair.world[1].counters());
      CHECK(holds_pattern(put ? pair.b.data : pair.a.data, k_bytes, seed));
      CHECK(pair.world[0].counters().failed == 0);
      CHECK(pair.world[0].counters().peers_lost == 0);
    }
  }
}

TEST_CASE("S32 S45 bursts over a connection that breaks again and again: every post ends well; nothing piles up") {
  Fragile pair;
  constexpr std::size_t k_threads = 4;
  constexpr std::size_t k_burst = 16;
  constexpr int k_breaks = 4;
  constexpr std::size_t k_each = k_bytes / 2 / (k_threads * k_burst);
  constexpr std::uint64_t k_counters = k_bytes / 2;  // one word a thread
  const std::size_t descriptors = open_descriptors();
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> bursts{0}, failed{0}, called{0};
  std::vector<std::uint64_t> signals(k_threads);
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < k_threads; ++thread) {
    threads.emplace_back([&, thread] {
      const Callback count{
          [](void* context, const Completion&) { static_cast<std::atomic<std::uint64_t>*>(context)->fetch_add(1); },
          &called};
      while (!over.load()) {
        std::vector<Request> burst;
        for (std::size_t i = 0; i < k_burst; ++i) {
          const std::size_t at = (thread * k_burst + i) * k_each;
          auto request = pair.world[0].put_with_signal(
              pair.a.data + at, pair.remote.at(at), k_each,
              {.word = pair.remote.at(k_counters + thread * 8), .value = 1, .op = SignalOp::add},
              {.timeout = k_patience});
          if (request && !request->then(count)) failed += 1;
          if (request) burst.push_back(*request);
          failed += request ? 0 : 1;
        }
        if (!wait_all(burst, k_patience)) failed += 1;
        signals[thread] += burst.size();
        bursts += 1;
      }
    });
  }
  int broken = 0;
  for (int i = 0; i < k_breaks; ++i) {
    const std::uint64_t before = bursts.load();
    while (bursts.load() < before + 3 && failed.load() == 0) std::this_thread::yield();
    int shut = 0;  // an end that is being closed has nothing to shut: look again
    while (shut == 0 && failed.load() == 0) shut = pair.break_connection(SHUT_RDWR, i % 2 == 0);
    broken += shut;
  }
  over.store(true);
  for (std::thread& thread : threads) thread.join();
  CHECK(broken == k_breaks);
  CHECK(failed == 0);
  require_ok(pair.world[0].quiet(k_patience));
  std::uint64_t posted = 0;
  for (std::size_t thread = 0; thread < k_threads; ++thread) {
    require_ok(pair.world[1].wait_signal(pair.b.data + k_counters + thread * 8, Compare::equal, signals[thread], 0ns));
    posted += signals[thread];
  }
  CHECK(called == posted);
  CHECK(pair.world[0].counters().link_failures + pair.world[1].counters().link_failures >= k_breaks);
  CHECK(pair.world[0].counters().peers_lost == 0);
  require_ok(pair.world[0].put_sync(pair.a.data, pair.remote.at(0), 8));
  const auto patience = std::chrono::steady_clock::now() + k_patience;  // the other side closes its ends by itself
  while (open_descriptors() > descriptors && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
  CHECK(open_descriptors() <= descriptors);
}

TEST_CASE("S55 thousands of transfers need no more sockets than one") {
  Fragile pair;
  const std::size_t connections = pair.connections();
  for (int round = 0; round < rounds(5'000); ++round) {
    const TransferVerb verb = round % 3 == 0 ? TransferVerb::get : TransferVerb::put;
    require_ok(transfer(pair.world[0], Form::async, verb, pair.a.data, pair.remote.at(0), 100));
    if (round % 1000 == 0) CHECK(pair.connections() == connections);
  }
  CHECK(pair.connections() == connections);
  for (const LinkInfo& link : pair.world[0].links()) CHECK(link.generation <= 1);
}

TEST_CASE("S50 P39 what fails says which operation, which rank and link, and why; the link stays") {
  Fragile pair;
  Runtime& runtime = pair.world[0];
  Vanishing pages(4096);
  const Region vanishing = *pair.world[1].register_memory(pages.data(), 4096);
  const Region ending = *pair.world[1].register_memory(pair.b.data, 4096);
  const Rank zero[] = {0};
  const Rank one[] = {1};
  Answer<std::vector<PeerAddresses>> answer;
  const Region theirs[] = {vanishing, ending};
  require_ok(pair.world[1].exchange_async(theirs, zero, k_patience, store_answers, &answer));
  const auto learned = runtime.exchange({}, one, k_patience);
  REQUIRE(answer.wait());
  require_ok(learned.front().result);
  pages.vanish();
  require_ok(pair.world[1].deregister(ending));

  const auto queue = std::move(*CompletionQueue::create(64));
  std::map<std::uint64_t, ErrorCode> wanted;
  std::uint64_t number = 1000;
  std::vector<Request> held;
  const auto post = [&](ErrorCode code, const RemoteRegion& to, std::uint64_t size, Timeout timeout, bool cancel) {
    for (const bool get : {false, true}) {
      const OpOptions options{.timeout = timeout, .user_data = ++number, .queue = queue.get()};
      auto request =
          get ? runtime.get(pair.a.data, to.at(0), size, options) : runtime.put(pair.a.data, to.at(0), size, options);
      require_ok(request);
      if (cancel) require_ok(request->cancel());
      held.push_back(*request);
      wanted[number] = code;
    }
  };
  post(ErrorCode::deadline_exceeded, pair.remote, 4096, 0ns, false);
  post(ErrorCode::memory_unmapped, learned.front().regions[0], 4096, k_patience, false);
  post(ErrorCode::stale, learned.front().regions[1], 4096, k_patience, false);
  post(ErrorCode::cancelled, pair.remote, k_bytes, k_patience, true);
  std::size_t ends = 0;
  while (ends < held.size()) {
    std::array<Completion, 8> out;
    const auto count = queue->wait(out, k_patience);
    require_ok(count);
    for (const Completion& completion : std::span(out).first(*count)) {
      ends += 1;
      CAPTURE(completion.user_data);
      REQUIRE(wanted.count(completion.user_data) == 1);
      const ErrorCode code = wanted[completion.user_data];
      wanted.erase(completion.user_data);
      if (code == ErrorCode::cancelled && completion.result) continue;  // every byte was there already
      REQUIRE_FALSE(completion.result.has_value());
      const Error& error = completion.result.error();
      CAPTURE(error.message());
      CHECK(error.code == code);
      CHECK(error.detail.rank == 1);
      CHECK(error.message().find("rank 1") != std::string::npos);
      const bool refused = code == ErrorCode::memory_unmapped || code == ErrorCode::stale;  // by the target
      CHECK(error.detail.stage == (refused ? Stage::remote_check : Stage::transfer));
      if (refused) {
        CHECK(error.detail.link != 0);
        CHECK(error.detail.length == 4096);
      }
    }
  }
  CHECK(wanted.empty());
  for (Request& request : held) CHECK(request.done());  // each knows its own end
  require_ok(runtime.put_sync(pair.a.data, pair.remote.at(0), k_bytes));
  CHECK(runtime.counters().link_failures == 0);
  for (const LinkInfo& link : runtime.links()) CHECK(link.generation <= 1);
}
