// SPDX-License-Identifier: Apache-2.0
//
// Quota: how many lines of a kind, about the same somebody, the log takes in a period. For lines that outside events
// can cause again and again, so that nobody outside can fill the log. (S12, L4)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/time.hpp"

namespace hixl::log {

inline constexpr std::uint64_t k_nobody = ~std::uint64_t{0};

/// What a line is about. `kind` is a literal of the program: it says what is left out, and lives for ever.
struct Topic {
  std::string_view kind;
  std::uint64_t whom = k_nobody;  ///< a rank, or a user of the system
  friend bool operator==(const Topic&, const Topic&) = default;
};

/// Bound to one thread. The clock is handed in. Owner: whoever writes the lines.
class Quota {
 public:
  /// A fault that comes and goes shows itself in a few lines; half a line a second a topic at most stays readable.
  static constexpr std::uint32_t k_lines_a_period = 5;
  static constexpr Duration k_period = std::chrono::seconds(10);
  /// Topics of one period; more of them share one that stands for all.
  static constexpr std::size_t k_topics_max = 256;

  /// Whether a line may be written now. Not: it is counted, and flush() has something to say at due().
  [[nodiscard]] bool admit(Level level, const Topic& topic, Instant now);
  /// When the first period with lines left out ends; k_never: none.
  [[nodiscard]] Instant due() const noexcept;
  /// Calls `tell(level, topic, count)` for every period that has ended with `count` lines left out.
  template <class Tell>
  void flush(Instant now, Tell&& tell) {
    for (std::size_t i = 0; i < entries_.size();) {
      if (!over(entries_[i], now)) {
        ++i;
        continue;
      }
      const Entry ended = entries_[i];
      entries_[i] = entries_.back();
      entries_.pop_back();
      if (ended.left_out > 0) tell(ended.level, ended.topic, ended.left_out);
    }
  }

 private:
  struct Entry {
    Topic topic;
    Level level;
    Instant since;
    std::uint32_t lines = 0;
    std::uint64_t left_out = 0;
  };
  [[nodiscard]] static bool over(const Entry& entry, Instant now) noexcept { return now - entry.since >= k_period; }
  [[nodiscard]] Entry& entry_of(Level level, Topic topic, Instant now);

  std::vector<Entry> entries_;
};

}  // namespace hixl::log
