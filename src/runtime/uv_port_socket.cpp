// SPDX-License-Identifier: Apache-2.0
//
// Plain sockets below the libuv port.
#include "runtime/uv_port_socket.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

namespace hixl::runtime {
namespace {

constexpr std::size_t k_fds_max = 253;  // SCM_MAX_FD: the kernel takes no more beside one message
constexpr std::size_t k_control_bytes = CMSG_SPACE(k_fds_max * sizeof(int));

Result<SocketAddress> abstract_address(const std::string& name, Stage stage) {
  SocketAddress out;
  // An empty name would ask the kernel for a random one; a longer one does not fit behind the leading NUL.
  constexpr std::size_t k_chars_max = sizeof(out.local.sun_path) - 1;
  if (name.empty() || name.size() > k_chars_max) {
    return fail(ErrorCode::invalid_argument, {.stage = stage, .length = name.size(), .limit = k_chars_max});
  }
  out.local.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), out.local.sun_path + 1);
  out.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return out;
}

/// getaddrinfo's answer for `address`, numeric only or by name; its error number otherwise.
tl::expected<std::vector<SocketAddress>, int> ask(const Address& address, int flags) {
  addrinfo hints{};
  hints.ai_flags = flags | AI_NUMERICSERV;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (error != 0) return tl::unexpected(error == EAI_SYSTEM ? errno : error);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  return listed_addresses(list);
}

/// Would-block, or a failure with its number. EINTR does not happen to a non-blocking call; were it to, the level-
/// triggered loop would simply come again.
IoResult io_failure(int os_error) {
  const bool later = os_error == EAGAIN || os_error == EWOULDBLOCK || os_error == EINTR;
  return later ? IoResult{IoResult::State::would_block, 0, 0} : IoResult{IoResult::State::failed, 0, os_error};
}

msghdr message_of(std::span<const iovec> pieces) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());  // the kernel reads it only
  message.msg_iovlen = std::min<std::size_t>(pieces.size(), IOV_MAX);
  return message;
}

void take_fds(msghdr& message, std::vector<Fd>& out) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr; control = CMSG_NXTHDR(&message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const auto* fds = reinterpret_cast<const int*>(CMSG_DATA(control));
    for (std::size_t i = 0; i < count; ++i) out.emplace_back(fds[i]);
  }
}

/// The interface's name rather than its number, since hosts that are alike (all on eth0) share names and not numbers.
std::string scope_text(std::uint32_t scope) {
  std::array<char, IF_NAMESIZE> name{};
  return ::if_indextoname(scope, name.data()) != nullptr ? std::string(name.data()) : std::to_string(scope);
}

}  // namespace

Address SocketAddress::address() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (any.sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return {Address::Family::tcp, text.data(), ntohs(v4.sin_port)};
  }
  if (any.sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    std::string host = text.data();
    if (v6.sin6_scope_id != 0) host.append("%").append(scope_text(v6.sin6_scope_id));
    return {Address::Family::tcp, std::move(host), ntohs(v6.sin6_port)};
  }
  constexpr std::size_t k_before_name = offsetof(sockaddr_un, sun_path) + 1;
  return Address::abstract(length > k_before_name ? std::string(local.sun_path + 1, length - k_before_name) : "");
}

Error socket_error(int os_error, Stage stage) {
  const auto code = [os_error, stage] {
    switch (os_error) {
      case ECONNREFUSED:
        return ErrorCode::connect_refused;
      case ETIMEDOUT:
        return ErrorCode::connect_timeout;
      case EHOSTUNREACH:
      case ENETUNREACH:
        return ErrorCode::no_route;
      case EADDRINUSE:
        return ErrorCode::address_in_use;
      // Connecting, the same number says that no port is left to call from.
      case EADDRNOTAVAIL:
        return stage == Stage::bind ? ErrorCode::address_not_local : ErrorCode::os_error;
      case EMFILE:
      case ENFILE:
        return ErrorCode::fd_limit;
      case ENOMEM:
        return ErrorCode::no_memory;
      default:
        return ErrorCode::os_error;
    }
  };
  return Error(code(), {.stage = stage, .os_error = os_error});
}

Result<std::vector<SocketAddress>> literal_addresses(const Address& address, Stage stage) {
  if (address.family == Address::Family::unix_abstract) {
    const Result<SocketAddress> local = abstract_address(address.host, stage);
    if (!local) return fail(local.error());
    return std::vector<SocketAddress>{*local};
  }
  if (address.host.empty() || address.host.find('\0') != std::string::npos) {
    return fail(ErrorCode::invalid_argument, {.stage = stage});
  }
  if (const std::size_t scope = address.host.find('%'); scope != std::string::npos) {
    const std::string interface = address.host.substr(scope + 1);
    const bool number = interface.find_first_not_of("0123456789") == std::string::npos;
    if (!number && ::if_nametoindex(interface.c_str()) == 0) {
      ErrorDetail detail{.stage = stage, .os_error = ENODEV};
      address.name_in(detail);
      return fail(ErrorCode::address_not_local, detail);
    }
  }
  // Numeric only: no file and no server is asked, so this does not block. It understands scopes ("fe80::1%eth0").
  auto list = ask(address, AI_NUMERICHOST);
  return list ? std::move(*list) : std::vector<SocketAddress>{};
}

std::vector<SocketAddress> listed_addresses(const addrinfo* list) {
  std::vector<SocketAddress> out;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
    SocketAddress& address = out.emplace_back();
    if (one->ai_family == AF_INET) address.v4 = *reinterpret_cast<const sockaddr_in*>(one->ai_addr);
    if (one->ai_family == AF_INET6) address.v6 = *reinterpret_cast<const sockaddr_in6*>(one->ai_addr);
    address.length = one->ai_addrlen;
  }
  return out;
}

Result<std::vector<SocketAddress>> look_up_blocking(const Address& address, Stage stage) {
  auto list = ask(address, 0);
  if (!list) return fail(ErrorCode::host_unresolved, {.stage = stage, .os_error = list.error()});
  return std::move(*list);
}

tl::expected<Fd, int> open_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return tl::unexpected(errno);
  if (family != AF_UNIX) set_no_delay(fd.get());
  return fd;
}

tl::expected<Fd, int> open_listener(const SocketAddress& address) {
  auto fd = open_socket(address.any.sa_family);
  if (!fd) return fd;
  const int on = 1;
  const bool v6 = address.any.sa_family == AF_INET6;
  const bool tcp = v6 || address.any.sa_family == AF_INET;
  // A restarted rank may have its port back while old connections linger in TIME_WAIT. "::" means v6 alone, whatever
  // the system's default is.
  if ((tcp && ::setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) ||
      (v6 && ::setsockopt(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0) ||
      ::bind(fd->get(), &address.any, address.length) != 0 || ::listen(fd->get(), SOMAXCONN) != 0) {
    return tl::unexpected(errno);
  }
  return fd;
}

void set_no_delay(int fd) noexcept {
  const int on = 1;
  // Only a matter of speed: without it small frames would wait for acknowledgements of earlier ones.
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

SocketAddress local_address(int fd) {
  SocketAddress out;
  out.length = sizeof(out.local);
  if (::getsockname(fd, &out.any, &out.length) != 0) out = SocketAddress();
  return out;
}

int connect_outcome(int fd) noexcept {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  if (error != 0) return error;
  // A connect to a free port of the ephemeral range on this host can be given that very port as its source, and
  // then meets itself (simultaneous open). Nobody listened: that is a refusal.
  SocketAddress near;
  SocketAddress far;
  near.length = far.length = sizeof(near.local);
  if (::getpeername(fd, &far.any, &far.length) != 0) return errno;
  if (far.any.sa_family == AF_UNIX || ::getsockname(fd, &near.any, &near.length) != 0) return 0;
  return near.length == far.length && std::memcmp(&near.any, &far.any, near.length) == 0 ? ECONNREFUSED : 0;
}

std::size_t bytes_in(std::span<const iovec> pieces) noexcept {
  std::size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  return bytes;
}

IoResult write_socket(int fd, std::span<const iovec> pieces, std::span<const int> fds) {
  alignas(cmsghdr) std::array<std::byte, k_control_bytes> control;
  msghdr message = message_of(pieces);
  if (!fds.empty()) {
    if (fds.size() > k_fds_max || bytes_in(pieces) == 0) return {IoResult::State::failed, 0, EINVAL};
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::copy(fds.begin(), fds.end(), reinterpret_cast<int*>(CMSG_DATA(rights)));
  }
  const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return io_failure(errno);
  return {IoResult::State::ok, static_cast<std::size_t>(sent), 0};
}

IoResult read_socket(int fd, std::span<const iovec> pieces, std::vector<Fd>* fds) {
  if (bytes_in(pieces) == 0) return {};  // the kernel's 0 would look like the end of the stream
  alignas(cmsghdr) std::array<std::byte, k_control_bytes> control;
  msghdr message = message_of(pieces);
  if (fds != nullptr) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
  }
  const ssize_t got = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) return io_failure(errno);
  if (fds != nullptr) {
    take_fds(message, *fds);
    // The process had no room for all of them (the buffer has): the rest is lost, and with it the sense of the bytes.
    if ((message.msg_flags & MSG_CTRUNC) != 0) return {IoResult::State::failed, 0, EMFILE};
  }
  return {got == 0 ? IoResult::State::closed : IoResult::State::ok, static_cast<std::size_t>(got), 0};
}

}  // namespace hixl::runtime
