// SPDX-License-Identifier: Apache-2.0
//
// Choices: the draws of a simulated world. From a seed they are Random's numbers; or a source gives them, which then
// decides the run: a record of an earlier one, or bytes that a fuzzer made up.
//
// A source that has run dry gives 0 for ever, and 0 is the calm choice: the lowest number, and no to every chance.
#pragma once

#include <cstdint>

#include "base/random.hpp"

namespace hixl {

class ChoiceSource {
 public:
  [[nodiscard]] virtual std::uint64_t next() noexcept = 0;
  /// The draw before this was a chance, and it came true.
  virtual void on_yes() noexcept = 0;

 protected:
  ~ChoiceSource() = default;
};

class Choices {
 public:
  explicit Choices(std::uint64_t seed) : random_(seed) {}
  explicit Choices(ChoiceSource& source) : random_(0), source_(&source) {}

  std::uint64_t next() noexcept { return source_ == nullptr ? random_.next() : source_->next(); }
  /// In [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound) noexcept { return scaled(next(), bound); }
  /// In [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) noexcept { return low + below(high - low + 1); }
  /// True `per_mille` times in a thousand.
  bool chance(std::uint32_t per_mille) noexcept {
    const bool yes = below(1000) + per_mille >= 1000;
    if (yes && source_ != nullptr) source_->on_yes();
    return yes;
  }

 private:
  Random random_;
  ChoiceSource* source_ = nullptr;
};

}  // namespace hixl
