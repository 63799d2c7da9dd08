// SPDX-License-Identifier: Apache-2.0
#include "base/log_quota.hpp"

#include <algorithm>

namespace hixl::log {

namespace {

constexpr Topic k_crowd{.kind = "lines about more than 256 sources", .whom = k_nobody};

}  // namespace

/// Topics whose period is over and which have nothing to tell make room.
Quota::Entry& Quota::entry_of(Level level, Topic topic, Instant now) {
  const auto find = [this](const Topic& wanted) {
    return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.topic == wanted; });
  };
  auto found = find(topic);
  if (found == entries_.end()) {
    std::erase_if(entries_, [now](const Entry& entry) { return over(entry, now) && entry.left_out == 0; });
    if (entries_.size() >= k_topics_max) {
      topic = k_crowd;
      found = find(topic);
    } else {
      found = entries_.end();
    }
  }
  if (found != entries_.end()) return *found;
  return entries_.emplace_back(Entry{.topic = topic, .level = level, .since = now});
}

bool Quota::admit(Level level, const Topic& topic, Instant now) {
  Entry& entry = entry_of(level, topic, now);
  if (over(entry, now) && entry.left_out == 0) {
    entry.since = now;
    entry.lines = 0;
  }
  if (entry.lines < k_lines_a_period) {
    entry.lines += 1;
    return true;
  }
  entry.left_out += 1;
  return false;
}

Instant Quota::due() const noexcept {
  Instant first = k_never;
  for (const Entry& entry : entries_) {
    if (entry.left_out > 0) first = std::min(first, entry.since + k_period);
  }
  return first;
}

}  // namespace hixl::log
