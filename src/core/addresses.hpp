// SPDX-License-Identifier: Apache-2.0
//
// Where a runtime and a store listen, and what others are told: the options' words made into addresses, or the reason
// why not. Closed by default: whatever goes beyond loopback needs `insecure`.
#pragma once

#include <memory>
#include <string>

#include <hixl/options.hpp>
#include <hixl/result.hpp>

#include "group/store_server.hpp"
#include "runtime/address.hpp"

namespace hixl::core {

/// options.bind with port 0. SECURITY_REQUIRED, INVALID_ARGUMENT, ADDRESS_SCOPE; FAMILY_MISMATCH when options.advertise
/// is a literal of the other family.
[[nodiscard]] Result<runtime::Address> address_to_bind(const RuntimeOptions& options);
/// What others are told of a listener at `bound`: options.advertise, or for 0.0.0.0 and :: the address by which this
/// host reaches the store. INVALID_ARGUMENT where that cannot be known.
[[nodiscard]] Result<runtime::Address> address_to_tell(const RuntimeOptions& options, const runtime::Address& bound);
[[nodiscard]] Result<std::unique_ptr<group::StoreServer>> host_store(runtime::Loop& loop, const std::string& url,
                                                                     bool insecure);

}  // namespace hixl::core
