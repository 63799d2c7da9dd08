// SPDX-License-Identifier: Apache-2.0
//
// Sizes of KV, the words for a layout, and the two words that carry one.
#include <limits>

#include <doctest/doctest.h>

#include <hixl/kv/layout.hpp>

using namespace hixl;
using namespace hixl::kv;

namespace {

Layout llama70b() {
  return {.form = Form::separate, .dtype_bytes = 2, .layers = 80, .kv_heads = 8, .head_dim = 128, .block_tokens = 16};
}

ErrorCode code(const Result<std::uint64_t>& result) { return result ? ErrorCode::ok : result.error().code; }

}  // namespace

TEST_CASE("F57 the KV of the articles' model: 80 layers of 8192 are 2.5 MiB a token, 80 MiB for 32 tokens") {
  const Layout layout{
      .form = Form::separate, .dtype_bytes = 2, .layers = 80, .kv_heads = 64, .head_dim = 128, .block_tokens = 16};
  CHECK(kv_bytes(layout, 1).value() == 2'621'440);
  CHECK(kv_bytes(layout, 32).value() == 83'886'080);
  CHECK(kv_bytes(layout, 0).value() == 0);
}

TEST_CASE("interleaving does not change what KV takes; MLA keeps one vector a token") {
  Layout layout = llama70b();
  const std::uint64_t separate = kv_bytes(layout, 100).value();
  for (const Form form : {Form::block_interleaved, Form::token_interleaved}) {
    layout.form = form;
    CHECK(kv_bytes(layout, 100).value() == separate);
    CHECK(block_bytes(layout).value() == 2 * 16 * 8 * 128 * 2);
    CHECK(cache_bytes(layout, 10).value() == kv_bytes(layout, 160).value());
  }
  CHECK(block_bytes(llama70b()).value() == 16 * 8 * 128 * 2);
  CHECK(tensor_bytes(llama70b(), 10).value() == 10 * 16 * 8 * 128 * 2);
  const Layout deepseek{
      .form = Form::latent, .dtype_bytes = 2, .layers = 61, .kv_heads = 1, .head_dim = 576, .block_tokens = 64};
  CHECK(kv_bytes(deepseek, 1).value() == 61 * 576 * 2);
  CHECK(tensors_per_layer(Form::latent) == 1);
}

TEST_CASE("F195 a buffer has 30 percent beyond the largest KV, in whole blocks") {
  const Layout layout = llama70b();
  CHECK(blocks_for(layout, 1600).value() == 130);
  CHECK(blocks_for(layout, 1601).value() == 131);  // 2081.3 tokens
  CHECK(blocks_for(layout, 1).value() == 1);
  CHECK(blocks_for(layout, 0).value() == 0);
  CHECK(blocks_for(layout, 160, 0).value() == 10);
  CHECK(nearly_full(71, 100));
  CHECK_FALSE(nearly_full(70, 100));
  CHECK(nearly_full(std::numeric_limits<std::uint64_t>::max(), std::numeric_limits<std::uint64_t>::max()));
}

TEST_CASE("sizes that do not fit are refused, never cut") {
  Layout layout = llama70b();
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  CHECK(code(kv_bytes(layout, most)) == ErrorCode::out_of_range);
  CHECK(code(blocks_for(layout, most)) == ErrorCode::out_of_range);
  CHECK(code(kv_bytes(layout, most / 327'680)) == ErrorCode::ok);
  CHECK(code(kv_bytes(layout, most / 327'680 + 1)) == ErrorCode::out_of_range);
  layout = {.dtype_bytes = 16,
            .layers = k_layers_max,
            .kv_heads = k_heads_max,
            .head_dim = k_head_dim_max,
            .block_tokens = k_block_tokens_max};
  CHECK(code(block_bytes(layout)) == ErrorCode::out_of_range);
  CHECK(code(tensor_bytes(layout, 1)) == ErrorCode::out_of_range);
  CHECK(code(cache_bytes(layout, 1)) == ErrorCode::out_of_range);
}

TEST_CASE("every field of a layout has a range, and the error says which number left it") {
  const auto refused = [](auto&& change, std::uint64_t value, std::uint64_t limit) {
    Layout layout = llama70b();
    change(layout);
    const auto result = validate(layout);
    REQUIRE_FALSE(result);
    CHECK(result.error().code == ErrorCode::invalid_argument);
    CHECK(result.error().detail.length == value);
    CHECK(result.error().detail.limit == limit);
    CHECK(code(kv_bytes(layout, 1)) == ErrorCode::invalid_argument);
    CHECK(code(block_bytes(layout)) == ErrorCode::invalid_argument);
    CHECK(code(tensor_bytes(layout, 1)) == ErrorCode::invalid_argument);
    CHECK(code(cache_bytes(layout, 1)) == ErrorCode::invalid_argument);
    CHECK(code(blocks_for(layout, 1)) == ErrorCode::invalid_argument);
  };
  refused([](Layout& at) { at.layers = 0; }, 0, 1);
  refused([](Layout& at) { at.layers = 4097; }, 4097, 4096);
  refused([](Layout& at) { at.kv_heads = 0; }, 0, 1);
  refused([](Layout& at) { at.kv_heads = 65'537; }, 65'537, 65'536);
  refused([](Layout& at) { at.head_dim = 0; }, 0, 1);
  refused([](Layout& at) { at.head_dim = (1U << 20U) + 1; }, (1U << 20U) + 1, 1U << 20U);
  refused([](Layout& at) { at.dtype_bytes = 0; }, 0, 1);
  refused([](Layout& at) { at.dtype_bytes = 17; }, 17, 16);
  refused([](Layout& at) { at.block_tokens = 0; }, 0, 1);
  refused([](Layout& at) { at.block_tokens = (1U << 26U) + 1; }, (1U << 26U) + 1, 1U << 26U);
  refused([](Layout& at) { at.form = static_cast<Form>(9); }, 9, 3);
  refused([](Layout& at) { at.form = Form::latent; }, 8, 1);
  CHECK(validate(llama70b()));
  Layout layout = llama70b();
  layout.order = Order::head_major;
  CHECK(validate(layout));
  layout.form = Form::token_interleaved;
  CHECK_FALSE(validate(layout));
  layout.order = static_cast<Order>(2);
  CHECK_FALSE(validate(layout));
}

TEST_CASE("two words carry a layout with its heads whole") {
  for (const Form form : {Form::separate, Form::block_interleaved, Form::token_interleaved, Form::latent}) {
    for (const Order order : {Order::token_major, Order::head_major}) {
      for (const bool largest : {false, true}) {
        const Shape shape{.layout = {.form = form,
                                     .order = order,
                                     .dtype_bytes = largest ? 16U : 1U,
                                     .layers = largest ? k_layers_max : 1,
                                     .kv_heads = largest ? k_heads_max : 1,
                                     .head_dim = largest ? k_head_dim_max : 1,
                                     .block_tokens = largest ? k_block_tokens_max : 1},
                          .shard = {.layers_total = largest ? k_layers_max : 0,
                                    .heads_first = largest ? k_heads_max - 1 : 0,
                                    .heads_total = largest ? k_heads_max : 0}};
        const Shape seen = unpack(pack(shape));
        CHECK(seen.layout == shape.layout);
        CHECK(seen.shard == shape.shard);
      }
    }
  }
}

TEST_CASE("LAYOUT_MISMATCH shows both sides in words") {
  CHECK(to_text(llama70b()) == "80 layers, 8 KV heads of 128, 2 bytes a number, K and V separate, blocks of 16 tokens");
  const LayoutWords here =
      pack({.layout = llama70b(), .shard = {.layers_total = 81, .heads_first = 8, .heads_total = 64}});
  const LayoutWords there = pack({.layout = {.form = Form::latent,
                                             .order = Order::head_major,
                                             .dtype_bytes = 1,
                                             .layers = 1,
                                             .kv_heads = 1,
                                             .head_dim = 576,
                                             .block_tokens = 1}});
  const Error error(ErrorCode::layout_mismatch, {.rank = 3,
                                                 .stage = Stage::kv,
                                                 .address = here.shape,
                                                 .length = here.place,
                                                 .nearest_base = there.shape,
                                                 .nearest_length = there.place});
  CHECK(
      error.message() ==
      "LAYOUT_MISMATCH: the two KV caches are not of one shape (rank 3, stage kv, here: 80 layers, 8 KV heads of 128, "
      "2 bytes a number, K and V separate, blocks of 16 tokens, of a model of 81 layers, heads 8 to 15 of 64, there: 1 "
      "layer, 1 KV head of 576, "
      "1 byte a number, latent (MLA), blocks of 1 token, heads outermost); register both with the geometry of the same "
      "model");
  CHECK(error.kind() == ErrorKind::fix_call);
}
