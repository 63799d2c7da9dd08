// SPDX-License-Identifier: Apache-2.0
//
// Two ranks in a program's own epoll loop: each has one descriptor, and is turned when that is readable.
#include <cstdio>

#include <sys/epoll.h>
#include <unistd.h>

#include <hixl/store.hpp>

#include "embed_story.hpp"

int main() {
  const auto store = hixl::Store::create("tcp://127.0.0.1:0");
  if (!store) return std::puts(store.error().message().c_str()), 1;
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  story::Ranks ranks;
  for (hixl::Rank rank = 0; rank < 2; ++rank) {
    auto runtime = hixl::Runtime::create_polled(story::options_of(rank, (*store)->url()));
    if (!runtime) return std::puts(runtime.error().message().c_str()), 1;
    ranks[rank] = std::move(*runtime);
    epoll_event watched{};
    watched.events = EPOLLIN;
    watched.data.ptr = ranks[rank].get();
    epoll_ctl(loop, EPOLL_CTL_ADD, ranks[rank]->fd(), &watched);
  }
  story::tell(ranks, [&](auto&& reached) {
    while (!reached()) {
      epoll_event ready{};  // the program's own descriptors would be in there as well
      if (epoll_wait(loop, &ready, 1, -1) == 1) static_cast<hixl::Runtime*>(ready.data.ptr)->poll();
    }
  });
  return close(loop);
}
