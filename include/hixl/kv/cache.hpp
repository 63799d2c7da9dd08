// SPDX-License-Identifier: Apache-2.0
//
// Caches: KV memory under a name. A rank registers its own; a peer that has linked with it finds them, and moves parts
// of them. Plain values but for RemoteCache, which shares what was learned.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <hixl/kv/layout.hpp>
#include <hixl/memory.hpp>
#include <hixl/result.hpp>
#include <hixl/types.hpp>

namespace hixl::kv {

/// Name of a cache, chosen by the program; unique on its rank.
struct CacheKey {
  std::uint64_t model = 0;  ///< which model, and which kind of tensor of it
  std::uint64_t name = 0;   ///< which cache of that model: a request, a prefix, 0 for the one block pool
  friend bool operator==(const CacheKey&, const CacheKey&) = default;
};

struct CacheDesc {
  CacheKey key{};
  Layout layout{};
  std::uint32_t blocks = 0;  ///< of each tensor: pages, or sequences of a contiguous cache; 1 …
  Shard shard{};
};

/// Where a tensor begins. It lies inside the region, as long as tensor_bytes() says.
struct TensorPlace {
  Region region{};
  std::uint64_t offset = 0;  ///< bytes
};

/// One registration of a cache of this rank. When that has ended it names nothing any more.
struct CacheId {
  std::uint32_t slot = 0;
  std::uint64_t version = 0;  ///< 0: names nothing; never the same again on this rank, and rising
  friend bool operator==(const CacheId&, const CacheId&) = default;
};

/// One registration of a cache of another rank, as find() saw it. A small value that may be copied to any thread; it
/// holds what was learned, and no claim: when that registration or that life of the rank is over, transfers with it end
/// with CACHE_STALE or STALE.
class RemoteCache {
 public:
  RemoteCache() = default;  ///< empty
  [[nodiscard]] bool empty() const noexcept { return state_ == nullptr; }
  [[nodiscard]] Rank rank() const noexcept;              ///< k_no_rank: empty
  [[nodiscard]] const CacheDesc& desc() const noexcept;  ///< of an empty one: an empty one
  [[nodiscard]] std::uint64_t version() const noexcept;  ///< 0: empty
  struct State;
  explicit RemoteCache(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}
  [[nodiscard]] const std::shared_ptr<const State>& state() const noexcept { return state_; }

 private:
  std::shared_ptr<const State> state_;
};

/// From `first` up to, and without, `last`.
struct Range {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  [[nodiscard]] constexpr std::uint32_t size() const noexcept { return last - first; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Blocks of a sequence in the order of its tokens, from its first token on: token t is in table[t / block_tokens]. In
/// any order, each once. A contiguous cache: the one place of the sequence.
using BlockTable = std::span<const std::uint32_t>;

/// What part of two caches moves. Layers and heads are the model's numbers, wherever the shards hold them, so both
/// sides mean the same. The layouts may differ in form, order and blocks; the numbers themselves are never converted.
struct Slice {
  BlockTable source{};
  BlockTable target{};
  /// Positions in the sequence. Without: all that the tables hold, which must be the same number on both sides.
  std::optional<Range> tokens{};
  std::optional<Range> layers{};  ///< without: those that both shards hold; none: INVALID_ARGUMENT
  std::optional<Range> heads{};   ///< without: those that both shards hold; none: INVALID_ARGUMENT. latent: 0 … 1
  /// The target's layer for the first of `layers`, where they differ (distillation, another model's cache). Then
  /// `layers` must be given.
  std::optional<std::uint32_t> target_layer{};
};

}  // namespace hixl::kv
