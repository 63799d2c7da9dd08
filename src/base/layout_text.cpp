// SPDX-License-Identifier: Apache-2.0
//
// The words for a KV layout. They are here and not in src/kv because the text of an error shows two of them.
#include <hixl/kv/layout.hpp>

#include <iterator>
#include <string_view>

#include <fmt/format.h>

namespace hixl::kv {

namespace {

std::string_view form_text(Form form) noexcept {
  switch (form) {
    case Form::separate:
      return "K and V separate";
    case Form::block_interleaved:
      return "K and V interleaved by block";
    case Form::token_interleaved:
      return "K and V interleaved by token";
    case Form::latent:
      return "latent (MLA)";
  }
  return "of unknown form";
}

}  // namespace

std::string to_text(const Layout& layout) {
  const auto plural = [](std::uint32_t count) { return count == 1 ? "" : "s"; };
  std::string text =
      fmt::format("{} layer{}, {} KV head{} of {}, {} byte{} a number, {}, blocks of {} token{}", layout.layers,
                  plural(layout.layers), layout.kv_heads, plural(layout.kv_heads), layout.head_dim, layout.dtype_bytes,
                  plural(layout.dtype_bytes), form_text(layout.form), layout.block_tokens, plural(layout.block_tokens));
  if (layout.order == Order::head_major) text += ", heads outermost";
  return text;
}

}  // namespace hixl::kv
