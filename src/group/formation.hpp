// SPDX-License-Identifier: Apache-2.0
//
// FormationActor: how ranks agree to be a group. Every member tells the lowest one, the collector, which list of ranks
// and which options it means; when all have said the same, the collector draws the group's name and tells everybody,
// with the lives that were there. A name is never drawn twice, so that a group made again is another group.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "group/barrier.hpp"

namespace hixl::group {

/// Loop-bound. Owner: core.
class FormationActor final : private runtime::Task {
 public:
  /// Made groups are opened at `barrier`.
  FormationActor(runtime::Loop& loop, peer::ControlPlane& control, BarrierActor& barrier, peer::PeerLife self);

  /// A group that was made.
  struct Formed {
    std::uint64_t name = 0;
    std::shared_ptr<memory::BarrierPage> page;  ///< null: barriers go by messages
  };
  enum class Pages : std::uint8_t { none, if_shared };
  struct Request {
    std::vector<Rank> ranks;    ///< checked: no duplicates, self among them
    std::uint32_t tag = 0;      ///< one create call a tag is open at a time (BUSY)
    std::uint64_t options = 0;  ///< hash of what members have to agree on beyond the ranks
    Instant deadline;
    /// Once, never inline.
    void (*done)(void* context, const Result<Formed>& formed);
    void* context;
    Pages pages = Pages::none;  ///< whether members on one host may share memory for their barriers
  };
  /// INVALID_ARGUMENT names a member that means another list or other options, DEADLINE_EXCEEDED the missing, PEER_LOST
  /// the dead one.
  void form(Request request);
  void on_join(peer::PeerLife from, const wire::GroupJoin& join);
  void on_answer(peer::PeerLife from, const wire::GroupAnswer& answer);
  void on_peer_down(peer::PeerLife who, peer::PeerEnd end);
  /// Ends all with STOPPED.
  void stop();

 private:
  struct Joined {
    Incarnation life = 0;  ///< 0: not here yet
    std::uint64_t call = 0;
  };
  struct Open final : runtime::Timer {
    Open(FormationActor& of, Request what) : actor(of), request(std::move(what)) {}
    void on_timer() override { actor.on_timer(*this); }
    FormationActor& actor;
    Request request;
    std::uint64_t call = 0;
    std::uint64_t list = 0;
    Rank collector = 0;
    Incarnation collector_life = 0;  ///< that has answered
    bool answered = true;            ///< since our last question
    Rank disagrees = k_no_rank;      ///< has a create call open that means something else
    std::size_t probe_from = 0;
    std::vector<Joined> joined;  ///< as `request.ranks`
  };
  /// The newest join of one member for one tag: early, before this rank's own call, or settled.
  struct Seen {
    peer::PeerLife from;
    wire::GroupJoin join;
    bool settled = false;  ///< withdrawn, or answered for good: repeats of it count for nothing
    std::shared_ptr<const wire::GroupAnswer> answer{};  ///< told again when it was lost
  };
  struct Ended {
    Request request;
    Result<Formed> result;
  };

  void run() override;
  void on_timer(Open& open);
  void ask_again(Open& open);
  void on_deadline(Open& open);
  void make_if_complete(Open& open);
  void fail_all(Open& open, const Error& error);
  void end(Open& open, const Result<Formed>& result);
  void start_timer(Open& open);
  void count_in(Open& open, std::size_t index, peer::PeerLife from, const wire::GroupJoin& join);
  void on_request_to_join(peer::PeerLife from, const wire::GroupJoin& join);
  void on_probe(peer::PeerLife from, const wire::GroupJoin& join);
  void note(peer::PeerLife from, const wire::GroupJoin& join, bool settled,
            std::shared_ptr<const wire::GroupAnswer> answer);
  void settle(const Open& open, std::shared_ptr<const wire::GroupAnswer> answer);
  [[nodiscard]] std::size_t place_of(const Open& open) const noexcept;
  [[nodiscard]] Open* find(std::uint32_t tag) noexcept;
  [[nodiscard]] ErrorDetail missing(const Open& open) const;
  void ask(Rank rank, const Open& open, wire::JoinNote note);
  void answer(Rank rank, std::uint64_t call, wire::GroupAnswer answer);

  runtime::Loop& loop_;
  peer::ControlPlane& control_;
  BarrierActor& barrier_;
  const peer::PeerLife self_;
  bool stopped_ = false;
  std::uint64_t calls_ = 0;
  std::list<Open> open_;
  std::map<std::pair<std::uint32_t, Rank>, Seen> seen_;  // by tag and rank
  std::list<Ended> ended_;
};

}  // namespace hixl::group
