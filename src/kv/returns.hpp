// SPDX-License-Identifier: Apache-2.0
//
// ReturnBook: gates at other ranks that count us and could not be left. As long as that life of the rank is not over
// the gate counts us, whatever becomes of sessions, so it is left when one stands again. Pure; not thread-safe.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <hixl/kv/lease.hpp>
#include <hixl/types.hpp>

#include "directory.hpp"

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
};

/// What can be seen of the gate's rank.
enum class RankLook : std::uint8_t {
  reached,  ///< its directory is known, in a session that stands
  away,     ///< that life may come back, or tell of its directory yet: it may stand still, for however long
  over,     ///< that life, or its DataDist, is over
};

class ReturnBook {
 public:
  void add(const GateThere& gate, bool release) { all_.push_back({.gate = gate, .release = release}); }
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  template <class Test>
  [[nodiscard]] bool any(Test&& test) const {
    return std::any_of(all_.begin(), all_.end(), test);
  }
  /// Takes out those that can be left now, and forgets those that need not be. `look`: RankLook of a gate.
  template <class Look>
  [[nodiscard]] std::vector<Return> step(Look&& look) {
    std::vector<Return> ready;
    std::vector<Return> kept;
    for (const Return& at : all_) {
      const RankLook seen = look(at.gate);
      if (seen == RankLook::reached) ready.push_back(at);
      if (seen == RankLook::away) kept.push_back(at);
    }
    all_ = std::move(kept);
    return ready;
  }
  /// That DataDist is over.
  void forget(const RemoteAddress& directory) {
    std::erase_if(all_, [&](const Return& at) { return same_life(at.gate.at, directory); });
  }

 private:
  std::vector<Return> all_;
};

}  // namespace hixl::kv
