// SPDX-License-Identifier: Apache-2.0
//
// Every byte of a handshake and of the first frames behind it, in both directions: the connection ends there, is reset
// there, or brings the byte wrong. Two ranks that meet over it must notice nothing.
#include <atomic>
#include <mutex>
#include <thread>

#include <doctest/doctest.h>

#include "bounds.hpp"
#include "oracle.hpp"
#include "pair.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_bytes = 1U << 16U;
constexpr std::size_t k_put = 1000 * 8;
constexpr std::uint64_t k_word = 60'000;

/// Meeting, a put with a signal, a get and an atomic, where the first connection has this fate. Empty: as if nothing
/// had happened.
std::string live_through(const Fate& fate, PayloadCheck check) {
  Pair pair(k_bytes, {.check = check});
  pair.plan({fate});
  if (std::string fault = pair.meet(); !fault.empty()) return fault;
  const Region& near = pair.region(0);
  const Region& far = pair.region(1);
  const RemoteRegion& there = pair.seen_by(0);
  const auto ended = [](const Result<Request>& posted) {
    if (!posted) return Result<void>(tl::unexpected(posted.error()));
    Request request = *posted;
    return request.wait(k_patience);
  };
  fill_block(near.data, k_put, 1);
  if (const auto put = ended(
          pair[0].put_with_signal(near.data, there.at(0), k_put, {.word = there.at(k_word)}, {.timeout = k_patience}));
      !put) {
    return put.error().message();
  }
  if (!pair[1].wait_signal(far.data + k_word, Compare::equal, 1, k_patience)) return "no signal";
  if (std::string fault = fault_of(far.data, k_put, 1); !fault.empty()) return "put: " + fault;
  fill_block(far.data, k_put, 2);
  const auto before = pair[0].fetch_add_sync(there.at(k_word), 5, k_patience);
  if (!before) return before.error().message();
  if (*before != 1) return "the word was " + std::to_string(*before);
  if (const auto got = pair[0].get_sync(near.data, there.at(0), k_put, k_patience); !got) return got.error().message();
  if (std::string fault = fault_of(near.data, k_put, 2); !fault.empty()) return "get: " + fault;
  // And the other way, over whichever connection stands now.
  if (const auto put = pair[1].put_sync(far.data, pair.seen_by(1).at(k_put), k_put, k_patience); !put) {
    return put.error().message();
  }
  static_cast<void>(pair[0].counters());
  if (std::string fault = fault_of(near.data + k_put, k_put, 2); !fault.empty()) return "put back: " + fault;
  if (*pair[1].wait_signal(far.data + k_word, Compare::equal, 6, Timeout{}) != 6) return "the sum is wrong";
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Counters counters = pair[rank].counters();
    if (counters.failed != 0 || counters.peers_lost != 0) return "operations failed";
  }
  return {};
}

/// The bytes that one connection carries in either direction until everything of live_through() but the payloads has
/// passed: hello 293, an exchange 170, frames of operations about 150 each.
constexpr std::uint64_t k_swept_bytes = 760;

/// Up to here no connection carries payload, which has no checksum unless it is asked for: hello 293 bytes, an exchange
/// of one region 160, and the header of the frame behind them 64; acknowledgements may come between, or later.
constexpr std::uint64_t k_checked_bytes = 510;

struct Sweep {
  Fate::Kind kind = Fate::Kind::finish;
  std::uint64_t step = 1;
  std::uint64_t first = 0;
  std::uint64_t bytes = k_swept_bytes;
  PayloadCheck check = PayloadCheck::off;
};

#ifdef __SANITIZE_THREAD__
constexpr std::size_t k_at_once = 1;  // it does not see libuv close a descriptor, which another thread then gets
#else
constexpr std::size_t k_at_once = 8;  // most of the time is waiting for the second dial
#endif

void sweep(const Sweep& swept, Way way) {
  std::atomic<std::uint64_t> next{swept.first};
  std::mutex mutex;
  std::vector<std::string> faults;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < k_at_once; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t after = next.fetch_add(swept.step); after < swept.bytes; after = next.fetch_add(swept.step)) {
        std::string fault = live_through({swept.kind, way, after}, swept.check);
        if (fault.empty()) continue;
        const std::scoped_lock lock(mutex);
        faults.push_back("after byte " + std::to_string(after) + ": " + fault);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& fault : faults) FAIL_CHECK(fault);
}

/// All bytes in a full run; every 10th in a short one, or every 80th where one goes after another.
std::uint64_t stride() { return scaled(1000) == 1000 ? 1 : 80 / k_at_once; }

}  // namespace

TEST_CASE("a connection that ends behind any byte of handshake and first frames") {
  for (const Way way : {Way::there, Way::back}) sweep({.kind = Fate::Kind::finish, .step = stride()}, way);
}

TEST_CASE("a connection that is reset behind any byte of handshake and first frames") {
  for (const Way way : {Way::there, Way::back}) sweep({.kind = Fate::Kind::reset, .step = stride() * 4}, way);
}

TEST_CASE("any byte of the handshake and of the exchange that arrives wrong") {
  for (const Way way : {Way::there, Way::back}) {
    sweep({.kind = Fate::Kind::flip, .step = stride() * 3, .bytes = k_checked_bytes}, way);
  }
}

TEST_CASE("bytes of payload that arrive wrong, with its checksum asked for: what arrives in the end is right") {
  for (const Way way : {Way::there, Way::back}) {
    sweep({.kind = Fate::Kind::flip,
           .step = stride() * 101,
           .first = k_checked_bytes,
           .bytes = k_checked_bytes + k_put,
           .check = PayloadCheck::crc32c},
          way);
  }
}
