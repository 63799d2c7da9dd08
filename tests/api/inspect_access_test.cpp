// SPDX-License-Identifier: Apache-2.0
//
// Looking inside a runtime that works: whether an access would do, its links, and the sweeper.
#include <array>
#include <set>
#include <thread>

#include "inspect_parts.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k_size = 1U << 20U;

void check_same(const Result<void>& asked, const Result<void>& done) {
  REQUIRE(asked.has_value() == done.has_value());
  if (asked) return;
  CHECK(asked.error().code == done.error().code);
  CHECK(asked.error().message() == done.error().message());
}

}  // namespace

TEST_CASE("check_access says what a put or get would say, word for word, and moves nothing") {
  Couple couple({});
  Runtime& runtime = couple.runtime;
  std::vector<std::byte> read_only(8192);
  const auto shy = couple.pair.world[1].register_memory(read_only.data(), read_only.size(), {.rights = Rights::read});
  require_ok(shy);
  const Rank zero[] = {0}, one[] = {1};
  Answer<std::vector<PeerAddresses>> met;
  require_ok(couple.pair.world[1].exchange_async(std::span(&*shy, 1), zero, k_patience, store_answers, &met));
  const auto answers = runtime.exchange(std::span(&couple.pair.a, 1), one, k_patience);
  require_ok(answers.front().result);
  REQUIRE(met.wait());
  const RemoteRegion shy_there = answers.front().regions.front();

  const RemoteRegion& good = couple.pair.remote;
  RemoteAddress stale = good.at(0), other_life = good.at(0), nobody = good.at(0), itself = good.at(0);
  stale.region.generation += 1;
  other_life.incarnation += 1;
  nobody.rank = 7;
  itself.rank = 0;
  itself.region = couple.pair.a.key;
  itself.incarnation = 0;
  itself.address = couple.pair.a.address();
  const RemoteAddress places[] = {good.at(0),
                                  good.at(k_wait_bytes - 8),
                                  good.at(k_wait_bytes),
                                  {1, good.base, {}, 0},
                                  {1, 4096, {}, 0},
                                  {1, good.base - 1, {}, 0},
                                  {1, ~0ULL - 3, {}, 0},
                                  stale,
                                  other_life,
                                  nobody,
                                  itself,
                                  shy_there.at(0),
                                  shy_there.at(8190)};
  const std::uint64_t before = moved_bytes(runtime.counters());
  for (const RemoteAddress& place : places) {
    for (const std::uint64_t size : {0ULL, 8ULL, 4096ULL, 1ULL << 21U, ~0ULL}) {
      CAPTURE(place.address);
      CAPTURE(size);
      for (const Rights need : {Rights::write, Rights::read}) {
        const auto asked = runtime.check_access(place, size, need);
        if (asked) continue;  // what would be accepted is not posted here
        const auto posted = need == Rights::write ? runtime.put(couple.pair.a.data, place, size)
                                                  : runtime.get(couple.pair.a.data, place, size);
        REQUIRE_FALSE(posted.has_value());
        check_same(asked, fail(posted.error()));
      }
    }
  }
  CHECK(moved_bytes(runtime.counters()) == before);
  // And what it lets pass, a post takes.
  require_ok(runtime.check_access(good.at(16), 4096, Rights::read | Rights::write));
  require_ok(runtime.put_sync(couple.pair.a.data, good.at(16), 4096));
  require_ok(runtime.check_access(itself, 8, Rights::write));
  require_ok(runtime.check_access(shy_there.at(0), 8192, Rights::read));
  CHECK(code_of(runtime.check_access(shy_there.at(0), 8, Rights::write)) == ErrorCode::access_denied);
  CHECK(code_of(runtime.check_access(shy_there.at(0), 8, Rights::atomic)) == ErrorCode::access_denied);
  CHECK(code_of(runtime.check_access(good.at(0), 8, static_cast<Rights>(8))) == ErrorCode::invalid_argument);
  CHECK(code_of(runtime.check_access(nobody, 8, Rights::read)) == ErrorCode::rank_out_of_range);
  CHECK(code_of(runtime.check_access(good.at(k_wait_bytes), 8, Rights::read)) == ErrorCode::out_of_range);
  CHECK(code_of(runtime.check_access(stale, 8, Rights::read)) == ErrorCode::stale);
}

TEST_CASE("check_access of memory here: source of a put, sink of a get") {
  Couple couple({});
  Runtime& runtime = couple.runtime;
  std::byte* data = couple.pair.a.data;
  std::array<std::byte, 512> stranger{};
  const RemoteAddress to = couple.pair.remote.at(0);
  struct Range {
    void* data;
    std::uint64_t size;
  };
  for (const Range range :
       {Range{data, 8}, Range{data + 8, k_wait_bytes}, Range{data + k_wait_bytes - 4, 300}, Range{stranger.data(), 300},
        Range{stranger.data(), 8}, Range{nullptr, 8}, Range{nullptr, 0}, Range{data, 0}}) {
    CAPTURE(range.size);
    const auto flat = [](const Result<Request>& posted) {
      if (!posted) return Result<void>(fail(posted.error()));
      Request request = *posted;
      return request.wait();
    };
    check_same(runtime.check_access(range.data, range.size, Rights::read),
               flat(runtime.put(range.data, to, range.size)));
    check_same(runtime.check_access(range.data, range.size, Rights::write),
               flat(runtime.get(range.data, to, range.size)));
  }
}

TEST_CASE("S61 S65 links: every kind has its row and its reason, and what is said to take bytes does take them") {
  SUBCASE("one kind is forced") {
    Couple couple({LinkKind::tcp});
    const auto links = couple.runtime.links();
    REQUIRE(links.size() == 5);
    const LinkInfo& tcp = row_of(links, LinkKind::tcp);
    CHECK(tcp.rank == 1);
    CHECK(tcp.state == "UP");
    CHECK((tcp.up && tcp.chosen && tcp.windows && tcp.other_memory && tcp.device_memory && tcp.words));
    CHECK(tcp.reason.find("the one kind that the options allow") == 0);
    const LinkInfo& hccs = row_of(links, LinkKind::hccs);
    CHECK(hccs.state == "OFF");
    CHECK(hccs.reason == "not configured: tcp is forced");
    CHECK_FALSE((hccs.up || hccs.chosen || hccs.windows || hccs.other_memory || hccs.device_memory || hccs.words));
  }
  SUBCASE("two kinds are named") {
    Couple couple({LinkKind::tcp, LinkKind::hccs});
    const auto links = couple.runtime.links();
    CHECK(row_of(links, LinkKind::pcie).reason == "not configured: the options name other kinds");
    CHECK(row_of(links, LinkKind::hccs).windows);
    CHECK(row_of(links, LinkKind::hccs).words);
  }
  SUBCASE("automatic") {
    Couple couple({});
    Runtime& runtime = couple.runtime;
    std::vector<std::byte> plain(k_size);
    const auto theirs = couple.pair.world[1].register_memory(plain.data(), plain.size());
    require_ok(theirs);
    const Rank zero[] = {0}, one[] = {1};
    Answer<std::vector<PeerAddresses>> met;
    require_ok(couple.pair.world[1].exchange_async(std::span(&*theirs, 1), zero, k_patience, store_answers, &met));
    const auto answers = runtime.exchange(std::span(&couple.pair.a, 1), one, k_patience);
    REQUIRE(met.wait());
    require_ok(answers.front().result);
    const auto moved_by = [&](const RemoteRegion& region) {
      const auto before = runtime.counters();
      require_ok(runtime.put_sync(couple.pair.a.data, region.at(0), k_size));
      const auto after = runtime.counters();
      std::set<LinkKind> kinds;
      for (std::size_t kind = 0; kind < k_link_kinds; ++kind) {
        if (after.bytes_out[kind] != before.bytes_out[kind]) kinds.insert(static_cast<LinkKind>(kind));
      }
      return kinds;
    };
    // All links stand before it is asked who takes what.
    const auto all_up = [&] {
      const auto links = runtime.links();
      return row_of(links, LinkKind::tcp).up && row_of(links, LinkKind::hccs).up &&
             row_of(links, LinkKind::pcie).state != "CONNECTING" && row_of(links, LinkKind::pcie).state != "IDLE";
    };
    for (const auto until = std::chrono::steady_clock::now() + k_patience; !all_up();) {
      REQUIRE(std::chrono::steady_clock::now() < until);
      std::this_thread::yield();
    }
    const auto links = runtime.links();
    std::size_t window_links = 0, memory_links = 0, device_links = 0, word_links = 0;
    for (const LinkInfo& link : links) {
      CAPTURE(name(link.kind));
      CAPTURE(link.reason);
      CHECK_FALSE(link.reason.empty());
      window_links += link.windows ? 1 : 0;
      memory_links += link.other_memory ? 1 : 0;
      device_links += link.device_memory ? 1 : 0;
      word_links += link.words ? 1 : 0;
      if (link.kind == LinkKind::ub) CHECK(link.reason == "this build has no such link");
      if (link.windows) CHECK(moved_by(couple.pair.remote) == std::set<LinkKind>{link.kind});
      if (link.other_memory) CHECK(moved_by(answers.front().regions.front()) == std::set<LinkKind>{link.kind});
      CHECK((link.in_flight == 0) == (link.bytes_in_flight == 0));
    }
    CHECK(window_links == 1);
    CHECK(memory_links == 1);
    CHECK(device_links == 1);
    CHECK(word_links == 1);
    CHECK(row_of(links, LinkKind::hccs).windows);
    CHECK(description(LinkKind::hccs) == "hccs (emulated: shared memory)");
    const auto dump = runtime.dump_regions();
    require_ok(dump);
    for (const PeerRegion& region : dump->peers) {
      CHECK(row_of(links, region.link).id == region.link_id);
      CHECK((region.mapped ? row_of(links, region.link).windows : row_of(links, region.link).other_memory));
    }
  }
}

TEST_CASE("options of the sweeper have ranges, and need a hook") {
  auto options = options_for(0, 1, "");
  options.sweep_period = 10ms;
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);
  options.sweep_hook.function = [](void*, const OperationInfo&) {};
  require_ok(options.validate());
  options.sweep_period = 9ms;
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);
  options.sweep_period = -1ms;
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);
  options.sweep_period = 1h;
  options.sweep_age = 25h;
  CHECK(code_of(options.validate()) == ErrorCode::invalid_argument);
}
