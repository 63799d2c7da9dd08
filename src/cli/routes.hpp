// SPDX-License-Identifier: Apache-2.0
//
// What to say when the network does not lead to an address.
#pragma once

#include <string>

namespace hixl::cli {

/// The command that would make a route, with this host's own interface in it; `host` is an address without port.
[[nodiscard]] std::string route_advice(const std::string& host);

}  // namespace hixl::cli
