// SPDX-License-Identifier: Apache-2.0
//
// Operations of many ranges: batches that overlap, pieces gathered and scattered, strides; each against plain arrays.
#include <limits>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_size = 1U << 20U;
constexpr std::uint64_t k_top = std::numeric_limits<std::uint64_t>::max();

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
  std::uint64_t below(std::uint64_t limit) {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return (state_ >> 11U) % limit;
  }

 private:
  std::uint64_t state_;
};

struct Pair {
  explicit Pair(const std::vector<LinkKind>& links) : world(2, links) {
    local = *world[0].allocate(k_size);
    target = *world[1].allocate(k_size);
    remote = world.exchange_all({local, target})[0][1];
    fill_pattern(local.data, k_size, 1);
    fill_pattern(target.data, k_size, 2);
  }
  World world;
  Region local, target;
  RemoteRegion remote;
};

Result<void> end_of(Result<Request>&& request) { return request ? request->wait() : fail(request.error()); }

}  // namespace

TEST_CASE("F100: batches that overlap end as their entries one after another") {
  // Puts from one half of here into one half there, gets the other way round, so that only like meets like.
  constexpr std::size_t k_half = 8192;
  const std::uint64_t seed = base_seed();
  MESSAGE("seed ", seed);
  for (const auto& links : {std::vector<LinkKind>{LinkKind::hccs}, std::vector<LinkKind>{LinkKind::tcp}}) {
    CAPTURE(text(links));
    Pair pair(links);
    Dice dice(seed);
    std::vector<std::byte> here(pair.local.data, pair.local.data + 2 * k_half);
    std::vector<std::byte> there(pair.target.data, pair.target.data + 2 * k_half);
    const int count = rounds(50'000);
    std::vector<BatchEntry> entries;
    for (int round = 0; round < count; ++round) {
      entries.clear();
      const std::size_t wanted = 1 + dice.below(round % 100 == 0 ? 200 : 8);
      const bool mixed = dice.below(4) == 0;
      for (std::size_t i = 0; i < wanted; ++i) {
        const TransferVerb verb = mixed && dice.below(2) == 0 ? TransferVerb::get : TransferVerb::put;
        std::size_t size = dice.below(dice.below(10) == 0 ? 3000 : 100);
        std::size_t from = dice.below(k_half - size + 1), to = dice.below(k_half - size + 1);
        if (!entries.empty() && dice.below(3) == 0) {  // the one before goes on
          from = reinterpret_cast<std::uint64_t>(entries.back().local) - pair.local.address() + entries.back().size;
          to = entries.back().remote.address - pair.remote.base + entries.back().size;
          if (verb == TransferVerb::get) from -= std::min(from, k_half), to -= std::min(to, k_half);
          from = std::min(from, k_half), to = std::min(to, k_half);
          size = std::min({size, k_half - from, k_half - to});
        }
        const std::size_t base = verb == TransferVerb::put ? 0 : k_half;
        std::byte* const mine = here.data() + base + from;
        std::byte* const theirs = there.data() + base + to;
        verb == TransferVerb::put ? std::memcpy(theirs, mine, size) : std::memcpy(mine, theirs, size);
        entries.push_back({verb, pair.local.data + base + from, pair.remote.at(base + to), size});
      }
      // Over a window the one is made by the caller, the other by the loop.
      require_ok(round % 2 == 0 ? pair.world[0].batch_sync(entries) : end_of(pair.world[0].batch(entries)));
      if (round % 64 != 0 && round + 1 < count) continue;
      static_cast<void>(pair.world[1].counters());
      REQUIRE(std::memcmp(pair.local.data, here.data(), here.size()) == 0);
      REQUIRE(std::memcmp(pair.target.data, there.data(), there.size()) == 0);
    }
    if (count > 100) CHECK(pair.world[0].counters().coalesced > 0);
  }
}

TEST_CASE("F100: neighbours are joined and counted; the same bytes twice travel once") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links);
    std::vector<BatchEntry> entries;
    for (std::size_t i = 0; i < 128; ++i) {
      const std::size_t at = i * 37 % 128 * 4096;
      entries.push_back({TransferVerb::put, pair.local.data + at, pair.remote.at(at), 4096});
      entries.push_back({TransferVerb::put, pair.local.data + at, pair.remote.at(at), 0});
    }
    entries.push_back(entries.front());
    const Counters before = pair.world[0].counters();
    require_ok(end_of(pair.world[0].batch(entries)));
    const Counters after = pair.world[0].counters();
    CHECK(after.coalesced - before.coalesced == 127);
    CHECK(moved_bytes(after) - moved_bytes(before) == 128 * 4096);
    CHECK(holds_pattern(pair.target.data, 128 * 4096, 1));
  }
}

TEST_CASE("batch_sync over a window is made by its caller, and looked at as a whole before the first byte") {
  Pair pair({LinkKind::hccs});
  Runtime& runtime = pair.world[0];
  constexpr std::size_t k_half = k_size / 2, k_bytes = 4096;
  std::vector<BatchEntry> entries;
  for (std::size_t i = 0; i < 50; ++i) {
    const std::size_t at = i * 2 * k_bytes;
    entries.push_back({TransferVerb::put, pair.local.data + at, pair.remote.at(at), k_bytes});
    entries.push_back({TransferVerb::get, pair.local.data + k_half + at, pair.remote.at(k_half + at), k_bytes});
    entries.push_back({TransferVerb::put, pair.local.data + at, pair.remote.at(at), 0});
  }
  const auto by_caller = [&](auto&& call) {
    const std::uint64_t before = runtime.counters().lane_operations;
    call();
    return runtime.counters().lane_operations - before;
  };
  CHECK(by_caller([&] { require_ok(runtime.batch_sync(entries)); }) == 100);
  for (std::size_t i = 0; i < 50; ++i) {
    const std::size_t at = i * 2 * k_bytes;
    CHECK(std::memcmp(pair.local.data + at, pair.target.data + at, k_bytes) == 0);
    CHECK(std::memcmp(pair.local.data + k_half + at, pair.target.data + k_half + at, k_bytes) == 0);
    CHECK(std::memcmp(pair.local.data + at + k_bytes, pair.target.data + at + k_bytes, k_bytes) != 0);
  }
  fill_pattern(pair.target.data, k_size, 3);
  const auto wrong = [&](std::size_t index, BatchEntry entry, ErrorCode code) {
    std::vector<BatchEntry> bad = entries;
    bad[index] = entry;
    Result<void> ended;
    CHECK(by_caller([&] { ended = runtime.batch_sync(bad); }) == 0);
    CHECK(code_of(ended) == code);
    CHECK(ended.error().detail.entry == index);
    CHECK(holds_pattern(pair.target.data, k_size, 3));
  };
  std::byte nobodys[16];
  wrong(149, {TransferVerb::put, pair.local.data, pair.remote.at(k_size - 8), 16}, ErrorCode::out_of_range);
  wrong(77, {TransferVerb::get, nobodys, pair.remote.at(0), 16}, ErrorCode::not_registered);
  // A copy engine takes part in what is more than 1 MiB in all, or 64 KiB at once.
  for (std::size_t i = 0; i < 200; ++i) entries.push_back(entries[i]);
  CHECK(by_caller([&] { require_ok(runtime.batch_sync(entries)); }) == 234);
  for (std::size_t i = 0; i < 200; ++i) entries.push_back(entries[i]);
  CHECK(by_caller([&] { require_ok(runtime.batch_sync(entries)); }) == 0);
  entries.resize(1);
  entries.push_back({TransferVerb::put, pair.local.data, pair.remote.at(0), (64U << 10U) + 1});
  CHECK(by_caller([&] { require_ok(runtime.batch_sync(entries)); }) == 0);
}

TEST_CASE("F51: strided transfers against loops over their blocks") {
  const std::uint64_t seed = base_seed();
  MESSAGE("seed ", seed);
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links);
    Dice dice(seed);
    std::vector<std::byte> here(pair.local.data, pair.local.data + k_size);
    std::vector<std::byte> there(pair.target.data, pair.target.data + k_size);
    for (int round = 0; round < rounds(400); ++round) {
      Strided strided;
      strided.block_bytes = dice.below(10) == 0 ? dice.below(60'000) : dice.below(300);
      strided.local_stride = strided.block_bytes + (dice.below(3) == 0 ? 0 : dice.below(500));
      strided.remote_stride = strided.block_bytes + (dice.below(3) == 0 ? 0 : dice.below(500));
      const std::uint64_t widest = std::max({strided.local_stride, strided.remote_stride, std::uint64_t{1}});
      strided.blocks = dice.below(k_size / widest);
      const std::uint64_t room = k_size - widest * strided.blocks;
      const std::uint64_t from = dice.below(room), to = dice.below(room);
      strided.local = pair.local.data + from;
      strided.remote = pair.remote.at(to);
      const bool put = dice.below(2) == 0;
      for (std::uint64_t i = 0; i < strided.blocks; ++i) {
        std::byte* const mine = here.data() + from + i * strided.local_stride;
        std::byte* const theirs = there.data() + to + i * strided.remote_stride;
        std::memcpy(put ? theirs : mine, put ? mine : theirs, strided.block_bytes);
      }
      require_ok(end_of(put ? pair.world[0].put_strided(strided) : pair.world[0].get_strided(strided)));
      static_cast<void>(pair.world[1].counters());
      REQUIRE(std::memcmp(pair.local.data, here.data(), k_size) == 0);
      REQUIRE(std::memcmp(pair.target.data, there.data(), k_size) == 0);
    }
    // To itself as well.
    const RemoteAddress own{.rank = 0, .address = pair.local.address() + k_size / 2};
    require_ok(end_of(pair.world[0].put_strided({pair.local.data, 100, own, 60, 50, 1000})));
    for (std::size_t i = 0; i < 1000; ++i) {
      REQUIRE(std::memcmp(pair.local.data + k_size / 2 + i * 60, pair.local.data + i * 100, 50) == 0);
    }
  }
}

TEST_CASE("F51: a million blocks are one request") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    World world(2, links);
    const std::uint64_t blocks = static_cast<std::uint64_t>(rounds(1'000'000));
    const auto local = world[0].allocate(16 * blocks);
    const auto target = world[1].allocate(8 * blocks + 8);
    require_ok(local);
    require_ok(target);
    const auto remote = world.exchange_all({*local, *target})[0][1];
    fill_pattern(local->data, 16 * blocks, 3);
    require_ok(end_of(world[0].put_strided({local->data, 16, remote.at(0), 8, 8, blocks}, {.timeout = k_patience})));
    std::uint64_t wrong = 0;
    for (std::uint64_t i = 0; i < blocks; ++i) {
      wrong += std::memcmp(target->data + 8 * i, local->data + 16 * i, 8) == 0 ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("pieces gathered into one range, and scattered from one") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links);
    Dice dice(base_seed());
    for (int round = 0; round < rounds(100); ++round) {
      std::vector<LocalPiece> pieces;
      std::vector<std::byte> whole;
      const std::size_t count = 1 + dice.below(300);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t size = dice.below(2000);
        std::byte* const piece = pair.local.data + dice.below(k_size / 2 - size);
        pieces.push_back({piece, size});
        whole.insert(whole.end(), piece, piece + size);
      }
      require_ok(end_of(pair.world[0].put_gathered(pieces, pair.remote.at(64))));
      static_cast<void>(pair.world[1].counters());
      REQUIRE(std::memcmp(pair.target.data + 64, whole.data(), whole.size()) == 0);

      // Sinks that overlap: the later piece stands.
      std::vector<std::byte> sink(pair.local.data + k_size / 2, pair.local.data + k_size);
      std::size_t from = 64;
      for (LocalPiece& piece : pieces) {
        const std::size_t at = dice.below(k_size / 2 - piece.size);
        piece.data = pair.local.data + k_size / 2 + at;
        std::memcpy(sink.data() + at, pair.target.data + from, piece.size);
        from += piece.size;
      }
      require_ok(end_of(pair.world[0].get_scattered(pieces, pair.remote.at(64))));
      REQUIRE(std::memcmp(pair.local.data + k_size / 2, sink.data(), sink.size()) == 0);
    }
  }
}

TEST_CASE("a signal behind a batch is seen only with all its bytes") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links);
    for (std::uint64_t round = 1; round <= 30; ++round) {
      fill_pattern(pair.local.data, 256 * 1024, round);
      std::vector<BatchEntry> entries;
      for (std::size_t i = 0; i < 64; ++i) {
        const std::size_t at = i * 37 % 64 * 4096;
        entries.push_back({TransferVerb::put, pair.local.data + at, pair.remote.at(at), round % 5 == 0 ? 0U : 4096U});
      }
      auto request = pair.world[0].batch_with_signal(entries, {.word = pair.remote.at(k_size - 8), .value = round});
      require_ok(request);
      require_ok(pair.world[1].wait_signal(pair.target.data + k_size - 8, Compare::equal, round, k_patience));
      CHECK(holds_pattern(pair.target.data, 256 * 1024, round % 5 == 0 ? round - 1 : round));
      require_ok(request->wait());
    }
  }
}

TEST_CASE("operations of many ranges: what is wrong is named, and nothing moves") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links);
    Runtime& runtime = pair.world[0];
    const auto refused = [&](const Result<Request>& request, ErrorCode code) -> ErrorDetail {
      CHECK_MESSAGE(code_of(request) == code, "got ", name(code_of(request)), ", want ", name(code));
      return request ? ErrorDetail{} : request.error().detail;
    };
    const BatchEntry good{TransferVerb::put, pair.local.data, pair.remote.at(0), 100};
    std::vector<BatchEntry> entries(10, good);
    CHECK(refused(runtime.batch({}), ErrorCode::invalid_argument).entry == k_no_entry);
    entries[7].remote = pair.remote.at(k_size - 1);
    CHECK(refused(runtime.batch(entries), ErrorCode::out_of_range).entry == 7);
    CHECK(runtime.batch(entries).error().message().find("entry 7") != std::string::npos);
    entries[3].local = nullptr;
    CHECK(refused(runtime.batch(entries), ErrorCode::not_registered).entry == 3);
    entries[0].remote.rank = 0;  // where that life of that region is unknown
    CHECK(refused(runtime.batch(entries), ErrorCode::stale).entry == 0);
    entries.assign(10, good);
    entries[9].remote.rank = 0;
    CHECK(refused(runtime.batch(entries), ErrorCode::invalid_argument).entry == 9);
    entries.assign(10, good);
    CHECK(refused(runtime.batch_with_signal(entries, {.word = pair.remote.at(96)}), ErrorCode::overlap).entry == 0);
    entries[0].remote = pair.remote.at(200);
    CHECK(refused(runtime.batch_with_signal(entries, {.word = pair.remote.at(96)}), ErrorCode::overlap).entry == 1);
    CHECK(refused(runtime.batch_with_signal(entries, {.word = pair.remote.at(9)}), ErrorCode::unaligned).entry ==
          k_no_entry);
    const std::vector<BatchEntry> many(k_batch_entries_max + 1, good);
    CHECK(refused(runtime.batch(many), ErrorCode::invalid_argument).limit == k_batch_entries_max);

    std::vector<LocalPiece> pieces(5, {pair.local.data, 100});
    CHECK(refused(runtime.put_gathered({}, pair.remote.at(0)), ErrorCode::invalid_argument).limit == 1);
    refused(runtime.put_gathered(pieces, pair.remote.at(k_size - 499)), ErrorCode::out_of_range);
    pieces[4] = {pair.local.data + k_size, 1};
    CHECK(refused(runtime.get_scattered(pieces, pair.remote.at(0)), ErrorCode::not_registered).entry == 4);
    pieces[2].size = k_top - 100;
    CHECK(refused(runtime.put_gathered(pieces, pair.remote.at(0)), ErrorCode::invalid_argument).entry == 2);

    const Strided fine{pair.local.data, 100, pair.remote.at(0), 200, 50, 1000};
    Strided bad = fine;
    bad.remote_stride = 49;
    CHECK(refused(runtime.put_strided(bad), ErrorCode::overlap).limit == 50);
    CHECK(refused(runtime.get_strided(bad), ErrorCode::invalid_argument).limit == 50);
    bad = fine;
    bad.local_stride = 0;
    refused(runtime.put_strided(bad), ErrorCode::invalid_argument);
    refused(runtime.get_strided(bad), ErrorCode::overlap);
    bad = fine;
    bad.blocks = k_size / 200 + 2;  // the last block ends outside
    refused(runtime.put_strided(bad), ErrorCode::out_of_range);
    bad.blocks = k_top;
    CHECK(refused(runtime.put_strided(bad), ErrorCode::invalid_argument).stage == Stage::local_check);
    bad = fine;
    bad.remote_stride = k_top / 2;
    CHECK(refused(runtime.put_strided(bad), ErrorCode::invalid_argument).stage == Stage::remote_check);
    bad.blocks = 2;
    refused(runtime.put_strided(bad), ErrorCode::out_of_range);  // does not wrap by itself
    bad = fine;
    bad.block_bytes = k_top;
    refused(runtime.put_strided(bad), ErrorCode::invalid_argument);
    bad = fine;
    bad.local = nullptr;
    refused(runtime.put_strided(bad), ErrorCode::not_registered);
    bad = fine;
    bad.remote.rank = 2;
    refused(runtime.put_strided(bad), ErrorCode::rank_out_of_range);

    // Nothing to move is fine anywhere.
    for (const Strided& empty :
         {Strided{pair.local.data, 0, pair.remote.at(0), 0, 0, 5}, Strided{nullptr, 0, pair.remote.at(0), 0, 100, 0},
          Strided{nullptr, k_top, pair.remote.at(k_size), k_top, 0, k_top}}) {
      require_ok(end_of(runtime.put_strided(empty)));
      require_ok(end_of(runtime.get_strided(empty)));
    }
    pieces.assign(5, {nullptr, 0});
    require_ok(end_of(runtime.put_gathered(pieces, pair.remote.at(0))));
    CHECK(holds_pattern(pair.target.data, k_size, 2));
    CHECK(holds_pattern(pair.local.data, k_size, 1));
    require_ok(runtime.put_sync(pair.local.data, pair.remote.at(0), k_size));
    CHECK(holds_pattern(pair.target.data, k_size, 1));
  }
}
