// SPDX-License-Identifier: Apache-2.0
//
// ReturnBook: gates at other ranks that count us and could not be left. As long as that life of the rank is not over
// the gate counts us, whatever becomes of sessions, so it is left when one stands again. Pure; not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <hixl/types.hpp>

#include "lease_book.hpp"

namespace hixl::kv {

/// A gate at another rank, and by which right we go through it.
struct GateThere {
  RemoteAddress at{};
  RemoteAddress bell{};
  RemoteAddress release{};  // of a lease
  std::uint32_t generation = 0;
  Access access = Access::pull;
  bool lease = false;
};

struct Return {
  GateThere gate;
  bool release = false;
  Instant silent_since = Instant::max();  // a session stands, and we have not been told of the directory
};

/// What can be seen of the gate's rank.
enum class RankLook : std::uint8_t {
  reached,  ///< its directory is known, in a session that stands
  silent,   ///< a session with that life stands, and nothing of the directory was told in it
  away,     ///< that life may come back
  over,     ///< that life, or its DataDist, is over
};

class ReturnBook {
 public:
  /// A new session tells of all regions that stand, first of all, and repeats that (every 200 ms) until it is heard.
  /// Who has told of no directory after this time has none any more: its DataDist was closed in between.
  static constexpr std::chrono::seconds k_silence_max{5};

  void add(const GateThere& gate, bool release) { all_.push_back({.gate = gate, .release = release}); }
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  template <class Test>
  [[nodiscard]] bool any(Test&& test) const {
    for (const Return& at : all_) {
      if (test(at)) return true;
    }
    return false;
  }
  /// Takes out those that can be left now, and forgets those that need not be. `look`: RankLook of a gate.
  template <class Look>
  [[nodiscard]] std::vector<Return> step(Instant now, Look&& look) {
    std::vector<Return> ready;
    std::vector<Return> kept;
    for (Return& at : all_) {
      const RankLook seen = look(at.gate);
      at.silent_since = seen == RankLook::silent ? std::min(at.silent_since, now) : Instant::max();
      const bool gone = seen == RankLook::silent && now - at.silent_since >= k_silence_max;
      if (seen == RankLook::reached) {
        ready.push_back(at);
      } else if (seen != RankLook::over && !gone) {
        kept.push_back(at);
      }
    }
    all_ = std::move(kept);
    return ready;
  }

 private:
  std::vector<Return> all_;
};

}  // namespace hixl::kv
