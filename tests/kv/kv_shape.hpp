// SPDX-License-Identifier: Apache-2.0
//
// What the test with processes and its rank have in common: the cache, the blocks, and a ticket as text.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <string>

#include <hixl/kv/data_dist.hpp>

namespace hixl::kv::test {

inline CacheDesc process_cache() {
  return {.key = {.model = 3, .name = 0},
          .layout = {.form = Form::separate, .layers = 3, .kv_heads = 4, .head_dim = 64, .block_tokens = 16},
          .blocks = 8,
          .shard = {}};
}
inline constexpr std::array<std::uint32_t, 2> k_process_blocks{2, 5};

using TicketBytes = std::array<unsigned char, sizeof(LeaseTicket)>;

inline std::string to_hex(const LeaseTicket& ticket) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : std::bit_cast<TicketBytes>(ticket)) {
    text += digits[byte / 16];
    text += digits[byte % 16];
  }
  return text;
}
inline LeaseTicket from_hex(const std::string& text) {
  TicketBytes bytes{};
  for (std::size_t i = 0; i < bytes.size() && 2 * i + 1 < text.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return std::bit_cast<LeaseTicket>(bytes);
}

}  // namespace hixl::kv::test
