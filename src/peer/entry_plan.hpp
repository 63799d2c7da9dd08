// SPDX-License-Identifier: Apache-2.0
//
// EntryPlan: makes the entries of a batch such that they may travel in any order, over any links, and still end as if
// they had been carried out one after another by their index. Where two puts meet at the target, or two gets in local
// memory, the bytes of the later one stand at the end, so they are cut out of the earlier one. Neighbours become one
// entry. A put and a get that meet are left alone: what they do to each other is not defined.
//
// Used by the posting thread. Entries that come in ascending order and do not meet cost one comparison each.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "peer/entry.hpp"

namespace hixl::peer {

class EntryPlan {
 public:
  /// Appends an entry without stride to `entries`, or to the last of them. `written_at`: the address that it changes,
  /// at the target (put) or here (get). One without bytes vanishes.
  void add(std::vector<Entry>& entries, const Entry& entry, std::uint64_t written_at);
  /// After the last one: cuts, sorts and joins, if the order of the entries asks for it. At most twice as many.
  void finish(std::vector<Entry>& entries);
  /// Entries, or what was left of them, that became part of a neighbour.
  [[nodiscard]] std::uint32_t coalesced() const noexcept { return coalesced_; }
  /// Ready for the next batch in the same vector; gives the memory of a large one back.
  void clear(std::vector<Entry>& entries) noexcept;

 private:
  struct Extent {
    std::uint64_t begin, end;  // written
    std::uint32_t entry;
  };
  void cut(std::span<const Entry> entries, std::span<const Extent> extents);
  void keep(const Entry& entry, const Extent& extent, std::uint64_t begin, std::uint64_t end);

  std::array<std::vector<Extent>, 2> extents_;  // by verb
  std::vector<Entry> kept_;
  std::vector<std::uint32_t> heap_;            // extents that hold the present address, the newest entry first
  std::array<std::uint64_t, 2> written_to_{};  // where the last entry of each verb ends
  std::uint32_t verb_changes_ = 0;
  std::uint32_t coalesced_ = 0;
  bool in_order_ = true;
};

}  // namespace hixl::peer
