// SPDX-License-Identifier: Apache-2.0
//
// RemoteKeys: by which keys the peer's regions are reached on one link. Asked for once a region; the peer may take a
// key back (roce_drop), and is told when no request of ours uses it any more.
//
// Loop-bound.
#pragma once

#include <cstdint>
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
 public:
  [[nodiscard]] RemoteKeyEntry* find(RegionKey region) noexcept {
    const auto found = all_.find(number_of(region));
    return found == all_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] const RemoteKeyEntry* find(RegionKey region) const noexcept {
    const auto found = all_.find(number_of(region));
    return found == all_.end() ? nullptr : &found->second;
  }
  RemoteKeyEntry& add(RegionKey region) {
    RemoteKeyEntry& entry = all_[number_of(region)];
    entry.region = region;
    return entry;
  }
  void erase(RegionKey region) { all_.erase(number_of(region)); }
  void clear() { all_.clear(); }

 private:
  std::unordered_map<std::uint64_t, RemoteKeyEntry> all_;
};

}  // namespace hixl::links::roce
