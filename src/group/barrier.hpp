// SPDX-License-Identifier: Apache-2.0
//
// BarrierActor: the barriers of all groups of one rank. A group is a list of ranks that anybody may name (and whose
// members may be replaced by new lives), or one that was made and holds exactly the lives that made it.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "group/barrier_group.hpp"

namespace hixl::group {

/// Loop-bound.
class BarrierActor final : private BarrierHost, private runtime::Task {
 public:
  BarrierActor(runtime::Loop& loop, peer::ControlPlane& control, Rank self);

  struct Entry {
    std::vector<Rank> ranks;  ///< any order; must hold self and no duplicates (INVALID_ARGUMENT)
    Instant deadline;
    void (*done)(void* context, const Result<void>& result);  ///< once, never inline
    void* context;
  };
  /// DEADLINE_EXCEEDED with the missing ranks in the detail, PEER_LOST with the dead one. Two entries of one group at
  /// once: the second waits for the first.
  void enter(Entry entry);

  /// A group was made of these lives, self among them.
  void open(std::uint64_t name, std::vector<Rank> ranks, const std::vector<Incarnation>& lives,
            std::shared_ptr<memory::BarrierPage> page = nullptr);
  /// For threads that wait by the page: those who wait by message are to be told; is somebody lost?
  void tell_released(std::uint64_t name);
  void ask(std::uint64_t name);
  /// As above, of a group that was made. A member whose life is over, or that has closed the group, ends it with
  /// PEER_LOST or PEER_GONE, now and for ever. INVALID_ARGUMENT: closed.
  void enter(std::uint64_t name, const BarrierCall& call);
  void close(std::uint64_t name);
  /// This rank has no such group: tells the one that believes so.
  void refuse(Rank rank, std::uint64_t name);
  [[nodiscard]] bool has(std::uint64_t name) const { return groups_.contains(name); }
  [[nodiscard]] std::size_t groups() const noexcept { return groups_.size(); }

  void on_barrier(peer::PeerLife from, const wire::Barrier& message);
  void on_peer_down(peer::PeerLife who, peer::PeerEnd end);
  /// Ends all with STOPPED.
  void stop();

 private:
  void run() override;
  void end(const BarrierCall& call, const Result<void>& result) override;
  [[nodiscard]] Result<std::uint64_t> check(std::vector<Rank>& ranks) const;
  [[nodiscard]] BarrierGroup& group(std::uint64_t name);

  BarrierGroup::Place place_;
  bool stopped_ = false;
  std::map<std::uint64_t, BarrierGroup> groups_;
  struct Ended {
    BarrierCall call;
    Result<void> result;
  };
  std::deque<Ended> ended_;
};

}  // namespace hixl::group
