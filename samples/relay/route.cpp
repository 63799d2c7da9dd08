// SPDX-License-Identifier: Apache-2.0
#include "route.hpp"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace relay {

namespace {

/// Somebody may take a free port in the moment between finding and keeping it; not so often in a row.
constexpr int k_port_tries = 16;
/// Connections that wait to be accepted.
constexpr int k_backlog = 128;

[[noreturn]] void give_up(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

int make_socket() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) give_up("socket");
  const int on = 1;
  static_cast<void>(::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
  return fd;
}

bool bind(int fd, const sockaddr_in& address) {
  return ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

/// The kernel does not count as bound for good what it has chosen itself, see Route::cut().
in_port_t free_port_at(sockaddr_in address) {
  const int fd = make_socket();
  socklen_t size = sizeof address;
  if (!bind(fd, address) || ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) give_up("bind");
  ::close(fd);
  return address.sin_port;
}

void no_delay(int fd) {
  const int on = 1;
  static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
}

}  // namespace

Route::Route(sockaddr_in from, sockaddr_in target) : from_(from), target_(target), listener_(make_socket()) {
  const bool any = from_.sin_port == 0;
  for (int tries = any ? k_port_tries : 1;; --tries) {
    if (any) from_.sin_port = free_port_at(from);
    if (bind(listener_, from_)) break;
    if (tries == 1) give_up("bind");
  }
  listen();
}

Route::~Route() { ::close(listener_); }

void Route::listen() {
  if (::listen(listener_, k_backlog) != 0) give_up("listen");
}

/// The listener stays bound, so that nobody else gets the port, and the kernel refuses who dials it.
void Route::cut() {
  cut_ = true;
  static_cast<void>(::shutdown(listener_, SHUT_RDWR));
  for (Pair& pair : pairs_) pair.reset();
  pairs_.clear();
}

void Route::heal() {
  if (cut_) listen();
  cut_ = stalled_ = false;
  rate_.reset();
  passage_.allowed_bytes = passage_.corrupt_at = UINT64_MAX;
}

void Route::slow(std::uint64_t bytes_per_s) {
  rate_ = bytes_per_s;
  refilled_ = Clock::now();
  passage_.allowed_bytes = 0;
}

/// At most a tenth of a second's bytes are saved up.
void Route::refill() {
  if (!rate_) return;
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - refilled_).count();
  const auto more = static_cast<std::uint64_t>(seconds * static_cast<double>(*rate_));
  if (more == 0) return;  // the time is kept for later
  refilled_ = now;
  passage_.allowed_bytes = std::min(passage_.allowed_bytes + more, std::max<std::uint64_t>(1, *rate_ / 10));
}

void Route::add_to(std::vector<pollfd>& fds) {
  refill();
  const bool quiet = stalled_ || cut_;
  fds.push_back({.fd = quiet ? -1 : listener_, .events = POLLIN, .revents = 0});
  polled_.clear();
  for (Pair& pair : pairs_) {
    polled_.push_back(&pair);
    for (const std::size_t side : {0U, 1U}) {
      const short events = pair.wanted(side, passage_.allowed_bytes != 0);
      fds.push_back({.fd = stalled_ || events == 0 ? -1 : pair.fd(side), .events = events, .revents = 0});
    }
  }
}

void Route::turn(const pollfd* fds) {
  const bool dialled = fds->revents != 0;
  for (Pair* const pair : polled_) {
    bool lives = true;
    for (const std::size_t side : {0U, 1U}) {
      ++fds;
      if (lives && fds->revents != 0) lives = pair->turn(side, fds->revents, passage_);
    }
    if (!lives) pairs_.remove_if([&](const Pair& other) { return &other == pair; });
  }
  if (dialled) accept();
}

void Route::accept() {
  const int dialled_us = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (dialled_us < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    give_up("accept");
  }
  const int dialled_target = make_socket();
  no_delay(dialled_us);
  no_delay(dialled_target);
  Pair pair(dialled_us, dialled_target);
  if (::connect(dialled_target, reinterpret_cast<const sockaddr*>(&target_), sizeof target_) != 0 &&
      errno != EINPROGRESS) {
    pair.reset();
    return;
  }
  pairs_.push_back(std::move(pair));
}

}  // namespace relay
