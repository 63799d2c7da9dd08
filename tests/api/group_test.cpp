// SPDX-License-Identifier: Apache-2.0
//
// Groups on real runtimes in this process: F26 (some ranks), F27 (two domains side by side over different links), F28
// (destroyed and made again with more ranks), errors, and the ends of a group.
#include "group_parts.hpp"

namespace hixl::test {
namespace {

using namespace std::chrono_literals;

std::uint64_t bytes_out(Runtime& runtime, LinkKind kind) {
  return runtime.counters().bytes_out[static_cast<std::size_t>(kind)];
}

TEST_CASE("F26: wrong lists are refused before anything happens") {
  World world(3);
  Runtime& self = world[1];
  const auto refused = [&](const std::vector<Rank>& ranks, GroupOptions options = {}) {
    const auto group = self.create_group(ranks, options, 1s);
    REQUIRE_FALSE(group.has_value());
    CHECK(group.error().detail.stage == Stage::group);
    return group.error();
  };
  CHECK(refused({}).code == ErrorCode::invalid_argument);
  CHECK(refused({0, 1, 2, 0}).code == ErrorCode::invalid_argument);
  CHECK(refused({0, 1, 2, 0}).detail.rank == 0);
  CHECK(refused({0, 2}).code == ErrorCode::invalid_argument);
  CHECK(refused({0, 2}).detail.rank == 1);
  CHECK(refused({0, 1, 3}).code == ErrorCode::rank_out_of_range);
  CHECK(refused({0, 1, 3}).detail.rank == 3);
  CHECK(refused({0, 1}, {.links = {LinkKind::ub}}).code == ErrorCode::transport_unavailable);
  CHECK(refused({0, 1}, {.default_timeout = std::chrono::milliseconds(-1)}).code == ErrorCode::invalid_argument);
}

TEST_CASE("F26: members know each other, and barriers are among them alone") {
  World world(4);
  auto groups = make(world, {3, 1, 2});
  CHECK(groups[0].size() == 3);
  CHECK(groups[0].rank() == 0);
  CHECK(groups[2].rank() == 2);
  CHECK(groups[1].world_rank(0) == 3);
  CHECK(groups[1].world_rank(3) == k_no_rank);
  CHECK(std::vector<Rank>(groups[1].ranks().begin(), groups[1].ranks().end()) == std::vector<Rank>{3, 1, 2});
  for (int i = 0; i < rounds(50); ++i) require_barrier(groups);

  Windows windows(world, groups, 64U << 10U);
  fill_pattern(windows.own[0].data, 4096, 5);
  auto put = groups[0].put(windows.own[0].data, windows.at(0, 2).at(64), 4096);
  require_ok(put);
  require_ok(put->wait());
  CHECK(holds_pattern(windows.own[2].data + 64, 4096, 5));
  require_ok(groups[1].get_sync(windows.own[1].data, windows.at(1, 2).at(64), 4096));
  CHECK(holds_pattern(windows.own[1].data, 4096, 5));
  auto signalled = groups[0].put_with_signal(windows.own[0].data, windows.at(0, 1).at(8192), 4096,
                                             {.word = windows.at(0, 1).at(0), .value = 9});
  require_ok(signalled);
  require_ok(world[1].wait_signal(windows.own[1].data, Compare::equal, 9, k_patience));
  CHECK(holds_pattern(windows.own[1].data + 8192, 4096, 5));
  require_ok(groups[0].flush(1));
  const BatchEntry entry{TransferVerb::put, windows.own[0].data, windows.at(0, 2).at(0), 64};
  auto batch = groups[0].batch(std::span(&entry, 1));
  require_ok(batch);
  require_ok(batch->wait());

  // Rank 0 is no member.
  RemoteAddress outside = windows.at(0, 1).at(0);
  outside.rank = 0;
  const auto refused = groups[0].put(windows.own[0].data, outside, 64);
  CHECK(code_of(refused) == ErrorCode::invalid_argument);
  CHECK(refused.error().detail.rank == 0);
  CHECK(code_of(groups[0].put_sync(windows.own[0].data, outside, 64)) == ErrorCode::invalid_argument);
  CHECK(code_of(groups[0].flush(0)) == ErrorCode::invalid_argument);
}

TEST_CASE("F26: a member that means something else is named") {
  World world(3);
  const std::vector<Rank> ranks{0, 1, 2};
  std::vector<GroupOptions> options(3);
  options[2].links = {LinkKind::tcp};
  const auto groups = try_make(world, ranks, options, 2s);
  for (const auto& group : groups) REQUIRE_FALSE(group.has_value());
  CHECK(groups[0].error().code == ErrorCode::invalid_argument);
  CHECK(groups[0].error().detail.rank == 2);
  CHECK(groups[2].error().code == ErrorCode::invalid_argument);
  CHECK(groups[2].error().detail.rank == 0);
  // All three at one: it works.
  auto again = make(world, ranks);
  require_barrier(again);
}

TEST_CASE("F26: the deadline names the missing members, and the list is good afterwards") {
  World world(12);
  std::vector<Result<Group>> groups;
  groups.push_back(world[5].create_group(range(0, 12), {}, 100ms));
  REQUIRE_FALSE(groups[0].has_value());
  CHECK(groups[0].error().code == ErrorCode::deadline_exceeded);
  CHECK(groups[0].error().detail.missing_count == 11);
  CHECK(groups[0].error().detail.missing == std::array<Rank, 8>{0, 1, 2, 3, 4, 6, 7, 8});
  auto made = make(world, range(0, 12));
  require_barrier(made);
  // The same for a barrier.
  const auto late = made[5].barrier(100ms);
  CHECK(code_of(late) == ErrorCode::deadline_exceeded);
  CHECK(late.error().detail.missing_count == 11);
  CHECK(late.error().detail.missing == std::array<Rank, 8>{0, 1, 2, 3, 4, 6, 7, 8});
}

TEST_CASE("F27: two domains side by side, each over its own links; one that stands still does not hold up the other") {
  World world(12);
  GroupOptions fast{.links = {LinkKind::hccs}, .default_timeout = k_patience, .tag = 1};
  GroupOptions wide{.links = {LinkKind::tcp}, .default_timeout = k_patience, .tag = 2};
  std::vector<Group> prefill;
  std::vector<Group> all;
  std::thread other([&] { all = make(world, range(0, 12), wide); });
  prefill = make(world, range(0, 4), fast);
  other.join();
  Windows near(world, prefill, 1U << 20U);
  Windows far(world, all, 1U << 20U);

  // Rank 11 never enters the wide barrier; the small group goes on meanwhile.
  std::vector<Answer<Result<void>>> waiting(11);
  for (std::size_t i = 0; i < 11; ++i) require_ok(all[i].barrier_async(k_patience, store_result, &waiting[i]));
  const std::uint64_t tcp_before = bytes_out(world[0], LinkKind::tcp);
  const std::uint64_t hccs_before = bytes_out(world[0], LinkKind::hccs);
  fill_pattern(near.own[0].data, 1U << 20U, 7);
  for (int i = 0; i < 4; ++i) {
    require_barrier(prefill);
    auto put = prefill[0].put(near.own[0].data, near.at(0, 3).at(0), 1U << 20U);
    require_ok(put);
    require_ok(put->wait());
    require_ok(prefill[0].put_sync(near.own[0].data, near.at(0, 2).at(0), 4096));
  }
  CHECK(holds_pattern(near.own[3].data, 1U << 20U, 7));
  CHECK(bytes_out(world[0], LinkKind::tcp) == tcp_before);
  CHECK(bytes_out(world[0], LinkKind::hccs) == hccs_before + 4 * ((1U << 20U) + 4096));
  for (auto& answer : waiting) CHECK(answer.events.count() == 0);
  require_ok(all[11].barrier());
  for (auto& answer : waiting) {
    REQUIRE(answer.wait());
    require_ok(answer.value);
  }

  // The same two ranks, the other group: the other link, the express lane included.
  fill_pattern(far.own[0].data, 1U << 20U, 8);
  auto put = all[0].put(far.own[0].data, far.at(0, 3).at(0), 1U << 20U);
  require_ok(put);
  require_ok(put->wait());
  require_ok(all[0].put_sync(far.own[0].data, far.at(0, 3).at(0), 4096));
  CHECK(holds_pattern(far.own[3].data, 1U << 20U, 8));
  CHECK(bytes_out(world[0], LinkKind::tcp) == tcp_before + (1U << 20U) + 4096);
  CHECK(bytes_out(world[0], LinkKind::hccs) == hccs_before + 4 * ((1U << 20U) + 4096));

  // A call may narrow the group's choice, not leave it.
  CHECK(code_of(all[0].put(far.own[0].data, far.at(0, 3).at(0), 64, {.links = {LinkKind::hccs}})) ==
        ErrorCode::transport_unavailable);
}

TEST_CASE("links of an operation: none in use here, or none that reaches the memory, is said at once") {
  World world(2, {LinkKind::tcp});
  auto regions = std::vector<Region>(2);
  for (std::size_t i = 0; i < 2; ++i) {
    auto region = world[i].allocate(4096);
    require_ok(region);
    regions[i] = *region;
  }
  const auto table = world.exchange_all(regions);
  const auto refused =
      world[0].put(regions[0].data, table[0][1].at(0), 4096, {.timeout = k_patience, .links = {LinkKind::hccs}});
  CHECK(code_of(refused) == ErrorCode::transport_unavailable);
  CHECK(refused.error().detail.rank == 1);

  World both(2);
  std::vector<std::byte> plain(4096);
  auto mine = both[0].allocate(4096);
  auto theirs = both[1].register_memory(plain.data(), plain.size());
  require_ok(mine);
  require_ok(theirs);
  const auto known = both.exchange_all({*mine, *theirs});
  auto put = both[0].put(mine->data, known[0][1].at(0), 4096, {.timeout = k_patience, .links = {LinkKind::hccs}});
  require_ok(put);
  CHECK(code_of(put->wait()) == ErrorCode::transport_unavailable);
}

TEST_CASE("F28: destroyed and made again while ranks join, 12 and then 13; nothing stays behind") {
  World world(13);
  std::size_t descriptors = 0;
  for (int life = 0; life < rounds(6); ++life) {
    const Rank size = life % 2 == 0 ? 12 : 13;
    auto groups = make(world, range(0, size));
    require_barrier(groups);
    Windows windows(world, groups, 64U << 10U);
    const std::size_t last = size - 1;
    const auto seed = static_cast<std::uint64_t>(life);
    fill_pattern(windows.own[0].data, 4096, seed);
    auto put = groups[0].put(windows.own[0].data, windows.at(0, last).at(0), 4096);
    require_ok(put);
    require_ok(put->wait());
    CHECK(holds_pattern(windows.own[last].data, 4096, seed));
    require_barrier(groups);
    for (std::size_t i = 0; i < size; ++i) {
      groups[i].close();
      require_ok(world[i].deregister(windows.own[i], k_patience));
    }
    CHECK(code_of(groups[0].barrier()) == ErrorCode::invalid_argument);
    CHECK(code_of(groups[0].put(windows.own[0].data, windows.at(0, last).at(0), 8)) == ErrorCode::invalid_argument);
    if (life == 1) descriptors = open_descriptors();
    if (life > 1 && life % 2 == 1) CHECK(open_descriptors() <= descriptors);
  }
}

TEST_CASE("the ends of a group: closed, moved, empty, on the loop, after stop, after the runtime") {
  World world(2);
  auto groups = make(world, {0, 1});
  // A barrier that is open when its group is closed.
  Answer<Result<void>> mine;
  Answer<Result<void>> theirs;
  require_ok(groups[0].barrier_async(k_patience, store_result, &mine));
  groups[0].close();
  groups[0].close();
  REQUIRE(mine.wait());
  CHECK(code_of(mine.value) == ErrorCode::cancelled);
  require_ok(groups[1].barrier_async(k_patience, store_result, &theirs));
  REQUIRE(theirs.wait());
  CHECK(code_of(theirs.value) == ErrorCode::peer_gone);
  CHECK(theirs.value.error().detail.rank == 0);

  Group empty;
  CHECK(empty.size() == 0);
  CHECK(empty.rank() == k_no_rank);
  CHECK(code_of(empty.barrier()) == ErrorCode::invalid_argument);
  CHECK(code_of(empty.flush(0)) == ErrorCode::invalid_argument);
  CHECK(empty.exchange({}).empty());

  groups = make(world, {1, 0});
  Group moved = std::move(groups[0]);
  CHECK(moved.size() == 2);
  CHECK(code_of(groups[0].barrier()) == ErrorCode::invalid_argument);
  groups[0] = std::move(moved);
  require_barrier(groups);

  // Blocking calls on the loop thread.
  struct Loop {
    Group* group;
    Runtime* runtime;
    Answer<Result<void>> barrier;
    ErrorCode create = ErrorCode::ok;
  } loop{&groups[0], &world[1], {}, {}};
  require_ok(groups[0].barrier_async(
      0ms,
      [](void* context, const Result<void>&) {
        auto& at = *static_cast<Loop*>(context);
        const Rank ranks[] = {0, 1};
        at.create = code_of(at.runtime->create_group(ranks));
        store_result(&at.barrier, at.group->barrier());
      },
      &loop));
  REQUIRE(loop.barrier.wait());
  CHECK(code_of(loop.barrier.value) == ErrorCode::would_deadlock);
  CHECK(loop.create == ErrorCode::would_deadlock);

  require_ok(world[1].stop());
  CHECK(code_of(groups[0].barrier()) == ErrorCode::stopped);
  const auto lost = groups[1].barrier(k_patience);
  CHECK((code_of(lost) == ErrorCode::peer_lost || code_of(lost) == ErrorCode::peer_gone));
  CHECK(lost.error().detail.rank == 1);
  world.slot(1).reset();
  CHECK(code_of(groups[0].barrier()) == ErrorCode::stopped);
  groups[0].close();
}

}  // namespace
}  // namespace hixl::test
