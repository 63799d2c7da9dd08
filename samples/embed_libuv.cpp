// SPDX-License-Identifier: Apache-2.0
//
// Two ranks on the program's own libuv loop. Nothing blocks it, and when both have stopped nothing is left on it.
#include <cstdio>

#include <uv.h>

#include <hixl/store.hpp>

#include "embed_story.hpp"

int main() {
  const auto store = hixl::Store::create("tcp://127.0.0.1:0");
  if (!store) return std::puts(store.error().message().c_str()), 1;
  uv_loop_t loop;
  uv_loop_init(&loop);
  story::Ranks ranks;
  for (hixl::Rank rank = 0; rank < 2; ++rank) {
    auto runtime = hixl::Runtime::create_on(&loop, story::options_of(rank, (*store)->url()));
    if (!runtime) return std::puts(runtime.error().message().c_str()), 1;
    ranks[rank] = std::move(*runtime);
  }
  story::tell(ranks, [&](auto&& reached) {
    while (!reached()) uv_run(&loop, UV_RUN_ONCE);
  });
  for (auto& rank : ranks) rank.reset();
  return uv_loop_close(&loop) == 0 ? 0 : 1;  // not one handle was left
}
