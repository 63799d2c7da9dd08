// SPDX-License-Identifier: Apache-2.0
//
// Operation: one posted put, get, batch, signal, atomic, flush or fence. The posting thread fills the first part and
// hands it over by mail; from then on it belongs to the loop. One lives in each request slot, so that posting allocates
// nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <hixl/request.hpp>
#include <hixl/result.hpp>
#include <hixl/types.hpp>

#include "base/ids.hpp"
#include "base/list.hpp"
#include "links/link.hpp"
#include "memory/region_table.hpp"
#include "peer/entry.hpp"
#include "peer/entry_plan.hpp"
#include "peer/written_ranges.hpp"
#include "runtime/timer.hpp"

namespace hixl::peer {

struct SignalEntry {
  bool wanted = false;
  links::Verb verb = links::Verb::signal_set;
  RegionKey region{};
  Token token{};
  std::uint64_t offset = 0;
  std::uint64_t value = 0;
};

/// What is known of an atomic; peer_atomic.cpp has the transitions.
enum class AtomicFate : std::uint8_t {
  unsent,    ///< never sent, or known not executed
  asked,     ///< sent to be executed by the target; may have been
  executed,  ///< by the target, but its answer was lost
  answered,  ///< the value is known
};
struct AtomicEntry {
  links::Verb verb = links::Verb::atomic_add;
  AtomicFate fate = AtomicFate::unsent;
  RegionKey region{};
  Token token{};
  std::uint64_t offset = 0;
  std::uint64_t value = 0;
  links::AtomicTerms terms{};
  std::uint64_t before = 0;  ///< the word's, once answered
};

/// A place inside the entries of an operation.
struct Cursor {
  std::uint32_t entry = 0;
  std::uint64_t offset = 0;
};

/// A run of bytes of one operation that travels as one frame: same verb, region and device.
struct Chunk {
  Cursor from{};
  std::uint64_t bytes = 0;
  std::uint32_t segments = 0;
  std::uint32_t index = 0;   ///< counts chunks of the operation
  std::uint64_t at = 0;      ///< its first byte, counted through the entries of the operation
  std::uint8_t attempt = 0;  ///< how often it was tried before
  std::uint8_t tries = 0;    ///< of these: since its retries were last used up
  std::uint8_t corrupt = 0;  ///< of these: how often it arrived corrupt
  bool word = false;         ///< not bytes but the signal of the operation, or the operation is an atomic
};

inline constexpr std::size_t k_cache_line_bytes = 64;
inline constexpr std::size_t k_posted_lines = 3;  ///< from `slot` to `pin`

struct OpenTag;
struct ReadyTag;

class OperationTimer : public runtime::Timer {
 public:
  struct Events {
    virtual void on_operation_timer(OperationTimer& timer) = 0;

   protected:
    ~Events() = default;
  };
  void on_timer() override { owner->on_operation_timer(*this); }
  Events* owner = nullptr;

 protected:
  ~OperationTimer() = default;
};

struct Operation final : ListNode<OpenTag>, ListNode<ReadyTag>, OperationTimer {
  enum class Kind : std::uint8_t { transfer, flush, fence, atomic };

  // ---- filled by the posting thread. What every post writes comes first, in three cache lines: the loop wrote them
  // last, and the poster pays for fetching them. ----
  alignas(k_cache_line_bytes) std::uint32_t slot = 0;
  Rank rank = k_no_rank;
  Kind kind = Kind::transfer;
  LinkSet links{};          ///< kinds that it may take
  std::uint64_t place = 0;  ///< in the order of posting: see memory::PostingOrder
  Instant deadline{};
  Entry single{};
  memory::Pin pin;
  SignalEntry signal{};
  std::vector<Entry> batch;       ///< keeps its capacity from life to life
  std::vector<memory::Pin> pins;  ///< of a batch
  EntryPlan plan;                 ///< how the batch was made
  AtomicEntry atomic{};           ///< of an atomic; untouched by others

  // ---- loop ----
  OpId op_id = 0;
  Cursor cut{};  ///< everything before it has been cut into chunks
  std::uint32_t chunks = 0;
  std::uint32_t live = 0;       ///< attempts that may still act somewhere (R5)
  std::uint32_t returned = 0;   ///< chunks waiting to be tried again
  std::uint64_t cut_bytes = 0;  ///< that have been cut into chunks
  std::uint64_t executed_bytes = 0;
  WrittenRanges written{};   ///< which these are
  bool small = false;        ///< goes before those that are not
  bool by_tcp = false;       ///< degraded: no other kind is tried any more
  bool signalled = false;    ///< the signal's chunk has been made
  bool signal_done = false;  ///< and executed
  bool ending = false;       ///< no more posting; waits for its live attempts
  bool refused = false;      ///< came after the loop's end; its post, which has not returned yet, says so
  bool fencing = false;      ///< their links were fenced; the lease bounds the rest
  bool waiting = false;      ///< for what comes before it, or for that to be known
  void* part_of = nullptr;   ///< of one without a slot: what the loop made it for
  Error error{};             ///< the first one

  [[nodiscard]] std::span<const Entry> entries() const noexcept {
    return batch.empty() ? std::span<const Entry>(&single, 1) : std::span<const Entry>(batch);
  }
  /// Moves nothing itself.
  [[nodiscard]] bool is_order() const noexcept { return kind == Kind::flush || kind == Kind::fence; }
  [[nodiscard]] bool all_cut() const noexcept { return cut.entry >= entries().size(); }
  /// Every byte, and the signal, is known to be there.
  [[nodiscard]] bool executed() const noexcept {
    return all_cut() && executed_bytes == total_bytes() && (!signal.wanted || signal_done);
  }
  [[nodiscard]] std::uint64_t total_bytes() const noexcept {
    if (kind == Kind::atomic) return sizeof(std::uint64_t);
    std::uint64_t total = 0;
    for (const Entry& entry : entries()) total += entry.size;
    return total;
  }
  /// Ready for a new life in the same slot.
  void reset() noexcept {
    pins.clear();
    pin.release();
    plan.clear(batch);
    single = {};
    signal = {};
    if (kind == Kind::atomic) atomic = {};
    links = {};
    kind = Kind::transfer;
    place = 0;
    op_id = 0;
    cut = {};
    chunks = live = returned = 0;
    cut_bytes = executed_bytes = 0;
    written = {};
    small = by_tcp = false;
    signalled = signal_done = ending = fencing = refused = waiting = false;
    part_of = nullptr;
    error = {};
  }
};

/// Cuts the next chunk: at most `bytes_max` bytes and `segments_max` pieces of one verb, region and device. Moves
/// `operation.cut`. Bytes 0 when nothing is left.
[[nodiscard]] Chunk cut_chunk(Operation& operation, std::uint64_t bytes_max, std::size_t segments_max) noexcept;

/// Moves `operation.cut` past empty entries; true when nothing is left to cut.
bool skip_finished_entries(Operation& operation) noexcept;

/// The pieces of a chunk, as cut_chunk counted them.
void fill_segments(const Operation& operation, const Chunk& chunk, std::span<links::Segment> out) noexcept;

}  // namespace hixl::peer
