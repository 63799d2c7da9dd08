// SPDX-License-Identifier: Apache-2.0
//
// Connections that break, stand still, trickle or cannot be made, under ranks that are in the middle of something:
// every operation has the right end, every byte is where the oracle says, and none moves after an end.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include <doctest/doctest.h>

#include "bystander.hpp"
#include "shielded.hpp"
#include "stream.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k_block = 128U << 10U;
constexpr std::size_t k_region = Stream::room(k_block);

std::uint64_t drawn_seed() {
  const char* given = std::getenv("HIXL_TEST_SEED");
  const std::uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  MESSAGE("HIXL_TEST_SEED=" << seed);
  return seed;
}

std::vector<Fate> breaks(std::mt19937_64& random, std::size_t count) {
  std::vector<Fate> fates;
  for (std::size_t i = 0; i < count; ++i) {
    fates.push_back({.kind = random() % 2 == 0 ? Fate::Kind::finish : Fate::Kind::reset,
                     .way = random() % 2 == 0 ? Way::there : Way::back,
                     .after = random() % (random() % 4 != 0 ? 20'000 : 1'000'000)});
  }
  return fates;
}

/// Bytes at the target that no open operation may touch: they hold still, whatever becomes of old connections.
void require_still(const Region& region, std::size_t bytes, std::uint64_t transfer) {
  const std::string fault = fault_of(region.data, bytes, transfer);
  REQUIRE_MESSAGE(fault.empty(), "a byte moved after the end of its operation; " << fault);
}

}  // namespace

TEST_CASE("S11 S57 two streams of three processes while their connections break at drawn bytes, again and again") {
  std::mt19937_64 random(drawn_seed());
  // Each that follows soon doubles the wait for the next dial: 5 on one link may wait 3 s in all, 9 longer than
  // anybody.
  constexpr std::size_t k_breaks = 3;
  ShieldedHome at(3, 2 * k_region);
  ShieldedGuest writer(at, 1, 2 * k_region);
  ShieldedGuest reader(at, 2, 2 * k_region);
  const auto cut_all = [&] {
    at.door.proxy->cut();
    for (ShieldedGuest* guest : {&writer, &reader}) guest->door().cut();
  };
  const auto broken = [&] { return at.home->counters().link_failures; };
  // Who dials first goes on dialling; the others' plans stay unused.
  at.door.proxy->plan(breaks(random, k_breaks));
  for (ShieldedGuest* guest : {&writer, &reader}) guest->door().plan(breaks(random, 1));
  cut_all();

  Stream in{.base = 0, .bytes = k_block, .blocks = 40, .patience = k_patience};
  Stream out{.base = k_region, .bytes = k_block, .blocks = 40, .patience = k_patience};
  for (int round = 0; round < 40 && broken() < 2 + k_breaks; ++round) {
    const std::uint64_t before = broken();
    const auto words = [](const char* verb, const Stream& stream) {
      return std::string(verb) + " 0 " + std::to_string(stream.base) + " " + std::to_string(stream.bytes) + " " +
             std::to_string(stream.blocks) + " " + std::to_string(stream.first);
    };
    writer->tell(words("pour", in));
    reader->tell(words("drain", out));
    std::string received;
    std::thread receiver([&] { received = receive_stream(*at.home, at.home.region(), writer.remote(), in); });
    const std::string sent = send_stream(*at.home, at.home.region(), reader.remote(), out);
    receiver.join();
    if (broken() == before) cut_all();  // no fate lies near: the connections behind these have others
    REQUIRE(sent == "ok");
    REQUIRE(received == "ok");
    REQUIRE(writer->hear() == "ok");
    REQUIRE(reader->hear() == "ok");
    in.first += in.blocks;
    out.first += out.blocks;
  }
  CHECK(broken() >= 2 + k_breaks);
  CHECK(at.home->counters().failed == 0);
  CHECK(at.home->counters().peers_lost == 0);
  MESSAGE(at.home->counters().link_failures << " links failed, " << in.first + out.first - 2 << " blocks");
}

TEST_CASE("P5 S1 a window of zero in the middle of a put: it ends in its time, and what was on its way never lands") {
  constexpr std::size_t k_put = 24U << 20U;
  for (const Way way : {Way::there, Way::back}) {
    CAPTURE(static_cast<int>(way));
    Pair pair(k_put);
    REQUIRE(pair.meet().empty());
    fill_block(pair.region(0).data, k_put, 1);
    fill_block(pair.region(1).data, k_put, 2);
    // Only one of the doors has a connection; the way is that of the one who dialled.
    const bool dialled_by_us = pair.door(1).accepted() > 0 && pair.door(1).passed(Way::there) > 0;
    Proxy& door = pair.door(dialled_by_us ? 1 : 0);
    const Way fated = dialled_by_us ? way : way == Way::there ? Way::back : Way::there;
    door.strike({.kind = Fate::Kind::stall, .way = fated, .after = way == Way::there ? 3'000'000U : 0U});
    auto put = pair[0].put(pair.region(0).data, pair.seen_by(0).at(0), k_put, {.timeout = 200ms});
    require_ok(put);
    const ErrorCode code = code_of(put->wait(k_patience));
    CHECK(code == ErrorCode::deadline_exceeded);
    // The source is free and the target's memory is its own again; the stalled bytes are let go now.
    fill_block(pair.region(0).data, k_put, 3);
    fill_block(pair.region(1).data, k_put, 4);
    door.heal();
    auto next = pair[1].get_sync(pair.region(1).data, pair.seen_by(1).at(0), 8, k_patience);
    require_ok(next);
    fill_block(pair.region(1).data, 8, 4);
    for (int i = 0; i < 20; ++i) {
      require_ok(pair[1].put_sync(pair.region(1).data, pair.seen_by(1).at(0), 4096, k_patience));
      require_still(pair.region(1), k_put, 4);
    }
    require_ok(pair[0].put_sync(pair.region(0).data + 8192, pair.seen_by(0).at(8192), k_put - 8192, k_patience));
    CHECK(pair[0].counters().peers_lost == 0);
  }
}

TEST_CASE("S5 a get whose answer stands still ends in its time, and its buffer stays as it is afterwards") {
  constexpr std::size_t k_get = 8U << 20U;
  Pair pair(k_get);
  REQUIRE(pair.meet().empty());
  fill_block(pair.region(1).data, k_get, 1);
  // Hellos and exchanges are behind it; so it is the answer that stands still, whichever way that goes.
  pair.strike(Fate::Kind::stall, 1'000'000);
  auto get = pair[0].get(pair.region(0).data, pair.seen_by(0).at(0), k_get, {.timeout = 200ms});
  require_ok(get);
  CHECK(code_of(get->wait(k_patience)) == ErrorCode::deadline_exceeded);
  fill_block(pair.region(0).data, k_get, 2);
  pair.heal();
  require_ok(pair[0].put_sync(pair.region(0).data, pair.seen_by(0).at(0), 8, k_patience));
  require_still(pair.region(0), k_get, 2);
}

TEST_CASE("a hello of one byte a second is not waited for; the next connection works") {
  for (const std::uint64_t after : {0U, 64U, 200U}) {
    CAPTURE(after);
    Pair pair(1U << 16U);
    pair.plan({{.kind = Fate::Kind::drip, .way = Way::there, .after = after}});
    CHECK(pair.meet().empty());
    fill_block(pair.region(0).data, 4096, after + 1);
    require_ok(pair[0].put_sync(pair.region(0).data, pair.seen_by(0).at(0), 4096, k_patience));
    static_cast<void>(pair[1].counters());
    CHECK(fault_of(pair.region(1).data, 4096, after + 1).empty());
  }
}

TEST_CASE("P42 a put that falls to one byte a second ends at its deadline, and its bytes stay away afterwards") {
  constexpr std::size_t k_put = 1U << 20U;
  Pair pair(k_put);
  REQUIRE(pair.meet().empty());
  fill_block(pair.region(0).data, k_put, 1);
  pair.strike(Fate::Kind::drip, 300'000);
  auto put = pair[0].put(pair.region(0).data, pair.seen_by(0).at(0), k_put, {.timeout = 200ms});
  require_ok(put);
  CHECK(code_of(put->wait(k_patience)) == ErrorCode::deadline_exceeded);
  fill_block(pair.region(1).data, k_put, 2);
  require_ok(pair[0].get_sync(pair.region(0).data, pair.seen_by(0).at(0), k_put, k_patience));
  CHECK(fault_of(pair.region(0).data, k_put, 2).empty());
  require_still(pair.region(1), k_put, 2);
}

TEST_CASE("S57 a door that resets whoever comes: what has time waits for it, what has none says so") {
  Pair pair(1U << 20U);
  REQUIRE(pair.meet().empty());
  for (std::size_t i = 0; i < 2; ++i) {
    pair.door(i).close_door(true);
    pair.door(i).cut();
  }
  fill_block(pair.region(0).data, 1U << 20U, 1);
  auto patient = pair[0].put(pair.region(0).data, pair.seen_by(0).at(0), 1U << 20U, {.timeout = k_patience});
  require_ok(patient);
  // What goes out before the cut is noticed may have arrived, and has to wait for the peer's word.
  REQUIRE(eventually([&] {
    const auto links = pair[0].links();
    return std::none_of(links.begin(), links.end(), [](const LinkInfo& link) { return link.up; });
  }));
  const ErrorCode hasty = code_of(pair[0].put_sync(pair.region(0).data, pair.seen_by(0).at(0), 4096, 100ms));
  CHECK(hasty == ErrorCode::deadline_exceeded);
  const std::uint64_t dials = pair.door(0).accepted() + pair.door(1).accepted();
  REQUIRE(eventually([&] { return pair.door(0).accepted() + pair.door(1).accepted() >= dials + 2; }));
  CHECK_FALSE(patient->done());
  for (std::size_t i = 0; i < 2; ++i) pair.door(i).close_door(false);
  require_ok(patient->wait(k_patience));
  static_cast<void>(pair[1].counters());
  CHECK(fault_of(pair.region(1).data, 1U << 20U, 1).empty());
}

TEST_CASE(
    "P2 S57 a killed target under a thousand posts: each ends, it is dialled as seldom as backoff says, others go on") {
  ShieldedHome at(3, 2 * Bystander::k_room);
  ShieldedGuest other(at, 2, 2 * Bystander::k_room);
  ShieldedGuest target(at, 1, 1U << 20U, k_lease);
  Bystander bystander(*at.home, at.home.region(), *other, other.remote());
  const std::byte* source = at.home.data() + Bystander::k_room;
  require_ok(at.home->put_sync(source, target.remote().at(0), 4096, k_patience));
  target->kill();
  const std::uint64_t dials = target.door().accepted();
  std::uint64_t refused = 0;
  std::vector<Request> open;
  constexpr std::size_t k_at_once = 100;  // there are 256 places, and the bystander needs some
  std::size_t looked_at = 0;
  const auto look = [&] { CHECK(code_of(open[looked_at++].wait(k_patience)) == ErrorCode::peer_lost); };
  for (int i = 0; i < 1000; ++i) {
    if (open.size() - looked_at == k_at_once) look();
    auto request = at.home->put(source, target.remote().at(0), 4096, {.timeout = k_patience});
    if (request) {
      open.push_back(*request);
      continue;
    }
    // After the loss nothing is known of the target.
    const ErrorCode code = request.error().code;
    REQUIRE((code == ErrorCode::not_exchanged || code == ErrorCode::stale || code == ErrorCode::peer_lost));
    refused += 1;
  }
  while (looked_at < open.size()) look();
  CHECK(refused + open.size() == 1000);
  bystander.require_going_on();
  // At least 50 ms between two dials, as long as it counts as alive: 500 ms.
  CHECK(target.door().accepted() - dials <= 12);
  CHECK(at.home->counters().peers_lost == 1);
  CHECK(bystander.finish() == "ok");
}
