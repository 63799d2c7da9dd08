// SPDX-License-Identifier: Apache-2.0
//
// Where a runtime and a store listen, and what others are told: the options' words made into addresses, or the reason
// why not. Closed by default: whatever goes beyond loopback needs `insecure`.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <hixl/options.hpp>
#include <hixl/result.hpp>

#include "group/store_server.hpp"
#include "runtime/address.hpp"

namespace hixl::core {

/// One of the addresses of options.bind, and what options.advertise says of it.
struct Listening {
  runtime::Address bind;
  std::optional<runtime::Address> told{};  ///< port 0: the one that is bound
};
/// In their order; at least one. SECURITY_REQUIRED, INVALID_ARGUMENT, ADDRESS_SCOPE; FAMILY_MISMATCH when what is told
/// is a literal of the other family.
[[nodiscard]] Result<std::vector<Listening>> addresses_to_bind(const RuntimeOptions& options);
/// What others are told of a listener at `bound`: what the options say, or for 0.0.0.0 and :: the address by which this
/// host reaches the store. INVALID_ARGUMENT where that cannot be known.
[[nodiscard]] Result<runtime::Address> address_to_tell(const RuntimeOptions& options, const Listening& listening,
                                                       const runtime::Address& bound);
[[nodiscard]] Result<std::unique_ptr<group::StoreServer>> host_store(runtime::Loop& loop, const std::string& url,
                                                                     bool insecure);

}  // namespace hixl::core
