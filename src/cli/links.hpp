// SPDX-License-Identifier: Apache-2.0
//
// The links between two ranks on this host, made to be looked at.
#pragma once

#include <string>
#include <vector>

#include <hixl/inspect.hpp>

#include "failure.hpp"

namespace hixl::cli {

/// `kinds` as HIXL_LINKS; empty: what the environment says, or automatic.
[[nodiscard]] tl::expected<std::vector<LinkInfo>, Failure> links_of_this_host(const std::string& kinds);

}  // namespace hixl::cli
