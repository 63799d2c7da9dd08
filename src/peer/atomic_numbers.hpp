// SPDX-License-Identifier: Apache-2.0
//
// AtomicNumbers: the numbers of the atomics that a peer executes for us. A number is taken for an atomic's first frame,
// stays with it over links and sessions, and is released when nobody will ask for it any more; all up to the oldest one
// in use are acknowledged, and the peer forgets their answers.
//
// Loop-bound. Owner: the peer's actor; one life of the peer.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>

#include "base/assert.hpp"
#include "base/ids.hpp"
#include "links/atomic_window.hpp"

namespace hixl::peer {

class AtomicNumbers {
 public:
  explicit AtomicNumbers(std::uint32_t window = links::k_atomic_window) : window_(window) {
    HIXL_ASSERT(window >= 1 && window <= links::k_atomic_window);
  }

  /// 0: as many as the peer's window holds are in use, or older ones are.
  [[nodiscard]] AtomicSeq take() noexcept { return last_ - acked_ < window_ ? ++last_ : 0; }
  void release(AtomicSeq number) noexcept {
    HIXL_ASSERT(number > acked_ && number <= last_ && !released_[number % released_.size()]);
    released_.set(number % released_.size());
    while (acked_ < last_ && released_[(acked_ + 1) % released_.size()]) {
      acked_ += 1;
      released_.reset(acked_ % released_.size());
    }
  }
  [[nodiscard]] AtomicSeq acked_upto() const noexcept { return acked_; }
  /// The peer had no room for `number`, sent when all up to `acked` were acknowledged: its window is smaller than ours,
  /// and is respected from now on.
  void narrow(AtomicSeq number, AtomicSeq acked) noexcept {
    window_ = static_cast<std::uint32_t>(std::clamp<AtomicSeq>(number - acked - 1, 1, window_));
  }
  /// A new life of the peer knows none of them.
  void reset() noexcept {
    released_.reset();
    last_ = acked_ = 0;
  }

 private:
  std::uint32_t window_;
  AtomicSeq last_ = 0;
  AtomicSeq acked_ = 0;
  std::bitset<links::k_atomic_window> released_;  // of the numbers above acked_
};

}  // namespace hixl::peer
