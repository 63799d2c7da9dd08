// SPDX-License-Identifier: Apache-2.0
//
// PostNote: what a post says of itself, one a slot, for those who look inside while the operation may still lie in the
// mailbox, or has ended. Written by the poster, who writes to no other line of it and seldom shares it with anybody.
#pragma once

#include <optional>

#include <hixl/inspect.hpp>

#include "base/time.hpp"
#include "memory/sequence.hpp"

namespace hixl::core {

class alignas(64) PostNote {
 public:
  struct Values {
    OperationVerb verb = OperationVerb::put;
    bool signal = false;
    Rank rank = k_no_rank;
    std::uint64_t bytes = 0;
    std::uint64_t user_data = 0;
    Instant posted{};
    Instant deadline{};
  };

  /// The one who posts, before it hands the slot over.
  void write(std::uint32_t generation, const Values& values) noexcept {
    // Whoever sees one of the new words sees this too, and throws all away: cells are loaded with acquire and stored
    // with release.
    life_.store(0);
    about_.store(std::uint64_t{values.rank} | std::uint64_t{static_cast<std::uint8_t>(values.verb)} << 32U |
                 std::uint64_t{values.signal} << 40U);
    bytes_.store(values.bytes);
    user_data_.store(values.user_data);
    posted_.store(values.posted.time_since_epoch().count());
    deadline_.store(values.deadline.time_since_epoch().count());
    life_.store(generation);
  }

  /// Any thread. Nothing: that life's post has not come so far.
  [[nodiscard]] std::optional<Values> read(std::uint32_t generation) const noexcept {
    if (life_.load() != generation) return std::nullopt;
    const std::uint64_t about = about_.load();
    const Values values{.verb = static_cast<OperationVerb>(about >> 32U & 0xffU),
                        .signal = (about >> 40U) != 0,
                        .rank = static_cast<Rank>(about),
                        .bytes = bytes_.load(),
                        .user_data = user_data_.load(),
                        .posted = Instant(Duration(posted_.load())),
                        .deadline = Instant(Duration(deadline_.load()))};
    if (life_.load() != generation) return std::nullopt;
    return values;
  }

 private:
  memory::Cell<std::uint32_t> life_{};  // generation of the slot; 0: being written
  memory::Cell<std::uint64_t> about_{};
  memory::Cell<std::uint64_t> bytes_{};
  memory::Cell<std::uint64_t> user_data_{};
  memory::Cell<std::int64_t> posted_{};
  memory::Cell<std::int64_t> deadline_{};
};

}  // namespace hixl::core
