// SPDX-License-Identifier: Apache-2.0
//
// Leases between real ranks: they free themselves, never under a transfer, and who comes too late is told so.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "kv_world.hpp"

using namespace hixl;
using namespace hixl::kv;
using namespace hixl::kv::test;

namespace {

/// What the hooks of leases tell.
class Ends {
 public:
  LeaseHook hook() {
    return {[](void* context, LeaseId lease, LeaseEnd end, BlockTable blocks) {
              auto& here = *static_cast<Ends*>(context);
              const std::lock_guard lock(here.mutex_);
              here.all_.push_back({lease, end, {blocks.begin(), blocks.end()}});
              here.more_.notify_all();
            },
            this};
  }
  struct End {
    LeaseId lease;
    LeaseEnd end;
    std::vector<std::uint32_t> blocks;
  };
  End next() {
    std::unique_lock lock(mutex_);
    REQUIRE(more_.wait_for(lock, k_patience, [&] { return taken_ < all_.size(); }));
    return all_[taken_++];
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return all_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<End> all_;
  std::size_t taken_ = 0;
};

LeaseOptions exported(Ends& ends, std::chrono::milliseconds time = std::chrono::minutes(5)) {
  return {.holder = 1, .access = Access::pull, .blocks = k_here, .time = time, .on_end = ends.hook()};
}

}  // namespace

TEST_CASE("P51 a lease is given back by its holder, by release() or with the transfer, and the blocks are free") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Ends ends;
    Couple couple(links);
    const auto lease = couple.world[0].grant(couple.from, exported(ends));
    require_ok(lease);
    for (int i = 0; i < 2; ++i) {
      CHECK(end_of(couple.world[1].pull(couple.to, couple.source_seen, two_blocks(), {.ticket = &lease->ticket})) ==
            ErrorCode::ok);
    }
    CHECK(couple.same_block(9, 7));
    CHECK(couple.world[0].lease_state(lease->id) == LeaseState::open);
    CHECK(ends.count() == 0);
    require_ok(couple.world[1].release(lease->ticket));
    const Ends::End end = ends.next();
    CHECK(end.lease == lease->id);
    CHECK(end.end == LeaseEnd::released);
    CHECK(end.blocks == k_here);
    CHECK(couple.world[0].lease_state(lease->id) == LeaseState::ended);
    CHECK(end_of(couple.world[1].pull(couple.to, couple.source_seen, two_blocks(), {.ticket = &lease->ticket})) ==
          ErrorCode::lease_ended);

    const auto second = couple.world[0].grant(couple.from, exported(ends));
    require_ok(second);
    CHECK(end_of(couple.world[1].pull(couple.to, couple.source_seen, two_blocks(),
                                      {.ticket = &second->ticket, .release = true})) == ErrorCode::ok);
    CHECK(ends.next().end == LeaseEnd::released);
    // Twice does no harm, neither now nor to who has the place next.
    require_ok(couple.world[1].release(second->ticket));
    const auto third = couple.world[0].grant(couple.from, exported(ends));
    require_ok(third);
    require_ok(couple.world[1].release(second->ticket));
    CHECK(end_of(couple.world[1].pull(couple.to, couple.source_seen, two_blocks(), {.ticket = &third->ticket})) ==
          ErrorCode::ok);
    CHECK(couple.world[0].lease_state(third->id) == LeaseState::open);
    require_ok(couple.world[0].end_lease(third->id));
    CHECK(ends.next().end == LeaseEnd::taken_back);
  }
}

TEST_CASE("P51 a lease ends by its time, and by its owner; extend() moves the time") {
  Ends ends;
  Couple couple;
  const auto timed = couple.world[0].grant(couple.from, exported(ends, std::chrono::milliseconds(1)));
  require_ok(timed);
  CHECK(ends.next().end == LeaseEnd::expired);
  CHECK(code_of(couple.world[0].extend(timed->id, std::chrono::seconds(1))) == ErrorCode::lease_ended);
  CHECK(code_of(couple.world[0].end_lease(timed->id)) == ErrorCode::lease_ended);
  CHECK(end_of(couple.world[1].pull(couple.to, couple.source_seen, two_blocks(), {.ticket = &timed->ticket})) ==
        ErrorCode::lease_ended);
  CHECK(couple.target.unchanged());
  const auto other = couple.world[0].grant(couple.from, exported(ends));
  require_ok(other);
  require_ok(couple.world[0].extend(other->id, std::chrono::hours(1)));
  require_ok(couple.world[0].extend(other->id, std::chrono::milliseconds(1)));
  CHECK(ends.next().end == LeaseEnd::expired);
}

TEST_CASE("a lease is never free while a transfer of it is open: pull under an ending lease, no torn block") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Ends ends;
    const CacheDesc desc = paged(16, 8);
    Couple couple(links, desc);
    const std::size_t bytes = block_bytes(desc.layout).value();
    std::atomic<int> good{0};
    std::atomic<int> late{0};
    const int all = rounds(200);
    for (int round = 0; round < all; ++round) {
      // At some moment of the pull; of each ten one before it begins, and one after its end.
      const bool before = round % 10 == 3;
      const bool after = round % 10 == 7;
      const auto value = static_cast<int>(round % 100 + 1);
      for (std::size_t i = 0; i < 16; ++i) {
        for (const std::uint32_t block : k_here) std::memset(couple.source.tensor(i) + block * bytes, value, bytes);
      }
      const auto lease = couple.world[0].grant(couple.from, exported(ends));
      require_ok(lease);
      std::atomic<int> pulls{0};
      std::atomic<bool> taken{false};
      std::thread holder([&] {
        if (before) taken.wait(false);
        const auto pulled =
            couple.world[1].pull(couple.to, couple.source_seen, two_blocks(), {.ticket = &lease->ticket});
        const ErrorCode code = end_of(pulled);
        pulls = 1;
        pulls.notify_all();
        if (code == ErrorCode::lease_ended) {
          CHECK_FALSE(after);
          late += 1;
          return;
        }
        CHECK_FALSE(before);
        REQUIRE(code == ErrorCode::ok);
        good += 1;
        for (std::size_t i = 0; i < 16; ++i) {
          for (const std::uint32_t block : k_there) {
            const std::byte* data = couple.target.tensor(i) + block * bytes;
            REQUIRE(data[0] == static_cast<std::byte>(value));
            REQUIRE(std::memcmp(data, data + 1, bytes - 1) == 0);
          }
        }
      });
      // And the memory is used for something else as soon as it is free.
      for (volatile int i = 0; i < round % 20 * 3'000;) i = i + 1;
      if (after) pulls.wait(0);
      require_ok(couple.world[0].end_lease(lease->id));
      taken = true;
      taken.notify_all();
      CHECK(ends.next().end == LeaseEnd::taken_back);
      for (std::size_t i = 0; i < 16; ++i) {
        for (const std::uint32_t block : k_here) std::memset(couple.source.tensor(i) + block * bytes, 200, bytes);
      }
      holder.join();
    }
    CHECK(good.load() + late.load() == all);
    CHECK(good.load() >= all / 10);
    CHECK(late.load() >= all / 10);
  }
}

TEST_CASE("a transfer that is open when the time is over keeps the blocks until it has ended") {
  Ends ends;
  Couple couple;
  auto options = exported(ends, std::chrono::milliseconds(50));
  const auto lease = couple.world[0].grant(couple.from, options);
  require_ok(lease);
  const auto moving = couple.world[1].pull(couple.to, couple.source_seen, two_blocks(),
                                           {.timeout = k_patience, .ticket = &lease->ticket, .layered = true});
  require_ok(moving);
  require_ok(moving->ready(0));
  while (moving->progress().layers_done == 0) std::this_thread::yield();  // it is inside
  while (couple.world[0].lease_state(lease->id) == LeaseState::open) std::this_thread::yield();
  CHECK(couple.world[0].lease_state(lease->id) == LeaseState::ending);
  CHECK(end_of(couple.world[1].pull(couple.to, couple.source_seen, two_blocks(), {.ticket = &lease->ticket})) ==
        ErrorCode::lease_ended);
  CHECK(ends.count() == 0);
  for (const std::uint32_t layer : {1U, 2U, 3U}) require_ok(moving->ready(layer));
  require_ok(moving->wait());
  CHECK(couple.same_block(3, 0));
  CHECK(ends.next().end == LeaseEnd::expired);
}

TEST_CASE("the end of a cache, a link or the holder ends its leases") {
  Ends ends;
  Couple couple;
  const auto first = couple.world[0].grant(couple.from, exported(ends));
  require_ok(first);
  require_ok(couple.world[1].unlink(0, k_patience));
  CHECK(couple.world[0].link_state(1) == LinkState::peer_unlinked);
  require_ok(couple.world[0].unlink(1, k_patience));
  CHECK(ends.next().end == LeaseEnd::unlinked);
  couple.world.link(0, 1);
  const auto second = couple.world[0].grant(couple.from, exported(ends));
  require_ok(second);
  require_ok(couple.world[0].unregister_cache(couple.from, k_patience));
  CHECK(ends.next().end == LeaseEnd::unregistered);
  const auto again = couple.world[0].register_cache(paged(), couple.source.places());
  require_ok(again);
  const auto third = couple.world[0].grant(*again, exported(ends));
  require_ok(third);
  couple.world.slot(1).reset();
  couple.world.world().slot(1).reset();
  CHECK(ends.next().end == LeaseEnd::peer_lost);
  CHECK(code_of(couple.world[0].grant(*again, exported(ends))) == ErrorCode::peer_lost);
  CHECK(ends.count() == 3);
}

TEST_CASE("leases whose layers are remembered take no room from others") {
  Ends ends;
  DataDistOptions few;
  few.links_max = 1;
  few.leases_max = 1;
  few.arrivals_max = 1;
  Couple couple({}, paged(), few);
  LeaseOptions push = exported(ends);
  push.access = Access::push;
  push.layer_arrivals = true;
  const auto first = couple.world[0].grant(couple.from, push);
  require_ok(first);
  require_ok(couple.world[0].end_lease(first->id));
  CHECK(ends.next().end == LeaseEnd::taken_back);
  const auto second = couple.world[0].grant(couple.from, exported(ends));
  require_ok(second);
  CHECK(code_of(couple.world[0].layer_arrived(first->id, 0)) == ErrorCode::lease_ended);
  CHECK(code_of(couple.world[0].grant(couple.from, exported(ends))) == ErrorCode::limit_reached);
}

TEST_CASE("leases that have ended take no room from the next one, also when the keeper has not looked yet") {
  DataDistOptions few;
  few.arrivals_max = 2;
  few.leases_max = 2;
  Couple couple({}, paged(), few);
  for (int i = 0; i < 200; ++i) {
    const auto lease = couple.world[1].grant(
        couple.to, {.holder = 0, .access = Access::push, .blocks = k_there, .layer_arrivals = true, .on_end = {}});
    require_ok(lease);
    require_ok(couple.world[1].end_lease(lease->id));
  }
}

TEST_CASE("leases: whose, of what, how many, and what is asked of one that is none") {
  Ends ends;
  DataDistOptions few;
  few.leases_max = 2;
  few.arrivals_max = 1;
  Couple couple({}, paged(), few);
  DataDist& owner = couple.world[0];
  const auto code = [&](auto&& change) {
    LeaseOptions options = exported(ends);
    change(options);
    return code_of(owner.grant(couple.from, options));
  };
  const std::vector<std::uint32_t> outside{16};
  const std::vector<std::uint32_t> twice{1, 1};
  CHECK(code([&](LeaseOptions& at) { at.blocks = outside; }) == ErrorCode::out_of_range);
  CHECK(code([&](LeaseOptions& at) { at.blocks = twice; }) == ErrorCode::invalid_argument);
  CHECK(code([&](LeaseOptions& at) { at.blocks = {}; }) == ErrorCode::invalid_argument);
  CHECK(code([&](LeaseOptions& at) { at.time = std::chrono::milliseconds(0); }) == ErrorCode::invalid_argument);
  CHECK(code([&](LeaseOptions& at) { at.time = std::chrono::hours(25); }) == ErrorCode::invalid_argument);
  CHECK(code([&](LeaseOptions& at) { at.time = -std::chrono::hours(1); }) == ErrorCode::invalid_argument);
  CHECK(code([&](LeaseOptions& at) { at.holder = 7; }) == ErrorCode::not_linked);
  CHECK(code([&](LeaseOptions& at) { at.access = static_cast<Access>(9); }) == ErrorCode::invalid_argument);
  CHECK(code([&](LeaseOptions& at) { at.layer_arrivals = true; }) == ErrorCode::invalid_argument);
  CHECK(code_of(owner.grant({.slot = 5, .version = 9}, exported(ends))) == ErrorCode::cache_stale);
  CHECK(code_of(owner.end_lease({})) == ErrorCode::lease_ended);
  CHECK(code_of(owner.layer_arrived({}, 0)) == ErrorCode::lease_ended);
  CHECK(owner.lease_state({.slot = 0, .generation = 99}) == LeaseState::ended);

  const auto lease = owner.grant(couple.from, exported(ends));
  require_ok(lease);
  CHECK(code_of(owner.layer_arrived(lease->id, 0)) == ErrorCode::invalid_argument);
  LeaseOptions push = exported(ends);
  push.access = Access::push;
  push.layer_arrivals = true;
  const auto other = owner.grant(couple.from, push);
  require_ok(other);
  CHECK(code_of(owner.layer_arrived(other->id, 4)) == ErrorCode::out_of_range);
  CHECK(code_of(owner.grant(couple.from, exported(ends))) == ErrorCode::limit_reached);
  require_ok(owner.end_lease(lease->id));
  CHECK(ends.next().end == LeaseEnd::taken_back);
  CHECK(code_of(owner.grant(couple.from, push)) == ErrorCode::limit_reached);  // arrivals

  // Tickets that are not for this, or are made up.
  const auto pull_with = [&](auto&& change) {
    LeaseTicket ticket = other->ticket;
    change(ticket);
    return end_of(couple.world[1].pull(couple.to, couple.source_seen, two_blocks(), {.ticket = &ticket}));
  };
  CHECK(pull_with([](LeaseTicket&) {}) == ErrorCode::invalid_argument);                          // for a push
  CHECK(pull_with([](LeaseTicket& at) { at.access = Access::pull; }) == ErrorCode::wrong_role);  // the gate says no
  CHECK(pull_with([](LeaseTicket& at) { at.access = Access::pull, at.gate = 77; }) == ErrorCode::invalid_argument);
  CHECK(pull_with([](LeaseTicket& at) { at.access = Access::pull, at.gate_generation += 1; }) ==
        ErrorCode::lease_ended);
  CHECK(pull_with([](LeaseTicket& at) { at.access = Access::pull, at.incarnation += 1; }) == ErrorCode::lease_ended);
  CHECK(pull_with([](LeaseTicket& at) { at.access = Access::pull, at.version += 1; }) == ErrorCode::lease_ended);
  CHECK(pull_with([](LeaseTicket& at) { at.access = Access::pull, at.holder = 0; }) == ErrorCode::invalid_argument);
  CHECK(pull_with([](LeaseTicket& at) { at.access = Access::pull, at.arrival = 99; }) == ErrorCode::invalid_argument);
  CHECK(code_of(couple.world[1].release({})) == ErrorCode::not_linked);
  CHECK(couple.target.unchanged());
}
