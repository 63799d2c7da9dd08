// SPDX-License-Identifier: Apache-2.0
//
// What the simulated RDMA cards are made of: plain state. The rules are RdmaFabric's, the objects that a process holds
// are sim_verbs.cpp's. Used by these only.
#pragma once

#include <deque>
#include <string>

#include "links/sim/rdma_fabric.hpp"

namespace hixl::links::sim {

// What a card can do: enough for every test, and not without an end.
inline constexpr std::uint64_t k_region_max = std::uint64_t{1} << 32U;
inline constexpr std::size_t k_pairs_max = 4096;
inline constexpr std::uint32_t k_depth_max = 4096;   ///< requests of a queue pair
inline constexpr std::uint32_t k_queue_max = 65536;  ///< completions of a queue
inline constexpr std::uint32_t k_inline_max = 512;
inline constexpr std::uint32_t k_pieces_max = 16;
inline constexpr std::uint8_t k_reads_max = 16;  ///< reads and atomics answered at a time

/// One card of one host, with one port. It outlives the processes that use it, and so do its queue pair numbers.
struct RdmaCard {
  std::uint64_t id = 0;
  std::uint32_t host = 0;
  std::uint32_t rail = 0;
  std::string name;
  ibv_mtu mtu = IBV_MTU_4096;
  ibv_gid gid{};
  std::uint8_t gids = 0;  ///< how many addresses it has had
  bool up = true;
  bool present = true;
  std::map<std::uint32_t, RdmaQueuePair*> pairs;  ///< by number
  std::map<std::uint32_t, RdmaRegion*> keys;      ///< local and remote ones
  std::uint32_t next_number = 17;                 ///< 0 and 1 are the subnet's own; real cards begin low as well
  std::uint32_t next_key = 0x100;
  std::vector<std::uint32_t> left;  ///< numbers of queue pairs that ended
};

/// A card as one process has opened it, with its protection domain.
struct RdmaDevice {
  std::uint64_t id = 0;
  RdmaCard* card = nullptr;
  std::size_t process = 0;
  bool gone = false;  ///< the card was pulled
  int descriptor = -1;
  std::deque<roce::DeviceEvent> events;
};

struct RdmaRegion {
  std::uint64_t id = 0;
  RdmaDevice* device = nullptr;
  std::byte* data = nullptr;
  std::size_t size = 0;
  int access = 0;
  std::uint32_t local_key = 0;
  std::uint32_t remote_key = 0;

  [[nodiscard]] bool covers(const std::byte* from, std::size_t bytes) const noexcept {
    return from >= data && bytes <= size && static_cast<std::size_t>(from - data) <= size - bytes;
  }
};

struct RdmaQueue {
  std::uint64_t id = 0;
  RdmaDevice* device = nullptr;
  std::uint32_t depth = 0;
  struct Entry {
    ibv_wc wc;
    std::uint64_t pair;    ///< id
    std::uint64_t number;  ///< of the request, whose place in its queue becomes free when this is taken
    bool receive;
  };
  std::deque<Entry> entries;
  bool armed = false;
  bool broken = false;  ///< it overran
  int descriptor = -1;
};

struct RdmaPiece {
  std::byte* data = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t key = 0;
};

struct RdmaSend {
  std::uint64_t number = 0;  ///< of its queue pair, from 1
  std::uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  unsigned flags = 0;
  std::vector<RdmaPiece> pieces;
  std::vector<std::byte> data;  ///< of an inline request
  std::uint32_t bytes = 0;
  std::byte* place = nullptr;  ///< at the target
  std::uint32_t key = 0;
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  __be32 immediate = 0;
};

struct RdmaReceive {
  std::uint64_t number = 0;
  std::uint64_t wr_id = 0;
  std::vector<RdmaPiece> pieces;
};

/// A write that was acknowledged and cannot be seen yet.
struct RdmaLanding {
  std::byte* place = nullptr;
  std::vector<std::byte> data;
  Instant due{};
};

struct RdmaQueuePair {
  std::uint64_t id = 0;
  std::uint32_t number = 0;
  RdmaDevice* device = nullptr;
  RdmaQueue* queue = nullptr;
  roce::Device::QueuePairOptions options{};
  ibv_qp_state state = IBV_QPS_RESET;
  bool gone = false;  ///< its process died, or its card was pulled
  ibv_qp_attr attributes{};
  ibv_gid own_gid{};

  // Requester.
  std::deque<RdmaSend> sends;  ///< without a completion yet
  std::uint64_t posted = 0;    ///< number of the newest
  std::uint64_t freed = 0;     ///< all up to here have given their place back
  std::uint32_t next_psn = 0;
  RdmaWire* wire = nullptr;
  // Responder.
  std::deque<RdmaReceive> receives;
  std::uint64_t receives_posted = 0;
  std::uint64_t receives_freed = 0;
  std::uint32_t expected_psn = 0;
  Instant not_ready_until{};  ///< no receive is found until then, whatever is posted
  std::vector<RdmaLanding> hidden;

  bool flush_planned = false;
  [[nodiscard]] RdmaCard& card() const noexcept { return *device->card; }
  [[nodiscard]] bool receives_packets() const noexcept {
    return !gone && (state == IBV_QPS_RTR || state == IBV_QPS_RTS);
  }
  [[nodiscard]] bool sends_packets() const noexcept { return !gone && state == IBV_QPS_RTS; }
};

/// Part of a request, or all of it.
struct RdmaPacket {
  std::uint32_t psn = 0;
  std::uint64_t number = 0;  ///< of the request
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  bool last = true;
  bool signalled = false;
  bool captured = false;                   ///< the bytes are in `data`
  bool refuse = false;                     ///< the target will not have it
  ibv_wc_status unsound = IBV_WC_SUCCESS;  ///< the own card will not have it: why
  std::vector<RdmaPiece> pieces{};
  std::vector<std::byte> data{};
  std::uint32_t bytes = 0;
  std::uint32_t rest = 0;           ///< of the request, from here on
  std::uint32_t request_bytes = 0;  ///< of all of it
  std::byte* place = nullptr;
  std::uint32_t key = 0;
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  __be32 immediate = 0;
  Instant due{};
};

/// What comes back: all requests up to `number` are executed, or that one is refused.
struct RdmaAnswer {
  std::uint64_t number = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::uint64_t target = 0;       ///< id of the queue pair that gave it, and would give it again
  std::vector<std::byte> data{};  ///< of a read or an atomic
  bool lost = false;
  Instant due{};
};

/// What one queue pair has sent and what comes back to it. Outlives its source while something is under way.
struct RdmaWire {
  std::uint64_t id = 0;
  RdmaQueuePair* source = nullptr;  ///< null: it failed and was flushed, or is gone
  ibv_gid from{};
  ibv_gid to{};
  std::uint32_t source_number = 0;
  std::uint32_t target_number = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  std::deque<RdmaPacket> packets;
  std::deque<RdmaAnswer> answers;
  Instant last_due{};          ///< of packets: none overtakes another
  std::uint64_t executed = 0;  ///< all requests up to this number
  bool packet_planned = false;
  bool answer_planned = false;
  std::uint32_t tries = 0;
  std::uint32_t not_ready = 0;
  Instant dead_until{};
  bool requests_lost = false;  ///< until then
  bool answers_lost = false;
};

/// Work that a process has given away.
struct RdmaWork {
  roce::Job* job = nullptr;
  runtime::Wakeup* wakeup = nullptr;  ///< of the loop that waits for it
  bool ready = false;
};

[[nodiscard]] inline bool same(const ibv_gid& a, const ibv_gid& b) noexcept {
  return a.global.subnet_prefix == b.global.subnet_prefix && a.global.interface_id == b.global.interface_id;
}
/// Bytes of a packet of that MTU.
[[nodiscard]] constexpr std::uint32_t bytes_of(ibv_mtu mtu) noexcept { return 128U << static_cast<unsigned>(mtu); }
/// Packet numbers have 24 bits.
inline constexpr std::uint32_t k_psn_mask = 0xffffff;

}  // namespace hixl::links::sim
