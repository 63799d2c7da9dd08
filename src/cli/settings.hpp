// SPDX-License-Identifier: Apache-2.0
//
// What the environment says of links, RDMA and times, as for every program of the library.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <hixl/options.hpp>

#include "failure.hpp"

namespace hixl::cli {

/// "hccs,tcp" as kinds; a word that is none ends in a Failure of step local.
[[nodiscard]] tl::expected<std::vector<LinkKind>, Failure> kinds_of(const std::string& text);
/// Options by the environment, with `links` (as kinds_of()) over HIXL_LINKS if it is not empty. Who and where they say
/// is for the caller to replace.
[[nodiscard]] tl::expected<RuntimeOptions, Failure> settings_with(const std::string& links);

/// Too few descriptors are left for a runtime: FD_LIMIT, before anything that would end without a word is tried.
[[nodiscard]] std::optional<Failure> few_descriptors();

}  // namespace hixl::cli
