// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the libuv port share: a loop that turns until something is true, and an end of a stream that
// writes down what it is told.
#pragma once

#include <dirent.h>
#include <doctest/doctest.h>
#include <unistd.h>
#include <uv.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/uv_port.hpp"
#include "runtime/uv_port_socket.hpp"

namespace hixl::runtime::test {

using namespace std::chrono_literals;

/// Ends a test that would hang otherwise; no promise is measured with it. Sanitizers on a loaded machine are slow.
inline constexpr auto k_hang = 30s;

inline std::string fresh_name() {
  std::random_device source;  // two runs of the test at once must not meet
  return "hixl-test-" + std::to_string(::getpid()) + "-" + std::to_string(source()) + std::to_string(source());
}

inline Address any_port(const char* host = "127.0.0.1") { return {Address::Family::tcp, host, 0}; }

inline std::set<int> fds_of_this_process() {
  std::set<int> fds;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] != '.') fds.insert(std::stoi(entry->d_name));
  }
  fds.erase(::dirfd(folder));
  ::closedir(folder);
  return fds;
}
inline std::size_t open_fds() { return fds_of_this_process().size(); }

inline bool has_v6_loopback() {
  const auto address = literal_addresses(any_port("::1"), Stage::bind);
  return address && !address->empty() && open_listener(address->front()).has_value();
}

inline iovec piece(const std::string& text) { return {const_cast<char*>(text.data()), text.size()}; }

/// A uv loop and a port, turned by the test's own thread.
class World {
 public:
  World() {
    REQUIRE(uv_loop_init(&loop) == 0);
    auto opened = UvPort::open(&loop);
    REQUIRE(opened.has_value());
    port = std::move(*opened);
    uv_timer_init(&loop, &guard_);
  }
  ~World() {
    bool drained = false;
    port->close([&] { drained = true; });
    uv_close(reinterpret_cast<uv_handle_t*>(&guard_), nullptr);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(drained);
    CHECK(uv_loop_close(&loop) == 0);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Turns until `done`; false: it hung.
  [[nodiscard]] bool until(const std::function<bool()>& done) {
    bool hung = false;
    guard_.data = &hung;
    uv_update_time(&loop);
    const auto give_up = [](uv_timer_t* timer) { *static_cast<bool*>(timer->data) = true; };
    uv_timer_start(&guard_, give_up, std::chrono::milliseconds(k_hang).count(), 0);
    while (!done() && !hung) uv_run(&loop, UV_RUN_ONCE);
    uv_timer_stop(&guard_);
    return !hung;
  }
  /// Turns until nothing more is ready now.
  void settle() {
    for (std::uint64_t before = ~0U; before != events();) {
      before = events();
      uv_run(&loop, UV_RUN_NOWAIT);
    }
  }
  [[nodiscard]] std::uint64_t events() { return port->handles().events(); }

  uv_loop_t loop{};
  std::unique_ptr<UvPort> port;

 private:
  uv_timer_t guard_{};
};

/// One end of a stream; reads all that comes unless told otherwise.
struct End final : StreamEvents {
  std::unique_ptr<Stream> stream;
  std::optional<Result<void>> connected;
  std::string received;
  std::vector<Fd> fds;
  std::string to_send;  // written as room comes
  std::size_t sent = 0;
  std::size_t read_at_a_time = 1U << 16U;
  int readable_calls = 0;
  int writable_calls = 0;
  std::optional<IoResult> ended;  // the read that was not ok
  std::function<void()> on_event;  // instead of all that

  void on_connected(const Result<void>& result) override {
    CHECK_FALSE(connected.has_value());
    connected = result;
    if (on_event) on_event();
  }
  void on_readable() override {
    ++readable_calls;
    if (on_event) return on_event();
    std::string buffer(read_at_a_time, '\0');
    const iovec into = piece(buffer);
    const IoResult got = stream->read({&into, 1}, &fds);
    if (got.state == IoResult::State::ok) received.append(buffer, 0, got.bytes);
    if (got.state == IoResult::State::closed || got.state == IoResult::State::failed) {
      ended = got;
      stream->want_read(false);
    }
  }
  void on_writable() override {
    ++writable_calls;
    if (on_event) return on_event();
    push();
  }
  /// Writes until the socket is full or all is written.
  void push() {
    while (sent < to_send.size()) {
      const iovec rest{to_send.data() + sent, to_send.size() - sent};
      const IoResult done = stream->write({&rest, 1});
      if (done.state != IoResult::State::ok) return;
      sent += done.bytes;
      if (done.bytes < rest.iov_len) return;
    }
  }
  void write(const std::string& text) {
    const iovec one = piece(text);
    CHECK(stream->write({&one, 1}).bytes == text.size());
  }
};

struct Door final : ListenerEvents {
  std::unique_ptr<Listener> listener;
  std::vector<std::unique_ptr<Stream>> accepted;
  std::function<void()> on_event;
  void on_accept(std::unique_ptr<Stream> stream) override {
    accepted.push_back(std::move(stream));
    if (on_event) on_event();
  }
};

/// Two connected ends.
struct Pair {
  explicit Pair(World& world, const Address& address = any_port()) {
    auto listening = world.port->listen(address, door);
    REQUIRE(listening.has_value());
    door.listener = std::move(*listening);
    auto dialed = world.port->connect(door.listener->address(), 10s, near);
    REQUIRE(dialed.has_value());
    near.stream = std::move(*dialed);
    CHECK_FALSE(near.connected.has_value());  // never from inside the call
    REQUIRE(world.until([&] { return near.connected && !door.accepted.empty(); }));
    REQUIRE(near.connected->has_value());
    far.stream = std::move(door.accepted.front());
    door.accepted.clear();
    far.stream->set_events(&far);
  }
  Door door;
  End near;
  End far;
};

}  // namespace hixl::runtime::test
