// SPDX-License-Identifier: Apache-2.0
#include "api/told_ranges.hpp"

#include <algorithm>
#include <utility>

namespace hixl::api {

namespace {

bool is_open(const RegionDump& regions, RegionKey key) {
  return std::ranges::any_of(
      regions.own, [key](const OwnRegion& own) { return own.region.key == key && own.state == RegionState::open; });
}

}  // namespace

Result<Region> ToldRanges::tell(const OwnRegion& base, std::uint64_t address, const void* teller) {
  const std::scoped_lock lock(mutex_);
  const auto known = std::ranges::find_if(
      told_, [&](const Told& t) { return t.base == base.region.key && t.region.address() == address; });
  if (known != told_.end()) {
    if (std::ranges::find(known->tellers, teller) == known->tellers.end()) known->tellers.push_back(teller);
    return known->region;
  }
  told_.reserve(told_.size() + 1);  // so that what is registered is remembered
  std::vector<const void*> tellers{teller};
  const std::uint64_t length = base.region.size - (address - base.region.address());
  const auto region =
      runtime_.register_memory(reinterpret_cast<void*>(address), length, {.rights = base.rights, .tag = k_told_tag});
  if (region) told_.push_back({.base = base.region.key, .region = *region, .tellers = std::move(tellers)});
  return region;
}

void ToldRanges::forget(const void* teller) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(told_, [&](Told& told) {
    if (std::erase(told.tellers, teller) == 0 || !told.tellers.empty()) return false;
    const auto ended = [](void*, const Result<void>&) {};
    static_cast<void>(runtime_.deregister_async(told.region, k_default_timeout, ended, nullptr));
    return true;
  });
}

Result<void> ToldRanges::follow(std::span<const RegionKey> bases, const Deadline& deadline) {
  const auto is_of_them = [&](const Told& told) { return std::ranges::find(bases, told.base) != bases.end(); };
  {
    const std::scoped_lock lock(mutex_);
    if (std::ranges::none_of(told_, is_of_them)) return {};
  }
  // A region that has ended never opens again, whatever is told meanwhile.
  const auto regions = runtime_.dump_regions();
  if (!regions) return fail(regions.error());
  std::vector<Region> over;
  {
    const std::scoped_lock lock(mutex_);
    over.reserve(told_.size());
    std::erase_if(told_, [&](const Told& told) {
      if (!is_of_them(told) || is_open(*regions, told.base)) return false;
      over.push_back(told.region);
      return true;
    });
  }
  Result<void> first;
  for (const Region& region : over) {
    auto ended = runtime_.deregister(region, deadline.left());
    if (first && !ended) first = std::move(ended);
  }
  return first;
}

}  // namespace hixl::api
