// SPDX-License-Identifier: Apache-2.0
//
// The window link between two healthy ranks: bytes, signals, windows, credit, revocation and close.
#include <atomic>
#include <thread>

#include <doctest/doctest.h>

#include "hccs_world.hpp"

using namespace hixl;
using namespace hixl::hccs_test;
using links::Answer;
using links::Post;
using links::Segment;
using links::Verb;

namespace {

Post data_post(Verb verb, const memory::RegionInfo& region, std::span<const Segment> segments) {
  Post post;
  post.verb = verb;
  post.region = region.key;
  post.token = region.token;
  post.local_device = &memory::host_device();
  post.segments = segments;
  return post;
}

}  // namespace

TEST_CASE("hccs: put and get of many sizes") {
  World world;
  constexpr std::size_t k_guard_bytes = 64;
  constexpr std::size_t k_largest = 16U << 20U;
  const auto region = world.shared(k_largest + 2 * k_guard_bytes);
  std::uint64_t moved = 0;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{13}, std::size_t{4096},
                                  std::size_t{65536}, std::size_t{65537}, std::size_t{1} << 20U, k_largest}) {
    CAPTURE(bytes);
    std::fill_n(region.data, region.size, std::byte{0});
    std::vector<std::byte> source = pattern(bytes, bytes + 1);
    const Segment out{source.data(), k_guard_bytes, static_cast<std::uint32_t>(bytes)};
    CHECK(world.run(data_post(Verb::write, region, {&out, 1})) == ErrorCode::ok);
    CHECK(std::equal(source.begin(), source.end(), region.data + k_guard_bytes));
    CHECK(region.data[k_guard_bytes - 1] == std::byte{0});
    CHECK(region.data[k_guard_bytes + bytes] == std::byte{0});

    std::vector<std::byte> back(bytes);
    const Segment in{back.data(), k_guard_bytes, static_cast<std::uint32_t>(bytes)};
    CHECK(world.run(data_post(Verb::read, region, {&in, 1})) == ErrorCode::ok);
    CHECK(back == source);
    moved += bytes;
  }
  CHECK(world.a.link->traffic().bytes_out == moved);
  CHECK(world.a.link->traffic().bytes_in == moved);
  CHECK(world.a.link->traffic().copies == 0);
  CHECK(world.a.link->lane()->totals().bytes_out == 0);
}

TEST_CASE("hccs: short posts are done at once, whatever the target does") {
  World world;
  const auto region = world.shared(1U << 20U);
  std::vector<std::byte> source = pattern(64U << 10U, 3);
  const Segment segment{source.data(), 0, 64U << 10U};
  CHECK(world.a.link->post(data_post(Verb::write, region, {&segment, 1})) == Answer::done);
  CHECK(std::equal(source.begin(), source.end(), region.data));
}

TEST_CASE("hccs: a post of many small blocks is done at once, in short stays, and within the turn's bound") {
  World world(64);
  const auto region = world.shared(1U << 20U);
  std::vector<std::byte> source = pattern(wire::k_segments_max * 4096, 5), back(source.size());
  std::vector<Segment> out, in;
  for (std::uint32_t at = 0; at < source.size(); at += 4096) {
    out.push_back({source.data() + at, std::uint64_t{at} * 2, 4096});
    in.push_back({back.data() + at, std::uint64_t{at} * 2, 4096});
  }
  CHECK(world.a.link->post(data_post(Verb::write, region, out)) == Answer::done);
  CHECK(world.a.link->post(data_post(Verb::read, region, in)) == Answer::done);
  CHECK(back == source);
  // 128 KiB each: the eight that a turn may copy, of which two are gone.
  int done = 2;
  while (done < 100 && world.a.link->post(data_post(Verb::write, region, out)) == Answer::done) ++done;
  CHECK(done == 8);
}

TEST_CASE("hccs: many segments, short and long") {
  World world;
  const auto region = world.shared(4U << 20U);
  for (const std::uint32_t bytes : {100U, 50'000U}) {
    std::vector<std::byte> source = pattern(wire::k_segments_max * bytes, bytes);
    std::vector<Segment> segments;
    for (std::uint32_t index = 0; index < wire::k_segments_max; ++index) {
      segments.push_back({source.data() + index * bytes, std::uint64_t{index} * (bytes + 7), bytes});
    }
    CHECK(world.run(data_post(Verb::write, region, segments)) == ErrorCode::ok);
    for (const Segment& segment : segments) {
      REQUIRE(std::equal(segment.local, segment.local + segment.bytes, region.data + segment.offset));
    }
  }
}

TEST_CASE("hccs: a signal changes the word and wakes a waiter") {
  World world;
  const auto region = world.shared(4096);
  const Segment word{nullptr, 16, 8};
  Post post = data_post(Verb::signal_set, region, {&word, 1});
  post.value = 41;
  Result<std::uint64_t> seen = fail(ErrorCode::internal);
  std::atomic<bool> woken{false};
  std::thread waiter([&] {
    seen = world.b.signals->wait(memory::host_device(), region.data + 16, Compare::equal, 42, std::chrono::hours(1),
                                 std::chrono::nanoseconds(0));
    woken = true;
  });
  const auto& waiters = *reinterpret_cast<std::atomic<std::uint32_t>*>(world.b.signals->window().data());
  while (waiters.load() == 0) std::this_thread::yield();
  CHECK(world.run(post) == ErrorCode::ok);
  post.verb = Verb::signal_add;
  post.value = 1;
  CHECK(world.run(post) == ErrorCode::ok);
  CHECK(world.until([&] { return woken.load(); }));
  world.b.signals->close();
  waiter.join();
  REQUIRE(seen);
  CHECK(*seen == 42);
  const Segment odd{nullptr, 12, 8};
  post.segments = {&odd, 1};
  CHECK(world.run(post) == ErrorCode::unaligned);
}

TEST_CASE("hccs: control frames go both ways, and credit comes back") {
  World world(32, 2);
  int sent = 0;
  const auto send_some = [&] {
    while (sent < 100 && world.a.link->send(wire::FrameType::barrier, {})) ++sent;
  };
  send_some();
  CHECK(sent == 2);
  int credit = 0;
  CHECK(world.until([&] {
    if (world.a.record.credit != credit) send_some();
    credit = world.a.record.credit;
    return world.b.record.control.size() == 100;
  }));
  CHECK(world.a.link->send(wire::FrameType::ping, {}));  // answered by the link, not by its owner
  REQUIRE(world.until([&] { return world.a.record.control.size() == 1; }));
  CHECK(world.a.record.control.front() == wire::FrameType::pong);
  CHECK(world.b.record.control.size() == 100);
  CHECK(world.a.record.down == 0);
  CHECK(world.b.link->executed().highest >= 100);
}

TEST_CASE("hccs: attaching") {
  World world;
  SUBCASE("a region outside any window stays unmapped") {
    std::vector<std::byte> memory(100);
    const auto info = world.b.regions->add(memory.data(), memory.size(), {});
    REQUIRE(info);
    CHECK(world.a.link->attach(world.b.publish(*info, world.a, 1)) == Answer::done);
    CHECK(world.a.remotes.mapping(info->key) == nullptr);
  }
  SUBCASE("a window is asked for once, for all its regions") {
    const auto info = world.b.regions->allocate(3 * 4096, {});
    REQUIRE(info);
    std::vector<memory::RegionInfo> parts{*info};
    for (int part = 0; part < 3; ++part) {
      parts.push_back(*world.b.regions->add(info->data + part * 4096 + 5, 100, {}));
    }
    for (const auto& part : parts) CHECK(world.a.link->attach(world.b.publish(part, world.a, 1)) == Answer::posted);
    CHECK(world.until([&] { return world.a.record.attached.size() == parts.size(); }));
    for (const auto& [key, result] : world.a.record.attached) CHECK(result);
    std::byte* const base = world.a.remotes.mapping(info->key);
    REQUIRE(base != nullptr);
    for (const auto& part : parts) CHECK(world.a.remotes.mapping(part.key) == base + (part.data - info->data));
    const auto late = world.b.regions->add(info->data + 1, 8, {});
    CHECK(world.a.link->attach(world.b.publish(*late, world.a, 1)) == Answer::done);
    CHECK(world.a.remotes.mapping(late->key) == base + 1);
  }
  SUBCASE("a window that is not there") {
    wire::RegionDescriptor region;
    region.key = {1, 1};
    region.window_id = 99;
    region.length = 1;
    CHECK(world.a.link->attach(region) == Answer::posted);
    CHECK(world.until([&] { return world.a.record.attached.size() == 1; }));
    CHECK(world.a.record.attached[0].second.error().code == ErrorCode::not_registered);
    CHECK(world.a.link->attach(region) == Answer::posted);  // asks again
    CHECK(world.until([&] { return world.a.record.attached.size() == 2; }));
  }
  SUBCASE("a region that claims more than its window") {
    const auto info = world.shared(4096);
    wire::RegionDescriptor region = world.b.publish(*world.b.regions->info(info.key), world.a, 1);
    for (const auto& [offset, length] : {std::pair<std::uint64_t, std::uint64_t>{1, 4096},
                                         {4097, 0},
                                         {~std::uint64_t{0}, 2},
                                         {2, ~std::uint64_t{0}}}) {
      region.window_offset = offset;
      region.length = length;
      world.a.record.attached.clear();
      CHECK(world.a.link->attach(region) == Answer::posted);
      CHECK(world.until([&] { return world.a.record.attached.size() == 1; }));
      CHECK(world.a.record.attached[0].second.error().code == ErrorCode::out_of_range);
    }
  }
}

TEST_CASE("hccs: a dropped window is unmapped, and an old pointer into it hits nothing") {
  World world;
  const auto region = world.shared(1U << 20U);
  std::byte* const old = world.a.remotes.mapping(region.key);
  REQUIRE(*world.b.regions->close(region.key));
  REQUIRE(world.b.link->revoke(region.key));
  std::fill_n(region.data, region.size, std::byte{0});
  world.b.link->drop_window(region.window_id);
  CHECK(world.until([&] { return world.a.remotes.mapping(region.key) == nullptr; }));
  *reinterpret_cast<volatile std::byte*>(old + 100) = std::byte{1};
  CHECK(region.data[100] == std::byte{0});
  std::byte byte{};
  const Segment segment{&byte, 0, 1};
  CHECK(world.run(data_post(Verb::write, region, {&segment, 1})) == ErrorCode::stale);
}

TEST_CASE("hccs: a closed region refuses short posts, long posts and signals") {
  World world;
  const auto region = world.shared(1U << 20U);
  REQUIRE(*world.b.regions->close(region.key));
  CHECK(world.b.link->revoke(region.key));
  std::vector<std::byte> source(1U << 20U, std::byte{1});
  for (const std::uint32_t bytes : {8U, 1U << 20U}) {
    const Segment segment{source.data(), 0, bytes};
    CHECK(world.run(data_post(Verb::write, region, {&segment, 1})) == ErrorCode::stale);
  }
  const std::vector<Segment> blocks(wire::k_segments_max, Segment{source.data(), 0, 4096});
  CHECK(world.run(data_post(Verb::write, region, blocks)) == ErrorCode::stale);
  const Segment word{nullptr, 0, 8};
  CHECK(world.run(data_post(Verb::signal_set, region, {&word, 1})) == ErrorCode::stale);
  CHECK(std::all_of(region.data, region.data + region.size, [](std::byte byte) { return byte == std::byte{0}; }));
  CHECK(world.a.record.completions.front().error.detail.rank == 1);
  CHECK(world.a.link->traffic().bytes_out == 0);
}

TEST_CASE("hccs: revoked while the engine copies: nothing changes afterwards") {
  World world;
  const auto region = world.shared(16U << 20U);
  std::vector<std::byte> source(region.size, std::byte{1});
  const Segment segment{source.data(), 0, static_cast<std::uint32_t>(region.size)};
  Post post = data_post(Verb::write, region, {&segment, 1});
  post.cookie = 5;
  REQUIRE(world.a.link->post(post) == Answer::posted);
  while (*reinterpret_cast<volatile std::byte*>(region.data) == std::byte{0}) std::this_thread::yield();
  REQUIRE(*world.b.regions->close(region.key));
  REQUIRE(world.until([&] { return world.b.link->revoke(region.key); }));
  const std::vector<std::byte> seen(region.data, region.data + region.size);
  REQUIRE(world.until([&] { return world.a.record.completion(5) != nullptr; }));
  const ErrorCode code = world.a.record.completion(5)->error.code;
  CHECK((code == ErrorCode::stale || code == ErrorCode::ok));
  CHECK(std::equal(seen.begin(), seen.end(), region.data));
}

TEST_CASE("hccs: credit: tx_depth long posts, then busy, then on_credit; each ends once") {
  constexpr std::uint32_t k_depth = 4;
  World world(k_depth);
  const auto region = world.shared(1U << 20U);
  std::vector<std::byte> source = pattern(1U << 20U, 9);
  const Segment segment{source.data(), 0, 1U << 20U};
  Post post = data_post(Verb::write, region, {&segment, 1});
  std::uint64_t posted = 0;
  bool was_busy = false;
  int credit = 0;
  const auto post_some = [&] {
    while (posted < 50) {
      post.cookie = posted;
      const Answer answer = world.a.link->post(post);
      if (answer == Answer::busy) {
        was_busy = true;
        return;
      }
      REQUIRE(answer == Answer::posted);
      ++posted;
    }
  };
  post_some();
  CHECK(posted == k_depth);
  REQUIRE(world.until([&] {
    if (world.a.record.credit != credit) post_some();
    credit = world.a.record.credit;
    return world.a.record.completions.size() == 50;
  }));
  CHECK(was_busy);
  for (std::uint64_t cookie = 0; cookie < 50; ++cookie) {
    REQUIRE(world.a.record.completion(cookie) != nullptr);
    CHECK(world.a.record.completion(cookie)->error.code == ErrorCode::ok);
  }
}

TEST_CASE("hccs: a turn copies a bounded amount itself") {
  World world(32);
  const auto region = world.shared(1U << 20U);
  std::vector<std::byte> source(64U << 10U);
  const Segment segment{source.data(), 0, 64U << 10U};
  int done = 0, posted = 0;
  while (posted == 0 && done < 1000) {
    const Answer answer = world.a.link->post(data_post(Verb::write, region, {&segment, 1}));
    REQUIRE(answer != Answer::busy);
    ++(answer == Answer::done ? done : posted);
  }
  CHECK(done >= 8);
  CHECK(done <= 16);
  CHECK(world.until([&] { return world.a.record.completions.size() == 1; }));
  CHECK(world.a.link->post(data_post(Verb::write, region, {&segment, 1})) == Answer::done);
}

TEST_CASE("hccs: abandon") {
  World world;
  const auto region = world.shared(16U << 20U);
  std::vector<std::byte> sink(region.size);
  const Segment segment{sink.data(), 0, static_cast<std::uint32_t>(region.size)};
  Post post = data_post(Verb::read, region, {&segment, 1});
  post.cookie = 77;
  REQUIRE(world.a.link->post(post) == Answer::posted);
  CHECK(!world.a.link->abandon(77));
  CHECK(world.a.link->abandon(78));
  CHECK(world.a.link->sequence_of(77) == 0);
  CHECK(world.until([&] { return world.a.record.completion(77) != nullptr; }));
  CHECK(world.a.link->abandon(77));
}

TEST_CASE("hccs: closed by the target: the initiator's copies end, and nothing changes any more") {
  World world;
  const auto region = world.shared(16U << 20U);
  std::vector<std::byte> source(region.size, std::byte{1});
  const Segment segment{source.data(), 0, static_cast<std::uint32_t>(region.size)};
  Post post = data_post(Verb::write, region, {&segment, 1});
  post.cookie = 5;
  REQUIRE(world.a.link->post(post) == Answer::posted);
  while (*reinterpret_cast<volatile std::byte*>(region.data) == std::byte{0}) std::this_thread::yield();
  memory::Lane* const lane = world.a.link->lane();
  world.b.link->close();
  world.b.link->close();
  CHECK(lane->run(region.key, [] {}) == memory::Lane::Outcome::closed);
  REQUIRE(world.until([&] { return world.b.link->drained(); }));
  std::fill_n(region.data, region.size, std::byte{7});
  REQUIRE(world.until([&] { return world.a.record.completion(5) != nullptr; }));
  const ErrorCode code = world.a.record.completion(5)->error.code;
  CHECK((code == ErrorCode::link_failed || code == ErrorCode::ok));
  CHECK(std::all_of(region.data, region.data + region.size, [](std::byte byte) { return byte == std::byte{7}; }));
  REQUIRE(world.until([&] { return world.a.record.down == 1; }));
  CHECK(world.a.link->lane() == nullptr);
  CHECK(world.a.link->post(post) == Answer::busy);
  CHECK(world.b.record.down == 0);
}

TEST_CASE("hccs: closed by the initiator while its engine copies: drained later, only completions follow") {
  World world;
  const auto region = world.shared(16U << 20U);
  std::vector<std::byte> source(region.size, std::byte{1});
  const Segment segment{source.data(), 0, static_cast<std::uint32_t>(region.size)};
  Post post = data_post(Verb::write, region, {&segment, 1});
  for (post.cookie = 1; post.cookie <= 3; ++post.cookie) REQUIRE(world.a.link->post(post) == Answer::posted);
  CHECK(!world.a.link->drained());
  world.a.link->close();
  CHECK(!world.a.link->drained());
  CHECK(world.a.remotes.mapping(region.key) == nullptr);
  REQUIRE(world.until([&] { return world.a.link->drained(); }));
  REQUIRE(world.until([&] { return world.a.record.completions.size() == 3; }));
  for (const auto& completion : world.a.record.completions) {
    CHECK((completion.error.code == ErrorCode::link_failed || completion.error.code == ErrorCode::ok));
  }
  CHECK(world.a.record.down == 0);
  CHECK(world.a.record.credit == 0);
  world.a.link.reset();
  CHECK(world.until([&] { return world.b.record.down == 1; }));
}

TEST_CASE("hccs: destroyed without waiting: the engine has let go") {
  World world;
  const auto region = world.shared(16U << 20U);
  std::vector<std::byte> source(region.size, std::byte{1});
  const Segment segment{source.data(), 0, static_cast<std::uint32_t>(region.size)};
  REQUIRE(world.a.link->post(data_post(Verb::write, region, {&segment, 1})) == Answer::posted);
  world.a.link.reset();
  std::vector<std::byte>().swap(source);
  const std::vector<std::byte> seen(region.data, region.data + region.size);
  CHECK(world.until([&] { return world.b.record.down == 1; }));
  CHECK(std::equal(seen.begin(), seen.end(), region.data));
}

TEST_CASE("hccs: what the kind says of itself") {
  Side side(0, 1);
  CHECK(side.factory->available());
  const links::LinkCaps& caps = side.factory->caps();
  CHECK(caps.kind == LinkKind::hccs);
  CHECK(caps.needs_window);
  CHECK(caps.target_passive);
  CHECK(caps.same_host_only);
  CHECK(caps.executed_by_initiator);
}
