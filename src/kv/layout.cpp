// SPDX-License-Identifier: Apache-2.0
#include <hixl/kv/layout.hpp>

#include "checked.hpp"

namespace hixl::kv {

namespace {

Result<std::uint64_t> sized(const Checked& size) {
  if (size.fits()) return size.value();
  return fail(ErrorCode::out_of_range, {.stage = Stage::kv});
}

Result<void> in_range(std::uint32_t value, std::uint32_t limit) {
  if (value >= 1 && value <= limit) return {};
  return fail(ErrorCode::invalid_argument, {.stage = Stage::kv, .length = value, .limit = value == 0 ? 1 : limit});
}

/// Of one token in one layer.
Checked token_layer_bytes(const Layout& layout) {
  return Checked(planes(layout.form)).times(layout.kv_heads).times(layout.head_dim).times(layout.dtype_bytes);
}

Checked tensor_block_bytes(const Layout& layout) {
  Checked size(layout.kv_heads);
  size.times(layout.head_dim).times(layout.dtype_bytes).times(layout.block_tokens);
  return size.times(planes(layout.form) / tensors_per_layer(layout.form));
}

}  // namespace

Result<void> validate(const Layout& layout) {
  if (layout.form > Form::latent) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::kv,
                                              .length = static_cast<std::uint64_t>(layout.form),
                                              .limit = static_cast<std::uint64_t>(Form::latent)});
  }
  if (layout.order > Order::head_major ||
      (layout.order == Order::head_major && layout.form == Form::token_interleaved)) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::kv, .length = static_cast<std::uint64_t>(layout.order)});
  }
  for (const Result<void>& field :
       {in_range(layout.dtype_bytes, k_dtype_bytes_max), in_range(layout.layers, k_layers_max),
        in_range(layout.kv_heads, layout.form == Form::latent ? 1 : k_heads_max),
        in_range(layout.head_dim, k_head_dim_max), in_range(layout.block_tokens, k_block_tokens_max)}) {
    if (!field) return field;
  }
  return {};
}

Result<std::uint64_t> kv_bytes(const Layout& layout, std::uint64_t tokens) {
  if (const auto valid = validate(layout); !valid) return fail(valid.error());
  return sized(token_layer_bytes(layout).times(layout.layers).times(tokens));
}

Result<std::uint64_t> block_bytes(const Layout& layout) {
  if (const auto valid = validate(layout); !valid) return fail(valid.error());
  return sized(tensor_block_bytes(layout));
}

Result<std::uint64_t> tensor_bytes(const Layout& layout, std::uint64_t blocks) {
  if (const auto valid = validate(layout); !valid) return fail(valid.error());
  return sized(tensor_block_bytes(layout).times(blocks));
}

Result<std::uint64_t> cache_bytes(const Layout& layout, std::uint64_t blocks) {
  if (const auto valid = validate(layout); !valid) return fail(valid.error());
  return sized(tensor_block_bytes(layout).times(blocks).times(layout.layers).times(tensors_per_layer(layout.form)));
}

Result<std::uint64_t> blocks_for(const Layout& layout, std::uint64_t tokens, std::uint32_t headroom_percent) {
  if (const auto valid = validate(layout); !valid) return fail(valid.error());
  // Rounded up twice, so that neither part of the product is lost: the head-room, then the last block.
  const Checked scaled = Checked(tokens).times(std::uint64_t{100} + headroom_percent).plus(99);
  if (!scaled.fits()) return fail(ErrorCode::out_of_range, {.stage = Stage::kv, .length = tokens});
  const std::uint64_t wanted = scaled.value() / 100;
  return wanted / layout.block_tokens + (wanted % layout.block_tokens == 0 ? 0 : 1);
}

}  // namespace hixl::kv
