// SPDX-License-Identifier: Apache-2.0
//
// Which Decode gets the next request. A policy sees how loaded each living Decode is, and picks one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string_view>

namespace pd {

struct DecodeLoad {
  std::uint32_t decode = 0;  ///< index among the Decodes
  std::uint64_t blocks = 0;  ///< of requests that it has been given and that have not ended
};

class Policy {
 public:
  virtual ~Policy() = default;
  /// One of `living`, which is not empty and in order of `decode`.
  [[nodiscard]] virtual std::uint32_t choose(std::span<const DecodeLoad> living) = 0;
};

class RoundRobin final : public Policy {
 public:
  std::uint32_t choose(std::span<const DecodeLoad> living) override { return living[next_++ % living.size()].decode; }

 private:
  std::size_t next_ = 0;
};

class LeastLoaded final : public Policy {
 public:
  std::uint32_t choose(std::span<const DecodeLoad> living) override {
    return std::min_element(living.begin(), living.end(), less)->decode;
  }
  static bool less(const DecodeLoad& a, const DecodeLoad& b) { return a.blocks < b.blocks; }
};

/// The worst case on purpose: everything goes where most is already, so that pools fill and requests queue.
class MostLoaded final : public Policy {
 public:
  std::uint32_t choose(std::span<const DecodeLoad> living) override {
    return std::max_element(living.begin(), living.end(), LeastLoaded::less)->decode;
  }
};

/// The lesser of two that are drawn: needs no look at all of them, and loads that are a little old mislead it less.
class TwoChoices final : public Policy {
 public:
  std::uint32_t choose(std::span<const DecodeLoad> living) override {
    std::uniform_int_distribution<std::size_t> any(0, living.size() - 1);
    const DecodeLoad& one = living[any(random_)];
    const DecodeLoad& other = living[any(random_)];
    return LeastLoaded::less(other, one) ? other.decode : one.decode;
  }

 private:
  std::mt19937_64 random_{1};
};

inline constexpr std::string_view k_policies[] = {"round_robin", "least_loaded", "two_choices", "most_loaded"};

/// Null for a name that is none of k_policies.
[[nodiscard]] inline std::unique_ptr<Policy> make_policy(std::string_view name) {
  if (name == "round_robin") return std::make_unique<RoundRobin>();
  if (name == "least_loaded") return std::make_unique<LeastLoaded>();
  if (name == "two_choices") return std::make_unique<TwoChoices>();
  if (name == "most_loaded") return std::make_unique<MostLoaded>();
  return nullptr;
}

}  // namespace pd
