// SPDX-License-Identifier: Apache-2.0
#include "links/roce/gid_choice.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include <hixl/options.hpp>

#include "base/log.hpp"

namespace hixl::links::roce {
namespace {

enum class Scope : std::uint8_t { v4, v6, link_local };

Scope scope_of(const std::uint8_t* raw) noexcept {
  constexpr std::array<std::uint8_t, 12> k_mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(k_mapped.begin(), k_mapped.end(), raw)) return Scope::v4;
  return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80 ? Scope::link_local : Scope::v6;
}

std::uint32_t common_bits(const std::uint8_t* a, const std::uint8_t* b) noexcept {
  for (std::uint32_t i = 0; i < 16; ++i) {
    if (a[i] != b[i])
      return i * 8 + static_cast<std::uint32_t>(std::countl_zero(static_cast<std::uint8_t>(a[i] ^ b[i])));
  }
  return 128;
}

/// Of a network whose mask nobody knows: the usual one of its kind.
std::uint32_t subnet_bits(const Gid& gid, Scope scope) noexcept {
  if (gid.prefix_bits != 0) return gid.prefix_bits;
  return scope == Scope::v4 ? 96 + 24 : 64;
}

tl::unexpected<Error> bad_name(std::string_view word) {
  log::error(
      "RDMA devices: \"{}\" is none; it is a device (mlx5_0), a port (mlx5_0:1), or an address (10.0.0.1, [fd00::1])",
      word);
  return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
}

std::optional<ibv_gid> parse_address(std::string_view word) {
  ibv_gid gid{};
  if (!word.empty() && word.front() == '[' && word.back() == ']') {
    const std::string inside(word.substr(1, word.size() - 2));
    if (::inet_pton(AF_INET6, inside.c_str(), gid.raw) == 1) return gid;
    return std::nullopt;
  }
  const std::string text(word);
  gid.raw[10] = gid.raw[11] = 0xff;
  if (::inet_pton(AF_INET, text.c_str(), gid.raw + 12) == 1) return gid;
  return std::nullopt;
}

}  // namespace

wire::RoceGid wire_gid(const ibv_gid& gid) noexcept {
  const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(gid.raw);
  return {words[0], words[1]};
}

ibv_gid verbs_gid(const wire::RoceGid& gid) noexcept {
  ibv_gid out{};
  const auto raw = std::bit_cast<std::array<std::uint8_t, 16>>(std::array<std::uint64_t, 2>{gid.high, gid.low});
  std::copy(raw.begin(), raw.end(), out.raw);
  return out;
}

std::string text_of(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  const bool v4 = scope_of(gid.raw) == Scope::v4;
  ::inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? gid.raw + 12 : gid.raw, text, sizeof text);
  return text;
}

std::vector<Gid> usable_gids(std::span<const Gid> all) {
  std::vector<Gid> found;
  constexpr ibv_gid k_empty{};
  for (const Gid& gid : all) {
    const bool empty = std::equal(std::begin(gid.value.raw), std::end(gid.value.raw), std::begin(k_empty.raw));
    if (gid.v2 && !empty && gid.index <= 0xff) found.push_back(gid);  // an address vector has 8 bits for it
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Gid& a, const Gid& b) { return scope_of(a.value.raw) < scope_of(b.value.raw); });
  if (found.size() > wire::k_roce_gids_max) found.resize(wire::k_roce_gids_max);
  return found;
}

Nearness nearness(const Gid& ours, const wire::RoceGid& theirs) noexcept {
  const ibv_gid other = verbs_gid(theirs);
  const Scope scope = scope_of(ours.value.raw);
  if (scope != scope_of(other.raw)) return Nearness::none;
  const std::uint32_t bits = common_bits(ours.value.raw, other.raw);
  if (bits == 128) return Nearness::same;
  return bits >= subnet_bits(ours, scope) ? Nearness::subnet : Nearness::family;
}

std::optional<GidPair> choose_pair(std::span<const Gid> ours, std::span<const wire::RoceGid> theirs) {
  std::optional<GidPair> best;
  for (const Gid& gid : ours) {
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      const Nearness near = nearness(gid, theirs[i]);
      // The routable ones come first: a link-local pair wins only where there is nothing else.
      if (near == Nearness::none || (best && near <= best->nearness)) continue;
      if (best && scope_of(gid.value.raw) == Scope::link_local) continue;
      best = GidPair{.ours = gid, .theirs = i, .nearness = near};
    }
  }
  return best;
}

Result<std::vector<RailName>> parse_rails(std::string_view text) {
  std::vector<RailName> rails;
  for (bool more = !text.empty(); more;) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    RailName rail;
    rail.address = parse_address(word);
    if (!rail.address) {
      const std::size_t colon = word.find(':');
      rail.device = word.substr(0, colon);
      const bool plain = std::all_of(rail.device.begin(), rail.device.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
               c == '.';
      });
      if (rail.device.empty() || !plain) return bad_name(word);
      if (colon != std::string_view::npos) {
        const std::string_view number = word.substr(colon + 1);
        const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), rail.port);
        if (error != std::errc{} || end != number.data() + number.size() || rail.port < 1 || rail.port > 255) {
          return bad_name(word);
        }
      }
    }
    rails.push_back(std::move(rail));
    if (rails.size() > k_rdma_rails_max) {
      log::error("RDMA devices: more than {} are named", k_rdma_rails_max);
      return fail(ErrorCode::limit_reached, {.stage = Stage::options, .limit = k_rdma_rails_max});
    }
  }
  return rails;
}

}  // namespace hixl::links::roce
