// SPDX-License-Identifier: Apache-2.0
//
// Sums and products of sizes that remember whether they still fit.
#pragma once

#include <cstdint>

namespace hixl::kv {

/// Once it does not fit it stays so.
class Checked {
 public:
  explicit constexpr Checked(std::uint64_t value) noexcept : value_(value) {}
  constexpr Checked& times(std::uint64_t factor) noexcept {
    fits_ = !__builtin_mul_overflow(value_, factor, &value_) && fits_;
    return *this;
  }
  constexpr Checked& plus(std::uint64_t term) noexcept {
    fits_ = !__builtin_add_overflow(value_, term, &value_) && fits_;
    return *this;
  }
  [[nodiscard]] constexpr bool fits() const noexcept { return fits_; }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_;
  bool fits_ = true;
};

}  // namespace hixl::kv
