// SPDX-License-Identifier: Apache-2.0
#include "world.hpp"

#include <uv.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "links/hccs/factory.hpp"
#include "links/pcie/factory.hpp"
#include "links/roce/system.hpp"
#include "links/sim/factory.hpp"
#include "links/tcp/factory.hpp"
#include "runtime/drivers.hpp"
#include "runtime/virtual_port.hpp"

namespace conformance {

namespace {

using runtime::Address;
using runtime::Stream;

/// Takes the one connection between the ends.
struct Meeting final : runtime::ListenerEvents, runtime::StreamEvents {
  void on_accept(std::unique_ptr<Stream> stream) override { accepted = std::move(stream); }
  void on_connected(const Result<void>& result) override {
    REQUIRE(result);
    connected = true;
  }
  void on_readable() override {}
  void on_writable() override {}

  void start(End& from, End& to, const Address& address) {
    auto listening = to.loop.port().listen(address, *this);
    REQUIRE(listening);
    listener = std::move(*listening);
    auto stream = from.loop.port().connect(listener->address(), std::chrono::seconds(10), *this);
    REQUIRE(stream);
    dialled = std::move(*stream);
  }
  void make_links(End& from, End& to) {
    dialled->set_events(nullptr);
    const links::LinkIdentity seen_from_a{.rank = to.rank, .session = 7, .link_id = 3, .link_gen = 2, .dialled = true};
    links::LinkIdentity seen_from_b = seen_from_a;
    seen_from_b.rank = from.rank;
    seen_from_b.dialled = false;
    from.make_link(std::move(dialled), seen_from_a);
    to.make_link(std::move(accepted), seen_from_b);
    listener.reset();
  }
  bool connected = false;
  std::unique_ptr<Stream> dialled, accepted;
  std::unique_ptr<runtime::Listener> listener;
};

class SimWorld final : public World {
 public:
  SimWorld(std::uint64_t seed, const End::Depths& depths) : world_(seed, network()), fabric_(world_, disorder()) {
    runtime::EventPort& port_a = world_.make_port("a");
    runtime::EventPort& port_b = world_.make_port("b");
    a_ = std::make_unique<End>(port_a, world_.draw_seed(), 0, depths);
    b_ = std::make_unique<End>(port_b, world_.draw_seed(), 1, depths);
    world_.add(a_->loop, port_a);
    world_.add(b_->loop, port_b);
    a_->factory = links::make_sim_factory(fabric_);
    b_->factory = links::make_sim_factory(fabric_);
    Meeting meeting;
    meeting.start(*a_, *b_, {Address::Family::tcp, "127.0.0.1", 0});
    until([&] { return meeting.connected && meeting.accepted != nullptr; });
    meeting.make_links(*a_, *b_);
    ready();
  }
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;
  ~SimWorld() override {
    for (End* end : {a_.get(), b_.get()}) {
      end->drop_link();
      world_.remove(end->loop.port());
    }
    a_.reset();
    b_.reset();
  }
  [[nodiscard]] links::SimFabric* fabric() noexcept override { return &fabric_; }
  void settle() override { world_.run_for(std::chrono::seconds(10)); }
  void turn_b(bool on) override { b_turns_ = on; }

 private:
  /// Everything that a link must live with; breaking it is the business of tests/sim.
  static runtime::FaultPlan network() {
    runtime::FaultPlan plan;
    plan.delay_max = std::chrono::microseconds(300);
    plan.long_delay_per_mille = 5;
    plan.short_read_per_mille = 200;
    plan.short_write_per_mille = 200;
    plan.no_room_per_mille = 100;
    return plan;
  }
  static links::SimPlan disorder() {
    links::SimPlan plan;
    plan.busy_per_mille = 50;
    plan.hesitate_per_mille = 300;
    return plan;
  }
  void start_waiting() override { steps_left_ = 20'000'000; }
  bool step() override {
    if (!b_turns_) world_.pause(b_->loop.port(), std::chrono::milliseconds(1));
    // When nothing is to happen until the test does something, time passes all the same.
    if (!world_.step()) world_.run_for(std::chrono::milliseconds(1));
    return steps_left_-- > 0;
  }

  runtime::VirtualWorld world_;
  links::SimFabric fabric_;
  std::int64_t steps_left_ = 0;
  bool b_turns_ = true;
};

std::unique_ptr<links::LinkFactory> make_factory(LinkKind kind, runtime::Loop& loop) {
  if (kind == LinkKind::hccs) return links::make_hccs_factory(loop, 1);
  if (kind == LinkKind::pcie) return links::make_pcie_factory(std::make_shared<links::CopyPool>(loop, 1));
  if (kind == LinkKind::roce) return links::make_system_roce_factory(loop, {});
  return links::make_tcp_factory();
}

/// Two "host programs" in one thread, each with a libuv loop that a rank hooks into.
class UvWorld final : public World {
 public:
  UvWorld(LinkKind kind, std::uint64_t seed, const End::Depths& depths) {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      REQUIRE(uv_loop_init(&hosts_[i].uv) == 0);
      auto driver = runtime::make_hosted_driver(&hosts_[i].uv);
      REQUIRE(driver);
      hosts_[i].driver = std::move(*driver);
      auto& end = i == 0 ? a_ : b_;
      end = std::make_unique<End>(hosts_[i].driver->port(), seed + i, static_cast<Rank>(i), depths);
      end->factory = make_factory(kind, end->loop);
      REQUIRE(end->factory->available());
      REQUIRE(hosts_[i].driver->start(end->loop, {}));
    }
    // A name that nobody else on this host has: the suite may run twice at once.
    std::random_device device;
    const std::string name = "hixl-conformance-" + std::to_string(device()) + "-" + std::to_string(device());
    Meeting meeting;
    const bool local = a_->factory->caps().same_host_only;
    meeting.start(*a_, *b_, local ? Address::abstract(name) : Address{Address::Family::tcp, "127.0.0.1", 0});
    until([&] { return meeting.connected && meeting.accepted != nullptr; });
    meeting.make_links(*a_, *b_);
    ready();
  }
  UvWorld(const UvWorld&) = delete;
  UvWorld& operator=(const UvWorld&) = delete;
  ~UvWorld() override {
    for (End* end : {a_.get(), b_.get()}) {
      if (end == nullptr) continue;
      end->drop_link();
      end->factory.reset();
    }
    for (Host& host : hosts_) {
      if (host.driver == nullptr) continue;
      host.driver->stop({});
      uv_run(&host.uv, UV_RUN_DEFAULT);
    }
    a_.reset();
    b_.reset();
    for (Host& host : hosts_) {
      host.driver.reset();
      CHECK(uv_loop_close(&host.uv) == 0);
    }
  }
  /// Long enough for everything that a kernel on one host holds back; too short would only hide a fault.
  void settle() override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
    start_waiting();
    while (std::chrono::steady_clock::now() < end) static_cast<void>(step());
  }
  void turn_b(bool on) override { b_turns_ = on; }

 private:
  void start_waiting() override { limit_ = std::chrono::steady_clock::now() + std::chrono::seconds(20); }
  bool step() override {
    uv_run(&hosts_[0].uv, UV_RUN_NOWAIT);
    if (b_turns_) uv_run(&hosts_[1].uv, UV_RUN_NOWAIT);
    std::this_thread::yield();  // the copy threads want the core, too
    return std::chrono::steady_clock::now() < limit_;
  }

  struct Host {
    uv_loop_t uv{};
    std::unique_ptr<runtime::Driver> driver;
  };
  std::array<Host, 2> hosts_;
  std::chrono::steady_clock::time_point limit_{};
  bool b_turns_ = true;
};

}  // namespace

bool World::skips(LinkKind kind) {
  if (kind != LinkKind::roce) return false;
  static const std::string why = [] {
    auto driver = runtime::make_polled_driver();
    REQUIRE(driver);
    runtime::Loop loop((*driver)->port(), 1, 16);
    const auto factory = links::make_system_roce_factory(loop, {});
    if (factory == nullptr) return std::string("this build has no such links");
    const Result<void> available = factory->available();
    return available ? std::string() : available.error().message();
  }();
  if (!why.empty()) MESSAGE("skipped: no RDMA here: " << why);
  return !why.empty();
}

std::unique_ptr<World> World::make(LinkKind kind, std::uint64_t seed, const End::Depths& depths) {
  if (kind == LinkKind::sim) return std::make_unique<SimWorld>(seed, depths);
  return std::make_unique<UvWorld>(kind, seed, depths);
}

void World::ready() {
  until([&] { return (a_->ups == 1 && b_->ups == 1) || a_->downs > 0 || b_->downs > 0; });
  INFO("a: " << a_->down_error.message() << ", b: " << b_->down_error.message());
  REQUIRE(a_->downs == 0);
  REQUIRE(b_->downs == 0);
}

void World::give_up() {
  FAIL("this took too long");
  throw std::runtime_error("FAIL throws; the compiler does not know");
}

Remote World::share(End& owner, End& user, std::size_t size, Rights rights) {
  const Remote remote = owner.allocate(size, rights);
  if (!user.learn(remote, owner)) {
    until([&] { return user.attached(remote); });
  }
  return remote;
}

std::uint64_t World::post(End& end, Verb verb, const Remote& remote, std::vector<Segment> segments,
                          std::uint64_t value) {
  for (;;) {
    const int credits = end.credits;
    if (const std::uint64_t number = end.post(verb, remote, segments, value); number != 0) return number;
    until([&] { return end.credits != credits; });  // promised after busy
  }
}

ErrorCode World::run(End& end, Verb verb, const Remote& remote, std::vector<Segment> segments, std::uint64_t value) {
  const std::uint64_t number = post(end, verb, remote, std::move(segments), value);
  until([&] { return end.ended(number); });
  return end.code(number);
}

void World::wait_all(End& end) {
  until([&] { return end.under_way() == 0; });
}

void World::close_both() {
  a_->close();
  b_->close();
  until([&] {
    a_->take_completions();
    b_->take_completions();
    const bool a_drained = a_->drained();
    return b_->drained() && a_drained;
  });
  a_->take_completions();
  b_->take_completions();
}

void World::check_manners() {
  settle();
  for (const End* end : {a_.get(), b_.get()}) {
    CHECK(end->inside_calls == 0);
    CHECK(end->stray_ends == 0);
    CHECK(end->after_close == 0);
    CHECK(end->ups == 1);
    CHECK(end->downs <= 1);
  }
}

int rounds(int full) {
  const char* scale = std::getenv("HIXL_TEST_SCALE");
  const double factor = scale == nullptr ? 1.0 : std::clamp(std::strtod(scale, nullptr), 0.0, 1.0);
  return std::max(1, static_cast<int>(full * factor));
}

std::uint64_t base_seed() {
  const char* seed = std::getenv("HIXL_TEST_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 0);
}

}  // namespace conformance
