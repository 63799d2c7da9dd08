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
  /// Intermediate copies of payload: 0 on every link, but for inlined bytes and for device memory over tcp.
  std::uint64_t copies = 0;
  std::uint64_t staging_bytes = 0;  ///< memory now kept for payload on its way between device memory and sockets
  std::uint64_t fallbacks = 0;      ///< peers served by a slower link than the best configured one
  std::uint64_t link_failures = 0;
  std::uint64_t peers_lost = 0;
  std::uint64_t callback_errors = 0;      ///< exceptions that callbacks threw
  std::uint64_t completions_dropped = 0;  ///< ends for a completion queue that was destroyed before
  std::uint64_t hbm_bytes = 0;            ///< emulated device memory in use now
  std::uint64_t spilled_bytes = 0;        ///< host memory in use now for device memory that did not fit
  std::uint64_t held_bytes = 0;           ///< of regions that wait, after HELD, for a peer that stands still
};

}  // namespace hixl
