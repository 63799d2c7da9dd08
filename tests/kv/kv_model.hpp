// SPDX-License-Identifier: Apache-2.0
//
// The reference for everything that moves KV: one number after the other, by the meaning of the layout and nothing
// else. Slow and obvious.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include <hixl/kv/cache.hpp>

namespace hixl::kv::test {

/// A cache as plain bytes, tensor by tensor.
using Memory = std::vector<std::vector<std::uint8_t>>;

inline Memory make_memory(const CacheDesc& desc) {
  return Memory(desc.layout.layers * tensors_per_layer(desc.layout.form),
                std::vector<std::uint8_t>(tensor_bytes(desc.layout, desc.blocks).value()));
}

/// One number of the model: which layer, plane (K or V), token of the sequence, head and dimension.
struct Number {
  std::uint32_t layer, plane, token, head, dim;
};

/// Tensor and first byte of that number, said as an index expression of each layout.
inline std::pair<std::size_t, std::size_t> place_of(const CacheDesc& desc, BlockTable table, const Number& number) {
  const Layout& at = desc.layout;
  const std::size_t layer = number.layer - desc.shard.layers_first;
  const std::size_t head = number.head - desc.shard.heads_first;
  const std::size_t block = table[number.token / at.block_tokens];
  const std::size_t token = number.token % at.block_tokens;
  const std::size_t tokens = at.block_tokens;
  const std::size_t heads = at.kv_heads;
  const std::size_t dims = at.head_dim;
  const bool head_major = at.order == Order::head_major;
  const std::size_t row =
      head_major ? (head * tokens + token) * dims + number.dim : (token * heads + head) * dims + number.dim;
  std::size_t index = 0;
  switch (at.form) {
    case Form::separate:
    case Form::latent:
      index = block * tokens * heads * dims + row;
      break;
    case Form::block_interleaved:
      index = (block * 2 + number.plane) * tokens * heads * dims + row;
      break;
    case Form::token_interleaved:
      index = (((block * tokens + token) * 2 + number.plane) * heads + head) * dims + number.dim;
      break;
  }
  const std::size_t tensor = at.form == Form::separate ? layer * 2 + number.plane : layer;
  return {tensor, index * at.dtype_bytes};
}

/// What a transfer of that part has to do, byte by byte.
struct Part {
  Range layers{}, heads{}, tokens{};
  std::uint32_t target_layer = 0;
};
inline void copy_by_number(const CacheDesc& from, const Memory& source, const CacheDesc& to, Memory& target,
                           const Slice& slice, const Part& part) {
  const std::uint32_t planes_count = from.layout.form == Form::latent ? 1 : 2;
  Number at{};
  for (at.layer = part.layers.first; at.layer < part.layers.last; ++at.layer) {
    for (at.plane = 0; at.plane < planes_count; ++at.plane) {
      for (at.token = part.tokens.first; at.token < part.tokens.last; ++at.token) {
        for (at.head = part.heads.first; at.head < part.heads.last; ++at.head) {
          for (at.dim = 0; at.dim < from.layout.head_dim; ++at.dim) {
            const auto here = place_of(from, slice.source, at);
            Number moved = at;
            moved.layer = part.target_layer + (at.layer - part.layers.first);
            const auto there = place_of(to, slice.target, moved);
            for (std::uint32_t byte = 0; byte < from.layout.dtype_bytes; ++byte) {
              target[there.first][there.second + byte] = source[here.first][here.second + byte];
            }
          }
        }
      }
    }
  }
}

/// Made-up pairs of caches that fit each other, and slices of them.
class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}
  std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }
  std::uint32_t among(std::uint32_t first, std::uint32_t last) { return first + below(last - first + 1); }
  Range part_of(const Range& whole) {
    const std::uint32_t first = among(whole.first, whole.last - 1);
    return {first, among(first + 1, whole.last)};
  }

  struct Pair {
    CacheDesc source{}, target{};
    std::vector<std::uint32_t> source_blocks, target_blocks;
    Slice slice{};
    Part part{};
  };
  /// The tables in it are those of `pair`, which therefore stays where it is.
  void make(Pair& pair) {
    const bool latent = below(4) == 0;
    const std::uint32_t heads = latent ? 1 : among(1, 6);
    const std::uint32_t layers = among(1, 6);
    const std::uint32_t dims = among(1, 5);
    const std::uint32_t dtype = 1U << below(3);
    pair.source = side(latent, heads, layers, dims, dtype);
    pair.target = side(latent, heads, layers, dims, dtype);
    // Shards that have something in common.
    shard(pair.source, pair.target, layers, heads);
    const std::uint32_t tokens = among(1, 40);
    pair.source_blocks = table(pair.source, tokens);
    pair.target_blocks = table(pair.target, tokens);
    pair.slice = {};
    pair.slice.source = pair.source_blocks;
    pair.slice.target = pair.target_blocks;
    pair.part.tokens = {among(0, tokens), tokens};
    if (below(2) == 0) pair.part.tokens = part_of({0, tokens});
    pair.slice.tokens = pair.part.tokens;
    const Range both_layers = common(held_layers(pair.source), held_layers(pair.target));
    const Range both_heads = common(held_heads(pair.source), held_heads(pair.target));
    pair.part.layers = both_layers;
    pair.part.heads = both_heads;
    if (below(2) == 0) pair.slice.layers = pair.part.layers = part_of(both_layers);
    if (below(2) == 0) pair.slice.heads = pair.part.heads = part_of(both_heads);
    pair.part.target_layer = pair.part.layers.first;
    if (below(4) == 0) {
      // Another model's layers: any place in the target that has room.
      pair.part.layers = part_of(held_layers(pair.source));
      const Range room = held_layers(pair.target);
      const std::uint32_t count = std::min(pair.part.layers.size(), room.size());
      pair.part.layers.last = pair.part.layers.first + count;
      pair.part.target_layer = among(room.first, room.last - count);
      pair.slice.layers = pair.part.layers;
      pair.slice.target_layer = pair.part.target_layer;
    }
  }

  static Range held_layers(const CacheDesc& desc) {
    return {desc.shard.layers_first, desc.shard.layers_first + desc.layout.layers};
  }
  static Range held_heads(const CacheDesc& desc) {
    return {desc.shard.heads_first, desc.shard.heads_first + desc.layout.kv_heads};
  }
  static Range common(const Range& a, const Range& b) { return {std::max(a.first, b.first), std::min(a.last, b.last)}; }
  void fill(Memory& memory) {
    for (auto& tensor : memory) {
      for (std::uint8_t& byte : tensor) byte = static_cast<std::uint8_t>(random_());
    }
  }

 private:
  CacheDesc side(bool latent, std::uint32_t heads, std::uint32_t layers, std::uint32_t dims, std::uint32_t dtype) {
    CacheDesc desc;
    desc.layout.form = latent ? Form::latent : static_cast<Form>(below(3));
    desc.layout.order =
        desc.layout.form != Form::token_interleaved && below(2) == 0 ? Order::head_major : Order::token_major;
    desc.layout.dtype_bytes = dtype;
    desc.layout.layers = layers;
    desc.layout.kv_heads = heads;
    desc.layout.head_dim = dims;
    desc.layout.block_tokens = below(4) == 0 ? 40 : among(1, 9);  // contiguous: one block for a sequence
    return desc;
  }
  /// Cuts both sides to parts of the model, both of which hold at least one layer and head that the other has.
  void shard(CacheDesc& source, CacheDesc& target, std::uint32_t layers, std::uint32_t heads) {
    const std::uint32_t layer = below(layers);
    const std::uint32_t head = below(heads);
    for (CacheDesc* desc : {&source, &target}) {
      const Range held_layers{among(0, layer), among(layer + 1, layers)};
      const Range held_heads{among(0, head), among(head + 1, heads)};
      desc->shard = {.layers_first = held_layers.first,
                     .layers_total = layers,
                     .heads_first = held_heads.first,
                     .heads_total = heads};
      desc->layout.layers = held_layers.size();
      desc->layout.kv_heads = held_heads.size();
    }
  }
  std::vector<std::uint32_t> table(CacheDesc& desc, std::uint32_t tokens) {
    const std::uint32_t needed = (tokens + desc.layout.block_tokens - 1) / desc.layout.block_tokens;
    desc.blocks = needed + below(4);
    std::vector<std::uint32_t> all(desc.blocks);
    for (std::uint32_t block = 0; block < desc.blocks; ++block) all[block] = block;
    // Often in order, so that neighbours are there to be joined.
    if (below(3) != 0) std::shuffle(all.begin(), all.end(), random_);
    all.resize(needed);
    return all;
  }
  std::mt19937_64 random_;
};

}  // namespace hixl::kv::test
