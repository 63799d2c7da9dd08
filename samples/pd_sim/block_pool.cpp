// SPDX-License-Identifier: Apache-2.0
#include "block_pool.hpp"

namespace pd {

BlockPool::BlockPool(std::uint32_t blocks) : blocks_(blocks) {
  for (std::uint32_t block = 0; block < blocks; ++block) blocks_[block].idle = idle_.insert(idle_.end(), block);
}

std::optional<std::vector<BlockPool::Place>> BlockPool::take(std::span<const std::uint64_t> names) {
  // Held blocks first, so that none of them is given away to make room for another.
  std::vector<Place> places(names.size());
  std::size_t fresh = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto held = by_name_.find(names[i]);
    places[i].reused = held != by_name_.end();
    if (places[i].reused) {
      places[i].block = held->second;
      use(held->second);
    } else {
      ++fresh;
    }
  }
  if (fresh > idle_.size()) {
    for (const Place& place : places) {
      if (place.reused) release({&place, 1});
    }
    return {};
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (places[i].reused) continue;
    const std::uint32_t block = idle_.front();
    forget(block);
    use(block);
    blocks_[block].name = names[i];
    places[i].block = block;
  }
  return places;
}

void BlockPool::publish(std::uint32_t block) {
  Block& place = blocks_[block];
  // Two requests may bring the same content at the same time; the first stays the known one.
  place.published = by_name_.emplace(place.name, block).second;
}

void BlockPool::release(std::span<const Place> places) {
  for (const Place& place : places) {
    Block& block = blocks_[place.block];
    if (--block.uses > 0) continue;
    // Blocks without known content are taken first.
    block.idle = idle_.insert(block.published ? idle_.end() : idle_.begin(), place.block);
  }
}

void BlockPool::use(std::uint32_t block) {
  if (blocks_[block].uses++ == 0) idle_.erase(blocks_[block].idle);
}

void BlockPool::forget(std::uint32_t block) {
  if (blocks_[block].published) by_name_.erase(blocks_[block].name);
  blocks_[block].published = false;
}

}  // namespace pd
