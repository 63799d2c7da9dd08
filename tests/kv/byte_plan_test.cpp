// SPDX-License-Identifier: Apache-2.0
//
// Which bytes go where: made-up layouts, shards and slices against a model that goes number by number; and that as few
// pieces are made as the layouts allow.
#include <algorithm>
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include "byte_plan.hpp"
#include "kv_model.hpp"

using namespace hixl;
using namespace hixl::kv;
using namespace hixl::kv::test;

namespace {

std::uint64_t base_seed() {
  const char* given = std::getenv("HIXL_TEST_SEED");
  return given != nullptr ? std::stoull(given) : 1;
}

/// All pieces of a plan, cut so many at a time and carried out on plain memory.
void carry_out(const BytePlan& plan, const Memory& source, Memory& target, std::size_t at_a_time) {
  std::vector<Piece> pieces;
  for (std::uint32_t layer = plan.layers().first; layer < plan.layers().last; ++layer) {
    pieces.clear();
    BytePlan::Cut at = plan.begin_layer(layer);
    for (std::size_t before = 0; !plan.cut(at, at_a_time, pieces); before = pieces.size()) {
      // What was wanted, and at most one more run: two planes of so many tokens, or one a head.
      REQUIRE(pieces.size() >= before + at_a_time);
      REQUIRE(pieces.size() <= before + 3 * at_a_time + 4 * plan.heads().size());
    }
    std::uint64_t bytes = 0;
    for (const Piece& piece : pieces) {
      REQUIRE(piece.bytes > 0);
      const auto& from = source.at(piece.source_tensor);
      auto& to = target.at(piece.target_tensor);
      REQUIRE(piece.source + piece.bytes <= from.size());
      REQUIRE(piece.target + piece.bytes <= to.size());
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(piece.source), piece.bytes,
                  to.begin() + static_cast<std::ptrdiff_t>(piece.target));
      bytes += piece.bytes;
    }
    REQUIRE(bytes == plan.layer_bytes());
  }
}

std::size_t pieces_of(const CacheDesc& source, const CacheDesc& target, const Slice& slice) {
  const auto plan = BytePlan::make(source, target, slice, true);
  REQUIRE(plan);
  std::vector<Piece> pieces;
  BytePlan::Cut at = plan->begin_layer(plan->layers().first);
  CHECK(plan->cut(at, 1U << 30U, pieces));
  return pieces.size();
}

}  // namespace

TEST_CASE("F115 F122 F127 any layouts, shards and slices: exactly the bytes of the model, and no other byte changes") {
  constexpr std::uint64_t k_rounds = 4'000;
  MESSAGE("seeds from " << base_seed() << "; replay one with HIXL_TEST_SEED");
  for (std::uint64_t seed = base_seed(); seed < base_seed() + k_rounds; ++seed) {
    CAPTURE(seed);
    Maker maker(seed);
    Maker::Pair pair;
    maker.make(pair);
    REQUIRE(validate(pair.source));
    REQUIRE(validate(pair.target));
    const auto plan = BytePlan::make(pair.source, pair.target, pair.slice, true);
    if (!plan) FAIL(plan.error().message());
    Memory source = make_memory(pair.source);
    Memory target = make_memory(pair.target);
    maker.fill(source);
    maker.fill(target);
    Memory wanted = target;
    copy_by_number(pair.source, source, pair.target, wanted, pair.slice, pair.part);
    carry_out(*plan, source, target, seed % 3 == 0 ? 1U << 30U : 1 + seed % 7);
    REQUIRE(target == wanted);
  }
}

TEST_CASE("a layer of any size is cut in steps of what is wanted, and lies together all the same") {
  const auto cache = [](Order order, std::uint32_t heads) {
    return CacheDesc{
        .layout = {.order = order, .layers = 1, .kv_heads = heads, .head_dim = 8, .block_tokens = 1U << 20U},
        .blocks = 1,
        .shard = {.heads_total = 8}};
  };
  const std::vector<std::uint32_t> one{0};
  const Slice slice{.source = one, .target = one};
  CHECK(pieces_of(cache(Order::token_major, 8), cache(Order::token_major, 8), slice) == 2);
  CHECK(pieces_of(cache(Order::head_major, 8), cache(Order::head_major, 4), slice) == 2);
  // Half the heads of each token: two million pieces.
  const auto plan = BytePlan::make(cache(Order::token_major, 8), cache(Order::token_major, 4), slice, true);
  REQUIRE(plan);
  BytePlan::Cut at = plan->begin_layer(0);
  std::vector<Piece> pieces;
  for (int step = 0; step < 100; ++step) {
    REQUIRE_FALSE(plan->cut(at, 4'096, pieces));
    REQUIRE(pieces.size() >= 4'096);
    REQUIRE(pieces.size() < std::size_t{3} * 4'096);
    pieces.clear();
  }
}

TEST_CASE("what lies together on both sides is one piece") {
  const auto cache = [](Form form, Order order, std::uint32_t block_tokens, std::uint32_t blocks) {
    return CacheDesc{
        .layout =
            {.form = form, .order = order, .layers = 2, .kv_heads = 4, .head_dim = 8, .block_tokens = block_tokens},
        .blocks = blocks};
  };
  const std::vector<std::uint32_t> in_order{0, 1, 2, 3};
  const std::vector<std::uint32_t> apart{6, 4, 2, 0};
  const Slice straight{.source = in_order, .target = in_order};
  const Slice scattered{.source = in_order, .target = apart};
  const std::vector<std::uint32_t> whole{0};

  SUBCASE("blocks side by side") {
    const CacheDesc separate = cache(Form::separate, Order::token_major, 16, 8);
    CHECK(pieces_of(separate, separate, straight) == 2);  // K, V
    CHECK(pieces_of(separate, separate, scattered) == 8);
    const CacheDesc by_head = cache(Form::separate, Order::head_major, 16, 8);
    CHECK(pieces_of(by_head, by_head, straight) == 2);
    for (const Form form : {Form::block_interleaved, Form::token_interleaved}) {
      const CacheDesc interleaved = cache(form, Order::token_major, 16, 8);
      CHECK(pieces_of(interleaved, interleaved, straight) == 1);
      CHECK(pieces_of(interleaved, interleaved, scattered) == 4);
    }
  }
  SUBCASE("a contiguous prefill, a paged decode") {
    const CacheDesc contiguous = cache(Form::separate, Order::token_major, 64, 2);
    const CacheDesc paged = cache(Form::separate, Order::token_major, 16, 8);
    CHECK(pieces_of(contiguous, paged, {.source = whole, .target = apart}) == 8);
    CHECK(pieces_of(contiguous, paged, {.source = whole, .target = in_order}) == 2);
  }
  SUBCASE("half the heads: a piece a token where tokens are outermost, one a block where heads are") {
    const CacheDesc tokens_first = cache(Form::separate, Order::token_major, 16, 8);
    const CacheDesc heads_first = cache(Form::separate, Order::head_major, 16, 8);
    const Slice half{.source = in_order, .target = in_order, .heads = Range{0, 2}};
    CHECK(pieces_of(tokens_first, tokens_first, half) == 2 * 64);
    CHECK(pieces_of(heads_first, heads_first, half) == 2 * 4);
    // A transposition: a vector each, but where the last of a block and the first of the next meet on both sides.
    CHECK(pieces_of(tokens_first, heads_first, straight) == 2 * (64 * 4 - 3));
  }
}
