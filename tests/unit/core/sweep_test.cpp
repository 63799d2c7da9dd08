// SPDX-License-Identifier: Apache-2.0
//
// The sweeper: whom it tells of what and when, by rows made up and on a whole core in virtual time.
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include "core/core.hpp"
#include "core/sweep_marks.hpp"
#include "links/tcp/factory.hpp"
#include "runtime/virtual_port.hpp"

using namespace hixl;
using namespace hixl::core;
using namespace std::chrono_literals;

namespace {

OperationInfo row(std::uint32_t slot, std::uint32_t generation, OperationState state, Duration age,
                  ErrorCode error = ErrorCode::ok) {
  OperationInfo info;
  info.id = std::uint64_t{generation} << 32U | slot;
  info.state = state;
  info.age = age;
  info.error = Error(error);
  return info;
}

class VirtualDriver final : public runtime::Driver {
 public:
  VirtualDriver(runtime::VirtualWorld& world, runtime::EventPort& port) : world_(world), port_(port) {}
  ~VirtualDriver() override { stop({}); }
  runtime::EventPort& port() override { return port_; }
  Result<void> start(runtime::Loop& loop, const runtime::DriverOptions&) override {
    world_.add(loop, port_);
    added_ = true;
    return {};
  }
  void allow_spin(bool) override {}
  void stop(std::function<void()> closed) override {
    if (std::exchange(added_, false)) world_.remove(port_);
    if (closed) closed();
  }
  void join() override {}
  [[nodiscard]] bool own_thread() const override { return false; }

 private:
  runtime::VirtualWorld& world_;
  runtime::EventPort& port_;
  bool added_ = false;
};

/// One core without peers in a world of its own. The store that its options may name never answers.
struct Alone {
  struct Seen {
    std::vector<OperationInfo> rows;
    bool throws = false;
  };
  explicit Alone(std::chrono::milliseconds period, std::uint32_t world_size = 1) {
    RuntimeOptions options;
    options.world_size = world_size;
    if (world_size > 1) options.store = "tcp://127.0.0.1:1";
    options.requests_max = 8;
    options.regions_max = 16;
    options.connect_timeout = 60s;
    options.sweep_period = period;
    options.sweep_age = 10s;
    options.sweep_hook = {[](void* context, const OperationInfo& info) {
                            auto& to = *static_cast<Seen*>(context);
                            to.rows.push_back(info);
                            if (to.throws) throw std::runtime_error("a hook");
                          },
                          &seen};
    Parts parts;
    parts.driver = std::make_unique<VirtualDriver>(world, world.make_port("alone"));
    parts.factories.push_back(links::make_tcp_factory());
    parts.hosted = true;
    auto made = Core::create(options, std::move(parts));
    REQUIRE(made.has_value());
    core = std::move(*made);
    region = *core->allocate(4096, {});
    world.run_for(1ms);
  }
  /// Is told DEADLINE_EXCEEDED by the loop.
  Request post_too_late() {
    auto request = core->post(TransferVerb::put, region.data, {0, region.address() + 8, {}, 0}, 8, nullptr,
                              {.timeout = 0s, .user_data = 42});
    REQUIRE(request.has_value());
    return *request;
  }
  Seen seen;
  runtime::VirtualWorld world{1};
  std::unique_ptr<Core> core;
  Region region;
};

}  // namespace

TEST_CASE("marks: an old operation is due once, another life of its slot again") {
  SweepMarks marks(4, 10s);
  CHECK_FALSE(marks.due(row(2, 1, OperationState::posted, 9s)));
  CHECK(marks.due(row(2, 1, OperationState::posted, 10s)));
  CHECK_FALSE(marks.due(row(2, 1, OperationState::posted, 20s)));
  CHECK_FALSE(marks.due(row(2, 1, OperationState::fencing, 30s)));
  CHECK(marks.due(row(2, 2, OperationState::mailbox, 10s)));
  CHECK(marks.due(row(3, 2, OperationState::waiting, 10s)));
}

TEST_CASE("marks: a failure is due at the second look, once; a success, or what somebody was told, never") {
  SweepMarks marks(4, 10s);
  CHECK(marks.due(row(0, 1, OperationState::posted, 10s)));
  CHECK_FALSE(marks.due(row(0, 1, OperationState::ended, 11s, ErrorCode::peer_lost)));
  CHECK(marks.due(row(0, 1, OperationState::ended, 12s, ErrorCode::peer_lost)));
  CHECK_FALSE(marks.due(row(0, 1, OperationState::ended, 13s, ErrorCode::peer_lost)));
  OperationInfo told = row(1, 1, OperationState::ended, 99s, ErrorCode::peer_lost);
  told.told = true;
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(marks.due(told));
    CHECK_FALSE(marks.due(row(2, 1, OperationState::ended, 99s)));
  }
}

TEST_CASE("S26 what is open beyond the age is told once, at the first sweep after it, with its name and age") {
  Alone alone(1000ms, 2);  // its join waits for a store that is not there
  alone.world.run_for(9500ms);
  CHECK(alone.seen.rows.empty());
  alone.world.run_for(2s);
  REQUIRE(alone.seen.rows.size() == 1);
  const OperationInfo& told = alone.seen.rows.front();
  CHECK(told.verb == OperationVerb::join);
  CHECK(told.state == OperationState::waiting);
  CHECK(told.age >= 10s);
  CHECK(told.age < 12s);
  CHECK(told.deadline_left > 45s);
  alone.world.run_for(20s);
  CHECK(alone.seen.rows.size() == 1);
}

TEST_CASE("S50 P50 a failure that nobody looks at is told once, whether its Request is kept or was dropped") {
  Alone alone(1000ms);
  Request kept = alone.post_too_late();
  static_cast<void>(alone.post_too_late());  // dropped before its end
  alone.world.run_for(1500ms);               // one sweep
  REQUIRE(alone.seen.rows.size() == 1);      // the dropped one: nobody can look any more
  CHECK(alone.seen.rows[0].state == OperationState::ended);
  CHECK(alone.seen.rows[0].error.code == ErrorCode::deadline_exceeded);
  CHECK(alone.seen.rows[0].user_data == 42);
  CHECK(alone.seen.rows[0].bytes == 8);
  alone.world.run_for(10s);
  REQUIRE(alone.seen.rows.size() == 2);
  CHECK(alone.seen.rows[1].error.code == ErrorCode::deadline_exceeded);
  CHECK(alone.seen.rows[1].verb == OperationVerb::put);
  CHECK(alone.core->counters().failed_unseen == 1);
  CHECK(alone.core->counters().callback_errors == 0);
  // Looking gives the slot back.
  CHECK(alone.core->outstanding()->size() == 1);
  CHECK(kept.query().error().code == ErrorCode::deadline_exceeded);
  CHECK(alone.core->outstanding()->empty());
}

TEST_CASE("a failure that is looked at within a period is not told; neither is anything while it is off") {
  Alone alone(1000ms);
  Request looked = alone.post_too_late();
  alone.world.run_for(1500ms);
  CHECK(looked.query().error().code == ErrorCode::deadline_exceeded);
  alone.world.run_for(10s);
  CHECK(alone.seen.rows.empty());

  Alone off(0ms);
  const Request kept = off.post_too_late();
  static_cast<void>(off.post_too_late());
  off.world.run_for(60s);
  CHECK(off.seen.rows.empty());
}

TEST_CASE("what the hook throws is counted and goes no further") {
  Alone alone(1000ms);
  alone.seen.throws = true;
  const Request kept = alone.post_too_late();
  static_cast<void>(alone.post_too_late());
  alone.world.run_for(10s);
  CHECK(alone.seen.rows.size() == 2);
  CHECK(alone.core->counters().callback_errors == 2);
}

TEST_CASE("S26 an operation is seen in the mailbox, before the loop has read it, with its age in virtual time") {
  Alone alone(0ms);
  auto request = alone.core->post(TransferVerb::put, alone.region.data, {0, alone.region.address() + 64, {}, 0}, 16,
                                  nullptr, {.timeout = 30s, .user_data = 5});
  REQUIRE(request.has_value());
  // Without a step of the world its mail is not read; the loop of a host may be asked on its own thread.
  auto rows = alone.core->outstanding();
  REQUIRE(rows.has_value());
  REQUIRE(rows->size() == 1);
  CHECK(rows->front().state == OperationState::mailbox);
  CHECK(rows->front().verb == OperationVerb::put);
  CHECK(rows->front().rank == 0);
  CHECK(rows->front().bytes == 16);
  CHECK(rows->front().user_data == 5);
  CHECK(rows->front().deadline_left > 29s);
  alone.world.run_for(3s);
  rows = alone.core->outstanding();
  REQUIRE(rows->size() == 1);
  CHECK(rows->front().state == OperationState::ended);
  CHECK(rows->front().done_bytes == 16);
  CHECK(rows->front().age == 3s);
  CHECK_FALSE(rows->front().told);
  CHECK(request->query().has_value());
  CHECK(alone.core->outstanding()->empty());
}
