// SPDX-License-Identifier: Apache-2.0
//
// Groups of a World: made by all members at once, each in a thread of its own.
#pragma once

#include <numeric>
#include <thread>

#include "support.hpp"

namespace hixl::test {

inline std::vector<Rank> range(Rank first, Rank last) {
  std::vector<Rank> ranks(last - first);
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

/// Every rank of the list in a thread of its own; assertions are for the caller's thread.
template <class Run>
void on_each(const std::vector<Rank>& ranks, Run&& run) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) threads.emplace_back([&run, &ranks, i] { run(i, ranks[i]); });
  for (std::thread& thread : threads) thread.join();
}

/// All of them make a group, each with its own options.
inline std::vector<Result<Group>> try_make(World& world, const std::vector<Rank>& ranks,
                                           const std::vector<GroupOptions>& options, Timeout timeout = k_patience) {
  std::vector<Result<Group>> groups;
  for (std::size_t i = 0; i < ranks.size(); ++i) groups.emplace_back(fail(ErrorCode::busy));
  on_each(ranks, [&](std::size_t i, Rank rank) {
    groups[i] = world[rank].create_group(ranks, options[i % options.size()], timeout);
  });
  return groups;
}
inline std::vector<Group> make(World& world, const std::vector<Rank>& ranks, const GroupOptions& options = {}) {
  std::vector<Group> made;
  for (auto& group : try_make(world, ranks, {options})) {
    require_ok(group);
    made.push_back(std::move(*group));
  }
  return made;
}
inline void require_barrier(std::vector<Group>& groups) {
  std::vector<Result<void>> results(groups.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = groups[i].barrier(k_patience); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) require_ok(result);
}

/// One window a member, known to all members of the group.
struct Windows {
  std::vector<Region> own;
  std::vector<std::vector<PeerAddresses>> known;  // [member][member]
  Windows(World& world, std::vector<Group>& groups, std::size_t bytes) : own(groups.size()), known(groups.size()) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      auto region = world[groups[i].world_rank(static_cast<Rank>(i))].allocate(bytes);
      require_ok(region);
      own[i] = *region;
    }
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      threads.emplace_back([&, i] { known[i] = groups[i].exchange(std::span(&own[i], 1), k_patience); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& answers : known) {
      REQUIRE(answers.size() == groups.size());
      for (const PeerAddresses& answer : answers) require_ok(answer.result);
    }
  }
  [[nodiscard]] RemoteRegion at(std::size_t from, std::size_t to) const { return known[from][to].regions.front(); }
};

}  // namespace hixl::test
