// SPDX-License-Identifier: Apache-2.0
//
// BytePlan: which bytes of which tensors go where, for two caches and a slice of them. Pure; everything is checked when
// it is made, so that asking for the pieces of a layer cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <hixl/kv/cache.hpp>

namespace hixl::kv {

/// Bytes that follow each other on both sides. Tensors are numbered as the caches number them.
struct Piece {
  std::uint32_t source_tensor = 0;
  std::uint32_t target_tensor = 0;
  std::uint64_t source = 0;  ///< offset in the tensor
  std::uint64_t target = 0;
  std::uint64_t bytes = 0;
};

/// Layout and shard inside their ranges, at least one block, all sizes below 2^64: what register_cache() lets pass.
[[nodiscard]] Result<void> validate(const CacheDesc& desc);
/// The model's layers and heads that the cache holds.
[[nodiscard]] Range layers_of(const CacheDesc& desc) noexcept;
[[nodiscard]] Range heads_of(const CacheDesc& desc) noexcept;
[[nodiscard]] std::uint32_t tensors_of(const CacheDesc& desc) noexcept;
/// Each once, all inside the cache. OUT_OF_RANGE, INVALID_ARGUMENT; entry: which one.
[[nodiscard]] Result<void> check_blocks(const CacheDesc& desc, BlockTable blocks);

class BytePlan {
 public:
  /// Of valid caches. `here`: which side a LAYOUT_MISMATCH calls so.
  [[nodiscard]] static Result<BytePlan> make(const CacheDesc& source, const CacheDesc& target, const Slice& slice,
                                             bool source_is_here);
  [[nodiscard]] const Range& layers() const noexcept { return layers_; }  ///< the model's numbers, at the source
  [[nodiscard]] const Range& heads() const noexcept { return heads_; }
  [[nodiscard]] const Range& tokens() const noexcept { return tokens_; }
  [[nodiscard]] std::uint32_t target_layer() const noexcept { return target_layer_; }
  [[nodiscard]] const std::vector<std::uint32_t>& target_blocks() const noexcept { return target_blocks_; }
  [[nodiscard]] std::uint32_t target_block_tokens() const noexcept { return target_.layout.block_tokens; }
  /// Leaves the tokens before `first` out.
  void begin_at(std::uint32_t first) noexcept;
  [[nodiscard]] std::uint64_t layer_bytes() const noexcept;
  /// A layer that is being cut: what comes next.
  struct Cut {
    std::uint32_t layer = 0;
    std::uint32_t plane = 0;
    std::uint32_t token = 0;
  };
  [[nodiscard]] Cut begin_layer(std::uint32_t layer) const noexcept {
    return {.layer = layer, .plane = 0, .token = tokens_.first};
  }
  /// Appends pieces, neighbours joined, until there are `pieces` more, or a few more than that. True: that was the last
  /// of the layer.
  bool cut(Cut& at, std::size_t pieces, std::vector<Piece>& out) const;

 private:
  struct Run {
    std::uint32_t source_block = 0;
    std::uint32_t target_block = 0;
    std::uint32_t in_source = 0;  // its first token
    std::uint32_t in_target = 0;
    std::uint32_t tokens = 0;
  };
  BytePlan(const CacheDesc& source, const CacheDesc& target) : source_(source), target_(target) {}
  [[nodiscard]] Run run_at(std::uint32_t token, std::uint32_t tokens_max) const noexcept;

  CacheDesc source_;
  CacheDesc target_;
  std::vector<std::uint32_t> source_blocks_;
  std::vector<std::uint32_t> target_blocks_;
  Range tokens_{};
  Range layers_{};
  Range heads_{};
  std::uint32_t target_layer_ = 0;  // of the first of layers_
};

}  // namespace hixl::kv
