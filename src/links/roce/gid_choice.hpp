// SPDX-License-Identifier: Apache-2.0
//
// Which addresses of an RDMA port a link may use, and which of its own suits a peer's. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hixl/result.hpp>

#include "links/roce/verbs.hpp"
#include "wire/messages.hpp"

namespace hixl::links::roce {

[[nodiscard]] wire::RoceGid wire_gid(const ibv_gid& gid) noexcept;
[[nodiscard]] ibv_gid verbs_gid(const wire::RoceGid& gid) noexcept;
/// "10.0.0.1" or "fe80::1".
[[nodiscard]] std::string text_of(const ibv_gid& gid);

/// Those of RoCE v2, the routable ones first: IPv4, then IPv6, then link-local; k_roce_gids_max at most.
[[nodiscard]] std::vector<Gid> usable_gids(std::span<const Gid> all);

/// How near a peer's address is to one of ours.
enum class Nearness : std::uint8_t { none, family, subnet, same };
[[nodiscard]] Nearness nearness(const Gid& ours, const wire::RoceGid& theirs) noexcept;

/// The nearest pair; of equals the first of ours, then of theirs. Nothing: no address family in common.
struct GidPair {
  Gid ours;
  std::size_t theirs = 0;  ///< index
  Nearness nearness = Nearness::none;
};
[[nodiscard]] std::optional<GidPair> choose_pair(std::span<const Gid> ours, std::span<const wire::RoceGid> theirs);

/// One entry of RdmaOptions::devices.
struct RailName {
  std::string device;              ///< empty: by address
  std::uint32_t port = 0;          ///< 0: its active ones
  std::optional<ibv_gid> address;  ///< of a port
};
/// INVALID_ARGUMENT: not of that form, or too many.
[[nodiscard]] Result<std::vector<RailName>> parse_rails(std::string_view text);

}  // namespace hixl::links::roce
