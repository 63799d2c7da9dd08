// SPDX-License-Identifier: Apache-2.0
//
// What was asked of the atomic words of one memory, what each operation was told, and whether the words can have come
// about that way (S5).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hixl::sim {

enum class WordUse : std::uint8_t { count, compare_swap, swap };  ///< one word each
inline constexpr std::size_t k_words = 3;

/// Adds are of 1; compare_swap and swap store a value that nobody else ever stores, so that each value has one author.
class WordHistory {
 public:
  struct Entry {
    WordUse use = WordUse::count;
    std::uint64_t expected = 0;
    std::uint64_t stored = 0;
    enum class Fate : std::uint8_t { unknown, done, not_done } fate = Fate::unknown;  ///< while open: unknown
    std::uint64_t before = 0;                                                         ///< done
    [[nodiscard]] bool stores() const noexcept { return use != WordUse::compare_swap || before == expected; }
  };
  /// The index of the entry.
  std::size_t begin(const Entry& entry);
  void end(std::size_t index, Entry::Fate fate, std::uint64_t before = 0);
  /// Nothing when the words may be as they are now; else what is wrong.
  [[nodiscard]] std::string complaint(const std::array<std::uint64_t, k_words>& now) const;

 private:
  [[nodiscard]] std::string count_complaint(std::uint64_t now) const;
  [[nodiscard]] std::string compare_swap_complaint(std::uint64_t now) const;
  [[nodiscard]] std::string swap_complaint(std::uint64_t now) const;
  std::vector<Entry> entries_;
};

}  // namespace hixl::sim
