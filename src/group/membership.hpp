// SPDX-License-Identifier: Apache-2.0
//
// Membership: this rank's side of a rendezvous store. Claims the rank, publishes how to reach it, and looks others up.
// A lost store connection is dialled again (50 ms doubling to 2 s, with jitter) and everything is announced anew; peers
// that are connected do not notice.
#pragma once

#include <memory>

#include "group/rendezvous.hpp"

namespace hixl::group {

/// Loop-bound. Destruction closes the connection at once; not from inside an event.
class Membership final : public Rendezvous {
 public:
  Membership(runtime::Loop& loop, runtime::Address store, MembershipEvents& events);
  ~Membership() override;
  /// An absent store is dialled again until `deadline`.
  void join(const wire::StoreClaim& claim, Instant deadline) override;
  void watch(Rank rank, peer::AddressWatcher& watcher) override;
  /// Says goodbye; the connection is closed when it has left.
  void leave() override;
  [[nodiscard]] Birth birth() const noexcept override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hixl::group
