// SPDX-License-Identifier: Apache-2.0
//
// Ranks that meet in a file, as simulated processes: the clock is virtual, the file is real. No notices of the kernel
// reach a virtual port, so this is the slow way, as on a network file system.
#include "group/file_membership.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <map>
#include <optional>

#include "file_world.hpp"
#include "store_world.hpp"

namespace hixl::group::test {
namespace {

using namespace std::chrono_literals;
using runtime::VirtualWorld;

struct FileMember final : Process, MembershipEvents, peer::AddressWatcher {
  FileMember(VirtualWorld& in, const Folder& folder, Rank own, std::uint32_t world_size = 8, Duration time = 5s,
             std::uint64_t job = 0)
      : Process(in, "rank " + std::to_string(own)),
        claim(claim_of(own, world_size, (in.draw_seed() | 1U), job)),
        deadline(in.now() + time),
        membership(std::in_place, loop, folder.file(), *this) {}
  void join() { membership->join(claim, deadline); }
  void watch(Rank other) { membership->watch(other, *this); }
  /// kill -9: nothing is said to anybody.
  void die() {
    kill();
    membership.reset();
  }
  void on_joined(const Result<void>& result) override {
    CHECK_FALSE(joined.has_value());  // once
    joined = result;
    joined_at = world.now();
  }
  void on_address(const wire::Endpoints& endpoints) override {
    CHECK(known[endpoints.rank] != endpoints.incarnation);  // nothing is told twice
    known[endpoints.rank] = endpoints.incarnation;
    ++notices;
  }
  void on_address_gone(Rank rank, Incarnation incarnation) override {
    CHECK(known[rank] == incarnation);
    known[rank] = 0;
    ++notices;
  }
  [[nodiscard]] bool is_joined() const { return joined.has_value() && joined->has_value(); }
  [[nodiscard]] ErrorCode code() const { return is_joined() || !joined ? ErrorCode::ok : joined->error().code; }

  wire::StoreClaim claim;
  Instant deadline{};
  std::optional<Result<void>> joined;
  Instant joined_at{};
  std::map<Rank, Incarnation> known;
  std::size_t notices = 0;
  std::optional<FileMembership> membership;
};

TEST_CASE("file: ranks meet, are missed when they leave, and take the file along") {
  VirtualWorld world(1);
  const Folder folder;
  FileMember a(world, folder, 0);
  FileMember b(world, folder, 1);
  a.watch(1);
  a.join();
  CHECK_FALSE(a.joined.has_value());  // never inside join()
  world.run_for(1s);
  CHECK(a.is_joined());
  CHECK(a.notices == 0);
  b.watch(0);
  b.join();
  world.run_for(1s);
  CHECK(a.known[1] == b.claim.endpoints.incarnation);
  CHECK(b.known[0] == a.claim.endpoints.incarnation);
  b.membership->leave();
  world.run_for(3s);
  CHECK(a.known[1] == 0);
  CHECK(folder.exists());
  a.membership->leave();
  CHECK_FALSE(folder.exists());
  world.run_for(10s);
  CHECK_FALSE(folder.exists());  // nothing follows
}

TEST_CASE(
    "file: a rank held by a living one is a conflict after half a second; by one that ends meanwhile, it is not") {
  VirtualWorld world(2);
  const Folder folder;
  FileMember a(world, folder, 0);
  a.join();
  world.run_for(1s);
  const Instant begin = world.now();
  FileMember twin(world, folder, 0);
  twin.join();
  world.run_for(400ms);
  CHECK_FALSE(twin.joined.has_value());
  world.run_for(400ms);
  CHECK(twin.code() == ErrorCode::rank_conflict);
  CHECK(twin.joined->error().detail.rank == 0);
  CHECK(twin.joined_at >= begin + 500ms);
  FileMember heir(world, folder, 0);
  heir.join();
  world.run_for(100ms);
  CHECK_FALSE(heir.joined.has_value());
  a.die();
  world.run_for(100ms);
  CHECK(heir.is_joined());
  heir.membership->leave();
  CHECK_FALSE(folder.exists());
}

TEST_CASE("file: what cannot be is said at once; a file that somebody holds locked, at the deadline") {
  VirtualWorld world(3);
  const Folder folder;
  FileMember a(world, folder, 0, 8, 5s, 1);
  a.join();
  world.run_for(1s);
  FileMember size(world, folder, 1, 9);
  size.join();
  FileMember job(world, folder, 2, 8, 5s, 2);
  job.join();
  world.run_for(100ms);
  CHECK(size.code() == ErrorCode::invalid_argument);
  CHECK(size.joined->error().detail.limit == 8);
  CHECK(job.code() == ErrorCode::wrong_job);
  // A process that stands still in the moment in which it joins.
  const int fd = ::open(folder.file().c_str(), O_RDWR | O_CLOEXEC);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_start = (off_t{1} << 40U) - 1;
  lock.l_len = 1;
  REQUIRE(::fcntl(fd, F_OFD_SETLK, &lock) == 0);
  FileMember late(world, folder, 3, 8, 2s);
  late.watch(0);
  late.join();
  world.run_for(3s);
  CHECK(late.code() == ErrorCode::rendezvous_unreachable);
  CHECK(late.joined_at >= late.deadline);
  CHECK(late.joined_at <= late.deadline + 5ms);
  ::close(fd);
  world.run_for(10s);
  CHECK(late.notices == 0);
}

TEST_CASE("S67 file: removed or spoilt while ranks use it, they make it anew and nobody is told anything twice") {
  VirtualWorld world(4);
  const Folder folder;
  std::vector<std::unique_ptr<FileMember>> members;
  for (Rank rank = 0; rank < 4; ++rank) {
    members.push_back(std::make_unique<FileMember>(world, folder, rank));
    for (Rank other = 0; other < 5; ++other) {
      if (other != rank) members.back()->watch(other);
    }
    members.back()->join();
  }
  world.run_for(2s);
  for (const auto& member : members) REQUIRE(member->notices == 3);
  for (const bool spoil : {false, true}) {
    if (spoil) {
      REQUIRE(::truncate(folder.file().c_str(), 0) == 0);
    } else {
      REQUIRE(::unlink(folder.file().c_str()) == 0);
    }
    world.run_for(10s);
    CHECK(folder.exists());
  }
  FileMember late(world, folder, 4);
  for (Rank other = 0; other < 4; ++other) late.watch(other);
  late.join();
  world.run_for(5s);
  for (Rank other = 0; other < 4; ++other) CHECK(late.known[other] == members[other]->claim.endpoints.incarnation);
  for (const auto& member : members) CHECK(member->known[4] == late.claim.endpoints.incarnation);
}

TEST_CASE("file: every rank joins and finds every other, through kills, restarts and removed files") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed ", seed);
    Random random(seed);
    VirtualWorld world(seed);
    const Folder folder;
    const auto ranks = static_cast<std::uint32_t>(random.between(2, 8));
    std::vector<std::unique_ptr<FileMember>> lives;  // all; the dead ones too
    std::vector<FileMember*> members(ranks);
    const auto start = [&](Rank rank) {
      lives.push_back(std::make_unique<FileMember>(world, folder, rank, ranks, 600s));
      members[rank] = lives.back().get();
      for (Rank other = 0; other < ranks; ++other) {
        if (other != rank) members[rank]->watch(other);
      }
      members[rank]->join();
    };
    for (Rank rank = 0; rank < ranks; ++rank) start(rank);
    for (int round = 0; round < 20; ++round) {
      world.run_for(Duration(static_cast<std::int64_t>(random.between(1'000'000, 1'000'000'000))));
      if (random.chance(300)) {
        const auto victim = static_cast<Rank>(random.below(ranks));
        if (random.chance(300)) members[victim]->membership->leave();
        members[victim]->die();
        start(victim);
      }
      if (random.chance(100)) static_cast<void>(!::unlink(folder.file().c_str()));
      if (random.chance(100)) {
        static_cast<void>(!::truncate(folder.file().c_str(), static_cast<off_t>(random.below(60'000))));
      }
    }
    const auto settled = [&] {
      for (const FileMember* member : members) {
        if (!member->is_joined()) return false;
        for (const FileMember* other : members) {
          const auto known = member->known.find(other->claim.endpoints.rank);
          if (other != member &&
              (known == member->known.end() || known->second != other->claim.endpoints.incarnation)) {
            return false;
          }
        }
      }
      return true;
    };
    const Instant healed = world.now();
    while (!settled() && world.now() < healed + 30s) world.run_for(100ms);
    REQUIRE(settled());
    for (FileMember* member : members) member->membership->leave();
    CHECK_FALSE(folder.exists());
  }
}

TEST_CASE("WRONG_JOB: a store serves one job at a time") {
  VirtualWorld world(6);
  StoreProcess store(world);
  const auto member = [&world](Rank rank, std::uint64_t job) {
    struct Client final : Process, MembershipEvents {
      Client(VirtualWorld& in, Rank rank, std::uint64_t job)
          : Process(in, "client"), membership(std::in_place, loop, store_address(), *this) {
        membership->join(claim_of(rank, 4, (in.draw_seed() | 1U), job), in.now() + 5s);
      }
      void on_joined(const Result<void>& result) override { joined = result; }
      std::optional<Result<void>> joined;
      std::optional<Membership> membership;
    };
    auto client = std::make_unique<Client>(world, rank, job);
    world.run_for(1s);
    REQUIRE(client->joined.has_value());
    return client;
  };
  auto first = member(0, 7);
  CHECK(first->joined->has_value());
  const auto stranger = member(1, 8);
  REQUIRE_FALSE(stranger->joined->has_value());
  CHECK(stranger->joined->error().code == ErrorCode::wrong_job);
  CHECK(member(1, 7)->joined->has_value());
  CHECK(member(2, 0)->joined->has_value());
  first->membership->leave();
  world.run_for(1s);
  CHECK(member(1, 8)->joined->has_value());  // everybody of the first job is gone
}

}  // namespace
}  // namespace hixl::group::test
