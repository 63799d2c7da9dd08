// SPDX-License-Identifier: Apache-2.0
//
// What is refused before a byte moves, and what the error says.
#include <doctest/doctest.h>

#include "byte_plan.hpp"

using namespace hixl;
using namespace hixl::kv;

namespace {

CacheDesc paged() {
  return {.key = {},
          .layout = {.form = Form::separate, .layers = 4, .kv_heads = 8, .head_dim = 16, .block_tokens = 16},
          .blocks = 10,
          .shard = {}};
}
const std::vector<std::uint32_t> k_two{3, 7};

Error refused(const CacheDesc& source, const CacheDesc& target, const Slice& slice) {
  const auto plan = BytePlan::make(source, target, slice, true);
  REQUIRE_FALSE(plan);
  CHECK(plan.error().detail.stage == Stage::kv);
  return plan.error();
}
Slice of(const std::vector<std::uint32_t>& source, const std::vector<std::uint32_t>& target) {
  Slice slice;
  slice.source = source;
  slice.target = target;
  return slice;
}

}  // namespace

TEST_CASE("F112 geometry that differs: LAYOUT_MISMATCH with this side first") {
  const Slice slice = of(k_two, k_two);
  const auto differs = [&](auto&& change) {
    CacheDesc other = paged();
    change(other);
    const Error error = refused(paged(), other, slice);
    CHECK(error.code == ErrorCode::layout_mismatch);
    CHECK(unpack({error.detail.address, error.detail.length}).layout == paged().layout);
    // Whatever it is that differs, the text shows it.
    const std::string text = error.message();
    const auto here = text.find("here: ") + 6;
    const auto there = text.find(", there: ");
    REQUIRE(there != std::string::npos);
    CHECK(text.substr(here, there - here) != text.substr(there + 9, text.find("); ") - there - 9));
    CHECK(unpack({error.detail.nearest_base, error.detail.nearest_length}).layout == other.layout);
    const auto pulled = BytePlan::make(other, paged(), slice, false);
    REQUIRE_FALSE(pulled);
    CHECK(unpack({pulled.error().detail.address, pulled.error().detail.length}).layout == paged().layout);
  };
  differs([](CacheDesc& at) { at.layout.head_dim = 32; });
  differs([](CacheDesc& at) { at.layout.dtype_bytes = 1; });
  differs([](CacheDesc& at) { at.layout.kv_heads = 4; });
  differs([](CacheDesc& at) { at.layout.layers = 5; });
  differs([](CacheDesc& at) { at.shard.heads_total = 16; });
  differs([](CacheDesc& at) { at.shard.layers_total = 8; });
  differs([](CacheDesc& at) { at.layout.form = Form::latent, at.layout.kv_heads = 1; });
}

TEST_CASE("form, order and blocks may differ, and shards may cut the same model differently") {
  for (const Form form : {Form::separate, Form::block_interleaved, Form::token_interleaved}) {
    CacheDesc other = paged();
    other.layout.form = form;
    other.layout.block_tokens = 32;
    const std::vector<std::uint32_t> one{9};
    CHECK(BytePlan::make(paged(), other, of(k_two, one), true));
  }
  CacheDesc half = paged();
  half.layout.kv_heads = 4;
  half.layout.layers = 2;
  half.shard = {.layers_first = 2, .layers_total = 4, .heads_first = 4, .heads_total = 8};
  const auto plan = BytePlan::make(paged(), half, of(k_two, k_two), true);
  REQUIRE(plan);
  CHECK(plan->layers() == Range{2, 4});
  CHECK(plan->heads() == Range{4, 8});
}

TEST_CASE("blocks: each once, all inside; the error names the block and its place in the list") {
  const std::vector<std::uint32_t> outside{1, 2, 10};
  const std::vector<std::uint32_t> twice{5, 1, 2, 5, 1};
  const std::vector<std::uint32_t> good3{0, 1, 2};
  const std::vector<std::uint32_t> good5{0, 1, 2, 3, 4};
  for (const bool source_side : {true, false}) {
    const Error far = refused(paged(), paged(), source_side ? of(outside, good3) : of(good3, outside));
    CHECK(far.code == ErrorCode::out_of_range);
    CHECK(far.detail.length == 10);
    CHECK(far.detail.limit == 10);
    CHECK(far.detail.entry == 2);
    const Error again = refused(paged(), paged(), source_side ? of(twice, good5) : of(good5, twice));
    CHECK(again.code == ErrorCode::invalid_argument);
    CHECK(again.detail.length == 1);
    CHECK(again.detail.entry == 4);
  }
}

TEST_CASE("tokens: as many on both sides unless they are said, and never beyond the blocks") {
  const std::vector<std::uint32_t> three{0, 1, 2};
  const std::vector<std::uint32_t> none;
  CHECK(refused(paged(), paged(), of(three, k_two)).code == ErrorCode::invalid_argument);
  CHECK(refused(paged(), paged(), of(none, none)).code == ErrorCode::invalid_argument);
  Slice slice = of(three, k_two);
  slice.tokens = Range{0, 32};
  CHECK(BytePlan::make(paged(), paged(), slice, true));
  slice.tokens = Range{0, 33};
  const Error beyond = refused(paged(), paged(), slice);
  CHECK(beyond.code == ErrorCode::out_of_range);
  CHECK(beyond.detail.length == 33);
  CHECK(beyond.detail.limit == 32);
  slice.tokens = Range{5, 4};
  CHECK(refused(paged(), paged(), slice).code == ErrorCode::invalid_argument);
  slice.tokens = Range{7, 7};
  const auto nothing = BytePlan::make(paged(), paged(), slice, true);
  REQUIRE(nothing);
  CHECK(nothing->layer_bytes() == 0);
  slice = of(none, none);
  slice.tokens = Range{0, 0};
  CHECK(BytePlan::make(paged(), paged(), slice, true));
}

TEST_CASE("layers and heads: inside both shards, at least one; another layer of the target only when it is named") {
  Slice slice = of(k_two, k_two);
  slice.layers = Range{2, 5};
  CHECK(refused(paged(), paged(), slice).code == ErrorCode::out_of_range);
  slice.layers = Range{2, 2};
  CHECK(refused(paged(), paged(), slice).code == ErrorCode::invalid_argument);
  slice.layers = Range{3, 1};
  CHECK(refused(paged(), paged(), slice).code == ErrorCode::invalid_argument);
  slice.layers = {};
  slice.heads = Range{0, 9};
  CHECK(refused(paged(), paged(), slice).code == ErrorCode::out_of_range);
  slice.heads = Range{4, 4};
  CHECK(refused(paged(), paged(), slice).code == ErrorCode::invalid_argument);
  slice.heads = {};

  CacheDesc first = paged();
  CacheDesc second = paged();
  first.shard = {.layers_first = 0, .layers_total = 8, .heads_first = 0, .heads_total = 0};
  second.shard = {.layers_first = 4, .layers_total = 8, .heads_first = 0, .heads_total = 0};
  CHECK(refused(first, second, slice).code == ErrorCode::invalid_argument);  // nothing in common

  slice.target_layer = 5;
  CHECK(refused(first, second, slice).code == ErrorCode::invalid_argument);  // of which layers?
  slice.layers = Range{1, 3};
  const auto plan = BytePlan::make(first, second, slice, true);
  REQUIRE(plan);
  CHECK(plan->layers() == Range{1, 3});
  CHECK(plan->target_layer() == 5);
  slice.target_layer = 7;
  CHECK(refused(first, second, slice).code == ErrorCode::out_of_range);
  slice.target_layer = 3;
  CHECK(refused(first, second, slice).code == ErrorCode::out_of_range);
  slice.target_layer = 0xffffffff;
  CHECK(refused(first, second, slice).code == ErrorCode::out_of_range);
  slice.target_layer = 4;
  slice.layers = Range{3, 5};
  CHECK(refused(first, second, slice).code == ErrorCode::out_of_range);
  slice.layers = Range{3, 2};
  CHECK(refused(first, second, slice).code == ErrorCode::invalid_argument);
}

TEST_CASE("a cache that cannot be: no block, parts beyond the model, too large") {
  const auto bad = [](auto&& change) {
    CacheDesc desc = paged();
    change(desc);
    const auto valid = validate(desc);
    REQUIRE_FALSE(valid);
    return valid.error().code;
  };
  CHECK(bad([](CacheDesc& at) { at.blocks = 0; }) == ErrorCode::invalid_argument);
  CHECK(bad([](CacheDesc& at) { at.shard.layers_first = 1; }) == ErrorCode::invalid_argument);
  CHECK(bad([](CacheDesc& at) { at.shard.layers_total = 3; }) == ErrorCode::invalid_argument);
  CHECK(bad([](CacheDesc& at) { at.shard.heads_first = 1; }) == ErrorCode::invalid_argument);
  CHECK(bad([](CacheDesc& at) { at.shard = {0, 0, 0xffffffff, 16}; }) == ErrorCode::invalid_argument);
  CHECK(bad([](CacheDesc& at) { at.shard.heads_total = k_heads_max + 1; }) == ErrorCode::invalid_argument);
  CHECK(bad([](CacheDesc& at) {
          at.blocks = 0xffffffff, at.layout.head_dim = k_head_dim_max, at.layout.block_tokens = k_block_tokens_max;
        }) == ErrorCode::out_of_range);
}
