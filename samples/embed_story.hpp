// SPDX-License-Identifier: Apache-2.0
//
// What the two ranks of the embed_* samples do, whatever loop they live in. Every call is asynchronous, every callback
// comes on the program's one thread; `until(reached)` turns the program's loop.
#pragma once

#include <cstdio>
#include <memory>

#include <hixl/runtime.hpp>

namespace story {

using Ranks = std::unique_ptr<hixl::Runtime>[2];

inline int ended = 0;  // calls that have ended

inline void count(void*, const hixl::Result<void>& result) {
  if (!result) std::printf("failed: %s\n", result.error().message().c_str());
  ++ended;
}

/// A call that could not begin never calls back.
inline void begun(const hixl::Result<void>& result) {
  if (!result) count(nullptr, result);
}

inline hixl::RuntimeOptions options_of(hixl::Rank rank, const std::string& store) {
  hixl::RuntimeOptions options;
  options.rank = rank;
  options.world_size = 3;  // rank 2 never comes
  options.store = store;
  return options;
}

template <class Until>
void tell(Ranks& ranks, Until&& until) {
  until([&] { return ranks[0]->joined().done() && ranks[1]->joined().done(); });
  hixl::Region regions[2] = {*ranks[0]->allocate(4096), *ranks[1]->allocate(4096)};
  hixl::RemoteRegion remote;  // rank 1's, as rank 0 sees it
  for (hixl::Rank rank = 0; rank < 2; ++rank) {
    const hixl::Rank other[] = {1 - rank};
    const auto learned = [](void* to, auto&& answers) {
      if (to != nullptr) *static_cast<hixl::RemoteRegion*>(to) = answers[0].regions.at(0);
      count(nullptr, answers[0].result);
    };
    begun(ranks[rank]->exchange_async({&regions[rank], 1}, other, hixl::k_default_timeout, learned,
                                      rank == 0 ? &remote : nullptr));
  }
  until([] { return ended == 2; });

  const char text[] = "hello through the host's loop";
  const auto put_ended = [](void*, const hixl::Completion& completion) { count(nullptr, completion.result); };
  const auto sent = ranks[0]->put(text, remote.at(0), sizeof text, {.callback = {put_ended}});
  if (!sent) return count(nullptr, hixl::fail(sent.error()));
  until([] { return ended == 3; });
  std::printf("rank 1 holds: %s\n", reinterpret_cast<const char*>(regions[1].data));

  // A deadline that passes while nothing is sent or received.
  const hixl::Rank absent[] = {2};
  const auto in_vain = [](void*, auto&& answers) {
    std::printf("rank 2 is not there: %s\n", hixl::name(answers[0].result.error().code).data());
    ++ended;
  };
  begun(ranks[0]->exchange_async({}, absent, std::chrono::milliseconds(50), in_vain, nullptr));
  until([] { return ended == 4; });

  for (auto& rank : ranks) begun(rank->stop_async(std::chrono::seconds(5), count, nullptr));
  until([] { return ended == 6; });
  std::puts("both have stopped");
}

}  // namespace story
