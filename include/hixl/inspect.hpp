// SPDX-License-Identifier: Apache-2.0
//
// What a runtime tells about itself: its links and its counters. Plain values.
#pragma once

#include <cstdint>
#include <string>

#include <hixl/types.hpp>

namespace hixl {

/// One row of links().
struct LinkInfo {
  Rank rank = k_no_rank;
  LinkKind kind = LinkKind::tcp;
  std::uint16_t id = 0;
  std::uint32_t session = 0;     ///< rises with each session between two lives of ranks
  std::uint32_t generation = 0;  ///< rises with each reconnect of this link
  bool up = false;
  bool chosen = false;  ///< new transfers take it
  std::string state;    ///< "UP", "CONNECTING", …
  std::string reason;   ///< why it was chosen or not
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_in = 0;
};

struct Counters {
  std::uint64_t bytes_out[k_link_kinds] = {};  ///< payload moved by this rank's puts, by kind
  std::uint64_t bytes_in[k_link_kinds] = {};   ///< payload moved by this rank's gets, by kind
  std::uint64_t operations = 0;                ///< ended, whatever the result
  std::uint64_t lane_operations = 0;           ///< of these: ran in the caller's thread
  std::uint64_t failed = 0;
  std::uint64_t failed_unseen = 0;  ///< failures that nobody looked at
  std::uint64_t coalesced = 0;      ///< entries of batches that became part of a neighbour
  std::uint64_t copies = 0;         ///< intermediate copies of payload; 0 on every link but for inlined bytes
  std::uint64_t staging_bytes = 0;  ///< memory that holds payload on the way
  std::uint64_t fallbacks = 0;      ///< peers served by a slower link than the best configured one
  std::uint64_t link_failures = 0;
  std::uint64_t peers_lost = 0;
  std::uint64_t callback_errors = 0;  ///< exceptions that callbacks threw
};

}  // namespace hixl
