// SPDX-License-Identifier: Apache-2.0
//
// Runtimes that the test turns by hand.
#pragma once

#include "support.hpp"

namespace hixl::test {

inline constexpr std::size_t k_polled_bytes = 1U << 20U;

inline std::unique_ptr<Runtime> start_polled(const RuntimeOptions& options) {
  auto runtime = Runtime::create_polled(options);
  require_ok(runtime);
  return std::move(*runtime);
}

/// A polled rank 0, and rank 1 on a thread of its own; they know each other's window.
struct PolledCouple {
  explicit PolledCouple(const std::vector<LinkKind>& links = {},
                        std::chrono::milliseconds lease = std::chrono::milliseconds(0)) {
    store = *Store::create("tcp://127.0.0.1:0");
    auto options = options_for(0, 2, store->url(), links);
    options.lease = lease;
    mine = start_polled(options);
    theirs = *Runtime::create(options_for(1, 2, store->url(), links));
    require_ok(mine->joined().wait());
    here = *mine->allocate(k_polled_bytes);
    there = *theirs->allocate(k_polled_bytes);
    const Rank zero[] = {0}, one[] = {1};
    require_ok(theirs->exchange_async(std::span(&there, 1), zero, k_patience, store_answers, &met));
    const auto answers = mine->exchange(std::span(&here, 1), one, k_patience);  // blocks, and turns meanwhile
    require_ok(answers.front().result);
    remote = answers.front().regions.front();
    REQUIRE(met.wait());
    require_ok(met.value.front().result);
    back = met.value.front().regions.front();
  }
  /// Rank 0 may have gone without a word; nobody waits at the door for it here.
  ~PolledCouple() { static_cast<void>(theirs->stop(std::chrono::nanoseconds(0))); }
  PolledCouple(const PolledCouple&) = delete;
  PolledCouple& operator=(const PolledCouple&) = delete;
  std::unique_ptr<Store> store;
  std::unique_ptr<Runtime> mine, theirs;
  Region here, there;
  RemoteRegion remote, back;
  Answer<std::vector<PeerAddresses>> met;
};

}  // namespace hixl::test
