// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "rival.hpp"

namespace hixl::bench {

namespace {

/// More than the kernel gives without rights is cut by it, and said nowhere: as in every program that asks.
constexpr int k_buffer_bytes = 4 << 20;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) close(number_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

void need_call(bool worked, const char* what) {
  if (!worked) give_up(std::string(what) + ": " + std::strerror(errno));
}

Descriptor listening(std::uint16_t& port) {
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  need_call(bind(listener.number(), reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
  need_call(listen(listener.number(), 128) == 0, "listen");
  need_call(getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &length) == 0, "getsockname");
  port = ntohs(address.sin_port);
  return listener;
}

Descriptor accepted(const Descriptor& listener) {
  Descriptor socket(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
  need_call(socket.number() >= 0, "accept");
  return socket;
}

Descriptor connected(const std::string& address) {
  const bool local = address.find('/') != std::string::npos;
  Descriptor made(socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  need_call(made.number() >= 0, "socket");
  int result = 0;
  if (local) {
    sockaddr_un path{};
    path.sun_family = AF_UNIX;
    if (address.size() >= sizeof path.sun_path) give_up(address + ": a socket's path has at most 107 bytes");
    std::memcpy(path.sun_path, address.data(), address.size());
    result = connect(made.number(), reinterpret_cast<sockaddr*>(&path), sizeof path);
  } else {
    const sockaddr_in port = loopback(static_cast<std::uint16_t>(std::strtoul(address.c_str(), nullptr, 10)));
    result = connect(made.number(), reinterpret_cast<const sockaddr*>(&port), sizeof port);
  }
  need_call(result == 0, "connect");
  return made;
}

void tune(const Descriptor& socket) {
  const int on = 1;
  setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket.number(), SOL_SOCKET, SO_SNDBUF, &k_buffer_bytes, sizeof k_buffer_bytes);
  setsockopt(socket.number(), SOL_SOCKET, SO_RCVBUF, &k_buffer_bytes, sizeof k_buffer_bytes);
}

std::size_t read_some(const Descriptor& socket, void* data, std::size_t size) {
  const ssize_t got = recv(socket.number(), data, size, 0);
  if (got == 0) give_up("the other side closed the connection");
  need_call(got > 0, "recv");
  return static_cast<std::size_t>(got);
}

void read_all(const Descriptor& socket, void* data, std::size_t size) {
  for (auto* at = static_cast<std::byte*>(data); size > 0;) {
    const std::size_t got = read_some(socket, at, size);
    at += got;
    size -= got;
  }
}

void write_all(const Descriptor& socket, const void* data, std::size_t size) {
  for (const auto* at = static_cast<const std::byte*>(data); size > 0;) {
    const ssize_t sent = send(socket.number(), at, size, MSG_NOSIGNAL);
    need_call(sent > 0, "send");
    at += sent;
    size -= static_cast<std::size_t>(sent);
  }
}

}  // namespace hixl::bench
