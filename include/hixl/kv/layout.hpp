// SPDX-License-Identifier: Apache-2.0
//
// Layout: how the keys and values of a model lie in memory, as data. All that moves them is computed from it. Sizes are
// exact, and every sum that would not fit 64 bits is refused.
#pragma once

#include <cstdint>
#include <string>

#include <hixl/result.hpp>

namespace hixl::kv {

/// How K and V of a layer lie to each other.
enum class Form : std::uint8_t {
  separate = 0,           ///< two tensors a layer: K, then V
  block_interleaved = 1,  ///< one tensor: of each block first K, then V
  token_interleaved = 2,  ///< one tensor: of each token first K, then V
  latent = 3,             ///< one tensor, one vector a token for all heads (MLA)
};

/// How the vectors of one block (of K, or of V) follow each other.
enum class Order : std::uint8_t {
  token_major = 0,  ///< [token][head][dim], "NHD"
  head_major = 1,   ///< [head][token][dim], "HND"; not with token_interleaved
};

inline constexpr std::uint32_t k_layers_max = 4'096;
inline constexpr std::uint32_t k_heads_max = 65'536;
inline constexpr std::uint32_t k_head_dim_max = 1U << 20U;
inline constexpr std::uint32_t k_block_tokens_max = 1U << 26U;
inline constexpr std::uint32_t k_dtype_bytes_max = 16;

/// A tensor is a row of blocks. A paged cache has blocks of a few tokens, and a sequence is a list of them in any
/// order. A contiguous cache is the same with one block a sequence, of as many tokens as a sequence may have.
struct Layout {
  Form form = Form::separate;
  Order order = Order::token_major;
  std::uint32_t dtype_bytes = 2;   ///< of one number; 1 … 16
  std::uint32_t layers = 0;        ///< in this cache; 1 … 4 096
  std::uint32_t kv_heads = 0;      ///< in this cache; 1 … 65 536. latent: 1
  std::uint32_t head_dim = 0;      ///< numbers; 1 … 1 048 576. latent: the latent vector with its rotary part
  std::uint32_t block_tokens = 0;  ///< 1 … 67 108 864
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// INVALID_ARGUMENT: the first field outside its range (length: its value, limit: the range's end).
[[nodiscard]] Result<void> validate(const Layout& layout);
[[nodiscard]] constexpr std::uint32_t planes(Form form) noexcept { return form == Form::latent ? 1 : 2; }
[[nodiscard]] constexpr std::uint32_t tensors_per_layer(Form form) noexcept { return form == Form::separate ? 2 : 1; }

// ---- sizes, in bytes. INVALID_ARGUMENT as validate(); OUT_OF_RANGE: more than 2^64 - 1 ----
/// What `tokens` tokens leave behind in all layers.
[[nodiscard]] Result<std::uint64_t> kv_bytes(const Layout& layout, std::uint64_t tokens);
/// One block of one tensor.
[[nodiscard]] Result<std::uint64_t> block_bytes(const Layout& layout);
/// One tensor of `blocks` blocks, and all tensors of a cache.
[[nodiscard]] Result<std::uint64_t> tensor_bytes(const Layout& layout, std::uint64_t blocks);
[[nodiscard]] Result<std::uint64_t> cache_bytes(const Layout& layout, std::uint64_t blocks);

/// Room beyond the largest KV that is expected, for sequences longer than that and blocks in flight: what the field's
/// articles advise.
inline constexpr std::uint32_t k_headroom_percent = 30;
/// Blocks for `tokens` tokens and the head-room, rounded up; then what cache_bytes() gives for them is the buffer to
/// allocate.
[[nodiscard]] Result<std::uint64_t> blocks_for(const Layout& layout, std::uint64_t tokens,
                                               std::uint32_t headroom_percent = k_headroom_percent);
/// From here on a buffer eats its head-room: 100 / 130 of it are 77 %, so 70 % warns before.
inline constexpr std::uint32_t k_nearly_full_percent = 70;
[[nodiscard]] constexpr bool nearly_full(std::uint64_t used, std::uint64_t capacity) noexcept {
  return used > capacity / 100 * k_nearly_full_percent + capacity % 100 * k_nearly_full_percent / 100;
}

/// "80 layers, 8 KV heads of 128, 2 bytes a number, K and V separate, blocks of 16 tokens"
[[nodiscard]] std::string to_text(const Layout& layout);

/// Part of a model that one rank holds: its layers (pipeline parallelism) and its heads (tensor parallelism). The
/// counts are those of the layout.
struct Shard {
  std::uint32_t layers_first = 0;
  std::uint32_t layers_total = 0;  ///< of the model; 0: this cache has them all
  std::uint32_t heads_first = 0;
  std::uint32_t heads_total = 0;  ///< of the model; 0: this cache has them all
  friend bool operator==(const Shard&, const Shard&) = default;
};

/// Layout and shard in two words: what an error of code LAYOUT_MISMATCH carries of each side, so that its text can show
/// both.
struct LayoutWords {
  std::uint64_t shape = 0;
  std::uint64_t place = 0;
};
struct Shape {
  Layout layout{};
  Shard shard{};
};
/// Of a valid layout, with a shard inside it.
[[nodiscard]] constexpr LayoutWords pack(const Shape& shape) noexcept {
  const Layout& layout = shape.layout;
  return {.shape = static_cast<std::uint64_t>(layout.form) | std::uint64_t{layout.dtype_bytes - 1} << 2U |
                   std::uint64_t{layout.layers - 1} << 6U | std::uint64_t{layout.kv_heads - 1} << 18U |
                   std::uint64_t{shape.shard.heads_first} << 34U |
                   (std::uint64_t{shape.shard.layers_total} & 0x1fffU) << 50U,
          .place = std::uint64_t{layout.head_dim - 1} | std::uint64_t{layout.block_tokens - 1} << 20U |
                   (std::uint64_t{shape.shard.heads_total} & 0x1ffffU) << 46U |
                   std::uint64_t{static_cast<std::uint8_t>(layout.order)} << 63U};
}
/// Whatever the words are; the first layer of the shard is not in them.
[[nodiscard]] constexpr Shape unpack(const LayoutWords& words) noexcept {
  const auto bits = [](std::uint64_t word, unsigned from, unsigned count) {
    return static_cast<std::uint32_t>(word >> from & ((std::uint64_t{1} << count) - 1));
  };
  return {.layout = {.form = static_cast<Form>(bits(words.shape, 0, 2)),
                     .order = static_cast<Order>(bits(words.place, 63, 1)),
                     .dtype_bytes = bits(words.shape, 2, 4) + 1,
                     .layers = bits(words.shape, 6, 12) + 1,
                     .kv_heads = bits(words.shape, 18, 16) + 1,
                     .head_dim = bits(words.place, 0, 20) + 1,
                     .block_tokens = bits(words.place, 20, 26) + 1},
          .shard = {.layers_first = 0,
                    .layers_total = bits(words.shape, 50, 13),
                    .heads_first = bits(words.shape, 34, 16),
                    .heads_total = bits(words.place, 46, 17)}};
}

}  // namespace hixl::kv
