// SPDX-License-Identifier: Apache-2.0
//
// The queue of requests, and which regions a card has registered, over a card that only writes down what it is told.
#include <doctest/doctest.h>

#include <deque>

#include "links/roce/registrations.hpp"
#include "links/roce/send_queue.hpp"
#include "memory_pipe.hpp"

using namespace hixl;
using namespace hixl::links::roce;

namespace {

struct NotedPair final : QueuePair {
  struct Noted {
    std::uint64_t place;
    std::uint64_t address;
    unsigned flags;
    std::vector<std::uint64_t> pieces;
  };
  [[nodiscard]] std::uint32_t number() const noexcept override { return 7; }
  [[nodiscard]] Result<void> modify(ibv_qp_attr, int) override { return {}; }
  [[nodiscard]] Result<void> post_send(ibv_send_wr& chain, ibv_send_wr**) override {
    doorbells += 1;
    for (const ibv_send_wr* one = &chain; one != nullptr; one = one->next) {
      Noted& noted = all.emplace_back(Noted{one->wr_id, one->wr.rdma.remote_addr, one->send_flags, {}});
      for (int i = 0; i < one->num_sge; ++i) noted.pieces.push_back(one->sg_list[i].addr);
    }
    return {};
  }
  [[nodiscard]] Result<void> post_receive(ibv_recv_wr&) override { return {}; }
  [[nodiscard]] Result<ibv_qp_state> state() override { return IBV_QPS_RTS; }
  int doorbells = 0;
  std::vector<Noted> all;
};

/// Does its jobs when it is told to.
struct Hand final : Worker {
  void run(Job& job) override { jobs.push_back(&job); }
  void work() {
    while (!jobs.empty()) {
      Job* const job = jobs.front();
      jobs.pop_front();
      job->work();
      job->done();
    }
  }
  std::deque<Job*> jobs;
};

struct NotedMemory final : MemoryRegion {
  explicit NotedMemory(int& count) : alive(count) { alive += 1; }
  ~NotedMemory() override { alive -= 1; }
  NotedMemory(const NotedMemory&) = delete;
  NotedMemory& operator=(const NotedMemory&) = delete;
  [[nodiscard]] std::uint32_t local_key() const noexcept override { return 1; }
  [[nodiscard]] std::uint32_t remote_key() const noexcept override { return 2; }
  int& alive;
};

struct NotedDevice final : Device {
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] const ibv_device_attr& limits() const noexcept override { return limits_; }
  [[nodiscard]] int numa_node() const noexcept override { return -1; }
  [[nodiscard]] Result<ibv_port_attr> port(std::uint32_t) override { return ibv_port_attr{}; }
  [[nodiscard]] Result<std::vector<Gid>> gids(std::uint32_t) override { return std::vector<Gid>(); }
  [[nodiscard]] Result<std::unique_ptr<MemoryRegion>> register_memory(void*, std::size_t size, int access) override {
    if (size > largest) return fail(ErrorCode::memlock_limit, {.length = size, .limit = largest});
    accesses.push_back(access);
    return std::unique_ptr<MemoryRegion>(std::make_unique<NotedMemory>(alive));
  }
  [[nodiscard]] Result<std::unique_ptr<CompletionQueue>> create_completion_queue(std::uint32_t) override {
    return fail(ErrorCode::unsupported);
  }
  [[nodiscard]] Result<std::unique_ptr<QueuePair>> create_queue_pair(CompletionQueue&, QueuePairOptions&) override {
    return fail(ErrorCode::unsupported);
  }
  [[nodiscard]] std::optional<DeviceEvent> next_event() override { return std::nullopt; }
  [[nodiscard]] Result<std::unique_ptr<runtime::Watch>> watch_events(runtime::EventPort&,
                                                                     runtime::WatchEvents&) override {
    return fail(ErrorCode::unsupported);
  }
  int alive = 0;
  std::size_t largest = 1U << 20U;
  std::vector<int> accesses;

 private:
  std::string name_ = "noted";
  ibv_device_attr limits_{};
};

struct User final : RegistrationUser {
  void on_registered(RegionKey key) override { told.push_back(key); }
  std::vector<RegionKey> told;
};

memory::RegionInfo region(std::uint32_t id, std::uint32_t generation, std::byte* data, std::size_t size,
                          Rights rights = Rights::all) {
  memory::RegionInfo info;
  info.key = {id, generation};
  info.data = data;
  info.size = size;
  info.rights = rights;
  return info;
}

struct Card {
  NotedDevice device;
  Hand hand;
  test::StillPort port;
  runtime::Loop loop{port, 1, 16};
  Registrations registrations{device, hand, loop};
  User user;
  std::byte bytes[64]{};
};

}  // namespace

TEST_CASE("roce: a chain goes with one doorbell, and each request has its place and its pieces") {
  NotedPair pair;
  SendQueue queue(pair, {.send_depth = 4, .receive_depth = 1, .inline_bytes = 64, .send_segments = 2});
  const std::array<ibv_sge, 2> pieces{ibv_sge{.addr = 10, .length = 1, .lkey = 0},
                                      {.addr = 20, .length = 1, .lkey = 0}};
  CHECK(queue.add({.address = 100, .inlined = true}, pieces) == 1);
  CHECK(queue.add({.opcode = IBV_WR_RDMA_READ, .address = 200, .signalled = true}, std::span(pieces).last(1)) == 2);
  CHECK(pair.doorbells == 0);
  CHECK(queue.room() == 2);
  REQUIRE(queue.ring());
  REQUIRE(queue.ring());  // nothing new: no doorbell
  CHECK(pair.doorbells == 1);
  REQUIRE(pair.all.size() == 2);
  CHECK(pair.all[0].place == 1);
  CHECK(pair.all[0].flags == IBV_SEND_INLINE);
  CHECK(pair.all[0].pieces == std::vector<std::uint64_t>{10, 20});
  CHECK(pair.all[1].place == 2);
  CHECK(pair.all[1].flags == IBV_SEND_SIGNALED);
  CHECK(pair.all[1].pieces == std::vector<std::uint64_t>{20});
  CHECK(queue.add({.address = 300}, pieces) == 3);
  CHECK(queue.add({.address = 400}, pieces) == 4);
  CHECK(queue.room() == 0);
  REQUIRE(queue.ring());
  CHECK(pair.doorbells == 2);
  queue.retire(2);  // one completion ends all before it
  CHECK(queue.room() == 2);
  CHECK(queue.busy());
  queue.retire(4);
  CHECK(!queue.busy());
}

TEST_CASE("roce: a region is registered once, with its rights and no more, and everybody who waited is told") {
  Card card;
  User other;
  const auto info = region(3, 1, card.bytes, 64, Rights::read);
  Registration* const one = card.registrations.want(info, card.user);
  REQUIRE(one != nullptr);
  CHECK(one->state() == Registration::State::registering);
  CHECK(card.registrations.want(info, other) == one);
  CHECK(card.registrations.want(info, other) == one);
  CHECK(card.hand.jobs.size() == 1);
  CHECK(!card.registrations.idle());
  card.hand.work();
  CHECK(card.registrations.idle());
  CHECK(one->state() == Registration::State::ready);
  CHECK(card.user.told.size() == 1);
  CHECK(other.told.size() == 1);
  REQUIRE(card.device.accesses.size() == 1);
  CHECK(card.device.accesses[0] == (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
  CHECK(one->holds(card.bytes, 64));
  CHECK(!one->holds(card.bytes + 1, 64));

  auto constant = region(4, 1, card.bytes, 64, Rights::none);
  constant.writable = false;
  REQUIRE(card.registrations.want(constant, card.user) != nullptr);
  card.hand.work();
  CHECK(card.device.accesses[1] == 0);
}

TEST_CASE("S10 roce: revoked means deregistered, and not before the last use has ended") {
  Card card;
  const auto info = region(3, 1, card.bytes, 64);
  CHECK(card.registrations.revoke(info.key));  // never registered
  Registration* const one = card.registrations.want(info, card.user);
  card.hand.work();
  card.registrations.use(*one);
  CHECK(!card.registrations.revoke(info.key));
  CHECK(card.registrations.want(info, card.user) == nullptr);
  card.hand.work();
  CHECK(card.device.alive == 1);
  CHECK(!card.registrations.revoke(info.key));
  card.registrations.drop(*one);
  CHECK(!card.registrations.revoke(info.key));  // being deregistered
  card.hand.work();
  CHECK(card.device.alive == 0);
  CHECK(card.registrations.revoke(info.key));
  // The next life of the same slot is another region.
  REQUIRE(card.registrations.want(region(3, 2, card.bytes, 64), card.user) != nullptr);
  card.hand.work();
  CHECK(card.device.alive == 1);
}

TEST_CASE("roce: a region that is revoked while it registers does not stay registered") {
  Card card;
  const auto info = region(3, 1, card.bytes, 64);
  REQUIRE(card.registrations.want(info, card.user) != nullptr);
  CHECK(!card.registrations.revoke(info.key));
  card.hand.work();
  CHECK(card.device.alive == 0);
  CHECK(card.registrations.revoke(info.key));
  CHECK(card.user.told.size() == 1);  // who waited hears of it, and will find nothing
}

TEST_CASE("roce: what cannot be registered says why, and who left is not told") {
  Card card;
  card.device.largest = 16;
  const auto info = region(3, 1, card.bytes, 64);
  Registration* const one = card.registrations.want(info, card.user);
  card.registrations.forget(card.user);
  card.hand.work();
  CHECK(card.user.told.empty());
  CHECK(one->state() == Registration::State::failed);
  CHECK(one->error().code == ErrorCode::memlock_limit);
  CHECK(one->error().detail.limit == 16);
  CHECK(card.registrations.revoke(info.key));
}

TEST_CASE("roce: what could not be registered is tried again, now and then") {
  Card card;
  card.device.largest = 16;
  const auto info = region(3, 1, card.bytes, 64);
  Registration* const one = card.registrations.want(info, card.user);
  const auto later = [&](std::chrono::milliseconds time) {
    card.port.time += time;
    card.loop.turn();
    CHECK(card.registrations.want(info, card.user) == one);
    return card.hand.jobs.size();
  };
  card.hand.work();
  CHECK(one->state() == Registration::State::failed);
  CHECK(later(std::chrono::milliseconds(999)) == 0);
  CHECK(later(std::chrono::milliseconds(1)) == 1);
  CHECK(one->state() == Registration::State::registering);
  card.hand.work();
  CHECK(one->error().code == ErrorCode::memlock_limit);
  CHECK(later(std::chrono::milliseconds(999)) == 0);
  card.device.largest = 64;
  CHECK(later(std::chrono::milliseconds(1)) == 1);
  card.hand.work();
  CHECK(one->state() == Registration::State::ready);
  CHECK(card.user.told.size() == 3);
}
