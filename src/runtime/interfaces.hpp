// SPDX-License-Identifier: Apache-2.0
//
// What this host's network interfaces say: which families it has addresses of, and which address faces another host.
// Asked when something failed or once at start; nothing here waits but for a name look-up.
#pragma once

#include <hixl/result.hpp>

#include "runtime/address.hpp"

namespace hixl::runtime {

/// True when the host cannot speak to `family` (AF_INET, AF_INET6) beyond itself and could to the other one.
/// Link-local v6 addresses do not count: every interface has one.
[[nodiscard]] bool only_other_family(int family);

/// The local address from which a packet to `there` would leave, port 0. Sends nothing. HOST_UNRESOLVED, NO_ROUTE.
[[nodiscard]] Result<Address> address_towards(const Address& there);

}  // namespace hixl::runtime
