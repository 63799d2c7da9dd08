// SPDX-License-Identifier: Apache-2.0
//
// Connecting and listening on the libuv port: the ways in which both fail, and that they recover.
#include <sys/resource.h>

#include "runtime/uv_port_dialer.hpp"
#include "uv_world.hpp"

using namespace hixl;
using namespace hixl::runtime;
using namespace hixl::runtime::test;

namespace {

/// The checker of vptrs, which comes with the address sanitizer in our builds, opens a pipe to probe memory.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool k_checker_needs_descriptors = true;
#else
constexpr bool k_checker_needs_descriptors = false;
#endif

/// Connects and gives the end of it.
Result<void> dial(World& world, const Address& address, Duration timeout = 20s) {
  End end;
  auto stream = world.port->connect(address, timeout, end);
  if (!stream) return fail(stream.error());
  end.stream = std::move(*stream);
  CHECK_FALSE(end.connected.has_value());
  REQUIRE(world.until([&] { return end.connected.has_value(); }));
  world.settle();
  return *end.connected;
}

/// A listener that nobody accepts from, its backlog as small as the kernel has it.
Fd silent_listener(const SocketAddress& address) {
  auto socket = open_socket(address.any.sa_family);
  REQUIRE(socket.has_value());
  REQUIRE(::bind(socket->get(), &address.any, address.length) == 0);
  REQUIRE(::listen(socket->get(), 0) == 0);
  return std::move(*socket);
}

/// Fills a listener that nobody accepts from, so that the kernel drops what comes. False: this kernel does not.
bool fill(const SocketAddress& full, std::vector<Fd>& waiting) {
  // For a backlog of 0 one or two connections are completed. A connect is in progress also when all will be well, so
  // what tells is whether the last of them can be written to.
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(std::move(*open_socket(AF_INET)));
    (void)::connect(waiting.back().get(), &full.any, full.length);
  }
  return ::send(waiting.back().get(), "x", 1, MSG_NOSIGNAL) < 0;
}

struct Dialed final : DialerEvents {
  std::optional<Result<Fd>> result;
  void on_dialed(Result<Fd> socket) override { result.emplace(std::move(socket)); }
};

}  // namespace

TEST_CASE("uv_port: nobody listens") {
  World world;
  Address closed;
  {
    Door door;
    closed = (*world.port->listen(any_port(), door))->address();
  }
  for (const Address& address : {closed, Address::abstract(fresh_name())}) {
    CAPTURE(address.text());
    const Result<void> result = dial(world, address);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == ErrorCode::connect_refused);
    CHECK(result.error().detail.os_error == ECONNREFUSED);
    CHECK(result.error().detail.stage == Stage::connect);
  }
}

TEST_CASE("uv_port: a connection that meets itself is a refusal") {
  // A source port of one's own choice makes certain what the kernel does by chance.
  auto socket = open_socket(AF_INET);
  REQUIRE(socket.has_value());
  const SocketAddress any = literal_addresses(any_port(), Stage::bind)->front();
  REQUIRE(::bind(socket->get(), &any.any, any.length) == 0);
  const SocketAddress self = local_address(socket->get());
  const int answer = ::connect(socket->get(), &self.any, self.length);
  CHECK((answer == 0 || errno == EINPROGRESS));
  CHECK(connect_outcome(socket->get()) == ECONNREFUSED);
}

TEST_CASE("uv_port: a unix listener without room is tried again until the time is over") {
  World world;
  const Address address = Address::abstract(fresh_name());
  const SocketAddress local = literal_addresses(address, Stage::bind)->front();
  const Fd listener = silent_listener(local);
  std::vector<Fd> waiting;
  for (;;) {
    Fd fd = std::move(*open_socket(AF_UNIX));
    if (::connect(fd.get(), &local.any, local.length) != 0) break;
    waiting.push_back(std::move(fd));
    REQUIRE(waiting.size() < 100);
  }
  REQUIRE(errno == EAGAIN);
  SUBCASE("and then it is a timeout") {
    const Instant before = world.port->now();
    const Result<void> result = dial(world, address, 50ms);
    CHECK(world.port->now() - before >= 49ms);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == ErrorCode::connect_timeout);
    CHECK(result.error().detail.stage == Stage::connect);
  }
  SUBCASE("or room comes in time") {
    End end;
    end.stream = std::move(*world.port->connect(address, 20s, end));
    const std::uint64_t before = world.events();
    REQUIRE(world.until([&] { return world.events() >= before + 3; }));
    CHECK_FALSE(end.connected.has_value());
    const Fd one(::accept(listener.get(), nullptr, nullptr));
    REQUIRE(world.until([&] { return end.connected.has_value(); }));
    CHECK(end.connected->has_value());
  }
}

TEST_CASE("uv_port: a tcp listener that swallows connections is a timeout") {
  World world;
  const Fd listener = silent_listener(literal_addresses(any_port(), Stage::bind)->front());
  const SocketAddress full = local_address(listener.get());
  std::vector<Fd> waiting;
  if (!fill(full, waiting)) {
    MESSAGE("skipped: this kernel takes connections beyond the backlog");
    return;
  }
  const Result<void> result = dial(world, full.address(), 100ms);
  REQUIRE_FALSE(result.has_value());
  CHECK(result.error().code == ErrorCode::connect_timeout);
  CHECK(result.error().detail.os_error == ETIMEDOUT);
  CHECK(result.error().detail.stage == Stage::connect);
}

TEST_CASE("uv_port: a name that does not exist") {
  World world;
  const Result<void> result = dial(world, {Address::Family::tcp, "no-such-host.invalid", 1}, 5s);
  REQUIRE_FALSE(result.has_value());
  CHECK(result.error().detail.stage == Stage::resolve);
  if (result.error().code == ErrorCode::connect_timeout) {
    MESSAGE("skipped: the resolver of this host does not answer");
    return;
  }
  CHECK(result.error().code == ErrorCode::host_unresolved);
  CHECK(result.error().detail.os_error != 0);
}

TEST_CASE("uv_port: giving up a look-up in progress leaves nothing behind") {
  World world;
  End end;
  end.stream = std::move(*world.port->connect({Address::Family::tcp, "no-such-host.invalid", 1}, 20s, end));
  end.stream.reset();
  world.settle();
  CHECK_FALSE(end.connected.has_value());
}

TEST_CASE("uv_port: addresses are tried in turn, and one that swallows packets leaves time for the rest") {
  World world;
  Door door;
  door.listener = std::move(*world.port->listen(any_port(), door));
  const SocketAddress good = literal_addresses(door.listener->address(), Stage::connect)->front();
  const SocketAddress refusing = literal_addresses(Address::abstract(fresh_name()), Stage::connect)->front();
  SocketAddress closed;  // refused by the network, a moment later
  {
    Door gone;
    closed = literal_addresses((*world.port->listen(any_port(), gone))->address(), Stage::connect)->front();
  }
  const Fd silent = silent_listener(literal_addresses(any_port(), Stage::bind)->front());
  const SocketAddress full = local_address(silent.get());
  std::vector<Fd> waiting;
  const bool swallows = fill(full, waiting);

  Dialed dialed;
  Dialer dialer(world.port->handles(), dialed);
  const auto result_of = [&](std::vector<SocketAddress> addresses, Duration timeout) {
    REQUIRE(dialer.start(std::move(addresses), timeout).has_value());
    CHECK_FALSE(dialed.result.has_value());
    REQUIRE(world.until([&] { return dialed.result.has_value(); }));
  };
  SUBCASE("the third answers") {
    result_of({refusing, closed, good}, 20s);
    REQUIRE(dialed.result->has_value());
    CHECK(connect_outcome((*dialed.result)->get()) == 0);
  }
  SUBCASE("none answers") {
    result_of({closed, refusing}, 20s);
    REQUIRE_FALSE(dialed.result->has_value());
    CHECK(dialed.result->error().code == ErrorCode::connect_refused);
  }
  SUBCASE("the first swallows packets") {
    if (!swallows) {
      MESSAGE("skipped: this kernel takes connections beyond the backlog");
      return;
    }
    result_of({full, good}, 2s);
    REQUIRE(dialed.result->has_value());
  }
  SUBCASE("an address of no use does not hide the refusal of another") {
    SocketAddress unusable = good;
    unusable.any.sa_family = AF_PACKET;  // what a host without v6 makes of ::1 is much the same
    result_of({refusing, unusable}, 20s);
    REQUIRE_FALSE(dialed.result->has_value());
    CHECK(dialed.result->error().code == ErrorCode::connect_refused);
  }
}

TEST_CASE("uv_port: a name is looked up") {
  World world;
  Door door;
  door.listener = std::move(*world.port->listen(any_port(), door));
  const std::uint16_t port = door.listener->address().port;
  CHECK(dial(world, {Address::Family::tcp, "localhost", port}).has_value());
  door.listener.reset();
  const Result<void> refused = dial(world, {Address::Family::tcp, "localhost", port});
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code == ErrorCode::connect_refused);
}

TEST_CASE("uv_port: a name may be listened on") {
  World world;
  Door door;
  const auto listener = world.port->listen(any_port("localhost"), door);
  REQUIRE(listener.has_value());
  CHECK((*listener)->address().loopback());
  CHECK((*listener)->address().port != 0);
  const auto none = world.port->listen({Address::Family::tcp, "no-such-host.invalid", 0}, door);
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error().code == ErrorCode::host_unresolved);
}

TEST_CASE("uv_port: an address in use") {
  World world;
  Door door;
  for (const Address& address : {any_port(), Address::abstract(fresh_name())}) {
    CAPTURE(address.text());
    door.listener = std::move(*world.port->listen(address, door));
    const auto second = world.port->listen(door.listener->address(), door);
    REQUIRE_FALSE(second.has_value());
    CHECK(second.error().code == ErrorCode::address_in_use);
    CHECK(second.error().detail.os_error == EADDRINUSE);
    CHECK(second.error().detail.stage == Stage::bind);
  }
}

TEST_CASE("uv_port: a port can be bound again while its old connections linger") {
  World world;
  Address address;
  {
    Pair pair(world);
    address = pair.door.listener->address();
    pair.far.stream.reset();  // the listening side closes first and keeps the port in TIME_WAIT
    REQUIRE(world.until([&] { return pair.near.ended.has_value(); }));
  }
  world.settle();
  Door door;
  CHECK(world.port->listen(address, door).has_value());
}

TEST_CASE("uv_port: names that cannot be addresses") {
  World world;
  Door door;
  End end;
  const std::string nul("a\0b", 3);
  for (const Address& address : {Address::abstract(""), Address::abstract(std::string(108, 'n')), any_port(""),
                                 Address{Address::Family::tcp, nul, 1}}) {
    CHECK(world.port->listen(address, door).error().code == ErrorCode::invalid_argument);
    CHECK(world.port->connect(address, 1s, end).error().code == ErrorCode::invalid_argument);
  }
  CHECK(world.port->listen(Address::abstract(fresh_name().append(108, 'n').substr(0, 107)), door).has_value());
}

TEST_CASE("uv_port: an address of no interface cannot be listened on") {
  World world;
  Door door;
  const auto listener = world.port->listen(any_port("192.0.2.1"), door);  // TEST-NET-1, RFC 5737
  REQUIRE_FALSE(listener.has_value());
  CHECK(listener.error().code == ErrorCode::address_not_local);
  CHECK(listener.error().detail.os_error == EADDRNOTAVAIL);
}

TEST_CASE("uv_port: many connections at once all come in, also when the listener goes in the middle") {
  World world;
  Door door;
  door.listener = std::move(*world.port->listen(any_port(), door));
  const SocketAddress address = literal_addresses(door.listener->address(), Stage::connect)->front();
  std::vector<Fd> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(std::move(*open_socket(AF_INET)));
    (void)::connect(clients.back().get(), &address.any, address.length);
  }
  SUBCASE("all") { CHECK(world.until([&] { return door.accepted.size() == 50; })); }
  SUBCASE("a few") {
    door.on_event = [&] {
      if (door.accepted.size() == 3) door.listener.reset();
    };
    REQUIRE(world.until([&] { return door.listener == nullptr; }));
    world.settle();
    CHECK(door.accepted.size() == 3);
  }
}

TEST_CASE("uv_port: out of descriptors the listener rests instead of spinning, and comes back") {
  if (k_checker_needs_descriptors) {
    MESSAGE("skipped: the sanitizer's own checks need descriptors");
    return;
  }
  World world;
  Door door;
  door.listener = std::move(*world.port->listen(any_port(), door));
  const SocketAddress address = literal_addresses(door.listener->address(), Stage::connect)->front();
  const Fd client = std::move(*open_socket(AF_INET));
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const Fd next(::dup(client.get()));  // fills the lowest hole, so that the limit below leaves none
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next.get());
  (void)::connect(client.get(), &address.any, address.length);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);

  bool over = false;
  uv_timer_t timer;
  uv_timer_init(&world.loop, &timer);
  timer.data = &over;
  uv_timer_start(&timer, [](uv_timer_t* raw) { *static_cast<bool*>(raw->data) = true; }, 250, 0);
  const std::uint64_t events = world.events();
  const bool turned = world.until([&] { return over; });
  const std::uint64_t seen = world.events() - events;
  ::setrlimit(RLIMIT_NOFILE, &before);
  uv_close(reinterpret_cast<uv_handle_t*>(&timer), nullptr);
  CHECK(turned);
  CHECK(door.accepted.empty());
  CHECK(seen >= 1);
  CHECK(seen <= 8);  // a quarter of a second has two rests of two events each; a spin has a hundred thousand
  CHECK(world.until([&] { return door.accepted.size() == 1; }));
}

TEST_CASE("uv_port: out of descriptors, dialing and listening say so") {
  if (k_checker_needs_descriptors) {
    MESSAGE("skipped: the sanitizer's own checks need descriptors");
    return;
  }
  World world;
  Door door;
  door.listener = std::move(*world.port->listen(any_port(), door));
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const Fd next(::dup(0));
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next.get());
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto listener = world.port->listen(any_port(), door);
  const Result<void> result = dial(world, door.listener->address());
  ::setrlimit(RLIMIT_NOFILE, &before);
  REQUIRE_FALSE(listener.has_value());
  CHECK(listener.error().code == ErrorCode::fd_limit);
  REQUIRE_FALSE(result.has_value());
  CHECK(result.error().code == ErrorCode::fd_limit);
}
