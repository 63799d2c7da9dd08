// SPDX-License-Identifier: Apache-2.0
#include "lease_book.hpp"

#include <algorithm>

namespace hixl::kv {

LeaseEntry* LeaseBook::open(LeaseEntry&& entry) {
  auto place = std::find_if(entries_.begin(), entries_.end(),
                            [](const auto& at) { return at.state == LeaseState::ended && at.id.generation == 0; });
  if (place == entries_.end()) {
    if (entries_.size() >= slots_) return nullptr;
    place = entries_.insert(entries_.end(), LeaseEntry{});
  }
  *place = std::move(entry);
  place->id = {.slot = static_cast<std::uint32_t>(place - entries_.begin()), .generation = ++generations_};
  place->state = LeaseState::open;
  place->end = LeaseEnd::none;
  place->since = looks_;
  open_ += 1;
  return &*place;
}

LeaseEntry* LeaseBook::find(const LeaseId& id) noexcept {
  LeaseEntry* const entry = find_remembered(id);
  return entry != nullptr && entry->state != LeaseState::ended ? entry : nullptr;
}

LeaseEntry* LeaseBook::find_remembered(const LeaseId& id) noexcept {
  if (id.generation == 0 || id.slot >= entries_.size()) return nullptr;
  LeaseEntry& entry = entries_[id.slot];
  return entry.id == id ? &entry : nullptr;
}

std::optional<std::uint32_t> LeaseBook::forget(const LeaseId& id) noexcept {
  LeaseEntry* const entry = find_remembered(id);
  if (entry == nullptr || entry->state != LeaseState::ended) return std::nullopt;
  const auto arrival = entry->arrival;
  *entry = {};
  return arrival;
}

std::optional<std::uint32_t> LeaseBook::forget_oldest() noexcept {
  const LeaseEntry* oldest = nullptr;
  for (const LeaseEntry& entry : entries_) {
    const bool remembered = entry.state == LeaseState::ended && entry.id.generation != 0;
    if (remembered && (oldest == nullptr || entry.id.generation < oldest->id.generation)) oldest = &entry;
  }
  if (oldest == nullptr) return std::nullopt;
  return forget(oldest->id);
}

std::optional<Instant> LeaseBook::due() const noexcept {
  std::optional<Instant> earliest;
  for (const LeaseEntry& entry : entries_) {
    if (entry.state == LeaseState::open && (!earliest || entry.deadline < *earliest)) earliest = entry.deadline;
  }
  return earliest;
}

}  // namespace hixl::kv
