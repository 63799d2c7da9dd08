// SPDX-License-Identifier: Apache-2.0
//
// Two ranks in a program on asio: each has one descriptor, and is turned when that is readable.
#include <cstdio>

#include <memory>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <hixl/store.hpp>

#include "embed_story.hpp"

namespace {

using Descriptor = asio::posix::stream_descriptor;

void turn(Descriptor& watched, hixl::Runtime& rank) {
  watched.async_wait(Descriptor::wait_read, [&](const std::error_code& error) {
    if (error) return;
    rank.poll();
    turn(watched, rank);
  });
}

}  // namespace

int main() {
  const auto store = hixl::Store::create("tcp://127.0.0.1:0");
  if (!store) return std::puts(store.error().message().c_str()), 1;
  asio::io_context loop;
  std::unique_ptr<Descriptor> watched[2];
  story::Ranks ranks;
  for (hixl::Rank rank = 0; rank < 2; ++rank) {
    auto runtime = hixl::Runtime::create_polled(story::options_of(rank, (*store)->url()));
    if (!runtime) return std::puts(runtime.error().message().c_str()), 1;
    ranks[rank] = std::move(*runtime);
    watched[rank] = std::make_unique<Descriptor>(loop, ranks[rank]->fd());
    turn(*watched[rank], *ranks[rank]);
  }
  story::tell(ranks, [&](auto&& reached) {
    while (!reached()) loop.run_one();
  });
  for (auto& descriptor : watched) descriptor->release();  // it stays the rank's
  return 0;
}
