// SPDX-License-Identifier: Apache-2.0
//
// The file that ranks share, without any loop: claims, deaths, foreign and broken files, and processes that are killed
// at any instruction.
#include "group/rendezvous_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.hpp"
#include "file_world.hpp"

namespace hixl::group::test {
namespace {

using Claim = RendezvousFile::Claim;

ErrorCode code_of(const Result<Claim>& result) { return result ? ErrorCode::ok : result.error().code; }
bool held(const Result<Claim>& result) { return result && *result == Claim::held; }

TEST_CASE("a file: claimed, looked up, given back, and gone with the last of them") {
  const Folder folder;
  RendezvousFile a(folder.file());
  RendezvousFile b(folder.file());
  CHECK_FALSE(a.look_up(0).has_value());
  REQUIRE(held(a.claim(claim_of(0, 4, 11))));
  REQUIRE(held(b.claim(claim_of(3, 4, 12))));
  CHECK(a.look_up(3)->incarnation == 12);
  CHECK(a.look_up(3)->addresses == claim_of(3, 4, 12).endpoints.addresses);
  CHECK(b.look_up(0)->incarnation == 11);
  CHECK_FALSE(a.look_up(1).has_value());
  CHECK_FALSE(a.look_up(70'000).has_value());
  CHECK(a.stands());
  a.release();
  CHECK(folder.exists());
  CHECK_FALSE(b.look_up(0).has_value());
  b.release();
  CHECK_FALSE(folder.exists());
  b.release();
  CHECK_FALSE(folder.exists());
}

TEST_CASE("a rank that is held is taken; one whose holder is gone, however it went, is free") {
  const Folder folder;
  auto first = std::make_unique<RendezvousFile>(folder.file());
  RendezvousFile second(folder.file());
  REQUIRE(held(first->claim(claim_of(1, 4, 11))));
  for (int i = 0; i < 3; ++i) {
    const auto tried = second.claim(claim_of(1, 4, 12));
    REQUIRE(tried.has_value());
    CHECK(*tried == Claim::taken);
  }
  CHECK(first->look_up(1).has_value() == false);  // one's own lock is no other life
  first.reset();                                  // as kill -9: no release
  CHECK(folder.exists());
  CHECK_FALSE(second.look_up(1).has_value());
  REQUIRE(held(second.claim(claim_of(1, 4, 12))));
  RendezvousFile third(folder.file());
  REQUIRE(held(third.claim(claim_of(0, 4, 13))));
  CHECK(third.look_up(1)->incarnation == 12);
}

TEST_CASE("every life of a rank is born above all earlier ones, however they went, and keeps its birth") {
  const Folder folder;
  RendezvousFile keeper(folder.file());
  REQUIRE(held(keeper.claim(claim_of(0, 4, 10))));
  auto first = std::make_unique<RendezvousFile>(folder.file());
  wire::StoreClaim claim = claim_of(1, 4, 11);
  REQUIRE(held(first->claim(claim)));
  CHECK(first->birth() == 1);
  CHECK(keeper.look_up(1)->birth == 1);
  first->release();
  RendezvousFile second(folder.file());
  claim = claim_of(1, 4, 12);
  claim.start.born = 1000;
  REQUIRE(held(second.claim(claim)));
  CHECK(second.birth() == 1000);
  // The first, once more: it has been replaced, and that is final.
  second.release();
  claim = claim_of(1, 4, 11);
  claim.endpoints.birth = 1;
  const auto late = first->claim(claim);
  REQUIRE(late.has_value());
  CHECK(*late == Claim::taken);
  CHECK_FALSE(keeper.look_up(1).has_value());
  auto third = std::make_unique<RendezvousFile>(folder.file());
  REQUIRE(held(third->claim(claim_of(1, 4, 13))));
  CHECK(third->birth() == 1001);
  // The file is lost: who lives tells what it has, and a new life has its clock.
  REQUIRE(::unlink(folder.file().c_str()) == 0);
  claim = claim_of(1, 4, 13);
  claim.endpoints.birth = 1001;
  REQUIRE(held(third->claim(claim)));
  CHECK(third->birth() == 1001);
  third.reset();
  claim = claim_of(1, 4, 14);
  claim.start.born = 5;
  REQUIRE(held(second.claim(claim)));
  CHECK(second.birth() == 1002);
}

TEST_CASE("another world size and another job are refused while anybody lives, and not after") {
  const Folder folder;
  auto old = std::make_unique<RendezvousFile>(folder.file());
  REQUIRE(held(old->claim(claim_of(2, 4, 11, 7))));
  RendezvousFile file(folder.file());
  const auto size = file.claim(claim_of(0, 5, 12, 7));
  CHECK(code_of(size) == ErrorCode::invalid_argument);
  CHECK(size.error().detail.limit == 4);
  CHECK(code_of(file.claim(claim_of(0, 4, 12, 8))) == ErrorCode::wrong_job);
  CHECK(held(file.claim(claim_of(0, 4, 12, 0))));  // who names no job is not compared
  file.release();
  CHECK(folder.exists());
  old.reset();  // the job is killed: what it left is a stale file
  CHECK(held(file.claim(claim_of(0, 5, 13, 8))));
  CHECK_FALSE(file.look_up(2).has_value());
  file.release();
  CHECK_FALSE(folder.exists());
}

TEST_CASE("a file that is something else is left alone") {
  const Folder folder;
  const std::string text = "my thesis\n";
  std::ofstream(folder.file()) << text;
  {
    RendezvousFile file(folder.file());
    CHECK(code_of(file.claim(claim_of(0, 4, 11))) == ErrorCode::invalid_argument);
    file.release();
  }
  std::ifstream in(folder.file());
  CHECK(std::string(std::istreambuf_iterator<char>(in), {}) == text);

  RendezvousFile nowhere(folder.file() + "/below");
  const auto not_there = nowhere.claim(claim_of(0, 4, 11));
  CHECK(code_of(not_there) == ErrorCode::rendezvous_unreachable);
  CHECK(not_there.error().detail.os_error == ENOTDIR);
  REQUIRE(::mkdir((folder.file() + "-folder").c_str(), 0700) == 0);
  RendezvousFile directory(folder.file() + "-folder");
  CHECK(code_of(directory.claim(claim_of(0, 4, 11))) == ErrorCode::rendezvous_unreachable);
  ::rmdir((folder.file() + "-folder").c_str());
  REQUIRE(::mkfifo((folder.file() + "-pipe").c_str(), 0600) == 0);
  RendezvousFile pipe(folder.file() + "-pipe");
  CHECK(code_of(pipe.claim(claim_of(0, 4, 11))) == ErrorCode::invalid_argument);
  ::unlink((folder.file() + "-pipe").c_str());
  REQUIRE(::symlink(folder.file().c_str(), (folder.file() + "-link").c_str()) == 0);
  RendezvousFile link(folder.file() + "-link");
  const auto followed = link.claim(claim_of(0, 4, 11));
  CHECK(code_of(followed) == ErrorCode::rendezvous_unreachable);
  CHECK(followed.error().detail.os_error == ELOOP);
  ::unlink((folder.file() + "-link").c_str());
}

TEST_CASE("half a header is a new file; broken records are no members; both are mended") {
  const Folder folder;
  std::ofstream(folder.file()) << "HIXL ren";
  RendezvousFile a(folder.file());
  RendezvousFile b(folder.file());
  REQUIRE(held(a.claim(claim_of(0, 4, 11))));
  REQUIRE(held(b.claim(claim_of(1, 4, 12))));
  // Any single byte of the record changed, or the record cut: not there, never something else.
  const int fd = ::open(folder.file().c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0);
  constexpr off_t k_record = 4096 + 8192;  // of rank 1
  for (off_t at = 0; at < 60; ++at) {
    CAPTURE(at);
    unsigned char byte = 0;
    REQUIRE(::pread(fd, &byte, 1, k_record + at) == 1);
    const unsigned char changed = byte ^ 0x10U;
    REQUIRE(::pwrite(fd, &changed, 1, k_record + at) == 1);
    CHECK_FALSE(a.look_up(1).has_value());
    CHECK_FALSE(b.stands());
    REQUIRE(::pwrite(fd, &byte, 1, k_record + at) == 1);
    CHECK(b.stands());
  }
  for (off_t size = 0; size < k_record + 60; size += 61) {
    REQUIRE(::ftruncate(fd, size) == 0);
    CHECK_FALSE(a.look_up(1).has_value());
  }
  ::close(fd);
  CHECK_FALSE(b.stands());
  REQUIRE(::truncate(folder.file().c_str(), 0) == 0);
  CHECK(held(b.claim(claim_of(1, 4, 12))));
  CHECK(held(a.claim(claim_of(0, 4, 11))));
  CHECK(a.look_up(1)->incarnation == 12);
  CHECK(b.stands());
}

TEST_CASE("a file that is removed under its users is made anew by them") {
  const Folder folder;
  RendezvousFile a(folder.file());
  RendezvousFile b(folder.file());
  REQUIRE(held(a.claim(claim_of(0, 4, 11))));
  REQUIRE(held(b.claim(claim_of(1, 4, 12))));
  REQUIRE(::unlink(folder.file().c_str()) == 0);
  CHECK_FALSE(a.stands());
  CHECK(held(a.claim(claim_of(0, 4, 11))));
  CHECK_FALSE(a.look_up(1).has_value());
  CHECK_FALSE(b.stands());
  CHECK(held(b.claim(claim_of(1, 4, 12))));
  CHECK(a.look_up(1)->incarnation == 12);
  a.release();
  b.release();
  CHECK_FALSE(folder.exists());
}

/// Claims and gives back one rank as fast as it can until it is killed.
[[noreturn]] void churn(const std::string& path, Rank rank, std::uint64_t seed) {
  Random random(seed);
  for (;;) {
    RendezvousFile file(path);
    const auto claimed = file.claim(claim_of(rank, 8, random.identity()));
    if (!claimed) _exit(1);  // no state of the file may look like a wrong one
    if (random.chance(900)) file.release();
  }
}

TEST_CASE("processes are killed at any point; the file is always usable, and the last one removes it") {
  constexpr std::uint64_t k_seed = 20;
  INFO("seed ", k_seed);
  Random random(k_seed);
  const Folder folder;
  std::map<pid_t, Rank> children;
  const auto start = [&](Rank rank) {
    const std::uint64_t seed = random.next();
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) churn(folder.file(), rank, seed);
    children.emplace(pid, rank);
  };
  for (const Rank rank : {1U, 2U, 2U}) start(rank);  // one rank has two who want it
  for (int kills = 0; kills < 40; ++kills) {
    // Our own claim is the measure of time: it needs no clock, and it must succeed every time.
    RendezvousFile own(folder.file());
    const std::uint64_t own_claims = random.between(1, 8);
    for (std::uint64_t i = 0; i < own_claims; ++i) {
      Result<Claim> claimed = Claim::later;
      while (claimed && *claimed == Claim::later) {
        std::this_thread::yield();
        claimed = own.claim(claim_of(0, 8, 99 + i));
      }
      REQUIRE(held(claimed));
      REQUIRE(own.stands());
      for (Rank rank = 1; rank < 8; ++rank) {
        const auto found = own.look_up(rank);
        if (found) CHECK(found->addresses == claim_of(rank, 8, 0).endpoints.addresses);
      }
      own.release();
    }
    const auto victim = std::next(children.begin(), static_cast<std::ptrdiff_t>(random.below(children.size())));
    const Rank rank = victim->second;
    REQUIRE(::kill(victim->first, SIGKILL) == 0);
    int status = 0;
    REQUIRE(::waitpid(victim->first, &status, 0) == victim->first);
    REQUIRE(WIFSIGNALED(status));  // it did not end by itself
    children.erase(victim);
    start(rank);
  }
  for (const auto& [pid, rank] : children) {
    ::kill(pid, SIGKILL);
    int status = 0;
    ::waitpid(pid, &status, 0);
    CHECK(WIFSIGNALED(status));
  }
  RendezvousFile last(folder.file());
  REQUIRE(held(last.claim(claim_of(1, 8, 5))));
  for (Rank rank = 0; rank < 8; ++rank) CHECK_FALSE(last.look_up(rank).has_value());
  last.release();
  CHECK_FALSE(folder.exists());
}

TEST_CASE("of many that leave at once the last removes the file") {
  const Folder folder;
  for (int round = 0; round < 60; ++round) {
    std::vector<pid_t> children;
    int gate[2];
    REQUIRE(::pipe2(gate, O_CLOEXEC) == 0);
    for (Rank rank = 0; rank < 6; ++rank) {
      const pid_t pid = ::fork();
      REQUIRE(pid >= 0);
      if (pid == 0) {
        ::close(gate[1]);
        RendezvousFile file(folder.file());
        Result<Claim> claimed = Claim::later;
        while (claimed && *claimed == Claim::later) claimed = file.claim(claim_of(rank, 6, 1));
        if (!held(claimed)) _exit(1);
        char byte;
        static_cast<void>(!::read(gate[0], &byte, 1));  // until all may go
        file.release();
        _exit(0);
      }
      children.push_back(pid);
    }
    ::close(gate[0]);
    RendezvousFile watcher(folder.file());
    Result<Claim> claimed = Claim::later;
    while (claimed && *claimed == Claim::later) claimed = watcher.claim(claim_of(7, 6, 1));
    for (Rank rank = 0; rank < 6; ++rank) {
      while (!watcher.look_up(rank)) {
      }
    }
    watcher.release();
    ::close(gate[1]);
    for (const pid_t pid : children) {
      int status = 0;
      ::waitpid(pid, &status, 0);
      CHECK(status == 0);
    }
    CHECK_FALSE(folder.exists());
  }
}

}  // namespace
}  // namespace hixl::group::test
