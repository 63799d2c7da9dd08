// SPDX-License-Identifier: Apache-2.0
//
// Offers: regions that any rank may ask for, and gets told of without this program's help. Runtime::exchange() needs a
// call on both sides; this needs one on the side that asks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <hixl/runtime.hpp>

namespace hixl {

/// Owner: the runtime keeps what is offered until it is deregistered. Threads: any; blocking, so WOULD_DEADLOCK on the
/// loop thread. Close: nothing to do.
class Offers {
 public:
  /// From now on who asks is told of these too, and who waits for one of their tags is answered. A region that was
  /// offered before is offered once. STALE, STOPPED, FORKED.
  [[nodiscard]] static Result<void> add(Runtime& runtime, std::span<const Region> regions);
  /// Waits until `rank` offers a region of this tag (k_any_tag: not at all), and learns everything that it offers; the
  /// links are then prepared as by exchange(). DEADLINE_EXCEEDED: it has not, or is not there; NOT_EXCHANGED: this rank
  /// asks itself, and offers no such thing; or it was asked for so many other tags meanwhile that it answered with what
  /// there is.
  [[nodiscard]] static Result<std::vector<RemoteRegion>> ask(Runtime& runtime, Rank rank, std::uint32_t tag,
                                                             Timeout timeout = k_default_timeout);
};

}  // namespace hixl
