// SPDX-License-Identifier: Apache-2.0
//
// Membership: this rank's side of the rendezvous. Claims the rank, publishes how to reach it, and looks others up. A
// lost store connection is dialled again (50 ms doubling to 2 s, with jitter) and everything is announced anew; peers
// that are connected do not notice.
#pragma once

#include <memory>

#include <hixl/result.hpp>

#include "peer/address_book.hpp"
#include "runtime/loop.hpp"

namespace hixl::group {

class MembershipEvents {
 public:
  /// Once: the rank is claimed, or RANK_CONFLICT, RANK_OUT_OF_RANGE (limit: world size), INVALID_ARGUMENT (the others
  /// use another world size: limit), LIMIT_REACHED, RENDEZVOUS_UNREACHABLE (with errno), HOST_UNRESOLVED,
  /// VERSION_MISMATCH, MALFORMED_FRAME. Nothing is retried after an error. Never inside join().
  virtual void on_joined(const Result<void>& result) = 0;

 protected:
  ~MembershipEvents() = default;
};

/// Loop-bound. Destruction closes the connection at once; not from inside an event.
class Membership final : public peer::AddressBook {
 public:
  Membership(runtime::Loop& loop, runtime::Address store, MembershipEvents& events);
  ~Membership();
  /// Dials until `deadline`; an absent store is retried until then (ranks and store may start in any order).
  void join(const wire::Endpoints& mine, std::uint32_t world_size, Instant deadline);
  void watch(Rank rank, peer::AddressWatcher& watcher) override;
  /// Says goodbye; the connection is closed when it has left.
  void leave();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hixl::group
