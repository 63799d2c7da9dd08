// SPDX-License-Identifier: Apache-2.0
//
// Groups: every form of a transfer, links that are asked for, exchanges of two groups at once, the rules of
// asynchronous calls, runtimes that are turned by hand, and a runtime that ends in its own callback.
#include "group_parts.hpp"
#include "polled_parts.hpp"

namespace hixl::test {
namespace {

using namespace std::chrono_literals;

Result<void> ended(Result<Request> request) {
  if (!request) return fail(request.error());
  return request->wait();
}

TEST_CASE("every form of a transfer goes to members, and to nobody else") {
  World world(3);
  auto groups = make(world, {0, 1});
  Windows windows(world, groups, 64U << 10U);
  Group& group = groups[0];
  std::byte* const mine = windows.own[0].data;
  const std::byte* const theirs = windows.own[1].data;
  const RemoteRegion there = windows.at(0, 1);
  fill_pattern(mine, 4096, 3);

  const LocalPiece pieces[] = {{mine, 1024}, {mine + 1024, 3072}};
  require_ok(ended(group.put_gathered(pieces, there.at(8192))));
  CHECK(holds_pattern(theirs + 8192, 4096, 3));
  const LocalPiece sinks[] = {{mine + 16384, 3000}, {mine + 19384, 1096}};
  require_ok(ended(group.get_scattered(sinks, there.at(8192))));
  CHECK(holds_pattern(mine + 16384, 4096, 3));
  Strided strided{.local = mine,
                  .local_stride = 512,
                  .remote = there.at(32768),
                  .remote_stride = 1024,
                  .block_bytes = 512,
                  .blocks = 8};
  require_ok(ended(group.put_strided(strided)));
  CHECK(std::memcmp(theirs + 32768 + 7 * 1024, mine + 7 * 512, 512) == 0);
  strided.local = mine + 24576;
  require_ok(ended(group.get_strided(strided)));
  CHECK(holds_pattern(mine + 24576, 4096, 3));
  const BatchEntry entry{TransferVerb::put, mine, there.at(49152), 4096};
  require_ok(ended(group.batch_with_signal(std::span(&entry, 1), {.word = there.at(0), .value = 4})));
  require_ok(world[1].wait_signal(theirs, Compare::equal, 4, k_patience));
  CHECK(holds_pattern(theirs + 49152, 4096, 3));
  require_ok(ended(group.fence(1)));

  RemoteAddress outside = there.at(0);
  outside.rank = 2;
  const auto refused = [](const auto& result) {
    CHECK(code_of(result) == ErrorCode::invalid_argument);
    return !result && result.error().detail.rank == 2 && result.error().detail.stage == Stage::group;
  };
  strided.remote = outside;
  const BatchEntry foreign{TransferVerb::put, mine, outside, 8};
  CHECK(refused(group.put_gathered(pieces, outside)));
  CHECK(refused(group.get_scattered(sinks, outside)));
  CHECK(refused(group.put_strided(strided)));
  CHECK(refused(group.get_strided(strided)));
  CHECK(refused(group.batch_with_signal(std::span(&foreign, 1), {.word = there.at(0)})));
  CHECK(refused(group.fence(2)));
  CHECK(code_of(group.batch({})) == ErrorCode::invalid_argument);
}

TEST_CASE("a kind that is asked for is taken, or it is an error: pcie for memory that no window shows") {
  World with_pcie(2, {LinkKind::hccs, LinkKind::pcie, LinkKind::tcp});
  std::vector<std::byte> plain(1U << 20U);
  auto groups = make(with_pcie, {0, 1}, {.links = {LinkKind::pcie}});
  const auto mine = with_pcie[0].allocate(1U << 20U);
  const auto theirs = with_pcie[1].register_memory(plain.data(), plain.size());
  require_ok(mine);
  require_ok(theirs);
  const auto known = with_pcie.exchange_all({*mine, *theirs});
  fill_pattern(mine->data, 1U << 20U, 9);
  const auto done = ended(groups[0].put(mine->data, known[0][1].at(0), 1U << 20U, {.timeout = k_patience}));
  const Counters counters = with_pcie[0].counters();
  CHECK(counters.bytes_out[static_cast<std::size_t>(LinkKind::hccs)] == 0);
  CHECK(counters.bytes_out[static_cast<std::size_t>(LinkKind::tcp)] == 0);
  if (done) {
    CHECK(holds_pattern(plain.data(), 1U << 20U, 9));
    CHECK(counters.bytes_out[static_cast<std::size_t>(LinkKind::pcie)] == 1U << 20U);
  } else {
    MESSAGE("this system lets no process attach to another: " << done.error().message());
    CHECK(done.error().code == ErrorCode::transport_unavailable);
  }
  // Words are not what the kernel's copy can change.
  const auto signalled = ended(groups[0].put_with_signal(mine->data, known[0][1].at(64), 64,
                                                         {.word = known[0][1].at(0)}, {.timeout = k_patience}));
  CHECK(code_of(signalled) == ErrorCode::transport_unavailable);
  for (Group& group : groups) group.close();

  World without(2, {LinkKind::hccs, LinkKind::tcp});
  const Rank both[] = {0, 1};
  CHECK(code_of(without[0].create_group(both, {.links = {LinkKind::pcie}}, 1s)) == ErrorCode::transport_unavailable);
  CHECK(code_of(without[0].create_group(both, {.links = {LinkKind::hccs, LinkKind::pcie}}, 1s)) ==
        ErrorCode::transport_unavailable);
}

TEST_CASE("two members exchange alone, a stranger is refused, and the others know nothing of it") {
  World world(3);
  auto group = make(world, {0, 1}, {.tag = 1});
  auto mine = world[0].allocate(4096, {.tag = 1});
  auto theirs = world[1].allocate(4096, {.tag = 2});
  require_ok(mine);
  require_ok(theirs);
  std::vector<PeerAddresses> learned;
  const Rank zero = 0;
  const Rank one = 1;
  const Rank stranger = 2;
  std::thread other([&] { learned = group[1].exchange_with({&*theirs, 1}, {&zero, 1}, k_patience); });
  const auto got = group[0].exchange_with({&*mine, 1}, {&one, 1}, k_patience);
  other.join();
  REQUIRE(got.size() == 1);
  require_ok(got[0].result);
  CHECK(got[0].regions.front().tag == 2);
  CHECK(learned[0].regions.front().tag == 1);
  const auto refused = group[0].exchange_with({&*mine, 1}, {&stranger, 1}, 1s);
  REQUIRE(refused.size() == 1);
  CHECK(code_of(refused[0].result) == ErrorCode::invalid_argument);
  CHECK(refused[0].result.error().detail.rank == 2);
}

TEST_CASE("two groups of the same ranks exchange at once, in opposite orders, and each learns its own regions") {
  World world(2);
  auto one = make(world, {0, 1}, {.tag = 1});
  auto two = make(world, {0, 1}, {.tag = 2});
  Region region[2][2];  // rank, group
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::uint32_t group = 0; group < 2; ++group) {
      auto made = world[rank].allocate(4096, {.tag = 10 + group});
      require_ok(made);
      region[rank][group] = *made;
    }
  }
  std::vector<PeerAddresses> learned[2][2];
  std::thread waiting([&] { learned[0][0] = one[0].exchange(std::span(&region[0][0], 1), k_patience); });
  std::thread also([&] { learned[1][1] = two[1].exchange(std::span(&region[1][1], 1), k_patience); });
  learned[0][1] = two[0].exchange(std::span(&region[0][1], 1), k_patience);
  learned[1][0] = one[1].exchange(std::span(&region[1][0], 1), k_patience);
  waiting.join();
  also.join();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::uint32_t group = 0; group < 2; ++group) {
      const PeerAddresses& other = learned[rank][group][1 - rank];
      require_ok(other.result);
      CHECK(other.regions.front().tag == 10 + group);
    }
  }
}

TEST_CASE("asynchronous calls: an error has begun nothing, else the end is told once, on the loop, never inline") {
  World world(2);
  struct Made {
    Events events;
    Result<Group> group = fail(ErrorCode::busy);
    std::thread::id thread;
  };
  const auto store = [](void* context, Result<Group>&& group) {
    auto& made = *static_cast<Made*>(context);
    made.group = std::move(group);
    made.thread = std::this_thread::get_id();
    made.events.add();
  };
  const Rank both[] = {0, 1}, twice[] = {0, 0};
  Made made[2];
  CHECK(code_of(world[0].create_group_async(both, {}, 1s, nullptr, nullptr)) == ErrorCode::invalid_argument);
  CHECK(code_of(world[0].create_group_async(twice, {}, 1s, store, &made[0])) == ErrorCode::invalid_argument);
  CHECK(code_of(world[0].create_group_async(both, {}, -2s, store, &made[0])) == ErrorCode::invalid_argument);
  for (std::size_t i = 0; i < 2; ++i) require_ok(world[i].create_group_async(both, {}, k_patience, store, &made[i]));
  for (Made& one : made) {
    REQUIRE(one.events.wait_for(1));
    require_ok(one.group);
    CHECK(one.thread != std::this_thread::get_id());
  }
  // A second creation with the same tag has to wait for the first.
  Made open, second;
  require_ok(world[0].create_group_async(both, {}, k_patience, store, &open));
  require_ok(world[0].create_group_async(both, {}, k_patience, store, &second));
  REQUIRE(second.events.wait_for(1));
  CHECK(code_of(second.group) == ErrorCode::busy);

  Answer<Result<void>> barrier;
  CHECK(code_of(made[0].group->barrier_async(1s, nullptr, nullptr)) == ErrorCode::invalid_argument);
  CHECK(code_of(made[0].group->barrier_async(-2s, store_result, &barrier)) == ErrorCode::invalid_argument);
  require_ok(made[0].group->barrier_async(k_patience, store_result, &barrier));
  require_ok(world[0].stop());
  REQUIRE(barrier.wait());
  CHECK(code_of(barrier.value) == ErrorCode::stopped);
  REQUIRE(open.events.wait_for(1));
  CHECK(code_of(open.group) == ErrorCode::stopped);
  CHECK(code_of(made[0].group->barrier_async(1s, store_result, &barrier)) == ErrorCode::stopped);
  CHECK(code_of(world[0].create_group_async(both, {}, 1s, store, &open)) == ErrorCode::stopped);
  CHECK(barrier.events.count() == 1);
  CHECK(open.events.count() == 1);
}

TEST_CASE("turned by hand: making a group and its barriers turn the loop, by message and by the page") {
  PolledCouple couple;
  const Rank both[] = {0, 1};
  Result<Group> other = fail(ErrorCode::busy);
  std::thread partner([&] { other = couple.theirs->create_group(both, {}, k_patience); });
  auto mine = couple.mine->create_group(both, {}, k_patience);
  partner.join();
  require_ok(mine);
  require_ok(other);
  const int count = rounds(200);
  Result<void> theirs;
  std::thread entering([&] {
    for (int i = 0; i < count && theirs; ++i) theirs = other->barrier(k_patience);
  });
  Result<void> ours;
  for (int i = 0; i < count && ours; ++i) ours = mine->barrier(k_patience);
  entering.join();
  require_ok(ours);
  require_ok(theirs);
  // Alone: the deadline holds, and names the other one.
  const auto late = mine->barrier(50ms);
  CHECK(code_of(late) == ErrorCode::deadline_exceeded);
  CHECK(late.error().detail.missing_count == 1);
  CHECK(late.error().detail.missing[0] == 1);
}

}  // namespace
}  // namespace hixl::test
