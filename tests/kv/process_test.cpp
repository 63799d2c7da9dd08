// SPDX-License-Identifier: Apache-2.0
//
// Ranks that die in the middle of KV: the blocks that they held come back, never before their last byte is certain, and
// who is left is told.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "../api/world.hpp"
#include "../process/child.hpp"
#include "../process/proc.hpp"
#include "../process/settings.hpp"
#include "kv_shape.hpp"

using namespace hixl;
using namespace hixl::kv;
using namespace hixl::test;
using hixl::kv::test::k_process_blocks;
using hixl::kv::test::process_cache;
using hixl::kv::test::to_hex;

namespace {

/// Short, since on tcp alone a death is known by it.
constexpr std::chrono::milliseconds k_lease{1'000};

struct Ends {
  std::mutex mutex;
  std::condition_variable more;
  std::vector<LeaseEnd> all;
  LeaseHook hook() {
    return {[](void* context, LeaseId, LeaseEnd end, BlockTable) {
              auto& here = *static_cast<Ends*>(context);
              const std::lock_guard lock(here.mutex);
              here.all.push_back(end);
              here.more.notify_all();
            },
            this};
  }
  LeaseEnd next() {
    std::unique_lock lock(mutex);
    REQUIRE(more.wait_for(lock, k_patience, [&] { return !all.empty(); }));
    const LeaseEnd end = all.front();
    all.erase(all.begin());
    return end;
  }
  bool none() {
    const std::lock_guard lock(mutex);
    return all.empty();
  }
};

/// Rank 0, in this process, whose cache the other one uses.
class Owner {
 public:
  /// `lease` 0: the usual one.
  explicit Owner(std::string links, std::chrono::milliseconds lease = {}) : links_(std::move(links)), lease_(lease) {
    auto store = Store::create("tcp://127.0.0.1:0");
    require_ok(store);
    store_ = std::move(*store);
    std::vector<LinkKind> kinds;
    if (links_ == "tcp") kinds = {LinkKind::tcp};
    RuntimeOptions options = options_for(0, 2, store_->url(), kinds);
    options.lease = lease_;
    auto runtime = Runtime::create(options);
    require_ok(runtime);
    runtime_ = std::move(*runtime);
    auto dist = DataDist::open(*runtime_);
    require_ok(dist);
    dist_ = std::move(*dist);
    const CacheDesc desc = process_cache();
    const auto region = runtime_->allocate(cache_bytes(desc.layout, desc.blocks).value());
    require_ok(region);
    region_ = *region;
    const TensorPlace place{.region = region_, .offset = 0};
    const auto cache = dist_->register_cache(desc, {&place, 1});
    require_ok(cache);
    cache_ = *cache;
  }
  ~Owner() { CHECK(dist_->close(k_patience)); }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  /// Starts rank 1 and links with it.
  std::unique_ptr<Child> guest() {
    auto child = std::make_unique<Child>(
        settings().rank_program, std::vector<std::string>{store_->url(), links_, std::to_string(lease_.count())});
    const Rank one = 1;
    require_ok(dist_->link({&one, 1}, k_patience).front());
    REQUIRE(child->hear() == "ready");
    return child;
  }
  LeaseTicket grant(Access access, Ends& ends) {
    const auto lease = dist_->grant(cache_, {.holder = 1,
                                             .access = access,
                                             .blocks = k_process_blocks,
                                             .time = std::chrono::hours(1),
                                             .on_end = ends.hook()});
    require_ok(lease);
    last_ = lease->id;
    return lease->ticket;
  }
  DataDist& operator*() { return *dist_; }
  DataDist* operator->() { return dist_.get(); }
  [[nodiscard]] CacheId cache() const { return cache_; }
  [[nodiscard]] LeaseId last() const { return last_; }
  Region& region() { return region_; }
  Runtime& runtime() { return *runtime_; }

 private:
  std::string links_;
  std::chrono::milliseconds lease_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<DataDist> dist_;
  Region region_{};
  CacheId cache_{};
  LeaseId last_{};
};

}  // namespace

TEST_CASE(
    "P51 kill -9 of a holder in the middle of its transfers: the blocks come back, and no byte changes after that") {
  for (const std::string links : {"auto", "tcp"}) {
    for (const Access access : {Access::pull, Access::push}) {
      CAPTURE(links);
      const std::string verb = access == Access::pull ? "pull" : "push";
      Ends ends;
      Owner owner(links, k_lease);
      const auto reused = [&] {
        const std::byte* const data = owner.region().data;
        return std::all_of(data, data + owner.region().size, [](std::byte byte) { return byte == std::byte{7}; });
      };
      for (int life = 0; life < 2; ++life) {
        auto guest = owner.guest();
        CHECK((life == 0 || reused()));  // also after all that a new life has needed
        // One stays inside the lease, and others go in and out of the cache while it is killed.
        const std::string ticket = to_hex(owner.grant(access, ends));
        REQUIRE(guest->ask("begin " + verb + " " + ticket) == "inside");
        CHECK(owner->lease_state(owner.last()) == LeaseState::open);
        REQUIRE(guest->ask("stream " + verb) == "moving");
        CHECK(ends.none());
        guest->kill();
        CHECK(ends.next() == LeaseEnd::peer_lost);
        CHECK(owner->link_state(1) == LinkState::peer_lost);
        std::memset(owner.region().data, 7, owner.region().size);
      }
      // What it had counted at the gates is gone with it.
      require_ok(owner->unregister_cache(owner.cache(), k_patience));
      CHECK(reused());
    }
  }
}

TEST_CASE(
    "a holder that stands still inside keeps its blocks, however long; when it goes on it ends well, and they are "
    "free") {
  Ends ends;
  Owner owner("auto");
  auto guest = owner.guest();
  const LeaseTicket ticket = owner.grant(Access::pull, ends);
  REQUIRE(guest->ask("begin pull " + to_hex(ticket)) == "inside");
  guest->stop();
  require_ok(owner->end_lease(owner.last()));
  CHECK(code_of(owner->unregister_cache(owner.cache(), std::chrono::milliseconds(300))) ==
        ErrorCode::deadline_exceeded);
  CHECK(ends.none());
  CHECK(owner->lease_state(owner.last()) == LeaseState::ending);
  guest->resume();
  CHECK(guest->ask("go") == "OK");
  CHECK(ends.next() == LeaseEnd::taken_back);
  CHECK(guest->ask("try " + to_hex(ticket)) == "LEASE_ENDED");
  require_ok(owner->unregister_cache(owner.cache(), k_patience));
  guest->tell("quit");
  CHECK(guest->wait() == 0);
}

TEST_CASE("a rank that stands still holds up only those who ask it: registrations and searches elsewhere go on") {
  Owner owner("tcp", std::chrono::minutes(1));  // no lease ends in this test
  auto guest = owner.guest();
  const Rank self = 0;
  require_ok(owner->link({&self, 1}, k_patience).front());
  guest->stop();
  std::thread asking([&] { CHECK(owner->find(1, process_cache().key, k_patience).has_value()); });
  // The question is on its way.
  REQUIRE(eventually([&] {
    const auto open = owner.runtime().outstanding();
    return open && std::any_of(open->begin(), open->end(), [](const OperationInfo& row) { return row.rank == 1; });
  }));
  CHECK(owner->find(0, process_cache().key, std::chrono::seconds(5)).has_value());
  CacheDesc other = process_cache();
  other.key.name = 8;
  const TensorPlace place{.region = owner.region(), .offset = 0};
  const auto registered = owner->register_cache(other, {&place, 1}, std::chrono::seconds(5));
  CHECK(registered.has_value());
  if (registered) CHECK(owner->unregister_cache(*registered, std::chrono::seconds(5)).has_value());
  guest->resume();
  asking.join();
  guest->tell("quit");
  CHECK(guest->wait() == 0);
}

TEST_CASE("P9 P55 an owner that dies: its user's transfer ends, and an old ticket means nothing to the next life") {
  for (const std::string links : {"auto", "tcp"}) {
    CAPTURE(links);
    Ends ends;
    Owner owner(links, k_lease);
    std::string old;
    for (int life = 0; life < 2; ++life) {
      auto guest = owner.guest();
      const std::string ticket = to_hex(owner.grant(Access::pull, ends));
      CHECK(guest->ask("try " + ticket) == "OK");
      if (!old.empty()) CHECK(guest->ask("try " + old) == "LEASE_ENDED");
      old = ticket;
      // This one is the user now: its link is to a rank that dies.
      const auto seen = owner->find(1, process_cache().key);
      require_ok(seen);
      Slice slice;
      slice.source = slice.target = k_process_blocks;
      const auto open = owner->push(owner.cache(), *seen, slice, {.timeout = k_patience, .layered = true});
      require_ok(open);
      require_ok(open->ready(0));
      guest->kill();
      for (const std::uint32_t layer : {1U, 2U}) static_cast<void>(open->ready(layer));
      const ErrorCode code = code_of(open->wait(k_patience));
      CHECK((code == ErrorCode::peer_lost || code == ErrorCode::stale || code == ErrorCode::ok ||
             code == ErrorCode::not_exchanged));
      CHECK(ends.next() == LeaseEnd::peer_lost);
    }
  }
}

TEST_CASE(
    "a session that is lost in the middle of a transfer takes no count with it: the gate is left when one stands "
    "again") {
  Owner user("tcp", k_lease);
  auto guest = user.guest();
  const auto seen = user->find(1, process_cache().key);
  require_ok(seen);
  Slice slice;
  slice.source = slice.target = k_process_blocks;
  const auto open = user->push(user.cache(), *seen, slice, {.timeout = k_patience, .layered = true});
  require_ok(open);
  require_ok(open->ready(0));
  while (open->progress().layers_done == 0) std::this_thread::yield();
  guest->stop();
  require_ok(open->ready(1));
  // By its lease: the guest may live, and could not be asked.
  CHECK(code_of(open->wait(k_patience)) == ErrorCode::peer_lost);
  guest->resume();
  REQUIRE(eventually([&] { return user->find(1, process_cache().key).has_value(); }));
  CHECK(guest->ask("free") == "OK");
  guest->tell("quit");
  CHECK(guest->wait() == 0);
}

TEST_CASE("P62 in a forked child every call answers FORKED, and the parent notices nothing") {
  Ends ends;
  Owner owner("auto");
  auto guest = owner.guest();
  const LeaseTicket ticket = owner.grant(Access::pull, ends);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Slice slice;
    slice.source = slice.target = k_process_blocks;
    bool all = code_of(owner->find(1, {})) == ErrorCode::forked;
    all = all && code_of(owner->push(owner.cache(), {}, slice)) == ErrorCode::forked;
    all = all && code_of(owner->register_cache(process_cache(), {})) == ErrorCode::forked;
    all = all && code_of(owner->unregister_cache(owner.cache())) == ErrorCode::forked;
    all = all && code_of(owner->grant(owner.cache(), {})) == ErrorCode::forked;
    all = all && code_of(owner->end_lease(owner.last())) == ErrorCode::forked;
    all = all && code_of(owner->switch_role(Role::both)) == ErrorCode::forked;
    all = all && code_of(owner->unlink(1)) == ErrorCode::forked;
    all = all && code_of(owner->close()) == ErrorCode::forked;
    const Rank one = 1;
    all = all && code_of(owner->link({&one, 1}).front()) == ErrorCode::forked;
    _exit(all ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(guest->ask("try " + to_hex(ticket)) == "OK");
  require_ok(owner->end_lease(owner.last()));
  CHECK(ends.next() == LeaseEnd::taken_back);
  guest->tell("quit");
  CHECK(guest->wait() == 0);
}
