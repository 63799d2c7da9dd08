// SPDX-License-Identifier: Apache-2.0
//
// Ascend's class beside itself: remotes that hold up no other, ends while others are inside, and forked children.
#include <doctest/doctest.h>

#include <sys/wait.h>

#include <atomic>
#include <thread>
#include <vector>

#include "ascend_engine.hpp"

namespace {

constexpr int k_patience_ms = 30'000;

/// Every call of a parent's engine, in its child: 0, or the number of the first that was not refused.
int refused(hixl::Hixl& engine, const std::string& remote) {
  hixl::MemHandle handle = &engine;
  hixl::TransferReq req = &engine;
  hixl::TransferStatus status = hixl::TransferStatus::COMPLETED;
  hixl::AsyncConnectStatus standing = hixl::AsyncConnectStatus::CONNECTED;
  std::vector<hixl::NotifyDesc> notes(1);
  std::vector<hixl::TransferResult> results(1);
  const std::vector list{desc(&engine, &engine, 8)};
  int number = 0;
  const auto check = [&number](hixl::Status got) {
    number += 1;
    return got == hixl::FAILED && hixl_last_status() == HIXL_ERR_FORKED;
  };
  engine.Finalize();
  const bool all = check(engine.Initialize("127.0.0.1", {})) && check(engine.RegisterMem({}, hixl::MEM_HOST, handle)) &&
                   handle == nullptr && check(engine.DeregisterMem(&engine)) && check(engine.Connect(remote)) &&
                   check(engine.Disconnect(remote)) && check(engine.ConnectAsync(remote)) &&
                   check(engine.DisconnectAsync(remote)) && check(engine.GetAsyncConnectStatus(remote, standing)) &&
                   check(engine.TransferSync(remote, hixl::WRITE, list)) &&
                   check(engine.TransferAsync(remote, hixl::WRITE, list, {}, req)) && req == nullptr &&
                   check(engine.GetTransferStatus(&engine, status)) && status == hixl::TransferStatus::FAILED &&
                   check(engine.GetTransferStatus({}, results)) && results.empty() &&
                   check(engine.SendNotify(remote, {})) && check(engine.GetNotifies(notes)) && notes.empty();
  return all ? 0 : number;
}

}  // namespace

TEST_CASE("a remote that is not there holds up no other") {
  Engine initiator;
  const std::string later = free_name();
  std::atomic<hixl::Status> late{hixl::UNSUPPORTED};
  std::thread waiting([&] { late = initiator.hixl.Connect(later, k_patience_ms); });
  std::thread same([&] { CHECK(initiator.hixl.Connect(later, 1) == hixl::TIMEOUT); });
  same.join();
  std::vector<std::byte> memory(4096);
  const Engine target;
  CHECK(initiator.hixl.Connect(target.name, k_patience_ms) == hixl::SUCCESS);
  const hixl::MemHandle mine = initiator.add(memory.data(), memory.size());
  CHECK(initiator.hixl.DeregisterMem(mine) == hixl::SUCCESS);
  CHECK(late == hixl::UNSUPPORTED);  // it still waits
  hixl::Hixl last;
  REQUIRE(last.Initialize(later, {}) == hixl::SUCCESS);
  waiting.join();
  CHECK(late == hixl::SUCCESS);
  CHECK(initiator.hixl.Disconnect(target.name, k_patience_ms) == hixl::SUCCESS);
}

TEST_CASE("an engine that ends while a connection is made does not get it in its next life") {
  Engine target;
  for (int round = 0; round < 5; ++round) {
    Engine initiator;
    std::atomic<bool> begun{false};
    std::thread connecting([&] {
      begun = true;
      const hixl::Status status = initiator.hixl.Connect(target.name, k_patience_ms);
      CHECK((status == hixl::SUCCESS || status == hixl::FAILED));
    });
    while (!begun) std::this_thread::yield();
    initiator.hixl.Finalize();
    CHECK(initiator.hixl.Initialize("127.0.0.1", {}) == hixl::SUCCESS);
    connecting.join();
    const hixl::Status status = initiator.hixl.Disconnect(target.name, k_patience_ms);
    CHECK((status == hixl::NOT_CONNECTED || status == hixl::SUCCESS));  // the whole call may have come later
  }
}

TEST_CASE("a forked child is told so by every call, whatever the parent's threads hold, and may begin its own") {
  Engine target;
  Engine initiator;
  std::vector<std::byte> memory(4096);
  initiator.add(memory.data(), memory.size());
  target.add(memory.data(), memory.size());
  REQUIRE(initiator.hixl.Connect(target.name, k_patience_ms) == hixl::SUCCESS);
  REQUIRE(initiator.hixl.ConnectAsync(target.name, k_patience_ms) == hixl::SUCCESS);
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      std::vector<hixl::NotifyDesc> notes;
      while (!over) static_cast<void>(target.hixl.GetNotifies(notes));
    });
  }
  for (int round = 0; round < 10; ++round) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int wrong = refused(target.hixl, initiator.name);
      if (wrong == 0) wrong = 100 + refused(initiator.hixl, target.name);
      if (wrong == 100) {
        initiator.~Engine();
        hixl::Hixl own;
        wrong = own.Initialize("127.0.0.1", {}) == hixl::SUCCESS ? 0 : 99;
        own.Finalize();
      }
      _exit(wrong);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  const std::vector list{desc(memory.data(), memory.data() + 2048, 64)};
  CHECK(initiator.hixl.TransferSync(target.name, hixl::WRITE, list, k_patience_ms) == hixl::SUCCESS);
}
