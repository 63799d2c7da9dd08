// SPDX-License-Identifier: Apache-2.0
//
// The first two stages of a call, by plain sockets: what the library sums up as "not reached" has many causes, and here
// each has its name.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <hixl/result.hpp>

#include "failure.hpp"

namespace hixl::cli {

struct Reached {
  std::string host;  ///< the address that answered, as a literal
  bool v6 = false;
  std::chrono::nanoseconds resolving{0};
  std::chrono::nanoseconds connecting{0};
  /// "10.0.1.25:9999", "[fd00::1]:9999"
  [[nodiscard]] std::string place(std::uint16_t port) const;
};

/// Looks the name up and connects, address by address, within `timeout`; the connection is closed at once. The look-up
/// takes what the system's resolver takes.
[[nodiscard]] tl::expected<Reached, Failure> reach(const std::string& host, std::uint16_t port,
                                                   std::chrono::nanoseconds timeout);

/// Why "host", "host:port", "[v6]" or "[v6]:port" has no address here; nothing: it has one.
[[nodiscard]] std::optional<Failure> unresolved(const std::string& place);

}  // namespace hixl::cli
