// SPDX-License-Identifier: Apache-2.0
//
// Streams and watches of the libuv port, on real sockets of this host.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "uv_world.hpp"

using namespace hixl;
using namespace hixl::runtime;
using namespace hixl::runtime::test;

namespace {

std::string pattern(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
  return text;
}

void echo(const Address& address) {
  World world;
  Pair pair(world, address);
  const std::string a = "gathered ";
  const std::string b;
  const std::string c = "write";
  const iovec pieces[] = {piece(a), piece(b), piece(c)};
  const IoResult sent = pair.near.stream->write(pieces);
  CHECK(sent.state == IoResult::State::ok);
  CHECK(sent.bytes == a.size() + c.size());
  REQUIRE(world.until([&] { return pair.far.received.size() == sent.bytes; }));
  CHECK(pair.far.received == "gathered write");
  pair.far.write(pair.far.received);
  REQUIRE(world.until([&] { return pair.near.received.size() == sent.bytes; }));
  CHECK(pair.near.received == "gathered write");
  CHECK(pair.near.stream->remote_text() == pair.door.listener->address().text());
  pair.far.stream.reset();
  REQUIRE(world.until([&] { return pair.near.ended.has_value(); }));
  CHECK(pair.near.ended->state == IoResult::State::closed);
}

}  // namespace

TEST_CASE("uv_port: echo over tcp v4") { echo(any_port()); }

TEST_CASE("uv_port: echo over tcp v6") {
  if (!has_v6_loopback()) {
    MESSAGE("skipped: this host has no ::1");
    return;
  }
  echo(any_port("::1"));
}

TEST_CASE("uv_port: echo over an abstract unix socket") { echo(Address::abstract(fresh_name())); }

TEST_CASE("uv_port: the listener's address has the real port") {
  World world;
  Pair pair(world);
  CHECK(pair.door.listener->address().port != 0);
  CHECK(pair.door.listener->address().host == "127.0.0.1");
}

TEST_CASE("uv_port: a unix stream knows the process at its other end, a tcp stream does not") {
  World world;
  Pair local(world, Address::abstract(fresh_name()));
  CHECK(local.near.stream->credentials().pid == ::getpid());
  CHECK(local.far.stream->credentials().pid == ::getpid());
  CHECK(local.far.stream->credentials().uid == ::getuid());
  Pair tcp(world);
  CHECK(tcp.near.stream->credentials().pid == 0);
}

TEST_CASE("uv_port: descriptors travel beside the first byte, close-on-exec") {
  World world;
  Pair pair(world, Address::abstract(fresh_name()));
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  Fd in(ends[0]);
  Fd out(ends[1]);
  const std::string text = "two pipes";
  const iovec one = piece(text);
  const int fds[] = {in.get(), out.get()};
  CHECK(pair.near.stream->write({}, fds).state == IoResult::State::failed);  // nothing to travel beside
  CHECK(pair.near.stream->write({&one, 1}, fds).bytes == text.size());
  in = Fd();
  out = Fd();
  REQUIRE(world.until([&] { return pair.far.received == text; }));
  REQUIRE(pair.far.fds.size() == 2);
  for (const Fd& fd : pair.far.fds) CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
  char byte = 0;
  CHECK(::write(pair.far.fds[1].get(), "x", 1) == 1);
  CHECK(::read(pair.far.fds[0].get(), &byte, 1) == 1);
  CHECK(byte == 'x');
}

TEST_CASE("uv_port: descriptors that nobody asks for are not leaked") {
  World world;
  Pair pair(world, Address::abstract(fresh_name()));
  const std::size_t before = open_fds();
  const std::string text = "x";
  const iovec one = piece(text);
  const int fds[] = {0};
  CHECK(pair.near.stream->write({&one, 1}, fds).bytes == 1);
  pair.far.on_event = [&] {
    char byte = 0;
    const iovec into{&byte, 1};
    if (pair.far.stream->read({&into, 1}).bytes == 1) pair.far.received.push_back(byte);
  };
  REQUIRE(world.until([&] { return pair.far.received == "x"; }));
  CHECK(open_fds() == before);
}

TEST_CASE("uv_port: a long transfer with short writes arrives whole, and waits while the reader does not want it") {
  for (const Address& address : {any_port(), Address::abstract(fresh_name())}) {
    World world;
    Pair pair(world, address);
    pair.far.stream->want_read(false);
    pair.near.to_send = pattern(16U << 20U);  // more than both socket buffers hold
    pair.near.push();
    world.settle();
    CHECK(pair.near.sent < pair.near.to_send.size());
    CHECK(pair.far.readable_calls == 0);
    pair.far.stream->want_read(true);
    REQUIRE(world.until([&] { return pair.far.received.size() == pair.near.to_send.size(); }));
    CHECK(pair.far.received == pair.near.to_send);
    CHECK(pair.near.writable_calls > 0);
    const int writable_calls = pair.near.writable_calls;
    pair.far.write("done");
    REQUIRE(world.until([&] { return pair.near.received == "done"; }));
    CHECK(pair.near.writable_calls == writable_calls);  // room alone is no event
  }
}

TEST_CASE("uv_port: readability is a level: what is left behind is told again") {
  World world;
  Pair pair(world);
  pair.far.read_at_a_time = 1;
  pair.near.write("abcdef");
  REQUIRE(world.until([&] { return pair.far.received.size() == 6; }));
  CHECK(pair.far.received == "abcdef");
  CHECK(pair.far.readable_calls == 6);
}

TEST_CASE("uv_port: an accepted stream is muted until it has a listener of its own") {
  World world;
  Pair pair(world);
  pair.far.stream->set_events(nullptr);
  pair.near.write("early");
  world.settle();
  CHECK(pair.far.readable_calls == 0);
  pair.far.stream->set_events(&pair.far);
  REQUIRE(world.until([&] { return pair.far.received == "early"; }));
}

TEST_CASE("uv_port: a reset is an error, not an end, and comes again until it is read") {
  World world;
  Pair pair(world);
  pair.near.write("never read");
  world.settle();
  pair.near.received.clear();
  pair.far.stream->want_read(false);
  pair.near.write("unread at close: the kernel answers with a reset");
  int calls = 0;
  pair.near.on_event = [&] { ++calls; };  // does not read
  pair.far.stream.reset();
  REQUIRE(world.until([&] { return calls >= 3; }));
  pair.near.on_event = nullptr;
  REQUIRE(world.until([&] { return pair.near.ended.has_value(); }));
  CHECK(pair.near.ended->state == IoResult::State::failed);
  CHECK(pair.near.ended->os_error == ECONNRESET);
}

TEST_CASE("uv_port: writing to a stream whose other end is gone fails without a signal") {
  World world;
  Pair pair(world, Address::abstract(fresh_name()));
  pair.far.stream.reset();
  const std::string text = "x";
  const iovec one = piece(text);
  const IoResult result = pair.near.stream->write({&one, 1});
  CHECK(result.state == IoResult::State::failed);
  CHECK(result.os_error == EPIPE);
}

TEST_CASE("uv_port: reading into nothing is not the end of the stream") {
  World world;
  Pair pair(world);
  CHECK(pair.near.stream->read({}).state == IoResult::State::ok);
  char byte = 0;
  const iovec one{&byte, 1};
  CHECK(pair.near.stream->read({&one, 1}).state == IoResult::State::would_block);
}

TEST_CASE("uv_port: a stream may be destroyed in its own callbacks") {
  World world;
  SUBCASE("readable") {
    Pair pair(world);
    pair.far.on_event = [&] { pair.far.stream.reset(); };
    pair.near.write("x");
    REQUIRE(world.until([&] { return pair.near.ended.has_value(); }));
    CHECK(pair.far.readable_calls == 1);
  }
  SUBCASE("writable, with bytes to read as well") {
    Pair pair(world);
    pair.far.stream->want_read(false);
    pair.near.to_send = pattern(16U << 20U);
    pair.near.push();
    pair.near.on_event = [&] { pair.near.stream.reset(); };
    pair.far.stream->want_read(true);
    REQUIRE(world.until([&] { return pair.far.ended.has_value(); }));
    CHECK(pair.near.writable_calls == 1);
  }
  SUBCASE("connected") {
    Door door;
    door.listener = std::move(*world.port->listen(any_port(), door));
    End end;
    end.on_event = [&] { end.stream.reset(); };
    end.stream = std::move(*world.port->connect(door.listener->address(), 10s, end));
    REQUIRE(world.until([&] { return end.connected.has_value(); }));
    CHECK(end.connected->has_value());
    CHECK(end.stream == nullptr);
  }
  SUBCASE("not connected") {
    End end;
    end.on_event = [&] { end.stream.reset(); };
    end.stream = std::move(*world.port->connect(Address::abstract(fresh_name()), 10s, end));
    REQUIRE(world.until([&] { return end.connected.has_value(); }));
    CHECK_FALSE(end.connected->has_value());
  }
}

TEST_CASE("uv_port: no event comes after destruction, though it was already waiting") {
  World world;
  Pair first(world);
  Pair second(world);
  first.near.write("x");
  second.near.write("x");
  // Both are ready in one poll: whichever comes first destroys the other.
  first.far.on_event = [&] { second.far.stream.reset(); first.far.on_event = nullptr; };
  second.far.on_event = [&] { first.far.stream.reset(); second.far.on_event = nullptr; };
  REQUIRE(world.until([&] { return first.far.readable_calls + second.far.readable_calls > 0; }));
  world.settle();
  CHECK((first.far.readable_calls == 0 || second.far.readable_calls == 0));
}

TEST_CASE("uv_port: no descriptor of the port is inherited by a program that is started") {
  const std::set<int> before = fds_of_this_process();
  World world;
  const Pair tcp(world);
  const Pair local(world, Address::abstract(fresh_name()));
  for (const int fd : fds_of_this_process()) {
    CAPTURE(fd);
    if (!before.contains(fd)) CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
}

TEST_CASE("uv_port: a descriptor closes with its stream, not a turn later") {
  World world;
  Pair pair(world);
  const std::size_t before = open_fds();
  pair.near.stream.reset();
  pair.far.stream.reset();
  CHECK(open_fds() == before - 2);
}

TEST_CASE("uv_port: a write before the connection stands is room to come") {
  World world;
  Door door;
  door.listener = std::move(*world.port->listen(any_port(), door));
  End end;
  end.to_send = "early";
  end.stream = std::move(*world.port->connect(door.listener->address(), 10s, end));
  end.push();
  CHECK(end.sent == 0);
  REQUIRE(world.until([&] { return end.sent == 5; }));
  CHECK(end.connected->has_value());
  CHECK(end.writable_calls == 1);
}

TEST_CASE("uv_port: a watch reports an eventfd until it is read, and nothing after its destruction") {
  struct Counter final : WatchEvents {
    int calls = 0;
    std::unique_ptr<Watch> watch;
    bool end_there = false;
    void on_ready() override {
      ++calls;
      if (end_there) watch.reset();
    }
  };
  World world;
  const Fd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Counter counter;
  counter.watch = std::move(*world.port->watch(bell.get(), counter));
  CHECK_FALSE(world.port->watch(bell.get(), counter).has_value());  // one watch a descriptor
  world.settle();
  CHECK(counter.calls == 0);
  ::eventfd_write(bell.get(), 1);
  REQUIRE(world.until([&] { return counter.calls >= 3; }));
  counter.end_there = true;
  REQUIRE(world.until([&] { return counter.watch == nullptr; }));
  const int calls = counter.calls;
  world.settle();
  CHECK(counter.calls == calls);
  eventfd_t value = 0;
  CHECK(::eventfd_read(bell.get(), &value) == 0);  // the descriptor stayed open
}

TEST_CASE("uv_port: a watch on a pidfd tells that the process died") {
  struct Death final : WatchEvents {
    bool seen = false;
    std::unique_ptr<Watch> watch;
    void on_ready() override {
      seen = true;
      watch.reset();
    }
  };
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  {
    World world;
    const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
    if (process) {
      Death death;
      death.watch = std::move(*world.port->watch(process.get(), death));
      world.settle();
      CHECK_FALSE(death.seen);
      ::kill(child, SIGKILL);
      CHECK(world.until([&] { return death.seen; }));
    } else {
      MESSAGE("skipped: this kernel has no pidfd_open");
    }
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("uv_port: wake ends a sleep, also one that has not begun, and is harmless after close") {
  World world;
  world.port->wake();
  world.port->wake();
  uv_run(&world.loop, UV_RUN_ONCE);
  CHECK(world.events() == 1);  // wake-ups coalesce
  uv_run(&world.loop, UV_RUN_NOWAIT);
  CHECK(world.events() == 1);  // and are over when they have been heard
  std::thread other([&] { world.port->wake(); });
  uv_run(&world.loop, UV_RUN_ONCE);
  other.join();
  CHECK(world.events() == 2);
  bool drained = false;
  world.port->close([&] { drained = true; });
  CHECK_FALSE(drained);  // handles were open: it comes from the loop
  REQUIRE(world.until([&] { return drained; }));
  world.port->wake();
}

TEST_CASE("uv_port: what outlives a closed port is inert") {
  World world;
  Pair pair(world);
  End dialing;
  dialing.stream = std::move(*world.port->connect(pair.door.listener->address(), 10s, dialing));
  pair.near.write("x");
  bool drained = false;
  world.port->close([&] { drained = true; });
  REQUIRE(world.until([&] { return drained; }));
  CHECK(pair.far.readable_calls == 0);
  CHECK_FALSE(dialing.connected.has_value());
  pair.far.stream->want_read(false);
  pair.far.stream->want_read(true);
  End late;
  CHECK(world.port->connect(pair.door.listener->address(), 1s, late).error().code == ErrorCode::stopped);
  CHECK(world.port->listen(any_port(), pair.door).error().code == ErrorCode::stopped);
}

TEST_CASE("uv_port: the clock does not go back") {
  World world;
  Instant last = world.port->now();
  for (int i = 0; i < 1000; ++i) {
    const Instant now = world.port->now();
    CHECK(now >= last);
    last = now;
  }
}
