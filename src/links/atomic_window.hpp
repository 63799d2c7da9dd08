// SPDX-License-Identifier: Apache-2.0
//
// AtomicWindow: makes the atomics of one initiator life happen exactly once, whatever links they came over. A link that
// broke leaves open whether an atomic was executed or only its answer lost; the initiator then asks again under the
// same number, and what was executed is answered from here instead of being executed twice (H2, S5).
//
//   acked_upto         numbers that the initiator will not ask for: forgotten
//   … + 1 … + size     the window: each executed, with its answer, or still to come
//   beyond             BUSY; the initiator waits until older ones are answered
//
// Loop-bound. Owner: the peer's actor, one for all links, generations and sessions; it ends with the initiator's life,
// not by time, because a time that is over proves nothing about what may still be asked.
#pragma once

#include <cstdint>
#include <vector>

#include <hixl/result.hpp>

#include "base/ids.hpp"
#include "memory/region_table.hpp"
#include "memory/signal_page.hpp"
#include "wire/messages.hpp"

namespace hixl::links {

/// As many atomics of one initiator are open at once: the largest tx_depth.
inline constexpr std::uint32_t k_atomic_window = 1024;

class AtomicWindow {
 public:
  explicit AtomicWindow(std::uint32_t size = k_atomic_window) : size_(size) {}

  /// Executes an atomic of the peer, or answers as before. The word's value before it; or, with nothing executed:
  /// MALFORMED_FRAME: the number was acknowledged long ago, so the peer is broken and its link must end;
  /// BUSY: beyond the window; CANCELLED: it only asked, or had asked before, and it never happens;
  /// else what the region refuses (STALE, ACCESS_DENIED, OUT_OF_RANGE, UNALIGNED, UNSUPPORTED, MEMORY_UNMAPPED).
  [[nodiscard]] Result<std::uint64_t> execute(const wire::AtomicBody& body, memory::RegionTable& regions,
                                              memory::SignalPage& signals);
  /// The next life of the initiator begins at 1.
  void reset() noexcept;

  /// Answers that were given a second time.
  [[nodiscard]] std::uint64_t repeats() const noexcept { return repeats_; }
  /// Atomics that were beyond the window.
  [[nodiscard]] std::uint64_t turned_away() const noexcept { return turned_away_; }

 private:
  enum class Fate : std::uint8_t { open, executed, cancelled };
  struct Place {
    Fate fate = Fate::open;
    std::uint64_t value = 0;
  };
  void acknowledge(AtomicSeq upto) noexcept;
  [[nodiscard]] Place& at(AtomicSeq number) noexcept { return places_[number % size_]; }

  std::uint32_t size_;
  AtomicSeq acked_ = 0;
  std::vector<Place> places_;  // empty until the first atomic: most peers never send one
  std::uint64_t repeats_ = 0;
  std::uint64_t turned_away_ = 0;
};

/// Carries out one atomic on a word here, with nothing remembered: its value before.
[[nodiscard]] std::uint64_t apply_atomic(wire::AtomicOp op, memory::Device& device, std::byte* word,
                                         std::uint64_t value, std::uint64_t expected) noexcept;

}  // namespace hixl::links
