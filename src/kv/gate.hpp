// SPDX-License-Identifier: Apache-2.0
//
// Gate: one 8-byte word in the owner's memory through which a peer says that it uses blocks there. The peer adds itself
// before it touches a byte and takes itself away afterwards; the owner closes the word and sees who is still inside. A
// word belongs to one peer, and begins anew when a life of that peer is over, so no count is lost with it.
//
//   bits 0-17 transfers that read, 18-35 that write, 36 reading is allowed, 37 writing, 38 closing, 40-63 generation
#pragma once

#include <cstdint>

#include <hixl/kv/lease.hpp>

namespace hixl::kv::gate {

inline constexpr unsigned k_count_bits = 18;  ///< more transfers than a runtime has request slots
inline constexpr std::uint64_t k_count_mask = (std::uint64_t{1} << k_count_bits) - 1;
inline constexpr unsigned k_generation_shift = 40;
inline constexpr std::uint64_t k_closing = std::uint64_t{1} << 38U;
/// Generations are those of a version or lease, cut to what the word has room for; 0 is none.
inline constexpr std::uint32_t k_generation_mask = (1U << 24U) - 1;

[[nodiscard]] constexpr std::uint64_t allowed(Access access) noexcept {
  return std::uint64_t{1} << (access == Access::pull ? 36U : 37U);
}
inline constexpr std::uint64_t k_allowed_mask = allowed(Access::pull) | allowed(Access::push);

[[nodiscard]] constexpr std::uint64_t opened(std::uint32_t generation, std::uint64_t allowed_bits) noexcept {
  return std::uint64_t{generation & k_generation_mask} << k_generation_shift | (allowed_bits & k_allowed_mask);
}
[[nodiscard]] constexpr std::uint32_t generation(std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(word >> k_generation_shift);
}
/// What a user adds; it subtracts the same.
[[nodiscard]] constexpr std::uint64_t one(Access access) noexcept {
  return std::uint64_t{1} << (access == Access::pull ? 0U : k_count_bits);
}
[[nodiscard]] constexpr std::uint64_t users(std::uint64_t word, Access access) noexcept {
  return (access == Access::pull ? word : word >> k_count_bits) & k_count_mask;
}
[[nodiscard]] constexpr bool in_use(std::uint64_t word) noexcept {
  return users(word, Access::pull) + users(word, Access::push) != 0;
}

/// The same word with fewer users, where it has more than these: nothing is added that is not there.
[[nodiscard]] constexpr std::uint64_t with_users_at_most(std::uint64_t word, std::uint64_t pulling,
                                                         std::uint64_t pushing) noexcept {
  const auto excess = [&](Access access, std::uint64_t most) {
    return users(word, access) > most ? (users(word, access) - most) * one(access) : 0;
  };
  return word - excess(Access::pull, pulling) - excess(Access::push, pushing);
}

/// A word that begins anew for another user of the same life, of whom some may still be on their way out: who was
/// refused has counted himself, too.
[[nodiscard]] constexpr std::uint64_t reopened(std::uint64_t before, std::uint32_t generation,
                                               std::uint64_t allowed_bits) noexcept {
  constexpr std::uint64_t k_counts = (std::uint64_t{1} << (2 * k_count_bits)) - 1;
  return opened(generation, allowed_bits) | (before & k_counts);
}

enum class Answer : std::uint8_t { admitted, over, not_allowed, full };
/// What a user who found this word may do.
[[nodiscard]] constexpr Answer ask(std::uint64_t word, std::uint32_t wanted_generation, Access access) noexcept {
  if (generation(word) != (wanted_generation & k_generation_mask) || (word & k_closing) != 0) return Answer::over;
  if ((word & allowed(access)) == 0) return Answer::not_allowed;
  return users(word, access) < k_count_mask / 2 ? Answer::admitted : Answer::full;
}

}  // namespace hixl::kv::gate
