// SPDX-License-Identifier: Apache-2.0
#include "relay.hpp"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "measure.hpp"

namespace hixl::bench {
namespace {

void fail_if(bool failed, const char* what) {
  if (!failed) return;
  std::perror(what);
  std::exit(1);
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

std::uint16_t port_of(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  const bool known = getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  return known && address.sin_family == AF_INET ? ntohs(address.sin_port) : std::uint16_t{0};
}

void set_no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// A connection to a listener of this host stands at once, so that blocking here is short.
int connect_to(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  fail_if(fd < 0, "socket");
  const sockaddr_in address = loopback(port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return -1;
  }
  set_no_delay(fd);
  return fd;
}

}  // namespace

std::vector<std::uint16_t> listening_ports() {
  std::vector<std::uint16_t> ports;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    if (const std::uint16_t port = port_of(fd); port != 0) ports.push_back(port);
  }
  return ports;
}

Relay::Relay() : bell_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  fail_if(bell_ < 0, "eventfd");
  thread_ = std::thread([this] { run(); });
}

Relay::~Relay() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  eventfd_write(bell_, 1);
  thread_.join();
  for (const auto& connection : connections_) reset(*connection);
  for (const Door& door : doors_) close(door.listener);
  close(bell_);
}

std::uint16_t Relay::open_door() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_in address = loopback(0);
  fail_if(listener < 0, "socket");
  fail_if(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0, "bind");
  fail_if(listen(listener, 16) != 0, "listen");
  const std::lock_guard lock(mutex_);
  doors_.push_back({listener, port_of(listener), 0});
  return doors_.back().port;
}

void Relay::lead(std::uint16_t door, std::uint16_t to) {
  {
    const std::lock_guard lock(mutex_);
    for (Door& known : doors_) {
      if (known.port == door) known.to = to;
    }
  }
  eventfd_write(bell_, 1);
}

std::size_t Relay::count() {
  const std::lock_guard lock(mutex_);
  const auto stands = [](const auto& connection) { return !connection->silent; };
  return static_cast<std::size_t>(std::count_if(connections_.begin(), connections_.end(), stands));
}

std::uint64_t Relay::break_one(Break how, std::size_t choice) {
  std::uint64_t at = 0;
  {
    const std::lock_guard lock(mutex_);
    std::vector<Connection*> standing;
    for (const auto& connection : connections_) {
      if (!connection->silent) standing.push_back(connection.get());
    }
    if (standing.empty()) return 0;
    Connection* const chosen = standing[choice % standing.size()];
    at = now_ns();
    if (how != Break::reset) {
      if (how == Break::silent) drop_all(*chosen);
      chosen->silent = true;
    } else {
      reset(*chosen);
      std::erase_if(connections_, [&](const auto& connection) { return connection.get() == chosen; });
    }
  }
  eventfd_write(bell_, 1);
  return at;
}

void Relay::reset(Connection& connection) {
  const linger hard{1, 0};  // close() sends a reset and throws away what was queued
  for (int& fd : connection.fds) {
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
    fd = -1;
  }
}

/// The kernel throws away each segment for these sockets before it looks at it, so none is acknowledged.
void Relay::drop_all(Connection& connection) {
  sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
  const sock_fprog program{1, &nothing};
  for (const int fd : connection.fds) {
    fail_if(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0, "SO_ATTACH_FILTER");
  }
}

void Relay::accept_all() {
  for (const Door& door : doors_) {
    if (door.to == 0) continue;
    for (int fd; (fd = accept4(door.listener, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      auto connection = std::make_unique<Connection>();
      set_no_delay(fd);
      connection->fds[0] = fd;
      connection->fds[1] = connect_to(door.to);
      if (connection->fds[1] < 0) {
        close(fd);
        continue;
      }
      connections_.push_back(std::move(connection));
    }
  }
}

bool Relay::pass(Connection& connection) {
  for (int from = 0; from < 2; ++from) {
    Way& way = connection.ways[from];
    // One buffer a turn, since the other connections want their turn too.
    if (way.begin == way.end) {
      const ssize_t got = recv(connection.fds[from], way.bytes.get(), k_buffer_bytes, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
      way.begin = 0;
      way.end = got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    if (way.begin != way.end) {
      const ssize_t sent =
          send(connection.fds[1 - from], way.bytes.get() + way.begin, way.end - way.begin, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (sent > 0) way.begin += static_cast<std::size_t>(sent);
    }
  }
  return true;
}

/// Waits without the lock, then tries everything: a descriptor may have been closed meanwhile, and its number be
/// another's.
void Relay::run() {
  std::vector<pollfd> waiting;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (over_) return;
      waiting.assign(1, {bell_, POLLIN, 0});
      for (const Door& door : doors_) {
        if (door.to != 0) waiting.push_back({door.listener, POLLIN, 0});
      }
      for (const auto& connection : connections_) {
        if (connection->silent) continue;
        for (int i = 0; i < 2; ++i) {
          // A way that holds bytes waits for room at the other end, an empty one for bytes at this one.
          const auto holds = [&](int way) { return connection->ways[way].begin != connection->ways[way].end; };
          const int events = (holds(i) ? 0 : POLLIN) | (holds(1 - i) ? POLLOUT : 0);
          waiting.push_back({connection->fds[i], static_cast<short>(events), 0});
        }
      }
    }
    poll(waiting.data(), waiting.size(), -1);
    eventfd_t rung = 0;
    eventfd_read(bell_, &rung);
    const std::lock_guard lock(mutex_);
    accept_all();
    std::erase_if(connections_, [](const auto& connection) {
      if (connection->silent || pass(*connection)) return false;
      reset(*connection);
      return true;
    });
  }
}

}  // namespace hixl::bench
