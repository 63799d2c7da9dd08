// SPDX-License-Identifier: Apache-2.0
//
// The loop turned by hand under a clock that the test sets: phases and their order, bounds, and the last look before a
// sleep, as traces.
#include "runtime/loop.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fake_port.hpp"

using namespace hixl;
using namespace hixl::runtime;

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Trace = std::vector<std::string>;

class TracedTarget final : public MailTarget {
 public:
  explicit TracedTarget(Trace& trace) : trace_(trace) {}
  void on_mail(const Mail& mail) override {
    trace_.push_back("mail " + std::to_string(mail.kind));
    if (then) then();
  }
  std::function<void()> then;

 private:
  Trace& trace_;
};

template <class Base>
class Traced : public Base {
 public:
  Traced(Trace& trace, std::string name) : trace_(trace), name_(std::move(name)) {}
  std::function<void()> then;

 protected:
  ~Traced() = default;
  void happened() {
    trace_.push_back(name_);
    if (then) then();
  }

 private:
  Trace& trace_;
  std::string name_;
};

class TracedTask final : public Traced<Task> {
 public:
  using Traced::Traced;
  void run() override { happened(); }
};

class TracedTimer final : public Traced<Timer> {
 public:
  using Traced::Traced;
  void on_timer() override { happened(); }
};

class TracedPoller final : public Traced<Poller> {
 public:
  using Traced::Traced;
  bool poll() override {
    happened();
    return found;
  }
  bool can_sleep() override {
    if (when_asked) when_asked();
    return may_sleep;
  }
  std::function<void()> when_asked;
  bool found = false;
  bool may_sleep = true;
};

struct World {
  Trace take() { return std::exchange(trace, {}); }
  test::FakePort port;
  Loop loop{port, 1, 1000};
  Trace trace;
};

}  // namespace

TEST_CASE("loop: mail, pollers, timers, tasks, in this order") {
  World world;
  Loop& loop = world.loop;
  TracedTarget target(world.trace);
  TracedPoller poller(world.trace, "poller");
  TracedTimer timer(world.trace, "timer");
  TracedTask task(world.trace, "task");
  loop.defer(task);
  loop.defer(task);  // once
  loop.start_after(timer, seconds(0));
  loop.attach(poller);
  REQUIRE(loop.mailbox().post({&target, 1, 0, 0}));
  REQUIRE(loop.mailbox().post({&target, 2, 0, 0}));
  CHECK(loop.turn());
  CHECK(world.take() == Trace{"mail 1", "mail 2", "poller", "timer", "task"});
  CHECK_FALSE(loop.turn());
  CHECK(world.take() == Trace{"poller"});
}

TEST_CASE("loop: what happens in a phase reaches the later phases of the same turn") {
  World world;
  Loop& loop = world.loop;
  TracedTarget target(world.trace);
  TracedTimer timer(world.trace, "timer");
  TracedTask task(world.trace, "task");
  target.then = [&] { loop.start(timer, loop.now()); };
  timer.then = [&] { loop.defer(task); };
  REQUIRE(loop.mailbox().post({&target, 1, 0, 0}));
  CHECK(loop.turn());
  CHECK(world.take() == Trace{"mail 1", "timer", "task"});
}

TEST_CASE("loop: a task that defers itself runs once a turn") {
  World world;
  TracedTask task(world.trace, "task");
  task.then = [&] { world.loop.defer(task); };
  world.loop.defer(task);
  CHECK(world.loop.turn());
  CHECK(world.take() == Trace{"task"});
  CHECK_FALSE(world.loop.prepare_sleep());
  task.then = nullptr;
  CHECK(world.loop.turn());
  CHECK(world.take() == Trace{"task"});
  CHECK_FALSE(world.loop.turn());
}

TEST_CASE("loop: a task may withdraw and destroy others") {
  World world;
  TracedTask first(world.trace, "first");
  auto second = std::make_unique<TracedTask>(world.trace, "second");
  TracedTask third(world.trace, "third");
  TracedTask fourth(world.trace, "fourth");
  for (TracedTask* task : {&first, second.get(), &third, &fourth}) world.loop.defer(*task);
  first.then = [&] {
    second.reset();
    third.unlink();
  };
  CHECK(world.loop.turn());
  CHECK(world.take() == Trace{"first", "fourth"});
}

TEST_CASE("loop: a poller may leave, come back, and attach or destroy others while it is polled") {
  World world;
  TracedPoller first(world.trace, "first");
  auto second = std::make_unique<TracedPoller>(world.trace, "second");
  TracedPoller third(world.trace, "third");
  TracedPoller late(world.trace, "late");
  for (TracedPoller* poller : {&first, second.get(), &third}) world.loop.attach(*poller);
  first.then = [&] {
    first.unlink();
    world.loop.attach(first);
    second.reset();
    world.loop.attach(late);
  };
  CHECK_FALSE(world.loop.turn());
  CHECK(world.take() == Trace{"first", "third"});
  first.then = [&] { first.unlink(); };
  world.loop.turn();
  const Trace trace = world.take();
  CHECK(trace.size() == 3);
  world.loop.turn();
  CHECK(world.take().size() == 2);
}

TEST_CASE("loop: a turn is bounded, and says that there is more") {
  World world;
  TracedTarget target(world.trace);
  TracedPoller poller(world.trace, "poller");
  world.loop.attach(poller);
  for (int i = 0; i < 900; ++i) REQUIRE(world.loop.mailbox().post({&target, 1, 0, 0}));
  int turns = 0;
  while (world.loop.turn()) REQUIRE(++turns < 100);
  CHECK(turns >= 3);
  int polls = 0;
  for (const std::string& event : world.trace) polls += event == "poller" ? 1 : 0;
  CHECK(polls == turns + 1);
  CHECK(world.trace.size() == 900 + static_cast<std::size_t>(polls));
}

TEST_CASE("loop: mail that its own delivery causes waits for the bound, not for ever") {
  World world;
  TracedTarget target(world.trace);
  target.then = [&] { CHECK(world.loop.mailbox().post({&target, 1, 0, 0})); };
  REQUIRE(world.loop.mailbox().post({&target, 1, 0, 0}));
  CHECK(world.loop.turn());
  CHECK(world.take().size() < 1000);
  CHECK_FALSE(world.loop.prepare_sleep());
}

TEST_CASE("loop: now() is the beginning of the turn, and lag is the loop's own lateness") {
  World world;
  TracedTimer timer(world.trace, "timer");
  world.loop.start_after(timer, milliseconds(100));
  CHECK(world.loop.next_due() <= world.loop.now() + milliseconds(100));
  world.port.pass(milliseconds(50));
  CHECK_FALSE(world.loop.turn());
  CHECK(world.loop.now() == world.port.now());
  CHECK(world.loop.lag() == Duration(0));
  world.port.pass(milliseconds(350));
  CHECK(world.loop.turn());
  CHECK(world.take() == Trace{"timer"});
  // A wheel boundary may make it a little more, up to the time since the last turn.
  CHECK(world.loop.lag() >= milliseconds(300));
  CHECK(world.loop.lag() <= milliseconds(350));
  world.loop.start(timer, world.loop.now() - seconds(50));
  world.port.pass(milliseconds(1));
  CHECK(world.loop.turn());
  CHECK(world.loop.lag() == milliseconds(1));
}

TEST_CASE("loop: whoever watches for lateness is told first of all, and once each time") {
  World world;
  struct Watcher final : LateWatch {
    explicit Watcher(World& in) : world(in) {}
    void on_late(Duration lag) override {
      world.trace.emplace_back("late");
      last = lag;
      CHECK_FALSE(world.loop.turn());  // nothing begins from here
    }
    World& world;
    Duration last{};
  } watcher(world);
  world.loop.watch_lateness(&watcher, milliseconds(200));
  TracedTarget target(world.trace);
  TracedTimer timer(world.trace, "timer");
  TracedTimer other(world.trace, "timer");
  const auto start = [&] {
    world.loop.start_after(timer, milliseconds(100));
    world.loop.start_after(other, milliseconds(150));
  };
  start();
  world.port.pass(milliseconds(290));
  CHECK(world.loop.turn());
  CHECK(world.take() == Trace{"timer", "timer"});
  start();
  REQUIRE(world.loop.prepare_sleep());
  world.port.pass(milliseconds(500));
  REQUIRE(world.loop.mailbox().post({&target, 1, 0, 0}));
  world.loop.awake();
  CHECK(world.take() == Trace{"late"});
  CHECK(watcher.last >= milliseconds(400));
  timer.cancel();  // what is due first now was late at the same time
  world.loop.look_at_clock();
  CHECK(world.loop.turn());
  CHECK(world.take() == Trace{"mail 1", "timer"});
  // Without a sleep, and twice running.
  for (int i = 0; i < 2; ++i) {
    start();
    world.port.pass(milliseconds(400));
    CHECK(world.loop.turn());
    CHECK(world.take() == Trace{"late", "timer", "timer"});
  }
  start();
  world.port.pass(milliseconds(400));
  world.loop.watch_lateness(nullptr, {});
  CHECK(world.loop.turn());
  CHECK(world.take() == Trace{"timer", "timer"});
}

TEST_CASE("loop: the longest turn is remembered") {
  World world;
  TracedTask task(world.trace, "task");
  task.then = [&] { world.port.pass(milliseconds(20)); };
  world.loop.defer(task);
  CHECK(world.loop.turn());
  CHECK(world.loop.longest_turn() == milliseconds(20));
}

TEST_CASE("loop: a turn inside a turn does nothing") {
  World world;
  TracedTask outer(world.trace, "outer");
  TracedTask inner(world.trace, "inner");
  outer.then = [&] {
    world.loop.defer(inner);
    CHECK_FALSE(world.loop.turn());
    CHECK(world.trace == Trace{"outer"});
  };
  world.loop.defer(outer);
  CHECK(world.loop.turn());
  CHECK(world.loop.turn());
  CHECK(world.take() == Trace{"outer", "inner"});
}

TEST_CASE("loop: sleeps only when nothing waits") {
  World world;
  Loop& loop = world.loop;
  TracedTarget target(world.trace);
  TracedPoller poller(world.trace, "poller");
  TracedTimer timer(world.trace, "timer");
  loop.attach(poller);
  CHECK(loop.prepare_sleep());
  loop.awake();

  SUBCASE("mail") {
    REQUIRE(loop.mailbox().post({&target, 1, 0, 0}));
    CHECK_FALSE(loop.prepare_sleep());
  }
  SUBCASE("a poller that cannot") {
    poller.may_sleep = false;
    CHECK_FALSE(loop.prepare_sleep());
  }
  SUBCASE("a due timer") {
    loop.start_after(timer, milliseconds(5));
    CHECK(loop.prepare_sleep());
    loop.awake();
    world.port.pass(milliseconds(5));
    CHECK_FALSE(loop.prepare_sleep());
  }
  // Awake again: the next message makes no system call.
  REQUIRE(loop.mailbox().post({&target, 1, 0, 0}));
  CHECK(world.port.wakes() == 0);
}

TEST_CASE("loop: a message to a sleeping loop wakes it") {
  World world;
  TracedTarget target(world.trace);
  REQUIRE(world.loop.prepare_sleep());
  REQUIRE(world.loop.mailbox().post({&target, 1, 0, 0}));
  CHECK(world.port.wakes() == 1);
}

TEST_CASE("loop: a message during the last look is not slept over") {
  World world;
  TracedTarget target(world.trace);
  TracedPoller poller(world.trace, "poller");
  world.loop.attach(poller);
  poller.when_asked = [&] { CHECK(world.loop.mailbox().post({&target, 1, 0, 0})); };  // as another thread may
  const bool sleeps = world.loop.prepare_sleep();
  CHECK((!sleeps || world.port.wakes() == 1));
}

TEST_CASE("loop: knows its thread, and forgets it at the end") {
  test::FakePort port;
  auto loop = std::make_unique<Loop>(port, 1, 10);
  CHECK_FALSE(loop->on_loop_thread());
  loop->bind_to_this_thread();
  CHECK(loop->on_loop_thread());
  bool elsewhere = true;
  std::thread([&] { elsewhere = loop->on_loop_thread(); }).join();
  CHECK_FALSE(elsewhere);
  const auto thread = loop->thread();
  CHECK(thread->here());
  loop.reset();
  CHECK_FALSE(thread->here());
}
