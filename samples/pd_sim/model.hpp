// SPDX-License-Identifier: Apache-2.0
//
// The KV geometry of real models: how many bytes one token leaves behind in every layer.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pd {

/// Tokens of one block: the unit of the Mooncake traces, whose hash_ids name 512 tokens each.
inline constexpr std::uint32_t k_block_tokens = 512;

struct Model {
  std::string_view name;
  std::uint32_t layers = 0;
  std::uint32_t token_layer_bytes = 0;  ///< KV bytes of one token in one layer
  std::string_view source;

  [[nodiscard]] std::uint64_t block_layer_bytes() const { return std::uint64_t{k_block_tokens} * token_layer_bytes; }
};

/// Key and value of `heads` KV heads, in numbers of 2 bytes (bf16).
constexpr std::uint32_t attention_bytes(std::uint32_t heads, std::uint32_t head_dim) {
  return 2 * heads * head_dim * 2;
}

inline constexpr std::array k_models{
    Model{"llama3-8b", 32, attention_bytes(8, 128), "32 layers, 8 KV heads of 128"},
    Model{"llama3-70b", 80, attention_bytes(8, 128), "80 layers, 8 KV heads of 128"},
    Model{"qwen3-235b", 94, attention_bytes(4, 128), "94 layers, 4 KV heads of 128"},
    // Multi-head latent attention keeps one compressed vector of 512 and a rotary key of 64 for all heads.
    Model{"deepseek-r1", 61, (512 + 64) * 2, "61 layers, latent 512 + 64 (MLA)"},
    // Full attention over a hidden size of 8192: the shape that the field's transfer articles measure with.
    Model{"80x8192", 80, attention_bytes(64, 128), "80 layers, hidden size 8192, no sharing of heads"},
};

[[nodiscard]] inline std::optional<Model> find_model(std::string_view name) {
  for (const Model& model : k_models) {
    if (model.name == name) return model;
  }
  return {};
}

}  // namespace pd
