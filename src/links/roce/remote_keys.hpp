// SPDX-License-Identifier: Apache-2.0
//
// RemoteKeys: by which keys the peer's regions are reached on one link. Asked for once a region; the peer may take a
// key back (roce_drop), and is told when no request of ours uses it any more.
//
// Loop-bound.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <unordered_map>

#include "links/roce/registrations.hpp"
#include "wire/messages.hpp"

namespace hixl::links::roce {

struct RemoteKeyEntry {
  enum class State : std::uint8_t { asked, ready, refused, dropped };
  RegionKey region{};
  State state = State::asked;
  bool attaching = false;  ///< attach() waits for the answer
  std::uint32_t key = 0;
  std::uint64_t address = 0;  ///< of the region's first byte
  Error error{};              ///< of a refused one
  std::uint32_t uses = 0;     ///< requests under way
};

/// Entries stay where they are.
class RemoteKeys {
  template <class All>
  [[nodiscard]] static auto place_of(All& all, RegionKey region) noexcept {
    const auto [begin, end] = all.equal_range(region.id);
    const auto found = std::find_if(begin, end, [&](const auto& one) { return one.second.region == region; });
    return found == end ? all.end() : found;
  }

 public:
  [[nodiscard]] RemoteKeyEntry* find(RegionKey region) noexcept {
    const auto found = place_of(all_, region);
    return found == all_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const RemoteKeyEntry* find(RegionKey region) const noexcept {
    const auto found = place_of(all_, region);
    return found == all_.end() ? nullptr : &found->second;
  }
  /// The peer says nothing of the end of a region whose key it refused. The next region of that id shows it.
  RemoteKeyEntry& add(RegionKey region) {
    for (auto [at, end] = all_.equal_range(region.id); at != end;) {
      at = at->second.state == RemoteKeyEntry::State::refused ? all_.erase(at) : std::next(at);
    }
    return all_.emplace(region.id, RemoteKeyEntry{.region = region})->second;
  }
  void erase(RegionKey region) {
    if (const auto found = place_of(all_, region); found != all_.end()) all_.erase(found);
  }

 private:
  std::unordered_multimap<std::uint32_t, RemoteKeyEntry> all_;  ///< by id: one life, and for a while the one before it
};

}  // namespace hixl::links::roce
