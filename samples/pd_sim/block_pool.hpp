// SPDX-License-Identifier: Apache-2.0
//
// A Decode's paged KV memory: blocks with content names. A block whose name is held already is shared; a block that
// nobody uses keeps its content until its place is needed (least recently used first).
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace pd {

class BlockPool {
 public:
  explicit BlockPool(std::uint32_t blocks);

  struct Place {
    std::uint32_t block = 0;
    bool reused = false;  ///< its content is here already
  };
  /// A place for every name, or nothing when there are not enough (nothing is taken then).
  [[nodiscard]] std::optional<std::vector<Place>> take(std::span<const std::uint64_t> names);
  /// The content of a place taken as new has arrived and is good: others may share it from now on.
  void publish(std::uint32_t block);
  /// Ends one use of each. Content that was published stays as long as there is room.
  void release(std::span<const Place> places);
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(blocks_.size()); }
  [[nodiscard]] std::uint32_t in_use() const { return size() - static_cast<std::uint32_t>(idle_.size()); }

 private:
  struct Block {
    std::uint64_t name = 0;
    bool published = false;
    std::uint32_t uses = 0;
    std::list<std::uint32_t>::iterator idle;  // valid while uses is 0
  };
  void use(std::uint32_t block);
  void forget(std::uint32_t block);

  std::vector<Block> blocks_;
  std::list<std::uint32_t> idle_;                             // nobody uses them; to be taken from the front
  std::unordered_map<std::uint64_t, std::uint32_t> by_name_;  // published ones
};

}  // namespace pd
