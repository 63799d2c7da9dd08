// SPDX-License-Identifier: Apache-2.0
//
// AddressBook: where peers are found. The peer room asks; the group room (rendezvous) answers. Loop-bound.
#pragma once

#include "wire/frame.hpp"
#include "wire/store_messages.hpp"

namespace hixl::peer {

/// One life of a rank.
struct PeerLife {
  Rank rank = k_no_rank;
  Incarnation incarnation = 0;
};
/// What has ended with a peer: our session with it alone, or the life behind it too.
enum class PeerEnd : std::uint8_t { session, life };

class AddressWatcher {
 public:
  /// The rank lives there now: once soon after watch() if it is known, and at every change.
  virtual void on_address(const wire::Endpoints& endpoints) = 0;
  /// That life of the rank has left in order, or its store connection ended (a hint, not a death).
  virtual void on_address_gone(Rank rank, Incarnation incarnation) = 0;

 protected:
  ~AddressWatcher() = default;
};

class AddressBook {
 public:
  /// Never calls back inline. One watcher a rank; lasts until the book or the watcher's owner ends.
  virtual void watch(Rank rank, AddressWatcher& watcher) = 0;

 protected:
  ~AddressBook() = default;
};

/// How group actors talk to other ranks. Loop-bound.
class ControlPlane {
 public:
  /// Sends soon, connecting if need be. May be lost with a link: repeat until answered. False: that peer's queue is
  /// full.
  virtual bool send_control(Rank rank, wire::FrameType type, ConstBytes body) = 0;

 protected:
  ~ControlPlane() = default;
};

}  // namespace hixl::peer
