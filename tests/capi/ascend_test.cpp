// SPDX-License-Identifier: Apache-2.0
//
// Ascend's class: the calls that Mooncake's Ascend transport makes, in its order; what its restrictions forbade; and
// wrong arguments.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <hixl/hixl.h>

#include "ascend_engine.hpp"

namespace {

using namespace std::string_literals;

hixl::TransferStatus end_of(hixl::Hixl& hixl, const hixl::TransferReq& req) {
  hixl::TransferStatus status = hixl::TransferStatus::WAITING;
  while (status == hixl::TransferStatus::WAITING) {
    REQUIRE(hixl.GetTransferStatus(req, status) == hixl::SUCCESS);
    std::this_thread::yield();
  }
  return status;
}

constexpr std::size_t k_block = 16384;

}  // namespace

TEST_CASE("the call sequence of Mooncake's Ascend transport") {
  std::int32_t value = 0;
  CHECK(hixl::Hixl::GetCapability(hixl::AUTO_CONNECT, value) == hixl::SUCCESS);
  CHECK(value == 1);
  std::map<hixl::AscendString, hixl::AscendString> options;
  options["adxl.RdmaTrafficClass"] = "132";
  options["adxl.RdmaServiceLevel"] = "4";
  options["adxl.LocalCommRes"] = R"({"version":"1.3"})";
  options["AutoConnect"] = "0";
  options["adxl.BufferPool"] = "0:0";
  options["GlobalResourceConfig"] = "{}";
  std::vector<std::byte> here(8 * k_block);
  std::vector<std::byte> there(8 * k_block);
  Engine target(options);
  Engine initiator(options);
  const auto theirs = target.add(there.data(), there.size(), hixl::MEM_DEVICE);
  const auto mine = initiator.add(here.data(), here.size());
  CHECK(initiator.add(here.data(), here.size()) == mine);  // the same again

  REQUIRE(initiator.hixl.Connect(target.name.c_str(), 10'000) == hixl::SUCCESS);
  std::vector<hixl::TransferOpDesc> descs;
  for (std::size_t i = 0; i < 8; ++i) {
    std::memset(here.data() + i * k_block, static_cast<int>(i + 1), k_block);
    descs.push_back(desc(here.data() + i * k_block, there.data() + (7 - i) * k_block, k_block));
  }
  REQUIRE(initiator.hixl.TransferSync(target.name.c_str(), hixl::WRITE, descs, 10'000) == hixl::SUCCESS);
  for (std::size_t at = 0; at < there.size(); ++at) {
    REQUIRE(there[at] == static_cast<std::byte>(8 - at / k_block));
  }
  std::memset(here.data(), 0, here.size());
  hixl::TransferReq req = nullptr;
  hixl::TransferArgs args{};
  args.user_data = &here;
  REQUIRE(initiator.hixl.TransferAsync(target.name.c_str(), hixl::READ, descs, args, req) == hixl::SUCCESS);
  CHECK(end_of(initiator.hixl, req) == hixl::TransferStatus::COMPLETED);
  CHECK(end_of(initiator.hixl, req) == hixl::TransferStatus::COMPLETED);  // again: no error here
  for (std::size_t i = 0; i < 8; ++i) CHECK(here[i * k_block] == static_cast<std::byte>(i + 1));
  std::vector<hixl::TransferResult> results;
  CHECK(initiator.hixl.GetTransferStatus({.max_query_count = 0, .skip_waiting = true}, results) == hixl::SUCCESS);
  REQUIRE(results.size() == 1);
  CHECK(results[0].req == req);
  CHECK(results[0].user_data == &here);
  CHECK(initiator.hixl.GetTransferStatus({}, results) == hixl::SUCCESS);
  CHECK(results.empty());  // each end once

  hixl::NotifyDesc note;
  note.name = "request-7";
  note.notify_msg = "layers 0-31";
  CHECK(initiator.hixl.SendNotify(target.name.c_str(), note, 10'000) == hixl::SUCCESS);
  std::vector<hixl::NotifyDesc> notes;
  CHECK(target.hixl.GetNotifies(notes) == hixl::SUCCESS);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].name == note.name);
  CHECK(notes[0].notify_msg == note.notify_msg);

  CHECK(initiator.hixl.Disconnect(target.name.c_str(), 10'000) == hixl::SUCCESS);
  CHECK(initiator.hixl.DeregisterMem(mine) == hixl::SUCCESS);
  CHECK(initiator.hixl.DeregisterMem(mine) == hixl::SUCCESS);  // it was registered twice
  CHECK(initiator.hixl.DeregisterMem(mine) == hixl::PARAM_INVALID);
  CHECK(target.hixl.DeregisterMem(theirs) == hixl::SUCCESS);
  initiator.hixl.Finalize();
  target.hixl.Finalize();
}

TEST_CASE("memory may come and go after the connect, on both sides") {
  Engine target;
  Engine initiator;
  REQUIRE(initiator.hixl.Connect(target.name.c_str(), 10'000) == hixl::SUCCESS);
  std::vector<std::byte> here(k_block, std::byte{5});
  std::vector<std::byte> there(k_block);
  const std::vector list{desc(here.data(), there.data(), k_block)};
  CHECK(initiator.hixl.TransferSync(target.name.c_str(), hixl::WRITE, list) == hixl::PARAM_INVALID);
  const auto mine = initiator.add(here.data(), here.size());
  CHECK(initiator.hixl.TransferSync(target.name.c_str(), hixl::WRITE, list) != hixl::SUCCESS);
  for (int round = 0; round < 5; ++round) {
    const auto theirs = target.add(there.data(), there.size());
    std::memset(here.data(), 10 + round, here.size());
    REQUIRE(initiator.hixl.TransferSync(target.name.c_str(), hixl::WRITE, list, 10'000) == hixl::SUCCESS);
    CHECK(there.back() == static_cast<std::byte>(10 + round));
    REQUIRE(target.hixl.DeregisterMem(theirs) == hixl::SUCCESS);
    std::memset(there.data(), 0, there.size());
    CHECK(initiator.hixl.TransferSync(target.name.c_str(), hixl::WRITE, list, 10'000) != hixl::SUCCESS);
    CHECK(there.back() == std::byte{0});
  }
  CHECK(initiator.hixl.DeregisterMem(mine) == hixl::SUCCESS);
}

TEST_CASE("any thread may call; AutoConnect connects with the first need; two initiators share a target") {
  std::vector<std::byte> there(16 * k_block);
  Engine target;
  target.add(there.data(), there.size());
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Engine>> initiators;
  std::vector<std::vector<std::byte>> sources(2, std::vector<std::byte>(8 * k_block));
  for (std::size_t i = 0; i < 2; ++i) {
    initiators.push_back(
        std::make_unique<Engine>(std::map<hixl::AscendString, hixl::AscendString>{{"AutoConnect", "1"}}));
    initiators[i]->add(sources[i].data(), sources[i].size());
  }
  for (std::size_t t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      std::byte* const source = sources[t / 8].data() + t % 8 * k_block;
      std::memset(source, static_cast<int>(t + 1), k_block);
      const std::vector list{desc(source, there.data() + t * k_block, k_block)};
      right += initiators[t / 8]->hixl.TransferSync(target.name.c_str(), hixl::WRITE, list, 10'000) == hixl::SUCCESS;
      hixl::NotifyDesc note;
      note.name = std::to_string(t).c_str();
      right += initiators[t / 8]->hixl.SendNotify(target.name.c_str(), note, 10'000) == hixl::SUCCESS;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 32);
  for (std::size_t at = 0; at < there.size(); ++at) REQUIRE(there[at] == static_cast<std::byte>(at / k_block + 1));
  std::vector<hixl::NotifyDesc> notes;
  CHECK(target.hixl.GetNotifies(notes) == hixl::SUCCESS);
  CHECK(notes.size() == 16);
}

TEST_CASE("connects on the engine's own thread, in order") {
  Engine target;
  Engine initiator;
  hixl::AsyncConnectStatus status{};
  CHECK(initiator.hixl.GetAsyncConnectStatus(target.name.c_str(), status) == hixl::SUCCESS);
  CHECK(status == hixl::AsyncConnectStatus::NOT_CONNECT);
  REQUIRE(initiator.hixl.ConnectAsync(target.name.c_str(), 10'000) == hixl::SUCCESS);
  while (status != hixl::AsyncConnectStatus::CONNECTED) {
    REQUIRE(initiator.hixl.GetAsyncConnectStatus(target.name.c_str(), status) == hixl::SUCCESS);
    REQUIRE(status != hixl::AsyncConnectStatus::CONNECT_FAILED);
    std::this_thread::yield();
  }
  CHECK(initiator.hixl.Connect(target.name.c_str()) == hixl::ALREADY_CONNECTED);
  REQUIRE(initiator.hixl.DisconnectAsync(target.name.c_str(), 10'000) == hixl::SUCCESS);
  std::map<hixl::AscendString, hixl::AsyncConnectStatus> all;
  do {
    REQUIRE(initiator.hixl.GetAsyncConnectStatus(all) == hixl::SUCCESS);
    std::this_thread::yield();
  } while (all[target.name] != hixl::AsyncConnectStatus::NOT_CONNECT);
  CHECK(initiator.hixl.Disconnect(target.name.c_str()) == hixl::NOT_CONNECTED);
}

TEST_CASE("wrong arguments, wrong order, nobody there") {
  hixl::Hixl none;
  hixl::MemHandle handle = &none;
  hixl::TransferReq req = nullptr;
  hixl::TransferStatus status{};
  hixl::AsyncConnectStatus standing{};
  std::vector<hixl::NotifyDesc> notes;
  std::int32_t value = 0;
  const std::string nobody = free_name();
  // Before Initialize().
  none.Finalize();
  CHECK(none.RegisterMem({}, hixl::MEM_HOST, handle) == hixl::FAILED);
  CHECK(handle == nullptr);
  CHECK(none.Connect("127.0.0.1:1") == hixl::FAILED);
  CHECK(none.TransferSync("127.0.0.1:1", hixl::READ, {}) == hixl::FAILED);
  CHECK(none.GetNotifies(notes) == hixl::FAILED);
  CHECK(none.GetAsyncConnectStatus("127.0.0.1:1", standing) == hixl::FAILED);
  for (const char* name : {"", ":1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", "127.0.0.1:x", "[::1", "[::1]x"}) {
    CAPTURE(name);
    CHECK(none.Initialize(name, {}) == hixl::PARAM_INVALID);
  }
  CHECK(none.Initialize(nullptr, {}) == hixl::PARAM_INVALID);
  CHECK(none.Initialize(nobody.c_str(), {{"Nonsense", "1"}}) == hixl::PARAM_INVALID);
  CHECK(none.Initialize(nobody.c_str(), {{"AutoConnect", "maybe"}}) == hixl::PARAM_INVALID);
  CHECK(none.Initialize("0.0.0.0:1234", {}) == hixl::PARAM_INVALID);  // a key is needed, or Insecure=1

  Engine target;
  CHECK(none.Initialize(target.name.c_str(), {}) == hixl::FAILED);  // somebody has that name
  CHECK(hixl_last_status() == HIXL_ERR_ADDRESS_IN_USE);
  REQUIRE(none.Initialize("127.0.0.1", {}) == hixl::SUCCESS);  // connects only
  CHECK(none.Initialize("127.0.0.1", {}) == hixl::FAILED);
  CHECK(none.RegisterMem({}, hixl::MEM_HOST, handle) == hixl::PARAM_INVALID);
  CHECK(none.RegisterMem({}, static_cast<hixl::MemType>(9), handle) == hixl::PARAM_INVALID);
  CHECK(none.DeregisterMem(nullptr) == hixl::PARAM_INVALID);
  CHECK(none.DeregisterMem(&none) == hixl::PARAM_INVALID);
  CHECK(none.Connect(nobody.c_str(), 200) == hixl::TIMEOUT);
  CHECK(none.Connect("127.0.0.1", 200) == hixl::PARAM_INVALID);
  CHECK(none.Connect("nonsense:", 200) == hixl::PARAM_INVALID);
  CHECK(none.Connect(target.name.c_str(), 0) == hixl::PARAM_INVALID);
  CHECK(none.Connect(target.name.c_str(), -1) == hixl::PARAM_INVALID);
  CHECK(none.TransferSync(target.name.c_str(), hixl::READ, {desc(&none, &none, 8)}) == hixl::NOT_CONNECTED);
  CHECK(none.SendNotify(target.name.c_str(), {}) == hixl::NOT_CONNECTED);
  CHECK(none.Disconnect(target.name.c_str()) == hixl::NOT_CONNECTED);
  CHECK(none.GetTransferStatus(&none, status) == hixl::PARAM_INVALID);
  CHECK(none.ConnectAsync("[", 200) == hixl::PARAM_INVALID);
  CHECK(hixl::Hixl::GetCapability(static_cast<hixl::FeatureType>(7), value) == hixl::PARAM_INVALID);

  REQUIRE(none.Connect(target.name.c_str(), 10'000) == hixl::SUCCESS);
  CHECK(none.TransferSync(target.name.c_str(), hixl::READ, {}) == hixl::PARAM_INVALID);
  CHECK(none.TransferSync(target.name.c_str(), static_cast<hixl::TransferOp>(5), {desc(&none, &none, 8)}) ==
        hixl::PARAM_INVALID);
  CHECK(none.TransferAsync(target.name.c_str(), hixl::READ, {desc(&none, nullptr, 8)}, {}, req) == hixl::PARAM_INVALID);
  CHECK(req == nullptr);
  hixl::NotifyDesc note;
  note.name = std::string(1025, 'x');
  CHECK(none.SendNotify(target.name.c_str(), note) == hixl::PARAM_INVALID);
  note.name = std::string(1024, 'x');
  note.notify_msg = std::string(1024, '\0');
  CHECK(none.SendNotify(target.name.c_str(), note, 10'000) == hixl::SUCCESS);
  CHECK(target.hixl.GetNotifies(notes) == hixl::SUCCESS);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].notify_msg.GetLength() == 1024);
  target.hixl.Finalize();
  CHECK(none.SendNotify(target.name.c_str(), note, 300) != hixl::SUCCESS);
  none.Finalize();
  none.Finalize();
  CHECK(none.Connect(target.name.c_str(), 300) == hixl::FAILED);
}

TEST_CASE("a target that comes back under its name is connected again, and knows nothing of the old one") {
  Engine initiator;
  std::vector<std::byte> here(k_block, std::byte{1});
  std::vector<std::byte> there(k_block);
  initiator.add(here.data(), here.size());
  std::string name;
  {
    Engine target;
    name = target.name;
    target.add(there.data(), there.size());
    REQUIRE(initiator.hixl.Connect(name.c_str(), 10'000) == hixl::SUCCESS);
  }
  const std::vector list{desc(here.data(), there.data(), k_block)};
  CHECK(initiator.hixl.TransferSync(name.c_str(), hixl::WRITE, list, 500) != hixl::SUCCESS);
  static_cast<void>(initiator.hixl.Disconnect(name.c_str(), 5'000));
  hixl::Hixl again;
  REQUIRE(again.Initialize(name.c_str(), {}) == hixl::SUCCESS);
  hixl::MemDesc mem{};
  mem.addr = reinterpret_cast<std::uintptr_t>(there.data());
  mem.len = there.size();
  hixl::MemHandle handle = nullptr;
  REQUIRE(again.RegisterMem(mem, hixl::MEM_HOST, handle) == hixl::SUCCESS);
  REQUIRE(initiator.hixl.Connect(name.c_str(), 10'000) == hixl::SUCCESS);
  CHECK(initiator.hixl.TransferSync(name.c_str(), hixl::WRITE, list, 10'000) == hixl::SUCCESS);
  CHECK(there.front() == std::byte{1});
}
