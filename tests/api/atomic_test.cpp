// SPDX-License-Identifier: Apache-2.0
//
// Atomics through the public interface, over every link kind, in the express lane and beside it.
#include <thread>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

/// Ranks 0 and 1 with a page each that the other knows.
struct Pair {
  explicit Pair(const std::vector<LinkKind>& links, Rights rights = Rights::all) : world(2, links) {
    for (Rank rank = 0; rank < 2; ++rank) {
      const auto region = world[rank].allocate(4096, {.rights = rights});
      require_ok(region);
      regions.push_back(*region);
    }
    remote = world.exchange_all(regions)[0][1];
  }
  Runtime& rank() { return world[0]; }
  [[nodiscard]] std::uint64_t word(std::size_t offset) {
    // The other rank's loop may be the one that writes.
    const auto value = world[1].wait_signal(regions[1].data + offset, Compare::greater_equal, 0);
    require_ok(value);
    return *value;
  }
  World world;
  std::vector<Region> regions;
  RemoteRegion remote;
};

template <class T>
T value_of(const Result<T>& result) {
  require_ok(result);
  return *result;
}
std::uint64_t end_of(Result<Request> request) {
  require_ok(request);
  require_ok(request->wait());
  return value_of(request->value());
}

}  // namespace

TEST_CASE("F20 F21 F22: add, fetch_add, compare_swap and swap change the word and give the value before") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links);
    Runtime& rank = pair.rank();
    const RemoteAddress word = pair.remote.at(64);
    require_ok(rank.atomic_add_sync(word, 7));
    CHECK(value_of(rank.fetch_add_sync(word, ~std::uint64_t{0})) == 7);
    CHECK(value_of(rank.compare_swap_sync(word, 7, 100)) == 6);
    CHECK(pair.word(64) == 6);
    CHECK(value_of(rank.compare_swap_sync(word, 6, 100)) == 6);
    CHECK(value_of(rank.swap_sync(word, 200)) == 100);
    CHECK(pair.word(64) == 200);

    CHECK(end_of(rank.fetch_add(word, 1)) == 200);
    CHECK(end_of(rank.compare_swap(word, 201, 5)) == 201);
    CHECK(end_of(rank.swap(word, 9)) == 5);
    CHECK(end_of(rank.atomic_add(word, 1)) == 9);
    CHECK(pair.word(64) == 10);
    CHECK(all_bytes(pair.regions[1].data, 64, std::byte{0}));
    CHECK(all_bytes(pair.regions[1].data + 72, 4096 - 72, std::byte{0}));
    const bool lane = !(links == std::vector{LinkKind::tcp});
    CHECK((rank.counters().lane_operations >= 5) == lane);
    CHECK(rank.counters().failed == 0);
  }
}

TEST_CASE("a request gives an atomic's value for ever, a callback gets it once") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links);
    auto request = pair.rank().fetch_add(pair.remote.at(0), 3);
    require_ok(request);
    Request copy = *request;
    require_ok(request->wait());
    CHECK(value_of(request->value()) == 0);
    CHECK(value_of(request->value()) == 0);
    CHECK(code_of(copy.value()) == ErrorCode::invalid_request);
    Request seen = *request;
    CHECK(value_of(seen.value()) == 0);
    Request moved;
    moved = std::move(*request);
    CHECK(value_of(moved.value()) == 0);
    struct Seen {
      Events events;
      Completion completion;
    } ended;
    require_ok(pair.rank().swap(pair.remote.at(0), 1,
                                {.callback = {[](void* context, const Completion& completion) {
                                                auto& s = *static_cast<Seen*>(context);
                                                s.completion = completion;
                                                s.events.add();
                                              },
                                              &ended},
                                 .user_data = 5}));
    REQUIRE(ended.events.wait_for(1));
    require_ok(ended.completion.result);
    CHECK(ended.completion.value == 3);
    CHECK(ended.completion.bytes == 8);
    CHECK(ended.completion.user_data == 5);
    // Other operations have no value.
    auto put = pair.rank().put(pair.regions[0].data, pair.remote.at(8), 8);
    CHECK(end_of(std::move(put)) == 0);
  }
}

TEST_CASE("a bad word is its own error, in every form, and changes nothing") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links, Rights::read | Rights::write);
    Runtime& rank = pair.rank();
    const auto atomic = pair.world[1].allocate(4096);
    const auto here = rank.allocate(4096);
    require_ok(atomic);
    const auto table = pair.world.exchange_all({*here, *atomic});
    const RemoteRegion remote = table[0][1];
    RemoteAddress old = remote.at(0);
    old.region.generation += 1;
    const struct {
      RemoteAddress word;
      ErrorCode code;
    } rows[] = {{remote.at(4), ErrorCode::unaligned},
                {remote.at(4096), ErrorCode::out_of_range},
                {pair.remote.at(0), ErrorCode::access_denied},
                {{.rank = 7, .address = 8}, ErrorCode::rank_out_of_range},
                {{.rank = 0, .address = 8}, ErrorCode::not_registered},
                {old, ErrorCode::stale}};
    for (const auto& row : rows) {
      CAPTURE(name(row.code));
      const auto bad = rank.fetch_add_sync(row.word, 1);
      CHECK(name(code_of(bad)) == name(row.code));
      if (!bad && row.code == ErrorCode::unaligned) {
        CHECK(bad.error().detail.rank == 1);
        CHECK(bad.error().detail.address == row.word.address);
        CHECK(bad.error().detail.limit == 8);
      }
      CHECK(code_of(rank.fetch_add(row.word, 1)) == row.code);
      CHECK(code_of(rank.atomic_add(row.word, 1)) == row.code);
      CHECK(code_of(rank.atomic_add_sync(row.word, 1)) == row.code);
      CHECK(code_of(rank.compare_swap(row.word, 0, 1)) == row.code);
      CHECK(code_of(rank.compare_swap_sync(row.word, 0, 1)) == row.code);
      CHECK(code_of(rank.swap(row.word, 1)) == row.code);
      CHECK(code_of(rank.swap_sync(row.word, 1)) == row.code);
    }
    CHECK(code_of(rank.fetch_add_sync(remote.at(0), 1, Timeout(-5))) != ErrorCode::internal);
    CHECK(all_bytes(pair.regions[1].data, 4096, std::byte{0}));
    CHECK(all_bytes(atomic->data + 8, 4088, std::byte{0}));
  }
}

TEST_CASE("S23: a rank's atomics on its own words, mixed with its peer's") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links);
    const RemoteAddress own{.rank = 1, .address = pair.regions[1].address()};
    CHECK(value_of(pair.world[1].fetch_add_sync(own, 4)) == 0);
    CHECK(value_of(pair.rank().fetch_add_sync(pair.remote.at(0), 4)) == 4);
    CHECK(value_of(pair.world[1].compare_swap_sync(own, 8, 1)) == 8);
    CHECK(value_of(pair.world[1].swap_sync(own, 2)) == 1);
    CHECK(value_of(pair.rank().swap_sync(pair.remote.at(0), 3)) == 2);
    CHECK(code_of(pair.world[1].swap_sync({.rank = 1, .address = own.address + 1}, 2)) == ErrorCode::unaligned);
  }
}

TEST_CASE("an atomic wakes who waits for its word") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links);
    for (const bool sync : {true, false}) {
      const std::uint64_t goal = sync ? 1 : 2;
      std::thread waiter([&] {
        const auto seen = pair.world[1].wait_signal(pair.regions[1].data, Compare::equal, goal, k_patience);
        if (!seen) std::abort();
      });
      sync ? require_ok(pair.rank().atomic_add_sync(pair.remote.at(0), 1))
           : static_cast<void>(end_of(pair.rank().atomic_add(pair.remote.at(0), 1)));
      waiter.join();
    }
  }
}

TEST_CASE("F21 F77: sixteen threads of two ranks, in every form: each value before comes once") {
  constexpr std::size_t k_threads = 16;
  for (const auto& links : {std::vector{LinkKind::hccs}, std::vector{LinkKind::tcp}}) {
    CAPTURE(text(links));
    Pair pair(links);
    const int each = rounds(links.front() == LinkKind::tcp ? 300 : 3000);
    const RemoteAddress own{.rank = 1, .address = pair.regions[1].address()};
    std::vector<std::vector<std::uint64_t>> seen(k_threads);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < k_threads; ++t) {
      threads.emplace_back([&, t] {
        Runtime& rank = pair.world[t % 4 == 3 ? 1 : 0];
        const RemoteAddress word = t % 4 == 3 ? own : pair.remote.at(0);
        for (int i = 0; i < each; ++i) {
          Result<std::uint64_t> before;
          if (t % 2 == 0) {
            before = rank.fetch_add_sync(word, 1);
          } else {
            auto request = rank.fetch_add(word, 1);
            while (!request && request.error().code == ErrorCode::busy) request = rank.fetch_add(word, 1);
            if (request && request->wait()) before = request->value();
            if (!request) before = fail(request.error());
          }
          before ? seen[t].push_back(*before) : static_cast<void>(wrong.fetch_add(1));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    std::vector<bool> found(k_threads * static_cast<std::size_t>(each));
    for (const auto& values : seen) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        REQUIRE(values[i] < found.size());
        REQUIRE_FALSE(found[values[i]]);
        found[values[i]] = true;
        if (i > 0) REQUIRE(values[i] > values[i - 1]);  // a thread's own come in its order
      }
    }
    CHECK(pair.word(0) == found.size());
  }
}

TEST_CASE("F24: a barrier built from atomics and signals, by ranks that share one word") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    constexpr std::size_t k_ranks = 3;
    World world(k_ranks, links);
    std::vector<Region> regions;
    for (Rank rank = 0; rank < k_ranks; ++rank) regions.push_back(value_of(world[rank].allocate(4096)));
    const auto table = world.exchange_all(regions);
    const auto crossings = static_cast<std::uint64_t>(rounds(100));
    std::atomic<int> wrong{0};
    std::atomic<std::uint64_t> inside{0};
    std::vector<std::thread> ranks;
    for (Rank rank = 0; rank < k_ranks; ++rank) {
      ranks.emplace_back([&, rank] {
        for (std::uint64_t round = 1; round <= crossings; ++round) {
          inside.fetch_add(1);
          // The last to arrive opens the door of everybody: a word in each rank's own memory.
          const auto before = world[rank].fetch_add_sync(table[rank][0].at(0), 1, k_patience);
          if (!before) wrong.fetch_add(1);
          if (before && *before + 1 == round * k_ranks) {
            for (Rank other = 0; other < k_ranks; ++other) {
              if (!world[rank].swap_sync(table[rank][other].at(8), round, k_patience)) wrong.fetch_add(1);
            }
          }
          if (!world[rank].wait_signal(regions[rank].data + 8, Compare::greater_equal, round, k_patience)) {
            wrong.fetch_add(1);
          }
          if (inside.load() < round * k_ranks) wrong.fetch_add(1);  // somebody left before the last had come
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    CHECK(wrong == 0);
  }
}
