// SPDX-License-Identifier: Apache-2.0
//
// Looking inside a runtime that works: its regions and its open operations.
#include <array>
#include <set>
#include <thread>

#include "inspect_parts.hpp"
#include "polled_parts.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k_size = 1U << 20U;

/// A runtime whose options leave room for many regions.
std::unique_ptr<Runtime> roomy(Rank rank, const std::string& store) {
  auto options = options_for(rank, 2, store);
  options.regions_max = 131'072;
  auto runtime = Runtime::create(options);
  require_ok(runtime);
  return std::move(*runtime);
}

}  // namespace

TEST_CASE("dump_regions: own regions newest first, a peer's by address, with the link that reaches them") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Couple couple(links);
    std::vector<std::byte> memory(8192);
    const auto extra = couple.runtime.register_memory(memory.data(), memory.size(), {.rights = Rights::read, .tag = 7});
    require_ok(extra);
    require_ok(couple.runtime.register_memory(memory.data(), memory.size(), {.rights = Rights::read, .tag = 7}));
    auto dump = couple.runtime.dump_regions();
    require_ok(dump);
    REQUIRE(dump->own.size() == 2);
    const OwnRegion& newest = dump->own[0];
    CHECK(newest.region.key == extra->key);
    CHECK(newest.region.data == memory.data());
    CHECK(newest.region.size == memory.size());
    CHECK(newest.rights == Rights::read);
    CHECK(newest.tag == 7);
    CHECK(newest.references == 2);
    CHECK(newest.state == RegionState::open);
    CHECK_FALSE(newest.region.window);
    CHECK(dump->own[1].region.key == couple.pair.a.key);
    CHECK(dump->own[1].region.window);
    CHECK(dump->own[1].region.page_bytes == couple.pair.a.page_bytes);
    CHECK(dump->own[1].age >= newest.age);
    REQUIRE(dump->peers.size() == 1);
    const PeerRegion& theirs = dump->peers[0];
    CHECK(theirs.rank == 1);
    CHECK(theirs.incarnation == couple.pair.world[1].incarnation());
    CHECK(theirs.key == couple.pair.remote.key);
    CHECK(theirs.base == couple.pair.remote.base);
    CHECK(theirs.size == couple.pair.remote.length);
    CHECK(theirs.reached);
    CHECK(theirs.mapped == (theirs.link == LinkKind::hccs));
    CHECK((theirs.link == LinkKind::tcp) == (!links.empty() && links.front() == LinkKind::tcp));

    require_ok(couple.runtime.deregister(*extra));
    CHECK(couple.runtime.dump_regions()->own.at(0).references == 1);
    require_ok(couple.runtime.deregister(*extra));
    CHECK(couple.runtime.dump_regions()->own.size() == 1);
    require_ok(couple.pair.world[1].deregister(couple.pair.b));
    if (theirs.link != LinkKind::hccs) continue;  // the peer tells of a window; elsewhere the next access is told
    for (const auto until = std::chrono::steady_clock::now() + k_patience;;) {
      dump = couple.runtime.dump_regions();
      if (dump->peers.at(0).retired || std::chrono::steady_clock::now() > until) break;
      std::this_thread::yield();
    }
    CHECK(dump->peers.at(0).retired);
    CHECK_FALSE(dump->peers.at(0).reached);
  }
}

TEST_CASE("dump_regions: a hundred thousand regions, in their order, while others register") {
  auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  const auto mine = roomy(0, (*store)->url());
  const auto theirs = roomy(1, (*store)->url());
  const int count = rounds(100'000);
  const auto window = theirs->allocate(std::size_t{64} * 100'000);
  const auto own = mine->allocate(std::size_t{64} * 100'000);
  require_ok(window);
  require_ok(own);
  const auto cut = [count](Runtime& runtime, const Region& whole) {
    std::vector<Region> parts;
    for (int i = 0; i < count; ++i) {
      const auto part = runtime.register_memory(whole.data + std::size_t{64} * static_cast<std::size_t>(i), 64);
      require_ok(part);
      parts.push_back(*part);
    }
    return parts;
  };
  const std::vector<Region> here = cut(*mine, *own), there = cut(*theirs, *window);
  const Rank zero[] = {0}, one[] = {1};
  Answer<std::vector<PeerAddresses>> met;
  require_ok(theirs->exchange_async(there, zero, 60s, store_answers, &met));
  const auto answers = mine->exchange(std::span(&*own, 1), one, 60s);
  require_ok(answers.front().result);
  REQUIRE(met.wait());

  std::atomic<bool> over{false};
  std::thread registers([&] {
    std::array<std::byte, 4096> other{};
    while (!over.load()) {
      const auto region = mine->register_memory(other.data(), other.size());
      require_ok(region);
      require_ok(mine->deregister(*region));
    }
  });
  const auto begun = std::chrono::steady_clock::now();
  const auto dump = mine->dump_regions();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
  over.store(true);
  registers.join();
  require_ok(dump);
  MESSAGE(count << " regions on each side: " << took.count() << " ms");
  CHECK(dump->peers.size() == there.size());
  for (std::size_t i = 0; i < dump->peers.size(); ++i) {
    REQUIRE(dump->peers[i].base == there[i].address());
    REQUIRE(dump->peers[i].reached);
  }
  // Besides ours there is at most the one that the other thread registers all the time.
  std::vector<RegionKey> keys;
  for (const OwnRegion& region : dump->own) {
    if (region.region.data >= own->data && region.region.data < own->data + own->size)
      keys.push_back(region.region.key);
  }
  REQUIRE(keys.size() == here.size() + 1);
  CHECK(keys.back() == own->key);
  for (std::size_t i = 0; i < here.size(); ++i) REQUIRE(keys[here.size() - 1 - i] == here[i].key);
}

TEST_CASE("outstanding, asked in a callback: what is posted there is in the mailbox, with size, rank and time left") {
  Couple couple({});
  struct Inside {
    explicit Inside(Couple& c) : couple(c) {}
    Couple& couple;
    Result<std::vector<OperationInfo>> rows{};
    Result<RegionDump> regions{};
    Request request{};
    Events events;
  } inside(couple);
  auto first = couple.runtime.put(couple.pair.a.data, couple.pair.remote.at(0), 64);
  require_ok(first);
  require_ok(first->then({[](void* context, const Completion&) {
                            auto& in = *static_cast<Inside*>(context);
                            Runtime& runtime = in.couple.runtime;
                            in.request = *runtime.put(in.couple.pair.a.data, in.couple.pair.remote.at(0), k_size,
                                                      {.timeout = 20s, .user_data = 99});
                            in.rows = runtime.outstanding();
                            in.regions = runtime.dump_regions();
                            in.events.add();
                          },
                          &inside}));
  REQUIRE(inside.events.wait_for(1));
  require_ok(inside.request.wait());
  require_ok(inside.regions);
  CHECK(inside.regions->own.size() == 1);
  require_ok(inside.rows);
  bool found = false;
  for (const OperationInfo& row : *inside.rows) {
    if (row.user_data != 99) continue;
    found = true;
    CHECK(row.state == OperationState::mailbox);
    CHECK(row.verb == OperationVerb::put);
    CHECK(row.rank == 1);
    CHECK(row.bytes == k_size);
    CHECK(row.done_bytes == 0);
    CHECK(row.age >= 0ns);
    CHECK(row.deadline_left > 0ns);
    CHECK(row.deadline_left <= 20s);
  }
  CHECK(found);
}

TEST_CASE("P50 outstanding: ends at which nobody looked keep their slots until they are looked at or dropped") {
  Couple couple({});
  Runtime& runtime = couple.runtime;
  CHECK(runtime.outstanding()->empty());
  auto looked = runtime.put(couple.pair.a.data, couple.pair.remote.at(0), 64);
  auto dropped = runtime.get(couple.pair.a.data, couple.pair.remote.at(0), 4096, {.timeout = 0ns});
  auto late = runtime.put(couple.pair.a.data, couple.pair.remote.at(0), 4096, {.timeout = 0ns, .user_data = 3});
  Noted noted;
  auto told = runtime.put(couple.pair.a.data, couple.pair.remote.at(0), 4096, {.callback = noted.callback()});
  require_ok(told);
  require_ok(runtime.flush(1));
  REQUIRE(noted.events.wait_for(1));
  auto rows = runtime.outstanding();
  require_ok(rows);
  REQUIRE(rows->size() == 4);
  std::set<std::uint64_t> ids;
  for (const OperationInfo& row : *rows) {
    ids.insert(row.id);
    CHECK(row.state == OperationState::ended);
    CHECK(row.rank == 1);
    CHECK(row.told == (row.bytes == 4096 && row.error.code == ErrorCode::ok));
  }
  CHECK(ids.size() == 4);
  // The oldest first.
  CHECK(rows->at(0).bytes == 64);
  CHECK(rows->at(0).done_bytes == 64);
  CHECK(rows->at(1).verb == OperationVerb::get);
  CHECK(rows->at(1).error.code == ErrorCode::deadline_exceeded);
  CHECK(rows->at(2).user_data == 3);

  require_ok(looked->query());
  dropped = fail(ErrorCode::internal);
  CHECK(runtime.outstanding()->size() == 2);
  CHECK(runtime.counters().failed_unseen == 1);
  CHECK(code_of(late->wait()) == ErrorCode::deadline_exceeded);
  told = fail(ErrorCode::internal);
  CHECK(runtime.outstanding()->empty());
}

TEST_CASE("a polled runtime is asked by its driving thread, and by others while it is turned") {
  PolledCouple couple;
  auto request = couple.mine->put(couple.here.data, couple.remote.at(0), k_polled_bytes, {.user_data = 8});
  require_ok(request);
  auto rows = couple.mine->outstanding();  // turns, so that it may have ended
  require_ok(rows);
  REQUIRE(rows->size() == 1);
  CHECK(rows->front().user_data == 8);
  require_ok(couple.mine->dump_regions());
  std::atomic<bool> answered{false};
  std::thread other([&] {
    require_ok(couple.mine->outstanding());
    CHECK(couple.mine->dump_regions()->peers.size() == 1);
    require_ok(couple.mine->check_access(couple.remote.at(0), 8, Rights::write));
    answered.store(true);
  });
  while (!answered.load()) static_cast<void>(couple.mine->poll());
  other.join();
  require_ok(request->wait());
}

TEST_CASE("after stop all of it says STOPPED; what is asked meanwhile is answered") {
  Couple couple({});
  std::atomic<bool> over{false};
  std::vector<std::thread> askers;
  for (int i = 0; i < 4; ++i) {
    askers.emplace_back([&] {
      while (!over.load()) {
        static_cast<void>(couple.runtime.outstanding());
        static_cast<void>(couple.runtime.dump_regions());
        static_cast<void>(couple.runtime.links());
        static_cast<void>(couple.runtime.check_access(couple.pair.remote.at(0), 8, Rights::write));
      }
    });
  }
  for (int i = 0; i < rounds(200); ++i) {
    require_ok(couple.runtime.put_sync(couple.pair.a.data, couple.pair.remote.at(0), 100'000));
  }
  require_ok(couple.runtime.stop());
  CHECK(code_of(couple.runtime.outstanding()) == ErrorCode::stopped);
  CHECK(code_of(couple.runtime.dump_regions()) == ErrorCode::stopped);
  CHECK(code_of(couple.runtime.check_access(couple.pair.remote.at(0), 8, Rights::write)) == ErrorCode::stopped);
  CHECK(code_of(couple.runtime.check_access(couple.pair.a.data, 8, Rights::read)) == ErrorCode::stopped);
  CHECK(couple.runtime.links().empty());
  over.store(true);
  for (std::thread& asker : askers) asker.join();
}
