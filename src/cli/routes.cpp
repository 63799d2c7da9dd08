// SPDX-License-Identifier: Apache-2.0
#include "routes.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>

namespace hixl::cli {

namespace {

struct Near {
  std::string interface;
  std::string address;
};

/// The first interface beyond loopback that is up and has an address of the family; link-local ones lead nowhere.
Near near_of(int family) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
    if ((one->ifa_flags & IFF_LOOPBACK) != 0 || (one->ifa_flags & IFF_UP) == 0) continue;
    const void* bytes = &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    if (family == AF_INET6) {
      const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
      bytes = &v6->sin6_addr;
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (inet_ntop(family, bytes, text.data(), text.size()) == nullptr) continue;
    return {one->ifa_name, text.data()};
  }
  return {};
}

}  // namespace

std::string route_advice(const std::string& host) {
  const bool v6 = host.find(':') != std::string::npos;
  const std::string ip = v6 ? "ip -6" : "ip";
  const Near near = near_of(v6 ? AF_INET6 : AF_INET);
  if (near.interface.empty()) {
    return std::string("this host has no ") + (v6 ? "IPv6" : "IPv4") +
           " address beyond loopback: bring an interface up (ip address), or use the other family on both sides";
  }
  return "see which route is taken (" + ip + " route get " + host + "); where none is: " + ip + " route add " + host +
         (v6 ? "/128" : "/32") + " via GATEWAY dev " + near.interface + ", GATEWAY being a router that " +
         near.address + " reaches";
}

}  // namespace hixl::cli
