// SPDX-License-Identifier: Apache-2.0
//
// Fences, flushes and quiet from any thread, with the express lane and without: what was asked to come after comes
// after, and nothing else waits.
#include <thread>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k_size = 4U << 20U;

struct Pair {
  explicit Pair(const std::vector<LinkKind>& links, std::uint32_t ranks = 2) : world(ranks, links) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      regions.push_back(*world[rank].allocate(k_size));
      std::memset(regions[rank].data, 0, k_size);
    }
    table = world.exchange_all(regions);
  }
  [[nodiscard]] RemoteAddress at(std::size_t place, Rank rank = 1) const { return table[0][rank].at(place); }
  World world;
  std::vector<Region> regions;
  std::vector<std::vector<RemoteRegion>> table;
};

std::uint64_t word_at(const std::byte* place) {
  std::uint64_t value = 0;
  std::memcpy(&value, place, sizeof(value));
  return value;
}

}  // namespace

TEST_CASE("F110: a sync put behind a fence does not overtake what is before it, whichever thread makes it (S7)") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links);
    Runtime& runtime = pair.world[0];
    std::byte* const here = pair.regions[0].data;
    const int count = rounds(300);
    std::atomic<int> first_posted{0}, fenced{0}, last_done{0};
    // Three threads take turns: a long put of zeros, a fence, and a small put into the middle of the zeros.
    std::thread first([&] {
      for (int round = 1; round <= count; ++round) {
        auto request = runtime.put(here, pair.at(0), 256U << 10U);
        while (!request && code_of(request) == ErrorCode::busy) request = runtime.put(here, pair.at(0), 256U << 10U);
        first_posted.store(round);
        first_posted.notify_all();
        for (int seen = last_done; seen < round; seen = last_done) last_done.wait(seen);
      }
    });
    std::thread second([&] {
      for (int round = 1; round <= count; ++round) {
        for (int seen = first_posted; seen < round; seen = first_posted) first_posted.wait(seen);
        static_cast<void>(runtime.fence(1));
        fenced.store(round);
        fenced.notify_all();
      }
    });
    int overtaken = 0;
    Result<void> failed;
    for (int round = 1; round <= count; ++round) {
      for (int seen = fenced; seen < round; seen = fenced) fenced.wait(seen);
      const std::uint64_t value = static_cast<std::uint64_t>(round);
      const std::size_t place = (static_cast<std::size_t>(round) * 8191) % (255U << 10U) / 8 * 8;
      if (const auto put = runtime.put_sync(&value, pair.at(place), sizeof(value)); !put) failed = put;
      // Behind the fence means that the zeros have ended before, so they do not come on top.
      if (const auto flushed = runtime.flush(1); !flushed) failed = flushed;
      static_cast<void>(pair.world[1].counters());  // TSan dates the target's read by its loop
      if (word_at(pair.regions[1].data + place) != value) overtaken += 1;
      last_done.store(round);
      last_done.notify_all();
    }
    first.join();
    second.join();
    require_ok(failed);
    CHECK(overtaken == 0);
    // The lane is free again once the last fence has passed.
    const std::uint64_t lanes = runtime.counters().lane_operations;
    const std::uint64_t value = 7;
    require_ok(runtime.put_sync(&value, pair.at(0), sizeof(value)));
    const bool window = links.empty() || links.front() == LinkKind::hccs;
    CHECK(runtime.counters().lane_operations == lanes + (window ? 1 : 0));
  }
}

TEST_CASE("F110: asynchronous puts to one place, a fence between each two, end as the last one") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links);
    Runtime& runtime = pair.world[0];
    for (std::uint64_t i = 0; i < 40; ++i) fill_pattern(pair.regions[0].data + i * 65536, 64, i + 1);
    for (int round = 0; round < rounds(20); ++round) {
      std::vector<Request> requests;
      std::vector<Request> fences;
      for (std::uint64_t i = 0; i < 40; ++i) {
        // Long and short in turn, so that without order the short ones would be done first.
        const std::size_t size = i % 2 == 0 ? 300'000 : 64;
        auto put = runtime.put(pair.regions[0].data + i * 65536, pair.at(0), size);
        require_ok(put);
        requests.push_back(*put);
        auto fence = runtime.fence(1);
        require_ok(fence);
        fences.push_back(*fence);
      }
      require_ok(fences.back().wait());
      for (Request& request : requests) CHECK(request.done());  // all of them are before the last fence
      require_ok(wait_all(requests));
      require_ok(wait_all(fences));
      static_cast<void>(pair.world[1].counters());
      CHECK(holds_pattern(pair.regions[1].data, 64, 40));
    }
  }
}

TEST_CASE("a flush covers what another thread posted before it, whichever mail comes first") {
  Pair pair({});
  Runtime& runtime = pair.world[0];
  std::atomic<int> posted{0}, flushed{0};
  const int count = rounds(3000);
  Request request;
  std::thread poster([&] {
    for (int round = 1; round <= count; ++round) {
      auto put = runtime.put(pair.regions[0].data, pair.at(0), 4096);
      if (put) request = *put;
      posted.store(round);
      posted.notify_all();
      for (int seen = flushed; seen < round; seen = flushed) flushed.wait(seen);
    }
  });
  int early = 0;
  for (int round = 1; round <= count; ++round) {
    for (int seen = posted; seen < round; seen = posted) posted.wait(seen);
    Result<void> done = runtime.flush(1);
    early += done && request.done() ? 0 : 1;
    flushed.store(round);
    flushed.notify_all();
  }
  poster.join();
  CHECK(early == 0);
}

TEST_CASE("quiet is a flush of all ranks, oneself included") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links, 3);
    Runtime& runtime = pair.world[0];
    require_ok(runtime.quiet());  // nothing to do
    for (int round = 0; round < 10; ++round) {
      std::vector<Request> requests;
      for (const Rank rank : {0U, 1U, 2U}) {
        auto put = runtime.put(pair.regions[0].data, pair.at(1U << 20U, rank), 1U << 20U);
        require_ok(put);
        requests.push_back(*put);
      }
      if (round % 2 == 0) {
        require_ok(runtime.quiet());
      } else {
        Answer<Result<void>> answer;
        require_ok(runtime.quiet_async(k_patience, store_result, &answer));
        REQUIRE(answer.wait());
        require_ok(answer.value);
      }
      for (Request& request : requests) CHECK(request.done());
      require_ok(wait_all(requests));
    }
  }
}

TEST_CASE("fence, flush and quiet: bad calls, callbacks, oneself, and after stop") {
  Pair pair({});
  Runtime& runtime = pair.world[0];
  const auto out = runtime.fence(2);
  CHECK(code_of(out) == ErrorCode::rank_out_of_range);
  CHECK(out.error().detail.limit == 2);
  CHECK(code_of(runtime.fence(k_no_rank)) == ErrorCode::rank_out_of_range);
  CHECK(code_of(runtime.fence(1, {.timeout = -2ns})) == ErrorCode::invalid_argument);
  CHECK(code_of(runtime.quiet(-2ns)) == ErrorCode::invalid_argument);

  // To itself: in order of posting.
  std::vector<Request> own;
  for (std::uint64_t i = 0; i < 20; ++i) {
    auto put = runtime.put(pair.regions[0].data, pair.at(2U << 20U, 0), i % 2 == 0 ? 1U << 20U : 8);
    require_ok(put);
    own.push_back(*put);
    auto fence = runtime.fence(0);
    require_ok(fence);
    require_ok(fence->wait());
    CHECK(own.back().done());
  }
  require_ok(wait_all(own));

  // From a callback, on the loop's thread, everything but the blocking forms works.
  struct Call {
    Runtime* runtime;
    Events ends;
    Result<void> blocked{};
  } call{&runtime, {}, {}};
  require_ok(runtime.put(pair.regions[0].data, pair.at(0), 4096,
                         {.callback = {[](void* context, const Completion&) {
                                         auto& at = *static_cast<Call*>(context);
                                         at.blocked = at.runtime->quiet();
                                         const auto end = [](void* inner, const Completion& completion) {
                                           if (completion.result) static_cast<Call*>(inner)->ends.add();
                                         };
                                         static_cast<void>(at.runtime->fence(1, {.callback = {end, context}}));
                                         static_cast<void>(at.runtime->fence(0, {.callback = {end, context}}));
                                         require_ok(at.runtime->quiet_async(
                                             k_patience,
                                             [](void* inner, const Result<void>& result) {
                                               if (result) static_cast<Call*>(inner)->ends.add();
                                             },
                                             context));
                                       },
                                       &call}}));
  REQUIRE(call.ends.wait_for(3));
  CHECK(code_of(call.blocked) == ErrorCode::would_deadlock);

  // A fence whose time is over at once ends, and what follows it still comes.
  for (int i = 0; i < 50; ++i) {
    require_ok(runtime.put(pair.regions[0].data, pair.at(0), 1U << 20U));
    auto fence = runtime.fence(1, {.timeout = 0ns});
    require_ok(fence);
    const ErrorCode code = code_of(fence->wait());
    CHECK((code == ErrorCode::ok || code == ErrorCode::deadline_exceeded));
    require_ok(runtime.put_sync(pair.regions[0].data, pair.at(0), 8));
  }
  require_ok(runtime.quiet());

  auto last = runtime.put(pair.regions[0].data, pair.at(0), k_size);
  auto behind = runtime.fence(1);
  require_ok(last);
  require_ok(behind);
  require_ok(runtime.stop());
  CHECK(last->done());
  require_ok(behind->wait());  // stop drains
  CHECK(code_of(runtime.fence(1)) == ErrorCode::stopped);
  CHECK(code_of(runtime.fence(0)) == ErrorCode::stopped);
  CHECK(code_of(runtime.quiet()) == ErrorCode::stopped);
}
