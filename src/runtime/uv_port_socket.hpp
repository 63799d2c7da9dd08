// SPDX-License-Identifier: Apache-2.0
//
// Plain sockets below the libuv port: addresses in the kernel's form, error numbers in ours, reads and writes.
// Private to uv_port*.cpp. No libuv in here; every socket is non-blocking and close-on-exec.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <netinet/in.h>

#include <span>
#include <string>
#include <vector>

#include <hixl/result.hpp>

#include "runtime/address.hpp"
#include "runtime/event_port.hpp"

struct addrinfo;

namespace hixl::runtime {

/// One address as the kernel takes it.
struct SocketAddress {
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
    sockaddr_un local;
  };
  socklen_t length = 0;

  SocketAddress() : local{} {}
  /// Back to text and number; a v6 scope becomes the name of its interface.
  [[nodiscard]] Address address() const;
};

/// What an error number of a socket call means to the user of a port.
[[nodiscard]] Error socket_error(int os_error, Stage stage);

/// The address without any look-up: an abstract name, or a literal. Empty when `address` is a name to look up.
[[nodiscard]] Result<std::vector<SocketAddress>> literal_addresses(const Address& address, Stage stage);
/// The list of a finished look-up, in the resolver's order.
[[nodiscard]] std::vector<SocketAddress> listed_addresses(const addrinfo* list);
/// Looks a name up and blocks meanwhile; HOST_UNRESOLVED.
[[nodiscard]] Result<std::vector<SocketAddress>> look_up_blocking(const Address& address, Stage stage);

/// A socket for `family`, Nagle off. The error is an errno.
[[nodiscard]] tl::expected<Fd, int> open_socket(int family);
/// Bound and listening. The error is an errno.
[[nodiscard]] tl::expected<Fd, int> open_listener(const SocketAddress& address);
void set_no_delay(int fd) noexcept;
[[nodiscard]] SocketAddress local_address(int fd);
/// The error that a non-blocking connect ended with; 0: it stands.
[[nodiscard]] int connect_outcome(int fd) noexcept;

[[nodiscard]] IoResult write_socket(int fd, std::span<const iovec> pieces, std::span<const int> fds);
[[nodiscard]] IoResult read_socket(int fd, std::span<const iovec> pieces, std::vector<Fd>* fds);
[[nodiscard]] std::size_t bytes_in(std::span<const iovec> pieces) noexcept;

}  // namespace hixl::runtime
