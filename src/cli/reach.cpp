// SPDX-License-Identifier: Apache-2.0
#include "reach.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace hixl::cli {

namespace {

using Clock = std::chrono::steady_clock;

std::string literal_of(const addrinfo& address) {
  std::array<char, NI_MAXHOST> text{};
  const int failed =
      getnameinfo(address.ai_addr, address.ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? text.data() : "";
}

/// 0, or the errno.
int connect_within(const addrinfo& address, std::chrono::nanoseconds timeout) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  const auto end = Clock::now() + timeout;
  int error = connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
    int count = 0;
    do {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
      count = ::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    } while (count < 0 && errno == EINTR);
    socklen_t length = sizeof error;
    if (count == 0) {
      error = ETIMEDOUT;
    } else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
      error = errno;
    }
  }
  ::close(fd);
  return error;
}

Failure failure_of_look_up(const std::string& host, int failed) {
  return {Step::resolve, host + ": " + gai_strerror(failed),
          "check the name, /etc/hosts and DNS (getent hosts " + host + ")"};
}

}  // namespace

std::string Reached::place(std::uint16_t port) const {
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

tl::expected<Reached, Failure> reach(const std::string& host, std::uint16_t port, std::chrono::nanoseconds timeout) {
  const auto begin = Clock::now();
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* all = nullptr;
  const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &all);
  if (failed != 0) return tl::make_unexpected(failure_of_look_up(host, failed));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(all, freeaddrinfo);
  const auto resolved = Clock::now();
  const auto end = resolved + timeout;
  std::int64_t left = 0;
  for (const addrinfo* one = all; one != nullptr; one = one->ai_next) ++left;
  Failure first{Step::resolve, host + ": no address", "check the name"};
  bool tried = false;
  for (const addrinfo* one = all; one != nullptr; one = one->ai_next, --left) {
    Reached reached{.host = literal_of(*one), .v6 = one->ai_family == AF_INET6, .resolving = resolved - begin};
    // One address that swallows packets leaves time for those behind it.
    const int error = connect_within(*one, (end - Clock::now()) / left);
    reached.connecting = Clock::now() - resolved;
    if (error == 0) return reached;
    Failure failure = failure_of_connect(error, reached.host, reached.place(port));
    // A host without IPv6 has no route to the first address of a name; that the second refused says more.
    if (!tried || first.step == Step::no_route) first = std::move(failure);
    tried = true;
  }
  return tl::make_unexpected(std::move(first));
}

std::optional<Failure> unresolved(const std::string& place) {
  std::string host = place;
  if (place.starts_with('[')) {
    host = place.substr(1, place.find(']') - 1);
  } else if (std::ranges::count(place, ':') == 1) {
    host = place.substr(0, place.find(':'));
  }
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* all = nullptr;
  const int failed = getaddrinfo(host.c_str(), nullptr, &wanted, &all);
  if (failed != 0) return failure_of_look_up(host, failed);
  freeaddrinfo(all);
  return {};
}

}  // namespace hixl::cli
