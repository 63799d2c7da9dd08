// SPDX-License-Identifier: Apache-2.0
//
// The memory oracle: knows what every byte of every simulated memory may be, and who may change it. Stands outside the
// actors; a violation names its invariant (S1 … S14, L1, L2 of the protocol).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "word_history.hpp"

namespace hixl::sim {

inline constexpr std::size_t k_slot_bytes = 12U << 10U;  // three chunks of the smallest chunk size
inline constexpr std::size_t k_load_slots = 12;
/// Two more, so that every pair can be tried even when all others are in use: one to send from, one to receive in.
inline constexpr std::size_t k_probe_source = k_load_slots;
inline constexpr std::size_t k_probe_target = k_load_slots + 1;
inline constexpr std::size_t k_slots = k_load_slots + 2;
inline constexpr std::size_t k_signal_bytes = 8;

using Bytes = std::shared_ptr<const std::vector<std::byte>>;

/// The memory of one life of a rank: slots for data, then one signal word a slot, then words for atomics. At most one
/// open operation writes a slot, so that the effect of each is known to the byte.
class Memory {
 public:
  explicit Memory(std::uint64_t seed);
  [[nodiscard]] std::byte* data() noexcept { return bytes_.data(); }
  [[nodiscard]] const std::byte* data() const noexcept { return bytes_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  [[nodiscard]] std::byte* slot(std::size_t index) noexcept { return data() + index * k_slot_bytes; }
  [[nodiscard]] const std::byte* slot(std::size_t index) const noexcept { return data() + index * k_slot_bytes; }
  [[nodiscard]] static std::size_t signal_offset(std::size_t index) noexcept {
    return k_slots * k_slot_bytes + index * k_signal_bytes;
  }
  [[nodiscard]] std::uint64_t signal(std::size_t index) const noexcept;
  [[nodiscard]] static std::size_t word_offset(std::size_t index) noexcept {
    return signal_offset(k_slots) + index * sizeof(std::uint64_t);
  }
  [[nodiscard]] std::array<std::uint64_t, k_words> words() const noexcept;
  [[nodiscard]] WordHistory& history() noexcept { return history_; }
  [[nodiscard]] const WordHistory& history() const noexcept { return history_; }

  enum class Use : std::uint8_t {
    quiet,        ///< must stay as it is
    read,         ///< sources of open operations: must stay as they are too
    written,      ///< one open operation may make its bytes, and its signal, appear
    quarantined,  ///< written by an operation whose target could not be asked (R1 c): nothing is promised
  };
  [[nodiscard]] Use use(std::size_t index) const noexcept { return states_[index].use; }
  [[nodiscard]] bool readable(std::size_t index) const noexcept { return use(index) <= Use::read; }

  void begin_read(std::size_t index);
  void end_read(std::size_t index);
  /// From now on `bytes` may appear at `offset`, and `signal` in the word.
  void begin_write(std::size_t index, std::size_t offset, Bytes bytes, std::uint64_t signal);
  /// Nobody may change the slot from now on: it is quiet as it is.
  void settle(std::size_t index);
  /// `writer` is the life that wrote; 0 when its successor cannot vouch for its end.
  void quarantine(std::size_t index, std::uint64_t writer);
  /// The owner has dealt with a later life of those writers (from … below): it has fenced them.
  void lift(std::uint64_t from, std::uint64_t below);
  /// The owner took the slot's memory away from a writer that does not know of it yet.
  void freeze(std::size_t index);
  /// The owner reuses part of a quiet slot: new bytes, which nobody may change.
  void refill(std::size_t index, std::size_t offset, std::size_t size, Random& random);

  /// The process is dead: nobody looks at its memory any more.
  void lose();
  [[nodiscard]] bool lost() const noexcept { return lost_; }
  /// What an open operation writes may be anything until it succeeds: somebody damages it on its way.
  void expect_damage(bool on) noexcept { damage_ = on; }
  /// Nothing when the slot holds what it may hold; otherwise what is wrong.
  [[nodiscard]] std::string complaint(std::size_t index) const;
  /// True when the open operation that writes the slot has changed a byte or the signal of it.
  [[nodiscard]] bool moved(std::size_t index) const;
  /// The value that the signal word has before an operation that begins now.
  [[nodiscard]] std::uint64_t settled_signal(std::size_t index) const noexcept { return states_[index].signal; }

 private:
  struct Slot {
    Use use = Use::quiet;
    std::uint32_t readers = 0;
    std::uint64_t signal = 0;         ///< what the word must be; while written: what it was before
    std::vector<std::byte> expected;  ///< the same for the data
    std::size_t offset = 0;           ///< while written
    std::uint64_t writer = 0;         ///< while quarantined
    Bytes incoming;
    std::uint64_t incoming_signal = 0;
  };
  std::vector<std::byte> bytes_;
  std::vector<Slot> states_;
  WordHistory history_;
  bool lost_ = false;
  bool damage_ = false;
};

struct Violation {
  std::string invariant;  ///< "S4"
  std::string text;
};

}  // namespace hixl::sim
