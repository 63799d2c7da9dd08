// SPDX-License-Identifier: Apache-2.0
#include "marks.hpp"

#include <algorithm>

namespace hixl::kv {

std::optional<std::uint32_t> Marks::begin(const MarkKey& key, const Target& target) {
  auto found = marks_.find(key);
  if (found != marks_.end() && found->second.open) return std::nullopt;
  if (found == marks_.end()) {
    // Whoever gives way is moved whole the next time; those that are open stay.
    for (auto oldest = by_use_.begin(); marks_.size() >= sequences_max_ && oldest != by_use_.end();) {
      const auto mark = marks_.find(*oldest);
      if (mark->second.open) {
        ++oldest;
        continue;
      }
      oldest = by_use_.erase(oldest);
      marks_.erase(mark);
    }
    found = marks_.emplace(key, Mark{}).first;
    found->second.used = by_use_.insert(by_use_.end(), key);
  } else {
    by_use_.splice(by_use_.end(), by_use_, found->second.used);
  }
  Mark& mark = found->second;
  const std::size_t comparable = std::min(mark.blocks.size(), target.blocks.size());
  const auto differ = std::mismatch(mark.blocks.begin(), mark.blocks.begin() + static_cast<std::ptrdiff_t>(comparable),
                                    target.blocks.begin());
  const std::uint64_t same = static_cast<std::uint64_t>(differ.first - mark.blocks.begin()) * target.block_tokens;
  mark.tokens = mark.lease == target.lease ? static_cast<std::uint32_t>(std::min<std::uint64_t>(mark.tokens, same)) : 0;
  mark.blocks.assign(target.blocks.begin(), target.blocks.end());
  mark.lease = target.lease;
  mark.open = true;
  mark.rewound_to = 0xffffffffU;
  return mark.tokens;
}

void Marks::end(const MarkKey& key, bool success, std::uint32_t tokens) {
  const auto found = marks_.find(key);
  if (found == marks_.end()) return;  // forgotten meanwhile
  Mark& mark = found->second;
  mark.open = false;
  // After a failure the range holds any mix; what was there before still is.
  if (success) mark.tokens = tokens;
  mark.tokens = std::min(mark.tokens, mark.rewound_to);
}

void Marks::rewind(std::uint64_t sequence, std::uint32_t tokens) {
  MarkKey first;
  first.sequence = sequence;
  first.rank = 0;
  for (auto at = marks_.lower_bound(first); at != marks_.end() && at->first.sequence == sequence; ++at) {
    Mark& mark = at->second;
    mark.tokens = std::min(mark.tokens, tokens);
    mark.rewound_to = std::min(mark.rewound_to, tokens);
  }
}

template <class Which>
void Marks::forget_if(Which&& which) {
  std::erase_if(marks_, [&](auto& entry) {
    if (!which(entry.first)) return false;
    by_use_.erase(entry.second.used);
    return true;
  });
}

void Marks::forget_local(std::uint64_t version) {
  forget_if([version](const MarkKey& key) { return key.local_version == version; });
}
void Marks::forget_rank(Rank rank) {
  forget_if([rank](const MarkKey& key) { return key.rank == rank; });
}

}  // namespace hixl::kv
