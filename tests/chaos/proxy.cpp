// SPDX-License-Identifier: Apache-2.0
#include "proxy.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <list>
#include <mutex>
#include <thread>

#include <doctest/doctest.h>

namespace hixl::test {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t k_buffer_bytes = 256U << 10U;
constexpr std::size_t k_head_bytes = 4096;
constexpr std::chrono::seconds k_drip_pause{1};

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  REQUIRE(inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1);
  return address;
}

void set_reset_at_close(int fd) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  static_cast<void>(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
}

/// One way of a connection.
struct Flow {
  int from = -1;
  int to = -1;
  std::vector<std::byte> buffer = std::vector<std::byte>(k_buffer_bytes);
  std::size_t begin = 0, end = 0;
  std::uint64_t taken = 0;   ///< read from `from`
  std::uint64_t passed = 0;  ///< written to `to`
  bool over = false;         ///< `from` has ended, and `to` knows
  bool from_ended = false;
  bool stalled = false;
  bool dripping = false;
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();  ///< no byte behind it is read
  Clock::time_point next_drip{};
  Fate fate;
  bool struck = false;

  [[nodiscard]] bool empty() const noexcept { return begin == end; }
  [[nodiscard]] bool reads(Clock::time_point now) const noexcept {
    return !from_ended && !stalled && empty() && taken < limit && (!dripping || now >= next_drip);
  }
};

struct Connection {
  std::array<int, 2> fds{-1, -1};
  std::array<Flow, 2> flows;
  bool dead = false;

  ~Connection() {
    for (const int fd : fds) {
      if (fd >= 0) ::close(fd);
    }
  }
};

}  // namespace

class Proxy::Thread {
 public:
  Thread(const std::string& host, const std::string& target_host, std::uint16_t port)
      : target_(address_of(target_host, port)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int yes = 1;
    static_cast<void>(setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes));
    const sockaddr_in address = address_of(host, port);
    REQUIRE(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_, SOMAXCONN) == 0);
    bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    REQUIRE(bell_ >= 0);
    thread_ = std::thread([this] { run(); });
  }
  ~Thread() {
    tell([this] { stop_ = true; });
    thread_.join();
    for (Connection& connection : connections_) reset(connection);
    connections_.clear();
    ::close(listener_);
    ::close(bell_);
  }

  template <class Change>
  void tell(Change&& change) {
    {
      const std::scoped_lock lock(mutex_);
      change();
    }
    const std::uint64_t one = 1;
    static_cast<void>(!::write(bell_, &one, sizeof one));
  }
  template <class Look>
  auto look(Look&& see) const {
    const std::scoped_lock lock(mutex_);
    return see();
  }

  // Under the mutex:
  std::deque<Fate> planned_;
  bool door_closed_ = false;
  std::array<std::uint64_t, 2> passed_{};
  std::array<std::vector<std::byte>, 2> heads_;
  std::list<Connection> connections_;
  std::uint64_t accepted_ = 0;
  std::uint64_t struck_ = 0;

  static void reset(Connection& connection) {
    for (const int fd : connection.fds) {
      if (fd >= 0) set_reset_at_close(fd);
    }
    connection.dead = true;
  }

 private:
  void run() {
    for (;;) {
      std::vector<pollfd> polled{{bell_, POLLIN, 0}, {listener_, POLLIN, 0}};
      int pause_ms = -1;
      {
        const std::scoped_lock lock(mutex_);
        if (stop_) return;
        connections_.remove_if([](const Connection& connection) { return connection.dead; });
        const auto now = Clock::now();
        for (Connection& connection : connections_) {
          for (Flow& flow : connection.flows) {
            if (flow.reads(now)) polled.push_back({flow.from, POLLIN, 0});
            if (!flow.empty()) polled.push_back({flow.to, POLLOUT, 0});
            if (flow.dripping && now < flow.next_drip) {
              const auto left = std::chrono::ceil<std::chrono::milliseconds>(flow.next_drip - now).count();
              pause_ms = pause_ms < 0 ? static_cast<int>(left) : std::min(pause_ms, static_cast<int>(left));
            }
          }
        }
      }
      static_cast<void>(::poll(polled.data(), polled.size(), pause_ms));
      std::uint64_t rung = 0;
      static_cast<void>(!::read(bell_, &rung, sizeof rung));
      const std::scoped_lock lock(mutex_);
      accept_all();
      for (Connection& connection : connections_) move(connection);
    }
  }

  void accept_all() {
    for (;;) {
      const int near = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (near < 0) return;
      accepted_ += 1;
      const int far = door_closed_ ? -1 : ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      // On loopback a connect either stands or is refused at once, as long as the backlog has room.
      if (far < 0 || ::connect(far, reinterpret_cast<const sockaddr*>(&target_), sizeof target_) != 0) {
        set_reset_at_close(near);
        ::close(near);
        if (far >= 0) ::close(far);
        continue;
      }
      static_cast<void>(::fcntl(far, F_SETFL, O_NONBLOCK));
      const int yes = 1;
      for (const int fd : {near, far}) static_cast<void>(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes));
      Connection& connection = connections_.emplace_back();
      connection.fds = {near, far};
      connection.flows[0].from = connection.flows[1].to = near;
      connection.flows[0].to = connection.flows[1].from = far;
      heads_ = {};
      if (planned_.empty()) continue;
      arm(connection, planned_.front());
      planned_.pop_front();
    }
  }

 public:
  /// Makes the reading stop at the byte of the fate, unless that way has one already. Under the mutex.
  void arm(Connection& connection, const Fate& fate) {
    Flow& flow = connection.flows[static_cast<std::size_t>(fate.way)];
    if (connection.dead || flow.fate.kind != Fate::Kind::pass || fate.kind == Fate::Kind::pass) return;
    flow.fate = fate;
    flow.limit = std::max(fate.after, flow.taken);
    strike_if_due(connection, flow);
  }

 private:
  /// All bytes before the fated one have been passed on.
  void strike_if_due(Connection& connection, Flow& flow) {
    if (flow.struck || flow.fate.kind == Fate::Kind::pass || flow.passed < flow.limit) return;
    flow.struck = true;
    struck_ += 1;
    switch (flow.fate.kind) {
      case Fate::Kind::reset:
        reset(connection);
        break;
      case Fate::Kind::finish:
        for (const int fd : connection.fds) ::shutdown(fd, SHUT_RDWR);
        connection.dead = true;
        break;
      case Fate::Kind::stall:
        flow.stalled = true;
        break;
      case Fate::Kind::drip:
        flow.dripping = true;
        flow.limit = std::numeric_limits<std::uint64_t>::max();
        break;
      default:  // flip: at the next read
        flow.limit = std::numeric_limits<std::uint64_t>::max();
        break;
    }
  }

  void move(Connection& connection) {
    for (std::size_t way = 0; way < 2 && !connection.dead; ++way) {
      Flow& flow = connection.flows[way];
      if (flow.reads(Clock::now())) take(connection, flow, static_cast<Way>(way));
      if (connection.dead || flow.empty()) continue;
      const ssize_t count =
          ::send(flow.to, flow.buffer.data() + flow.begin, flow.end - flow.begin, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno != EAGAIN && errno != EINTR) reset(connection);
      if (count <= 0) continue;
      flow.begin += static_cast<std::size_t>(count);
      flow.passed += static_cast<std::uint64_t>(count);
      passed_[way] += static_cast<std::uint64_t>(count);
      strike_if_due(connection, flow);
    }
  }

  void take(Connection& connection, Flow& flow, Way way) {
    std::size_t room = flow.buffer.size();
    room = static_cast<std::size_t>(std::min<std::uint64_t>(room, flow.limit - flow.taken));
    if (flow.dripping) room = 1;
    const ssize_t count = ::recv(flow.from, flow.buffer.data(), room, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count < 0) return reset(connection);
    if (count == 0) {
      flow.from_ended = true;
      ::shutdown(flow.to, SHUT_WR);
      connection.dead = connection.flows[0].from_ended && connection.flows[1].from_ended;
      return;
    }
    const bool flips = flow.fate.kind == Fate::Kind::flip && flow.struck;
    if (flips && flow.taken == flow.fate.after) flow.buffer[0] ^= std::byte{1};
    flow.begin = 0;
    flow.end = static_cast<std::size_t>(count);
    flow.taken += flow.end;
    if (flow.dripping) flow.next_drip = Clock::now() + k_drip_pause;
    auto& head = heads_[static_cast<std::size_t>(way)];
    const std::size_t kept = std::min(flow.end, k_head_bytes - head.size());
    if (&connection == &connections_.back())
      head.insert(head.end(), flow.buffer.begin(), flow.buffer.begin() + static_cast<std::ptrdiff_t>(kept));
  }

  sockaddr_in target_;
  int listener_ = -1;
  int bell_ = -1;
  bool stop_ = false;
  mutable std::mutex mutex_;
  std::thread thread_;
};

Proxy::Proxy(const std::string& host, const std::string& target_host, std::uint16_t port)
    : thread_(std::make_unique<Thread>(host, target_host, port)) {}

Proxy::~Proxy() = default;

void Proxy::plan(std::vector<Fate> next) {
  thread_->tell([&] { thread_->planned_.assign(next.begin(), next.end()); });
}

void Proxy::strike(const Fate& fate) {
  thread_->tell([&] {
    for (Connection& connection : thread_->connections_) thread_->arm(connection, fate);
  });
}

void Proxy::heal() {
  thread_->tell([&] {
    for (Connection& connection : thread_->connections_) {
      for (Flow& flow : connection.flows) {
        if (flow.stalled) flow.limit = std::numeric_limits<std::uint64_t>::max();
        flow.stalled = false;
      }
    }
  });
}

void Proxy::cut() {
  thread_->tell([&] {
    for (Connection& connection : thread_->connections_) Thread::reset(connection);
  });
}

void Proxy::close_door(bool closed) {
  thread_->tell([&] { thread_->door_closed_ = closed; });
}

std::uint64_t Proxy::accepted() const {
  return thread_->look([&] { return thread_->accepted_; });
}
std::uint64_t Proxy::struck() const {
  return thread_->look([&] { return thread_->struck_; });
}
std::uint64_t Proxy::passed(Way way) const {
  return thread_->look([&] { return thread_->passed_[static_cast<std::size_t>(way)]; });
}
std::vector<std::byte> Proxy::head(Way way) const {
  return thread_->look([&] { return thread_->heads_[static_cast<std::size_t>(way)]; });
}

}  // namespace hixl::test
