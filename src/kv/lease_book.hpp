// SPDX-License-Identifier: Apache-2.0
//
// LeaseBook: the leases that this rank has granted. Decides what becomes of each; time, and what the holder has done,
// are handed in. Pure; not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include <hixl/kv/lease.hpp>

#include "gate.hpp"

namespace hixl::kv {

using Instant = std::chrono::steady_clock::time_point;

struct LeaseEntry {
  LeaseId id{};
  LeaseState state = LeaseState::ended;
  LeaseEnd end = LeaseEnd::none;
  std::uint32_t link = 0;  // of the holder
  std::uint32_t gate = 0;  // among the leases' gates of that link
  std::uint32_t gate_generation = 0;
  std::optional<std::uint32_t> arrival{};
  std::uint64_t cache_version = 0;
  Range layers{};  // of the cache
  Access access = Access::pull;
  Instant deadline{};
  std::vector<std::uint32_t> blocks;
  LeaseHook hook{};
  std::uint64_t since = 0;  // the look that was under way when it came to this state
};

/// One look at all leases.
struct LeaseLook {
  Instant at{};
  std::uint64_t number = 0;
};

/// What can be seen of the holder of a lease.
struct HolderLook {
  std::uint64_t gate = 0;  ///< the word
  bool released = false;
  bool alive = true;  ///< asked for after begin_look()
};

struct LeaseBookOptions {
  std::size_t slots = 0;    ///< open ones, and those that are remembered
  std::uint64_t after = 0;  ///< numbers of leases are above this one
};

class LeaseBook {
 public:
  explicit LeaseBook(const LeaseBookOptions& options) : slots_(options.slots), generations_(options.after) {}
  /// Open from now on, under a number of its own. Null: no room.
  [[nodiscard]] LeaseEntry* open(LeaseEntry&& entry);
  /// Null: ended.
  [[nodiscard]] LeaseEntry* find(const LeaseId& id) noexcept;
  /// The same, but one with arrivals is remembered when it has ended: whoever waits for its layers wants to know which
  /// came. Until forget(), or until its place is needed.
  [[nodiscard]] LeaseEntry* find_remembered(const LeaseId& id) noexcept;
  /// Its arrival, or that of the one which ended first. Nothing: none is remembered.
  std::optional<std::uint32_t> forget(const LeaseId& id) noexcept;
  std::optional<std::uint32_t> forget_oldest() noexcept;
  /// Nothing new begins in it; `close` is called the first time.
  template <class Close>
  void begin_end(LeaseEntry& entry, LeaseEnd why, Close&& close) {
    if (entry.state != LeaseState::open) return;
    entry.state = LeaseState::ending;
    entry.end = why;
    entry.since = looks_;
    close(entry);
  }
  /// Before it is asked which holders live. A death counts for what stood in that state before: of a lease that is
  /// younger, the holder may have come again; and in a gate that was not shut yet, too.
  [[nodiscard]] LeaseLook begin_look(Instant now) noexcept { return {.at = now, .number = ++looks_}; }
  /// Those whose time is over, whose holder is done or dead, begin to end; those in which nobody is any more have
  /// ended, are taken out and given back. `look`: HolderLook of an entry. `close`: shuts its gate; the look after it
  /// decides.
  template <class Look, class Close>
  [[nodiscard]] std::vector<LeaseEntry> step(const LeaseLook& now, Look&& look, Close&& close) {
    std::vector<LeaseEntry> ended;
    for (LeaseEntry& entry : entries_) {
      if (entry.state == LeaseState::ended) continue;
      HolderLook seen = look(entry);
      const auto died = [&] { return !seen.alive && now.number > entry.since; };
      if (died()) {
        begin_end(entry, LeaseEnd::peer_lost, close);
      } else if (seen.released) {
        begin_end(entry, LeaseEnd::released, close);
      } else if (now.at >= entry.deadline) {
        begin_end(entry, LeaseEnd::expired, close);
      }
      if (entry.state != LeaseState::ending) continue;
      seen = look(entry);
      if (gate::in_use(seen.gate) && !died()) continue;
      entry.state = LeaseState::ended;
      ended.push_back(entry);
      if (!entry.arrival) entry = {};
      open_ -= 1;
    }
    return ended;
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return open_; }
  /// The earliest deadline of those that are open.
  [[nodiscard]] std::optional<Instant> due() const noexcept;
  template <class Visit>
  void each(Visit&& visit) {
    for (LeaseEntry& entry : entries_) {
      if (entry.state != LeaseState::ended) visit(entry);
    }
  }

 private:
  std::size_t slots_;
  std::uint32_t open_ = 0;
  std::uint64_t generations_;
  std::uint64_t looks_ = 0;
  std::vector<LeaseEntry> entries_;
};

}  // namespace hixl::kv
