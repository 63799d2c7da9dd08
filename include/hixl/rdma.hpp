// SPDX-License-Identifier: Apache-2.0
//
// Options of links over RDMA (LinkKind::roce).
#pragma once

#include <cstdint>
#include <string>

namespace hixl {

/// By what an RDMA link knows that the bytes of a put can be read at the target.
enum class RdmaVisibility : std::uint8_t {
  read,  ///< the answer of an RDMA read that follows them: a read pushes the writes before it into memory
  ack,   ///< the card's acknowledgement: half a round trip less, on cards that acknowledge behind the memory
};

struct RdmaOptions {
  /// What to use, each a rail, in this order, separated by commas: a device ("mlx5_0"), a port of it ("mlx5_0:2"), or
  /// an address of a port ("10.0.0.1", "[fd00::1]"). Each must be there, or a forced `roce` is refused. Empty: every
  /// active Ethernet port, those near this process' memory first. k_rdma_rails_max at most.
  std::string devices;
  std::uint8_t traffic_class = 0;  ///< of the packets; what networks that treat RDMA apart sort by (DSCP * 4)
  std::uint8_t service_level = 0;  ///< 0 … 15
  /// The card sends again after 4.096 µs * 2^timeout, `retry` times, then the link breaks. 1 … 21 and 0 … 7; the
  /// default of 67 ms, 7 times, is half a second: well below every lease.
  std::uint8_t timeout = 14;
  std::uint8_t retry = 7;
  /// How often it does so when the target has no receive posted, 0 … 6. No data needs one, so this is only for bad
  /// peers; 7 would mean for ever.
  std::uint8_t rnr_retry = 6;
  RdmaVisibility visibility = RdmaVisibility::read;
  std::uint32_t threads = 2;  ///< 1 … 16 that register memory, so that the loop need not wait for pinning; and as many
                              ///< that connect, which may have to wait for the network
};
inline constexpr std::uint32_t k_rdma_rails_max = 8;

}  // namespace hixl
