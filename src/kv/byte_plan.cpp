// SPDX-License-Identifier: Apache-2.0
#include "byte_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "checked.hpp"

namespace hixl::kv {

namespace {

std::uint32_t or_all(std::uint32_t total, std::uint32_t held) { return total == 0 ? held : total; }
Range common(const Range& a, const Range& b) { return {std::max(a.first, b.first), std::min(a.last, b.last)}; }
bool contains(const Range& outer, const Range& inner) { return outer.first <= inner.first && inner.last <= outer.last; }

Result<void> check_part(std::uint32_t first, std::uint32_t total, std::uint32_t held, std::uint32_t total_max) {
  const std::uint32_t whole = or_all(total, held);
  if (whole <= total_max && held <= whole && first <= whole - held) return {};
  return fail(ErrorCode::invalid_argument,
              {.stage = Stage::kv, .length = std::uint64_t{first} + held, .limit = std::min(whole, total_max)});
}

Error mismatch(const CacheDesc& here, const CacheDesc& there) {
  const auto words = [](const CacheDesc& desc) {
    return pack({.layout = desc.layout,
                 .shard = {.layers_total = or_all(desc.shard.layers_total, desc.layout.layers),
                           .heads_first = desc.shard.heads_first,
                           .heads_total = or_all(desc.shard.heads_total, desc.layout.kv_heads)}});
  };
  const LayoutWords mine = words(here);
  const LayoutWords theirs = words(there);
  return Error(ErrorCode::layout_mismatch, {.stage = Stage::kv,
                                            .address = mine.shape,
                                            .length = mine.place,
                                            .nearest_base = theirs.shape,
                                            .nearest_length = theirs.place});
}

bool same_numbers(const CacheDesc& a, const CacheDesc& b) {
  return a.layout.dtype_bytes == b.layout.dtype_bytes && a.layout.head_dim == b.layout.head_dim &&
         planes(a.layout.form) == planes(b.layout.form) &&
         or_all(a.shard.heads_total, a.layout.kv_heads) == or_all(b.shard.heads_total, b.layout.kv_heads);
}

/// What both hold, or what is asked for if both hold it.
Result<Range> choose(const std::optional<Range>& wanted, const Range& source, const Range& target) {
  const Range both = common(source, target);
  if (!wanted) {
    if (both.first < both.last) return both;
    return fail(ErrorCode::invalid_argument, {.stage = Stage::kv, .length = source.first, .limit = target.first});
  }
  if (wanted->first >= wanted->last) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::kv, .length = wanted->first, .limit = wanted->last});
  }
  if (!contains(source, *wanted) || !contains(target, *wanted)) {
    return fail(ErrorCode::out_of_range,
                {.stage = Stage::kv, .length = wanted->last, .limit = both.first < both.last ? both.last : 0});
  }
  return *wanted;
}

Result<Range> choose_tokens(const CacheDesc& source, const CacheDesc& target, const Slice& slice) {
  const std::uint64_t from = std::uint64_t{slice.source.size()} * source.layout.block_tokens;
  const std::uint64_t to = std::uint64_t{slice.target.size()} * target.layout.block_tokens;
  const std::uint64_t room = std::min(from, to);
  if (!slice.tokens) {
    if (from != to || from == 0 || from > std::numeric_limits<std::uint32_t>::max()) {
      return fail(ErrorCode::invalid_argument, {.stage = Stage::kv, .length = from, .limit = to});
    }
    return Range{0, static_cast<std::uint32_t>(from)};
  }
  if (slice.tokens->first > slice.tokens->last) {
    return fail(ErrorCode::invalid_argument,
                {.stage = Stage::kv, .length = slice.tokens->first, .limit = slice.tokens->last});
  }
  if (slice.tokens->last > room) {
    return fail(ErrorCode::out_of_range, {.stage = Stage::kv, .length = slice.tokens->last, .limit = room});
  }
  return *slice.tokens;
}

/// Where things lie inside one layer of one side.
struct Steps {
  std::uint64_t block = 0;  // bytes from one to the next
  std::uint64_t plane = 0;
  std::uint64_t token = 0;
  std::uint64_t head = 0;
  std::uint32_t heads_first = 0;
  std::uint32_t block_tokens = 0;
  bool separate = false;

  explicit Steps(const CacheDesc& desc) : heads_first(desc.shard.heads_first), block_tokens(desc.layout.block_tokens) {
    const Layout& layout = desc.layout;
    const std::uint64_t vector = std::uint64_t{layout.head_dim} * layout.dtype_bytes;
    const std::uint64_t row = vector * layout.kv_heads;
    const std::uint64_t plane_block = row * layout.block_tokens;
    separate = layout.form == Form::separate;
    block = separate || layout.form == Form::latent ? plane_block : 2 * plane_block;
    plane = layout.form == Form::block_interleaved ? plane_block : layout.form == Form::token_interleaved ? row : 0;
    token = layout.order == Order::head_major ? vector : layout.form == Form::token_interleaved ? 2 * row : row;
    head = layout.order == Order::head_major ? vector * layout.block_tokens : vector;
  }
  [[nodiscard]] std::uint64_t at(std::uint32_t in_block, std::uint64_t token_in_block, std::uint32_t in_plane,
                                 std::uint32_t of_head) const {
    return in_block * block + in_plane * plane + token_in_block * token + (of_head - heads_first) * head;
  }
};

class Pieces {
 public:
  explicit Pieces(std::vector<Piece>& out) : out_(out), begin_(out.size()) {}
  void add(const Piece& piece) {
    if (out_.size() > begin_) {
      Piece& last = out_.back();
      if (last.source_tensor == piece.source_tensor && last.target_tensor == piece.target_tensor &&
          last.source + last.bytes == piece.source && last.target + last.bytes == piece.target) {
        last.bytes += piece.bytes;
        return;
      }
    }
    out_.push_back(piece);
  }
  /// `tokens` by `heads` vectors, in as few pieces as the steps of both sides allow.
  void add_grid(Piece at, const Steps& source, const Steps& target, std::uint64_t vector, std::uint64_t tokens,
                std::uint64_t heads) {
    struct Axis {
      std::uint64_t count, source, target;
    };
    Axis inner{heads, source.head, target.head};
    Axis outer{tokens, source.token, target.token};
    // The axis that is dense on both sides goes inside, and may take the other one with it.
    if (inner.source != vector || inner.target != vector) std::swap(inner, outer);
    const bool dense = inner.source == vector && inner.target == vector;
    if (dense) {
      vector *= inner.count;
      inner.count = 1;
    }
    if (dense && outer.source == vector && outer.target == vector) {
      vector *= outer.count;
      outer.count = 1;
    }
    at.bytes = vector;
    for (std::uint64_t i = 0; i < outer.count; ++i) {
      for (std::uint64_t j = 0; j < inner.count; ++j) {
        Piece piece = at;
        piece.source += i * outer.source + j * inner.source;
        piece.target += i * outer.target + j * inner.target;
        add(piece);
      }
    }
  }

 private:
  std::vector<Piece>& out_;
  std::size_t begin_;
};

}  // namespace

Result<void> validate(const CacheDesc& desc) {
  if (const auto valid = validate(desc.layout); !valid) return valid;
  if (desc.blocks == 0) return fail(ErrorCode::invalid_argument, {.stage = Stage::kv, .length = 0, .limit = 1});
  if (const auto size = cache_bytes(desc.layout, desc.blocks); !size) return fail(size.error());
  const Shard& shard = desc.shard;
  if (const auto part = check_part(shard.layers_first, shard.layers_total, desc.layout.layers, k_layers_max); !part) {
    return part;
  }
  const std::uint32_t heads_max = desc.layout.form == Form::latent ? 1 : k_heads_max;
  return check_part(shard.heads_first, shard.heads_total, desc.layout.kv_heads, heads_max);
}

Range layers_of(const CacheDesc& desc) noexcept {
  return {desc.shard.layers_first, desc.shard.layers_first + desc.layout.layers};
}
Range heads_of(const CacheDesc& desc) noexcept {
  return {desc.shard.heads_first, desc.shard.heads_first + desc.layout.kv_heads};
}
std::uint32_t tensors_of(const CacheDesc& desc) noexcept {
  return desc.layout.layers * tensors_per_layer(desc.layout.form);
}

Result<void> check_blocks(const CacheDesc& desc, BlockTable blocks) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] < desc.blocks) continue;
    return fail(
        ErrorCode::out_of_range,
        {.stage = Stage::kv, .length = blocks[i], .limit = desc.blocks, .entry = static_cast<std::uint32_t>(i)});
  }
  std::vector<std::uint32_t> places(blocks.size());
  std::iota(places.begin(), places.end(), 0U);
  std::sort(places.begin(), places.end(),
            [&](std::uint32_t a, std::uint32_t b) { return blocks[a] != blocks[b] ? blocks[a] < blocks[b] : a < b; });
  const auto twice = std::adjacent_find(places.begin(), places.end(),
                                        [&](std::uint32_t a, std::uint32_t b) { return blocks[a] == blocks[b]; });
  if (twice == places.end()) return {};
  return fail(ErrorCode::invalid_argument,
              {.stage = Stage::kv, .length = blocks[*twice], .limit = desc.blocks, .entry = *(twice + 1)});
}

Result<BytePlan> BytePlan::make(const CacheDesc& source, const CacheDesc& target, const Slice& slice,
                                bool source_is_here) {
  const bool other_layer = slice.target_layer.has_value();
  const bool same_layers = or_all(source.shard.layers_total, source.layout.layers) ==
                           or_all(target.shard.layers_total, target.layout.layers);
  if (!same_numbers(source, target) || (!same_layers && !other_layer)) {
    return fail(source_is_here ? mismatch(source, target) : mismatch(target, source));
  }
  BytePlan plan(source, target);
  if (const auto valid = check_blocks(source, slice.source); !valid) return fail(valid.error());
  if (const auto valid = check_blocks(target, slice.target); !valid) return fail(valid.error());
  const auto tokens = choose_tokens(source, target, slice);
  if (!tokens) return fail(tokens.error());
  Range target_layers = layers_of(target);
  if (other_layer) {
    // The target's layers, seen from the source's numbers.
    if (!slice.layers) return fail(ErrorCode::invalid_argument, {.stage = Stage::kv, .length = *slice.target_layer});
    const std::uint64_t last = std::uint64_t{*slice.target_layer} + slice.layers->last - slice.layers->first;
    const bool ordered = slice.layers->first < slice.layers->last;
    if (ordered && (*slice.target_layer < target_layers.first || last > target_layers.last)) {
      return fail(ErrorCode::out_of_range, {.stage = Stage::kv, .length = last, .limit = target_layers.last});
    }
    target_layers = *slice.layers;
  }
  const auto layers = choose(slice.layers, layers_of(source), target_layers);
  if (!layers) return fail(layers.error());
  const auto heads = choose(slice.heads, heads_of(source), heads_of(target));
  if (!heads) return fail(heads.error());
  plan.source_blocks_.assign(slice.source.begin(), slice.source.end());
  plan.target_blocks_.assign(slice.target.begin(), slice.target.end());
  plan.tokens_ = *tokens;
  plan.layers_ = *layers;
  plan.heads_ = *heads;
  plan.target_layer_ = slice.target_layer.value_or(layers->first);
  return plan;
}

void BytePlan::begin_at(std::uint32_t first) noexcept {
  tokens_.first = std::clamp(first, tokens_.first, tokens_.last);
}

std::uint64_t BytePlan::layer_bytes() const noexcept {
  return std::uint64_t{tokens_.size()} * planes(source_.layout.form) * heads_.size() * source_.layout.head_dim *
         source_.layout.dtype_bytes;
}

bool BytePlan::cut(Cut& at, std::size_t pieces_wanted, std::vector<Piece>& out) const {
  const Steps from(source_);
  const Steps to(target_);
  const std::uint64_t vector = std::uint64_t{source_.layout.head_dim} * source_.layout.dtype_bytes;
  const std::uint32_t source_layer = at.layer - source_.shard.layers_first;
  const std::uint32_t target_layer = target_layer_ + (at.layer - layers_.first) - target_.shard.layers_first;
  Pieces pieces(out);
  const auto add_plane = [&](std::uint32_t plane, const Run& run) {
    pieces.add_grid({.source_tensor = from.separate ? source_layer * 2 + plane : source_layer,
                     .target_tensor = to.separate ? target_layer * 2 + plane : target_layer,
                     .source = from.at(run.source_block, run.in_source, plane, heads_.first),
                     .target = to.at(run.target_block, run.in_target, plane, heads_.first),
                     .bytes = 0},
                    from, to, vector, run.tokens, heads_.size());
  };
  const Form form = source_.layout.form;
  const bool alike = form == target_.layout.form;
  // K and V of a token, or of a block, are neighbours: they follow each other run by run.
  const bool together = alike && (form == Form::token_interleaved || form == Form::block_interleaved);
  const bool joined = alike && form == Form::token_interleaved && heads_ == heads_of(source_) &&
                      heads_ == heads_of(target_);  // all heads move, so K and V are one piece
  const auto add_run = [&](const Run& run) {
    if (joined) {
      pieces.add({.source_tensor = source_layer,
                  .target_tensor = target_layer,
                  .source = from.at(run.source_block, run.in_source, 0, heads_.first),
                  .target = to.at(run.target_block, run.in_target, 0, heads_.first),
                  .bytes = run.tokens * from.token});
      return;
    }
    if (!together) return add_plane(at.plane, run);
    for (std::uint32_t plane = 0; plane < 2; ++plane) add_plane(plane, run);
  };
  // Where the tokens of a head, or of all that move, lie together on both sides, a run of any length is a piece a head,
  // or one. Else it may be a piece a token and head, and is not longer than what is wanted.
  const auto apart = [&](const Steps& side) { return side.token == vector; };
  const auto in_rows = [&](const Steps& side) { return side.head == vector && side.token == vector * heads_.size(); };
  const bool long_runs = (apart(from) && apart(to)) || (in_rows(from) && in_rows(to)) || joined;
  const std::uint64_t tokens_max = long_runs ? tokens_.size() : pieces_wanted / heads_.size() + 1;
  const std::uint32_t planes_apart = together ? 1 : planes(form);
  const std::size_t enough = out.size() + pieces_wanted;
  for (; at.plane < planes_apart; ++at.plane, at.token = tokens_.first) {
    while (at.token < tokens_.last) {
      if (out.size() >= enough) return false;
      const Run run = run_at(at.token, static_cast<std::uint32_t>(std::min<std::uint64_t>(tokens_max, tokens_.size())));
      add_run(run);
      at.token += run.tokens;
    }
  }
  return true;
}

/// Tokens that stay inside one block on both sides.
BytePlan::Run BytePlan::run_at(std::uint32_t token, std::uint32_t tokens_max) const noexcept {
  const std::uint32_t in_source = token % source_.layout.block_tokens;
  const std::uint32_t in_target = token % target_.layout.block_tokens;
  return {.source_block = source_blocks_[token / source_.layout.block_tokens],
          .target_block = target_blocks_[token / target_.layout.block_tokens],
          .in_source = in_source,
          .in_target = in_target,
          .tokens = std::min({source_.layout.block_tokens - in_source, target_.layout.block_tokens - in_target,
                              tokens_.last - token, tokens_max})};
}

}  // namespace hixl::kv
