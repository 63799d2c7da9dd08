// SPDX-License-Identifier: Apache-2.0
//
// LinkActor over a scripted link: what becomes of each attempt, whatever the link does (R1 … R5).
//
// This file is over 400 lines because every way in which a link can end is one case of the same table of attempts.
#include "peer/link_actor.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "fake_link.hpp"
#include "runtime/virtual_port.hpp"

using namespace hixl;
using namespace hixl::peer;
using hixl::peer::test::FakeFactory;
using hixl::peer::test::FakeLink;
using links::Answer;

namespace {

constexpr LinkId k_link = 7;
constexpr std::uint32_t k_depth = 4;

struct Bench final : LinkActorEvents {
  struct End {
    Operation* operation;
    Chunk chunk;
    AttemptEnd how;
    ErrorCode code;
  };
  explicit Bench(const links::LinkCaps& caps = {}, std::uint32_t depth = k_depth)
      : factory(caps), actor(loop, {.factory = &factory, .id = k_link}, timing, depth, *this) {}

  void on_attempt_end(LinkActor&, Operation& operation, const Chunk& chunk, AttemptEnd how,
                      const Error& error) override {
    ends.push_back({&operation, chunk, how, error.code});
    if (on_end) on_end(operation, how);
  }
  void on_link_up(LinkActor&) override { ups += 1; }
  void on_link_down(LinkActor&, const Error&) override { downs += 1; }
  void on_link_credit(LinkActor&) override { credits += 1; }
  void on_link_control(LinkActor&, const wire::FrameHeader&, ConstBytes) override { controls += 1; }
  void on_link_attached(LinkActor&, RegionKey, const Result<void>&) override {}
  void on_link_quiet(LinkActor&) override { quiets += 1; }
  void on_link_suspect(LinkActor&) override { suspects += 1; }

  FakeLink& open(LinkGen generation) {
    const links::LinkServices services{.loop = loop, .regions = *regions, .remotes = remotes, .signals = *signals};
    actor.open({.rank = 1, .session = 1, .link_id = k_link, .link_gen = generation, .dialled = true}, nullptr,
               services);
    return *factory.newest;
  }
  FakeLink& up(LinkGen generation) {
    FakeLink& link = open(generation);
    link.events.on_up();
    return link;
  }
  /// Starts a chunk and tells its cookie.
  std::uint64_t start(Operation& operation, std::uint64_t bytes_max = 100, LinkSeq seq = 0) {
    const Chunk chunk = cut_chunk(operation, bytes_max, 4);
    REQUIRE(actor.start(operation, chunk) == Answer::posted);
    const std::uint64_t cookie = factory.newest->last().cookie;
    if (seq != 0) factory.newest->number(cookie, seq);
    return cookie;
  }
  std::size_t count(AttemptEnd how) const {
    return static_cast<std::size_t>(
        std::count_if(ends.begin(), ends.end(), [how](const End& end) { return end.how == how; }));
  }

  runtime::VirtualWorld world{1};
  runtime::EventPort& port{world.make_port("one")};
  runtime::Loop loop{port, 1, 64};
  std::unique_ptr<memory::RegionTable> regions{*memory::RegionTable::create(4, 1)};
  std::unique_ptr<memory::SignalPage> signals{*memory::SignalPage::create()};
  memory::RemoteTable remotes{4};
  FakeFactory factory;
  Timing timing;
  LinkActor actor;
  std::vector<End> ends;
  std::function<void(Operation&, AttemptEnd)> on_end;
  int ups = 0, downs = 0, credits = 0, controls = 0, quiets = 0, suspects = 0;
};

struct Transfer {
  explicit Transfer(TransferVerb verb = TransferVerb::put, std::uint64_t size = 1000) {
    operation.op_id = 5;
    operation.single = {.verb = verb,
                        .local = memory.data(),
                        .device = &memory::host_device(),
                        .region = {.id = 3, .generation = 2},
                        .token = {},
                        .offset = 64,
                        .size = size};
  }
  std::vector<std::byte> memory = std::vector<std::byte>(1000);
  Operation operation;
};

wire::ExecutedSet executed_of(std::initializer_list<LinkSeq> seqs, LinkSeq highest) {
  wire::ExecutedSet set;
  for (LinkSeq seq = 1; seq <= highest; ++seq) {
    set.record(seq, std::find(seqs.begin(), seqs.end(), seq) != seqs.end());
  }
  return set;
}

const Error k_broken(ErrorCode::link_failed);

}  // namespace

TEST_CASE("attempts are counted from their post to their completion, and each ends once") {
  Bench bench;
  Transfer put;
  CHECK(bench.actor.start(put.operation, {}) == Answer::busy);  // not up
  FakeLink& link = bench.up(1);
  CHECK(bench.ups == 1);
  const std::uint64_t a = bench.start(put.operation);
  const std::uint64_t b = bench.start(put.operation);
  CHECK(a != b);
  CHECK(put.operation.live == 2);
  CHECK(link.last().segments.front().local == put.memory.data() + 100);
  CHECK(link.last().segments.front().offset == 164);
  CHECK(link.last().op_id == 5);
  CHECK(link.last().chunk == 1);
  link.complete(b);
  link.complete(a, Error(ErrorCode::access_denied));
  link.events.on_completions();
  REQUIRE(bench.ends.size() == 2);
  CHECK(bench.ends[0].how == AttemptEnd::executed);
  CHECK(bench.ends[0].chunk.index == 1);
  CHECK(bench.ends[1].how == AttemptEnd::refused);
  CHECK(bench.ends[1].code == ErrorCode::access_denied);
  CHECK(put.operation.live == 0);
}

TEST_CASE("busy leaves everything as it was, and credit comes back by on_credit") {
  Bench bench;
  Transfer put;
  FakeLink& link = bench.up(1);
  link.answers = {Answer::busy};
  const Chunk chunk = cut_chunk(put.operation, 100, 4);
  CHECK(bench.actor.start(put.operation, chunk) == Answer::busy);
  CHECK(put.operation.live == 0);
  CHECK_FALSE(bench.actor.has_credit());
  link.events.on_credit();
  CHECK(bench.credits == 1);
  for (std::uint32_t i = 0; i < k_depth; ++i) {  // no place was lost
    REQUIRE(bench.actor.has_credit());
    CHECK(bench.actor.start(put.operation, chunk) == Answer::posted);
  }
  CHECK_FALSE(bench.actor.has_credit());
  CHECK(bench.actor.start(put.operation, chunk) == Answer::busy);
  link.complete(link.posts.front().cookie);
  link.events.on_completions();
  CHECK(bench.actor.has_credit());
}

TEST_CASE("bytes in flight are capped beside the number of attempts") {
  Bench bench({}, 64);
  Transfer put(TransferVerb::put, 64U << 20U);
  FakeLink& link = bench.up(1);
  std::uint64_t inflight = 0;
  constexpr std::uint64_t k_chunk = 1U << 20U;
  while (bench.actor.has_credit(k_chunk, Bulk::yes)) {
    const Chunk chunk = cut_chunk(put.operation, k_chunk, 1);
    REQUIRE(bench.actor.start(put.operation, chunk) == Answer::posted);
    inflight += chunk.bytes;
  }
  CHECK(inflight <= k_inflight_bytes_max - k_small_reserve_bytes);
  CHECK(inflight + k_chunk > k_inflight_bytes_max - k_small_reserve_bytes);
  // What is left is for small ones.
  Transfer small;
  small.operation.small = true;
  CHECK(bench.actor.has_credit(k_small_bytes));
  CHECK(bench.actor.start(small.operation, cut_chunk(small.operation, 100, 1)) == Answer::posted);
  link.complete(link.posts.front().cookie);
  link.events.on_completions();
  CHECK(bench.actor.has_credit(k_chunk, Bulk::yes));
}

TEST_CASE("a chunk that is done at once ends inside start()") {
  Bench bench;
  Transfer put;
  FakeLink& link = bench.up(1);
  link.answers = {Answer::done};
  CHECK(bench.actor.start(put.operation, cut_chunk(put.operation, 100, 4)) == Answer::done);
  CHECK(bench.count(AttemptEnd::executed) == 1);
  CHECK(put.operation.live == 0);
}

TEST_CASE("a signal goes out as one word without local memory") {
  Bench bench;
  Transfer put;
  put.operation.signal = {.wanted = true,
                          .verb = links::Verb::signal_add,
                          .region = {.id = 9, .generation = 1},
                          .token = {},
                          .offset = 32,
                          .value = 77};
  FakeLink& link = bench.up(1);
  CHECK(bench.actor.start(put.operation, Chunk{.index = 4, .word = true}) == Answer::posted);
  CHECK(link.last().verb == links::Verb::signal_add);
  CHECK(link.last().region.id == 9);
  CHECK(link.last().value == 77);
  CHECK(link.last().segments.front().offset == 32);
  CHECK(link.last().segments.front().bytes == 8);
}

TEST_CASE("a broken link ends reads and what never left; the rest waits for the target's word (R1, R4)") {
  Bench bench;
  Transfer put;
  Transfer get(TransferVerb::get);
  FakeLink& link = bench.up(1);
  bench.start(put.operation, 100, 1);
  bench.start(put.operation, 100, 2);
  bench.start(put.operation, 100);  // never left
  bench.start(get.operation, 100, 3);
  link.events.on_down(k_broken);
  CHECK(bench.downs == 1);
  CHECK(link.closed);
  CHECK(bench.count(AttemptEnd::not_executed) == 2);
  CHECK(bench.count(AttemptEnd::executed) == 0);
  CHECK(put.operation.live == 2);
  CHECK(get.operation.live == 0);
  CHECK(bench.actor.unresolved());
  CHECK(bench.actor.unresolved_generation() == 1);

  SUBCASE("executed and not executed") {
    bench.actor.resolve(1, executed_of({2}, 2), 1);
    CHECK(put.operation.live == 0);
    CHECK(bench.count(AttemptEnd::executed) == 1);
    CHECK(bench.ends[2].how == AttemptEnd::not_executed);
    CHECK(bench.ends[2].chunk.index == 0);
    CHECK(bench.ends[3].how == AttemptEnd::executed);
    CHECK(bench.ends[3].chunk.index == 1);
    bench.actor.resolve(1, executed_of({1, 2}, 2), 1);  // a repeat changes nothing
    CHECK(bench.ends.size() == 4);
  }
  SUBCASE("a word about another generation") {
    bench.actor.resolve(2, executed_of({1, 2}, 2), 2);
    CHECK(put.operation.live == 2);
    bench.actor.resolve(0, {}, 0);
    CHECK(put.operation.live == 2);
  }
  SUBCASE("the target never opened this generation") {
    bench.actor.resolve(0, {}, 1);
    CHECK(put.operation.live == 0);
    CHECK(bench.count(AttemptEnd::not_executed) == 4);
  }
  SUBCASE("the target is declared dead") {
    bench.actor.give_up_unresolved(Error(ErrorCode::peer_lost));
    CHECK(put.operation.live == 0);
    CHECK(bench.ends.back().how == AttemptEnd::not_executed);
    CHECK(bench.ends.back().code == ErrorCode::peer_lost);
  }
  SUBCASE("the operation is dropped: nobody is told, and the places are free again") {
    bench.actor.drop(put.operation);
    CHECK(put.operation.live == 0);
    CHECK_FALSE(bench.actor.unresolved());
    CHECK(bench.ends.size() == 2);
    bench.up(2);
    Transfer other;
    for (std::uint32_t i = 0; i < k_depth; ++i) bench.start(other.operation);
  }
  SUBCASE("the next generation goes on beside what is unresolved") {
    FakeLink& next = bench.up(2);
    CHECK(bench.actor.state() == LinkActor::State::up);
    Transfer other;
    const std::uint64_t cookie = bench.start(other.operation);
    next.complete(cookie);
    next.events.on_completions();
    CHECK(other.operation.live == 0);
    CHECK(put.operation.live == 2);
    bench.actor.resolve(1, executed_of({1, 2}, 2), 1);
    CHECK(put.operation.live == 0);
  }
}

TEST_CASE("S18 a link that is opened while the old one stands closes the old one first") {
  Bench bench;
  Transfer put;
  FakeLink& old = bench.up(3);
  bench.start(put.operation, 100, 1);
  FakeLink& next = bench.open(4);
  CHECK(old.closed);
  CHECK(bench.downs == 1);
  CHECK(bench.actor.last_open() == 4);
  CHECK_FALSE(bench.actor.up());
  next.events.on_up();
  CHECK(bench.actor.up());
  CHECK(bench.actor.unresolved_generation() == 3);
}

TEST_CASE("generations never go back, and never wrap whatever a peer says") {
  Bench bench;
  bench.up(3);
  bench.actor.raise_generation(2);
  CHECK(bench.actor.generation() == 3);
  bench.actor.raise_generation(8);
  CHECK(bench.actor.generation() == 8);
  CHECK(bench.actor.last_open() == 3);
  bench.actor.raise_generation(0xffffffff);
  CHECK(bench.actor.generation() + 1 > bench.actor.generation());
}

TEST_CASE("attempts belong to the generation that carried them, also after the number was raised") {
  Bench bench;
  Transfer put;
  bench.up(3);
  bench.actor.raise_generation(8);
  bench.start(put.operation, 100, 1);
  bench.actor.fail(k_broken);
  CHECK(bench.actor.unresolved_generation() == 3);
}

TEST_CASE("what this side executed is kept for the newest generation in which it executed anything") {
  Bench bench;
  CHECK(bench.actor.executed().generation == 0);
  FakeLink& first = bench.up(1);
  first.executed_set = executed_of({1, 3}, 3);
  bench.actor.fail(k_broken);
  CHECK(bench.actor.executed().generation == 1);
  CHECK(bench.actor.executed_in(1) == executed_of({1, 3}, 3));
  bench.up(2);  // the peer never spoke in this one
  bench.actor.fail(k_broken);
  CHECK(bench.actor.executed().generation == 1);
  CHECK(bench.actor.executed_in(2) == wire::ExecutedSet{});
  FakeLink& third = bench.up(3);
  third.executed_set = executed_of({1}, 1);
  bench.actor.fail(k_broken);
  CHECK(bench.actor.executed().generation == 3);
  CHECK(bench.actor.executed_in(1) == wire::ExecutedSet{});
  bench.actor.forget_executed();
  CHECK(bench.actor.executed().generation == 0);
  CHECK(bench.actor.executed_in(0) == wire::ExecutedSet{});
}

TEST_CASE("withdraw takes reads back; writes and reads that are under way stay") {
  Bench bench;
  Transfer put;
  Transfer get(TransferVerb::get);
  FakeLink& link = bench.up(1);
  bench.start(put.operation);
  const std::uint64_t a = bench.start(get.operation);
  const std::uint64_t b = bench.start(get.operation);
  link.kept.insert(b);
  CHECK(bench.actor.withdraw(put.operation) == 1);
  CHECK(bench.actor.withdraw(get.operation) == 1);
  CHECK(link.abandoned.count(a) == 1);
  CHECK(get.operation.live == 1);
  CHECK(bench.ends.empty());
  link.complete(b);
  link.events.on_completions();
  CHECK(get.operation.live == 0);
  CHECK(bench.ends.size() == 1);
}

TEST_CASE("an operation that ends by one completion leaves alone those that came with it") {
  // Two reads of one operation are refused in one batch; the first refusal withdraws the operation.
  Bench bench;
  Transfer get(TransferVerb::get);
  FakeLink& link = bench.up(1);
  const std::uint64_t a = bench.start(get.operation);
  const std::uint64_t b = bench.start(get.operation);
  const std::uint64_t c = bench.start(get.operation);
  std::optional<std::size_t> still_live;
  bench.on_end = [&](Operation& operation, AttemptEnd) {
    if (!still_live) still_live = bench.actor.withdraw(operation);
  };
  link.complete(a, Error(ErrorCode::stale));
  link.complete(b, Error(ErrorCode::stale));
  link.events.on_completions();
  CHECK(still_live == 1);  // b, whose completion was in hand; c was taken back
  CHECK(link.abandoned.count(c) == 1);
  CHECK(bench.ends.size() == 2);
  CHECK(get.operation.live == 0);
  for (std::uint32_t i = 0; i < k_depth; ++i) bench.start(get.operation);
}

TEST_CASE("dropped attempts of a standing link keep their place until they complete") {
  Bench bench;
  Transfer put;
  FakeLink& link = bench.up(1);
  const std::uint64_t cookie = bench.start(put.operation);
  bench.actor.drop(put.operation);
  CHECK(put.operation.live == 0);
  Transfer other;
  for (std::uint32_t i = 1; i < k_depth; ++i) bench.start(other.operation);
  CHECK_FALSE(bench.actor.has_credit());
  link.complete(cookie);
  link.events.on_completions();
  CHECK(bench.ends.empty());
  CHECK(bench.actor.has_credit());
}

TEST_CASE("copies that this side makes are settled by their completions and by nobody's word") {
  Bench bench({.needs_window = true, .executed_by_initiator = true});
  Transfer put;
  FakeLink& link = bench.up(1);
  link.is_drained = false;
  const std::uint64_t a = bench.start(put.operation);
  const std::uint64_t b = bench.start(put.operation);
  bench.start(put.operation);  // its job never ran
  bench.actor.fail(k_broken);
  CHECK(put.operation.live == 3);
  CHECK_FALSE(bench.actor.unresolved());
  bench.actor.resolve(1, executed_of({1, 2}, 2), 1);
  bench.actor.give_up_unresolved(k_broken);
  CHECK(put.operation.live == 3);
  link.complete(a);
  link.events.on_completions();
  CHECK(bench.count(AttemptEnd::executed) == 1);
  CHECK(bench.actor.reap(true));
  link.complete(b, Error(ErrorCode::link_failed));
  link.is_drained = true;
  CHECK_FALSE(bench.actor.reap(true));
  CHECK(bench.count(AttemptEnd::executed) == 1);
  CHECK(bench.count(AttemptEnd::not_executed) == 2);
  CHECK(put.operation.live == 0);
}

TEST_CASE("a closed link is destroyed only when it is drained") {
  Bench bench;
  bool gone = false;
  FakeLink& link = bench.up(1);
  link.gone.flag = &gone;
  link.is_drained = false;
  link.revoked = false;
  bench.actor.fail(k_broken);
  CHECK(bench.actor.draining());
  CHECK(bench.actor.reap(true));
  CHECK_FALSE(bench.actor.revoke({.id = 1, .generation = 1}));  // closed links count as well
  CHECK_FALSE(gone);
  link.is_drained = true;
  link.pieces = 2;  // given back one a look
  CHECK(bench.actor.reap(true));
  CHECK(bench.actor.reap(true));
  CHECK_FALSE(gone);
  CHECK_FALSE(bench.actor.reap(true));
  CHECK(gone);
  CHECK_FALSE(bench.actor.draining());
  CHECK(bench.actor.revoke({.id = 1, .generation = 1}));
}

TEST_CASE("a closed link's late events are not taken for those of its successor") {
  Bench bench;
  FakeLink& old = bench.up(1);
  old.is_drained = false;
  bench.actor.fail(k_broken);
  CHECK(bench.downs == 1);
  bench.actor.fail(k_broken);  // broken is broken
  CHECK(bench.downs == 1);
  old.events.on_control({}, {});
  CHECK(bench.controls == 0);
  old.events.on_credit();
  CHECK(bench.credits == 0);
}
