// SPDX-License-Identifier: Apache-2.0
#include "peer/entry_plan.hpp"

#include <algorithm>

namespace hixl::peer {

namespace {

/// Room that a slot keeps for its next batch: about 100 KiB. A larger batch takes longer to move than to allocate.
constexpr std::size_t k_entries_kept = 1024;

bool adjoin(const Entry& a, const Entry& b) noexcept {
  return a.verb == b.verb && a.region == b.region && a.token == b.token && a.device == b.device &&
         a.local + a.size == b.local && a.offset + a.size == b.offset;
}

template <class T>
void drop(std::vector<T>& items) noexcept {
  items.clear();
  if (items.capacity() > k_entries_kept) std::vector<T>().swap(items);
}

}  // namespace

void EntryPlan::add(std::vector<Entry>& entries, const Entry& entry, std::uint64_t written_at) {
  if (entry.size == 0) return;
  const auto verb = static_cast<std::size_t>(entry.verb);
  in_order_ = in_order_ && written_at >= written_to_[verb];
  written_to_[verb] = written_at + entry.size;
  if (!entries.empty() && entries.back().verb != entry.verb) verb_changes_ += 1;
  // What adjoins in one region adjoins at the target, too; local memory is looked at anyway.
  if (!entries.empty() && adjoin(entries.back(), entry)) {
    entries.back().size += entry.size;
    extents_[verb].back().end = written_to_[verb];
    coalesced_ += 1;
    return;
  }
  extents_[verb].push_back({written_at, written_to_[verb], static_cast<std::uint32_t>(entries.size())});
  entries.push_back(entry);
}

void EntryPlan::finish(std::vector<Entry>& entries) {
  // A chunk holds one verb only, so that entries of both in turn would travel one by one.
  if (in_order_ && verb_changes_ <= 1) return;
  kept_.reserve(entries.size());
  for (std::vector<Extent>& extents : extents_) {
    std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.entry < b.entry;
    });
    cut(entries, extents);
  }
  entries.swap(kept_);
}

/// Goes through extents in order of their begin; at each address the newest entry that covers it is kept.
void EntryPlan::cut(std::span<const Entry> entries, std::span<const Extent> extents) {
  const auto older = [&](std::uint32_t a, std::uint32_t b) { return extents[a].entry < extents[b].entry; };
  std::uint64_t at = 0;  // everything below is settled
  std::uint32_t next = 0;
  while (next < extents.size() || !heap_.empty()) {
    if (heap_.empty()) {
      at = extents[next].begin;
      heap_.push_back(next++);
      continue;
    }
    const Extent& top = extents[heap_.front()];
    if (top.end <= at) {  // covered by a newer one
      std::pop_heap(heap_.begin(), heap_.end(), older);
      heap_.pop_back();
      continue;
    }
    if (next < extents.size() && extents[next].begin < top.end) {
      const Extent& coming = extents[next];
      if (coming.entry > top.entry) {
        keep(entries[top.entry], top, at, coming.begin);
        at = coming.begin;
      }
      heap_.push_back(next++);
      std::push_heap(heap_.begin(), heap_.end(), older);
      continue;
    }
    keep(entries[top.entry], top, at, top.end);
    at = top.end;
  }
}

void EntryPlan::keep(const Entry& entry, const Extent& extent, std::uint64_t begin, std::uint64_t end) {
  if (begin == end) return;
  Entry piece = entry;
  piece.local += begin - extent.begin;
  piece.offset += begin - extent.begin;
  piece.size = end - begin;
  if (!kept_.empty() && adjoin(kept_.back(), piece)) {
    kept_.back().size += piece.size;
    coalesced_ += 1;
  } else {
    kept_.push_back(piece);
  }
}

void EntryPlan::clear(std::vector<Entry>& entries) noexcept {
  drop(entries);
  if (extents_[0].empty() && extents_[1].empty()) return;
  for (std::vector<Extent>& extents : extents_) drop(extents);
  drop(kept_);
  drop(heap_);
  written_to_ = {};
  verb_changes_ = coalesced_ = 0;
  in_order_ = true;
}

}  // namespace hixl::peer
