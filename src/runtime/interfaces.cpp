// SPDX-License-Identifier: Apache-2.0
#include "runtime/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>

#include <cerrno>
#include <memory>

#include "runtime/uv_port_socket.hpp"

namespace hixl::runtime {

bool only_other_family(int family) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  bool has_it = false;
  bool has_other = false;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int its = one->ifa_addr->sa_family;
    if (its != AF_INET && its != AF_INET6) continue;
    if (its == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr)) {
      continue;
    }
    (its == family ? has_it : has_other) = true;
  }
  return !has_it && has_other;
}

Result<Address> address_towards(const Address& there) {
  auto candidates = literal_addresses(there, Stage::resolve);
  if (candidates && candidates->empty()) candidates = look_up_blocking(there, Stage::resolve);
  if (!candidates) return fail(candidates.error());
  int error = EAFNOSUPPORT;
  for (const SocketAddress& to : *candidates) {
    // Connecting a datagram socket only asks the routing table.
    const Fd fd(::socket(to.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || ::connect(fd.get(), &to.any, to.length) != 0) {
      error = errno;
      continue;
    }
    Address near = local_address(fd.get()).address();
    near.port = 0;
    return near;
  }
  Error told = socket_error(error, Stage::connect);
  there.name_in(told.detail);
  return fail(told);
}

}  // namespace hixl::runtime
