// SPDX-License-Identifier: Apache-2.0
//
// What peers are given by the runtime that owns them, and what they tell it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <hixl/failover.hpp>
#include <hixl/inspect.hpp>
#include <hixl/result.hpp>

#include "links/link.hpp"
#include "peer/address_book.hpp"
#include "peer/operation.hpp"
#include "peer/timing.hpp"

namespace hixl::peer {

class PeerListener {
 public:
  /// The operation has ended, once; its slot may be reused when this returns.
  virtual void on_operation_end(Operation& operation, const Result<void>& result) = 0;
  virtual void on_barrier(PeerLife from, const wire::Barrier& message) = 0;
  virtual void on_group_join(PeerLife from, const wire::GroupJoin& message) = 0;
  virtual void on_group_answer(PeerLife from, const wire::GroupAnswer& message) = 0;
  /// Whether this rank is in the group of that name now.
  [[nodiscard]] virtual bool has_group(std::uint64_t name) const noexcept = 0;
  /// A piece's retries are used up, and the options have a hook: its answer, `fail` if it threw. `piece.user_data` is
  /// filled in by who knows it.
  [[nodiscard]] virtual Degrade on_degrade(FailedPiece piece, const Operation& operation) = 0;
  /// A life of the rank is over for us: died, left, replaced (life), or its lease ended (session).
  virtual void on_peer_down(PeerLife who, PeerEnd end, const Error& why) = 0;
  /// A peer proved that it shares this host (or no longer does).
  virtual void on_same_host_count(std::size_t peers) = 0;

 protected:
  ~PeerListener() = default;
};

/// One link that this runtime may have to each peer.
struct LinkChoice {
  links::LinkFactory* factory = nullptr;
  LinkId id = 0;
  std::uint32_t index = 0;          ///< among those of its kind
  std::uint32_t siblings = 1;       ///< how many of its kind there are, itself included
  bool shares = false;              ///< its work with other links
  std::uint64_t max_bandwidth = 0;  ///< bytes a second; 0: no limit
};

/// A kind that this runtime does not use, and why.
struct LinkKindOff {
  LinkKind kind = LinkKind::tcp;
  std::string reason;
  Error error{};  ///< what the system said, if it was asked
};

/// Regions that any peer may ask for, by id; see PeerActor::serve_questions().
using Offered = std::map<std::uint32_t, wire::RegionDescriptor>;

struct PeerServices {
  runtime::Loop& loop;
  memory::RegionTable& regions;
  memory::SignalPage& signals;
  AddressBook& book;
  PeerListener& listener;
  Counters& counters;
  std::vector<LinkChoice> links;         ///< best first
  std::vector<LinkKindOff> kinds_off{};  ///< for those who look inside
  bool kind_forced = false;              ///< the options name exactly one kind
  Timing timing{};
  RetryPolicy retry{};
  Pooling pooling = Pooling::best_kind;
  PeerId peer_id{};
  Incarnation incarnation = 0;
  Birth birth = 0;  ///< 0 until the rendezvous has answered our claim: until then nobody is dialled or let in
  Rank rank = 0;
  std::uint32_t world_size = 0;
  std::uint32_t tx_depth = 32;
  std::uint32_t rx_depth = 32;
  std::uint32_t chunk_bytes = 1U << 20U;
  bool check_payload = false;  ///< payload travels with a checksum where the kind has one
  std::uint32_t regions_max = 65536;
  std::uint32_t atomic_window = links::k_atomic_window;  ///< smaller in tests, so that it is full at times
  bool warned_fallback = false;                          ///< `auto` warns once
  bool warned_window = false;
  OpId last_op_id = 0;
  std::size_t same_host_peers = 0;
  Offered offered{};
  /// Without those whose region was closed.
  const Offered& offered_now() {
    std::erase_if(offered, [this](const auto& entry) { return !regions.info(entry.second.key); });
    return offered;
  }
};

}  // namespace hixl::peer
