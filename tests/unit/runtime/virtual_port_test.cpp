// SPDX-License-Identifier: Apache-2.0
//
// The simulated world itself: its streams keep the promises of event_port.hpp under every fault, its processes die and
// pause as real ones do, and a seed gives one run.
//
// This file is over 400 lines because every fault of the network is one case of the same two processes.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/virtual_port.hpp"

using namespace hixl;
using namespace hixl::runtime;
using State = IoResult::State;

namespace {

constexpr std::uint64_t k_steps_max = 2'000'000;  // far above what any test here needs; a livelock ends there

std::byte pattern(std::uint64_t seed, std::size_t at) { return static_cast<std::byte>((seed + at * 131) % 251); }

/// One end of a connection: sends `to_send` pattern bytes, checks what it receives against the other side's pattern.
class Talker final : public StreamEvents {
 public:
  explicit Talker(std::uint64_t seed) : seed_(seed) {}
  void take(std::unique_ptr<Stream> stream) {
    stream_ = std::move(stream);
    stream_->set_events(this);
  }
  void send(std::size_t bytes) {
    to_send += bytes;
    push();
  }
  void push() {
    std::array<std::byte, 4096> buffer;
    while (sent < to_send && stream_ != nullptr) {
      const std::size_t size = std::min(buffer.size(), to_send - sent);
      for (std::size_t i = 0; i < size; ++i) buffer[i] = pattern(seed_, sent + i);
      // Two pieces, so that gathering is exercised.
      const std::array<iovec, 2> pieces{iovec{buffer.data(), size / 2},
                                        iovec{buffer.data() + size / 2, size - size / 2}};
      const IoResult result = stream_->write(pieces);
      last_write = result.state;
      if (result.state != State::ok) return;
      sent += result.bytes;
      if (result.bytes < size) return;
    }
  }
  void on_connected(const Result<void>& result) override {
    ++connects;
    connect_code = result ? ErrorCode::ok : result.error().code;
  }
  void on_readable() override {
    ++readable_events;
    std::array<std::byte, 1000> buffer;
    const std::array<iovec, 2> pieces{iovec{buffer.data(), 300}, iovec{buffer.data() + 300, 700}};
    const IoResult result = stream_->read(pieces);
    if (result.state == State::ok) {
      for (std::size_t i = 0; i < result.bytes; ++i) wrong += buffer[i] != pattern(expected_seed, received + i) ? 1 : 0;
      received += result.bytes;
      late += ends != 0 ? result.bytes : 0;
    } else if (result.state != State::would_block) {
      ends += 1;
      end = result.state;
    }
  }
  void on_writable() override { push(); }

  std::unique_ptr<Stream> stream_;
  std::uint64_t seed_;
  std::uint64_t expected_seed = 0;
  std::size_t to_send = 0, sent = 0, received = 0, wrong = 0;
  std::size_t late = 0;  ///< received after the end
  int connects = 0, ends = 0, readable_events = 0;
  ErrorCode connect_code = ErrorCode::internal;
  State end = State::ok;
  State last_write = State::ok;
};

struct Node final : ListenerEvents, WatchEvents {
  Node(VirtualWorld& w, const std::string& name, std::uint64_t seed)
      : world(w), port(w.make_port(name)), loop(port, w.draw_seed(), 64), talker(seed) {
    world.add(loop, port);
  }
  ~Node() { world.remove(port); }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  void on_accept(std::unique_ptr<Stream> stream) override {
    ++accepts;
    talker.take(std::move(stream));
  }
  void on_ready() override { ++deaths; }

  VirtualWorld& world;
  EventPort& port;
  Loop loop;
  Talker talker;
  int accepts = 0;
  int deaths = 0;
};

struct Two {
  explicit Two(std::uint64_t seed, const FaultPlan& plan = {}) : world(seed, plan) {
    a.talker.expected_seed = 2;
    b.talker.expected_seed = 1;
    auto listening = b.port.listen({Address::Family::tcp, "127.0.0.1", 0}, b);
    REQUIRE(listening);
    listener = std::move(*listening);
  }
  void dial() {
    auto stream = a.port.connect(listener->address(), std::chrono::seconds(5), a.talker);
    REQUIRE(stream);
    a.talker.stream_ = std::move(*stream);
  }
  void connect() {
    dial();
    REQUIRE(world.run_until([&] { return a.talker.connects == 1 && b.accepts == 1; }, k_steps_max));
    REQUIRE(a.talker.connect_code == ErrorCode::ok);
  }
  VirtualWorld world;
  Node a{world, "a", 1};
  Node b{world, "b", 2};
  std::unique_ptr<Listener> listener;
};

/// Faults that delay and cut into pieces, but lose nothing.
FaultPlan rough() {
  FaultPlan plan;
  plan.delay_max = std::chrono::milliseconds(2);
  plan.long_delay_per_mille = 20;
  plan.short_read_per_mille = 400;
  plan.short_write_per_mille = 400;
  plan.no_room_per_mille = 200;
  plan.clog_per_mille = 5;
  plan.pipe_bytes = 3000;
  plan.turn_max = std::chrono::microseconds(50);
  plan.stall_per_mille = 5;
  return plan;
}

}  // namespace

TEST_CASE("bytes arrive whole and in order, both ways, however the network cuts and delays them") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Two two(seed, rough());
    two.connect();
    constexpr std::size_t k_bytes = 100'000;
    two.a.talker.send(k_bytes);
    two.b.talker.send(k_bytes / 2);
    REQUIRE(two.world.run_until(
        [&] { return two.b.talker.received == k_bytes && two.a.talker.received == k_bytes / 2; }, k_steps_max));
    CHECK(two.a.talker.wrong == 0);
    CHECK(two.b.talker.wrong == 0);
    two.a.talker.stream_.reset();
    REQUIRE(two.world.run_until([&] { return two.b.talker.ends == 1; }, k_steps_max));
    CHECK(two.b.talker.end == State::closed);
    two.world.run_for(std::chrono::seconds(10));
    CHECK(two.b.talker.ends == 1);  // the end is reported once
  }
}

TEST_CASE("one seed gives one run, another seed another") {
  const auto run = [](std::uint64_t seed) {
    Choices random(seed);
    FaultPlan plan = FaultPlan::draw(random);
    plan.fd_limit_per_mille = 0;  // the one dial of this case is to be made
    Two two(seed, plan);
    two.dial();
    static_cast<void>(two.world.run_until([&] { return two.b.accepts == 1; }, 10'000));
    two.a.talker.send(50'000);
    for (int i = 0; i < 3000 && two.world.step(); ++i) {
    }
    return two.world.trace_hash();
  };
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    const std::uint64_t hash = run(seed);
    CHECK(run(seed) == hash);
    CHECK(run(seed + 1000) != hash);
  }
}

TEST_CASE("connecting: refused, lost, taken and chosen ports, names of unix sockets") {
  FaultPlan plan;
  Two two(7, plan);
  SUBCASE("nobody listens") {
    two.listener.reset();
    auto stream = two.a.port.connect({Address::Family::tcp, "127.0.0.1", 9}, std::chrono::seconds(5), two.a.talker);
    REQUIRE(stream);
    REQUIRE(two.world.run_until([&] { return two.a.talker.connects == 1; }, k_steps_max));
    CHECK(two.a.talker.connect_code == ErrorCode::connect_refused);
    two.world.run_for(std::chrono::seconds(10));
    CHECK(two.a.talker.connects == 1);
  }
  SUBCASE("no answer until the time limit") {
    plan.connect_lost_per_mille = 1000;
    two.world.set_plan(plan);
    const Instant before = two.world.now();
    two.dial();
    REQUIRE(two.world.run_until([&] { return two.a.talker.connects == 1; }, k_steps_max));
    CHECK(two.a.talker.connect_code == ErrorCode::connect_timeout);
    CHECK(two.world.now() - before == std::chrono::seconds(5));
    CHECK(two.b.accepts == 0);
  }
  SUBCASE("a port is taken once, and port 0 gives another each time") {
    auto again = two.b.port.listen(two.listener->address(), two.b);
    REQUIRE_FALSE(again);
    CHECK(again.error().code == ErrorCode::address_in_use);
    auto other = two.b.port.listen({Address::Family::tcp, "127.0.0.1", 0}, two.b);
    REQUIRE(other);
    CHECK((*other)->address().port != two.listener->address().port);
    CHECK((*other)->address().port != 0);
  }
  SUBCASE("unix names; descriptors are refused") {
    auto listener = two.b.port.listen(Address::abstract("place"), two.b);
    REQUIRE(listener);
    auto stream = two.a.port.connect(Address::abstract("place"), std::chrono::seconds(5), two.a.talker);
    REQUIRE(stream);
    two.a.talker.stream_ = std::move(*stream);
    REQUIRE(two.world.run_until([&] { return two.a.talker.connects == 1 && two.b.accepts == 1; }, k_steps_max));
    CHECK(two.a.talker.connect_code == ErrorCode::ok);
    CHECK(two.a.talker.stream_->credentials().pid != 0);
    std::byte byte{1};
    const iovec piece{&byte, 1};
    const int fd = 0;
    CHECK(two.a.talker.stream_->write(std::span(&piece, 1), std::span(&fd, 1)).state == State::failed);
  }
}

TEST_CASE("a reset leaves a right prefix and ends both ends, be it at different times") {
  FaultPlan plan;
  plan.delay_max = std::chrono::milliseconds(1);
  plan.reset_per_mille = 30;
  plan.one_sided_per_mille = 500;
  int cut_short = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Two two(seed, plan);
    two.connect();
    two.a.talker.send(1'000'000);
    REQUIRE(two.world.run_until(
        [&] { return two.b.talker.ends + two.a.talker.ends == 2 || two.b.talker.received == 1'000'000; }, k_steps_max));
    CHECK(two.b.talker.wrong == 0);
    CHECK(two.b.talker.received <= two.a.talker.sent);
    two.world.run_for(std::chrono::seconds(10));
    CHECK(two.b.talker.late == 0);
    if (two.b.talker.received < 1'000'000) {
      ++cut_short;
      CHECK(two.a.talker.end == State::failed);
      CHECK(two.b.talker.end == State::failed);
    }
  }
  CHECK(cut_short > 20);
}

TEST_CASE("a half-closed direction: the reader sees an end, the writer writes on") {
  FaultPlan plan;
  plan.half_close_per_mille = 1000;
  Two two(3, plan);
  two.connect();
  two.a.talker.send(100'000);
  REQUIRE(two.world.run_until([&] { return two.b.talker.ends == 1; }, k_steps_max));
  two.world.run_for(std::chrono::seconds(1));
  CHECK(two.b.talker.end == State::closed);
  CHECK(two.a.talker.sent == 100'000);
  CHECK(two.a.talker.ends == 0);
  CHECK(two.b.talker.received < 100'000);
  CHECK(two.b.talker.wrong == 0);
}

TEST_CASE("a stream that is cut off gives a right prefix and an orderly end") {
  FaultPlan plan;
  plan.truncate_per_mille = 1000;
  Two two(3, plan);
  two.connect();
  two.a.talker.send(100'000);
  REQUIRE(two.world.run_until([&] { return two.b.talker.ends == 1; }, k_steps_max));
  CHECK(two.b.talker.end == State::closed);
  CHECK(two.b.talker.received < 100'000);
  CHECK(two.b.talker.wrong == 0);
}

TEST_CASE("a squeezed direction carries so many bytes a millisecond, and everything in the end") {
  Two two(3);
  two.connect();
  two.world.squeeze(two.a.port, two.b.port, std::chrono::seconds(10), 100);
  const Instant before = two.world.now();
  two.a.talker.send(50'000);
  REQUIRE(two.world.run_until([&] { return two.b.talker.received == 50'000; }, k_steps_max));
  CHECK(two.world.now() - before >= std::chrono::milliseconds(500));
  CHECK(two.world.now() - before < std::chrono::milliseconds(600));
  CHECK(two.b.talker.wrong == 0);
}

TEST_CASE("death with descriptors that a child holds: no end is seen until the child has gone, nobody answers") {
  Two two(6);
  two.connect();
  two.world.kill(two.b.port, std::chrono::seconds(3));
  CHECK_FALSE(two.world.alive(two.b.port));
  two.world.run_for(std::chrono::milliseconds(2900));
  CHECK(two.a.talker.ends == 0);
  REQUIRE(two.world.run_until([&] { return two.a.talker.ends == 1; }, k_steps_max));
  CHECK(two.world.holdings(two.a.port).streams_to_dead <= 1);
}

TEST_CASE("no descriptor: a connect fails at once, a connection that cannot be accepted ends") {
  FaultPlan plan;
  plan.fd_limit_per_mille = 1000;
  Two two(6);
  two.dial();
  two.world.set_plan(plan);
  auto stream = two.a.port.connect(two.listener->address(), std::chrono::seconds(5), two.a.talker);
  REQUIRE_FALSE(stream);
  CHECK(stream.error().code == ErrorCode::fd_limit);
  REQUIRE(two.world.run_until([&] { return two.a.talker.ends == 1; }, k_steps_max));
  CHECK(two.b.accepts == 0);
}

TEST_CASE(
    "back-pressure: nothing is delivered while the reader does not want it, and the writer stops when the pipe is "
    "full") {
  FaultPlan plan;
  plan.pipe_bytes = 10'000;
  Two two(4, plan);
  two.connect();
  two.b.talker.stream_->want_read(false);
  two.a.talker.send(50'000);
  two.world.run_for(std::chrono::seconds(1));
  CHECK(two.b.talker.readable_events == 0);
  CHECK(two.a.talker.sent == 10'000);
  two.b.talker.stream_->want_read(true);
  REQUIRE(two.world.run_until([&] { return two.b.talker.received == 50'000; }, k_steps_max));
  CHECK(two.b.talker.wrong == 0);
}

TEST_CASE("a paused process does not turn, its kernel goes on, and nothing is lost") {
  FaultPlan plan;
  plan.pipe_bytes = 10'000;
  Two two(5, plan);
  two.world.pause(two.b.port, std::chrono::seconds(2));
  const Instant resumed = two.world.now() + std::chrono::seconds(2);
  two.dial();
  REQUIRE(two.world.run_until([&] { return two.a.talker.connects == 1; }, k_steps_max));
  CHECK(two.world.now() < resumed);  // the connection stands before anybody has accepted it
  two.a.talker.send(20'000);
  REQUIRE(two.world.run_until([&] { return two.b.accepts == 1; }, k_steps_max));
  CHECK(two.world.now() >= resumed);
  CHECK(two.a.talker.sent == 10'000);
  REQUIRE(two.world.run_until([&] { return two.b.talker.received == 20'000; }, k_steps_max));
  CHECK(two.b.talker.wrong == 0);
}

TEST_CASE("death: bytes of the network still arrive, then the stream ends; watches fire, listeners vanish") {
  Two two(6);
  Node c(two.world, "c", 3);
  two.connect();
  auto watch = two.a.port.watch(two.world.death_fd("b"), two.a);
  REQUIRE(watch);
  CHECK(two.world.death_fd("nobody") == -1);
  CHECK_FALSE(two.a.port.watch(0, two.a));
  two.b.talker.send(5000);
  const Address address = two.listener->address();
  two.world.kill(two.b.port);
  CHECK_FALSE(two.world.alive(two.b.port));
  REQUIRE(two.world.run_until([&] { return two.a.talker.ends == 1 && two.a.deaths == 1; }, k_steps_max));
  CHECK(two.a.talker.received == 5000);
  CHECK(two.a.talker.wrong == 0);
  CHECK(two.a.talker.end == State::closed);

  two.a.talker.send(10);
  CHECK(two.a.talker.last_write == State::failed);
  CHECK_FALSE(two.b.port.listen({Address::Family::tcp, "127.0.0.1", 0}, two.b));
  auto stream = c.port.connect(address, std::chrono::seconds(5), c.talker);
  REQUIRE(stream);
  auto late = c.port.watch(two.world.death_fd("b"), c);  // dead already: fires as well
  REQUIRE(late);
  REQUIRE(two.world.run_until([&] { return c.talker.connects == 1 && c.deaths == 1; }, k_steps_max));
  CHECK(c.talker.connect_code == ErrorCode::connect_refused);

  Node next(two.world, "b", 4);  // the next life of that name is another process
  auto fresh = c.port.watch(two.world.death_fd("b"), c);
  REQUIRE(fresh);
  two.world.run_for(std::chrono::seconds(1));
  CHECK(c.deaths == 1);
}

TEST_CASE("a descriptor that something outside makes ready is a level, in its process, and ends with its watch") {
  struct Count final : WatchEvents {
    void on_ready() override { ++readies; }
    int readies = 0;
  } count;
  VirtualWorld world(1);
  EventPort& port = world.make_port("a");
  const int descriptor = world.make_descriptor();
  const int early = world.make_descriptor();
  CHECK(descriptor != early);
  auto watch = port.watch(descriptor, count);
  REQUIRE(watch);
  CHECK(world.holdings(port).card_watches == 1);
  CHECK(world.holdings(port).death_watches == 0);
  world.run_for(std::chrono::milliseconds(1));
  CHECK(count.readies == 0);
  world.set_ready(descriptor, true);
  CHECK(count.readies == 0);  // never from inside a call
  world.run_for(std::chrono::milliseconds(1));
  CHECK(count.readies > 1);
  world.set_ready(descriptor, false);
  const int before = count.readies;
  world.pause(port, std::chrono::milliseconds(50));
  world.set_ready(descriptor, true);
  world.run_for(std::chrono::milliseconds(40));
  CHECK(count.readies == before);
  world.run_for(std::chrono::milliseconds(20));
  CHECK(count.readies > before);
  watch->reset();
  const int last = count.readies;
  world.run_for(std::chrono::milliseconds(1));
  CHECK(count.readies == last);
  world.set_ready(early, true);
  watch = port.watch(early, count);  // ready already: fires as well
  world.run_for(std::chrono::milliseconds(1));
  CHECK(count.readies > last);
  world.close_descriptor(early);
  CHECK_FALSE(port.watch(early, count));
}

TEST_CASE("clog and reset by hand; healing") {
  Two two(8);
  two.connect();
  two.world.clog(two.a.port, two.b.port, std::chrono::seconds(3));
  const Instant open = two.world.now() + std::chrono::seconds(3);
  two.a.talker.send(100);
  two.b.talker.send(100);
  REQUIRE(two.world.run_until([&] { return two.a.talker.received == 100; }, k_steps_max));
  CHECK(two.world.now() < open);  // the other direction passes
  REQUIRE(two.world.run_until([&] { return two.b.talker.received == 100; }, k_steps_max));
  CHECK(two.world.now() >= open);
  two.world.reset(two.b.port, two.a.port);
  REQUIRE(two.world.run_until([&] { return two.a.talker.ends + two.b.talker.ends == 2; }, k_steps_max));
}

TEST_CASE("timers of a loop fire on the virtual clock, mail wakes, nothing to do is nothing") {
  struct Alarm final : Timer {
    void on_timer() override { at = loop->now(); }
    Loop* loop = nullptr;
    Instant at{};
  } alarm;
  struct Letter final : MailTarget {
    void on_mail(const Mail& mail) override { sum += mail.b; }
    std::uint64_t sum = 0;
  } letter;
  VirtualWorld world(9);
  Node node(world, "a", 1);
  REQUIRE(world.run_until([&] { return world.now() > Instant{}; }, 10));
  alarm.loop = &node.loop;
  const Instant due = world.now() + std::chrono::seconds(40);
  node.loop.start(alarm, due);
  REQUIRE(world.run_until([&] { return alarm.at != Instant{}; }, 1000));
  CHECK(alarm.at >= due);
  CHECK(alarm.at <= due + std::chrono::milliseconds(2));

  while (world.step()) {
  }
  REQUIRE(node.loop.mailbox().post({.target = &letter, .b = 5}));
  REQUIRE(world.run_until([&] { return letter.sum == 5; }, 100));
  while (world.step()) {
  }
  CHECK_FALSE(world.step());
  const Instant before = world.now();
  world.run_for(std::chrono::hours(1));
  CHECK(world.now() == before + std::chrono::hours(1));
}
