// SPDX-License-Identifier: Apache-2.0
//
// How much of a chaos test is run: all of it, or the share that HIXL_TEST_SCALE (0 … 1) names; at least one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace hixl::test {

inline std::uint64_t scaled(std::uint64_t full) {
  const char* scale = std::getenv("HIXL_TEST_SCALE");
  const double factor = scale == nullptr ? 1.0 : std::clamp(std::strtod(scale, nullptr), 0.0, 1.0);
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(full) * factor));
}

}  // namespace hixl::test
