// SPDX-License-Identifier: Apache-2.0
//
// What a runtime tells about itself: its counters and links, the regions it knows, the operations that are open. Plain
// values; inspect_text.hpp makes text and JSON of them.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <hixl/memory.hpp>
#include <hixl/types.hpp>

namespace hixl {

/// One row of links(): for each peer every kind of link, the best first, then those that this runtime does not use.
struct LinkInfo {
  Rank rank = k_no_rank;
  LinkKind kind = LinkKind::tcp;  ///< description(kind) is the honest name
  std::uint16_t id = 0;
  std::uint64_t incarnation = 0;  ///< the life of that rank which is known here; 0: none, or its life is over
  std::uint32_t session = 0;      ///< rises with each session between two lives of ranks
  std::uint32_t generation = 0;   ///< rises with each reconnect of this link
  bool up = false;
  bool chosen = false;  ///< new transfers take it
  // What new transfers take it for:
  bool windows = false;        ///< memory from allocate() that is mapped here
  bool other_memory = false;   ///< host memory that is not
  bool device_memory = false;  ///< memory of MemoryKind::hbm
  bool words = false;          ///< signals
  /// "CONNECTING"; "PROBATION" (up, proving itself after a failure); "UP"; "DEGRADED" (up, much slower than its
  /// siblings); "SUSPECT" (up, nothing of ours is acknowledged); "FENCING" (broken, the peer is being asked what it
  /// executed); "BACKOFF" (waits to be dialled again); "IDLE" (not needed yet); "CLOSED" (the peer's life is over, or
  /// ours); "OFF" (never used here)
  std::string state;
  std::string reason;  ///< why it was chosen or not
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_in = 0;
  std::uint32_t in_flight = 0;  ///< chunks posted whose end is not known
  std::uint64_t bytes_in_flight = 0;
  std::chrono::nanoseconds busy{0};  ///< time in which something was in flight
  std::uint64_t rate = 0;            ///< bytes a second while busy, over its last few tenths of a second; 0: not known
  std::chrono::nanoseconds round_trip{0};  ///< of probes and signs of life, smoothed; 0: not known
  std::uint32_t share = 100;               ///< percent of its credit that it is given; less after a failure
  std::uint64_t given_back = 0;            ///< chunks that it had taken and another attempt had to carry
  std::uint64_t stalls = 0;                ///< how often it was suspected
  std::uint64_t failures = 0;              ///< connections that broke or did not come about
  Error last_error{};                      ///< of the latest of them; code ok: none yet
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
  std::uint64_t retries = 0;         ///< chunks that were tried again after their link had broken
  std::uint64_t corrupt_chunks = 0;  ///< arrived changed and were not accepted, here or at the peer; see payload_check
  std::uint64_t peers_lost = 0;
  std::uint64_t callback_errors = 0;      ///< exceptions that callbacks threw
  std::uint64_t completions_dropped = 0;  ///< ends for a completion queue that was destroyed before
  std::uint64_t hbm_bytes = 0;            ///< emulated device memory in use now
  std::uint64_t spilled_bytes = 0;        ///< host memory in use now for device memory that did not fit
  std::uint64_t held_bytes = 0;           ///< of regions that wait, after HELD, for a peer that stands still
};

// ---- regions ----

enum class RegionState : std::uint8_t {
  open,
  retiring,  ///< deregistered; waits for operations, links and callers that still touch it
  held,      ///< the same, and its deregister() has ended with HELD: a peer that stands still may write there
};
[[nodiscard]] std::string_view name(RegionState state) noexcept;  ///< "OPEN", "RETIRING", "HELD"

/// A region of this rank.
struct OwnRegion {
  Region region{};  ///< data, size, key (with the generation), window, kind, pages, NUMA node
  Rights rights = Rights::none;
  std::uint32_t tag = 0;
  RegionState state = RegionState::open;
  std::uint64_t references = 0;  ///< how often it was registered and not deregistered
  std::uint64_t pins = 0;        ///< uses by operations under way, of this rank
  std::chrono::nanoseconds age{0};
};

/// A region that another rank has published to this one.
struct PeerRegion {
  Rank rank = k_no_rank;
  std::uint64_t incarnation = 0;  ///< the life of that rank
  RegionKey key{};
  std::uint64_t base = 0;  ///< address at that rank
  std::uint64_t size = 0;
  Rights rights = Rights::none;
  std::uint32_t tag = 0;
  MemoryKind kind = MemoryKind::host;
  bool mapped = false;            ///< its window is mapped here
  bool retired = false;           ///< that rank has deregistered it: STALE for whoever uses it
  bool reached = false;           ///< a link that stands takes transfers to it: `link`
  LinkKind link = LinkKind::tcp;  ///< if reached
  std::uint16_t link_id = 0;      ///< if reached; as LinkInfo::id
};

struct RegionDump {
  std::vector<OwnRegion> own;     ///< the newest first
  std::vector<PeerRegion> peers;  ///< lowest rank first, of a rank the lowest address first, then the lowest id
};

// ---- operations ----

enum class OperationVerb : std::uint8_t {
  put,
  get,
  batch,  ///< batches, gathered and scattered transfers
  atomic,
  flush,
  fence,
  join,  ///< Runtime::joined()
  lane,  ///< synchronous calls that are copying in their callers' threads
};
[[nodiscard]] std::string_view name(OperationVerb verb) noexcept;  ///< "put"

enum class OperationState : std::uint8_t {
  mailbox,  ///< posted; the loop has not read it yet
  waiting,  ///< for what a fence or flush orders before it
  ready,    ///< no link takes more of it now: none stands or has credit; or the loop itself works on it
  posted,   ///< on its way, on the links of `live`
  fencing,  ///< will fail with `error`, once no byte of it can move any more
  ended,    ///< nobody has looked at the end, and its Request keeps the slot
};
[[nodiscard]] std::string_view name(OperationState state) noexcept;  ///< "FENCING"

/// One row of outstanding().
struct OperationInfo {
  std::uint64_t id = 0;  ///< names the request for as long as the runtime lives; 0: has none (lane)
  OperationVerb verb = OperationVerb::put;
  Rank rank = k_no_rank;
  OperationState state = OperationState::mailbox;
  bool signal = false;           ///< with a signal behind it
  bool told = false;             ///< ended: a callback or queue has had the end; the slot waits for the Request alone
  std::uint64_t bytes = 0;       ///< lane: 0, not known
  std::uint64_t done_bytes = 0;  ///< known to be there
  std::chrono::nanoseconds age{0};                 ///< since the post; lane: 0, not known
  std::chrono::nanoseconds deadline_left{0};       ///< until its deadline; negative: since then; ended and lane: 0
  std::array<std::uint32_t, k_link_kinds> live{};  ///< pieces that are under way, by kind of link; lane: callers
  std::uint64_t user_data = 0;                     ///< OpOptions::user_data
  Error error{};  ///< ended: the result; fencing: what it will end with; code ok: success, or not ended
};

/// Told by the sweeper (RuntimeOptions::sweep_period) on the loop thread, as a Callback: keep it short; what it throws
/// is counted in Counters::callback_errors and goes no further. Once for an operation that is still open and older than
/// sweep_age; once for one that has failed (state: ended) and at whose end nobody has looked for a whole period.
struct SweepHook {
  void (*function)(void* context, const OperationInfo& operation) = nullptr;
  void* context = nullptr;
};

}  // namespace hixl
