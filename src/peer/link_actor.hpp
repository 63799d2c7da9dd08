// SPDX-License-Identifier: Apache-2.0
//
// LinkActor: one link of one peer through all its generations. It posts chunks as attempts, keeps count of the live
// ones, and when its link breaks finds out which of them were executed: alone where its own side knows (reads, copies
// that this side makes), by the target's fence answer otherwise. What was not executed goes back to the peer (R1 … R5).
//
//   idle ──open──▶ setup ──on_up──▶ up ──broken──▶ down (attempts unresolved until resolve()) ──open──▶ setup …
//
// Loop-bound. Tells its peer by LinkActorEvents, which may be called from inside start(), fail() and resolve().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "links/link.hpp"
#include "peer/operation.hpp"
#include "peer/timing.hpp"

namespace hixl::peer {

class LinkActor;

enum class AttemptEnd : std::uint8_t {
  executed,      ///< the bytes are there
  refused,       ///< the target (or the region's state) said no
  not_executed,  ///< the link broke before; may be tried again
};

class LinkActorEvents {
 public:
  virtual void on_attempt_end(LinkActor& link, Operation& operation, const Chunk& chunk, AttemptEnd end,
                              const Error& error) = 0;
  virtual void on_link_up(LinkActor& link) = 0;
  virtual void on_link_down(LinkActor& link, const Error& error) = 0;
  virtual void on_link_credit(LinkActor& link) = 0;
  virtual void on_link_control(LinkActor& link, const wire::FrameHeader& header, ConstBytes body) = 0;
  virtual void on_link_attached(LinkActor& link, RegionKey key, const Result<void>& result) = 0;

 protected:
  ~LinkActorEvents() = default;
};

class LinkActor final : private links::LinkEvents {
 public:
  enum class State : std::uint8_t { idle, setup, up, down };

  LinkActor(links::LinkFactory& factory, LinkId id, std::uint32_t tx_depth, LinkActorEvents& events);
  ~LinkActor();

  [[nodiscard]] LinkId id() const noexcept { return id_; }
  [[nodiscard]] const links::LinkCaps& caps() const noexcept { return factory_.caps(); }
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] bool up() const noexcept { return state_ == State::up; }
  [[nodiscard]] LinkGen generation() const noexcept { return generation_; }
  /// The generation that was open last; the peer's executed set is asked for it.
  [[nodiscard]] LinkGen last_open() const noexcept { return last_open_; }
  [[nodiscard]] links::Link* link() noexcept { return link_.get(); }

  /// Takes the stream of a finished handshake. The link of an earlier generation is failed first.
  void open(const links::LinkIdentity& identity, std::unique_ptr<links::FrameStream> stream,
            const links::LinkServices& services);
  /// The peer knows a newer generation: the next dial starts above it.
  void raise_generation(LinkGen generation) noexcept;

  [[nodiscard]] bool has_credit() const noexcept;
  /// Posts one attempt. busy: nothing happened.
  [[nodiscard]] links::Answer start(Operation& operation, const Chunk& chunk);
  [[nodiscard]] bool send(wire::FrameType type, ConstBytes body);

  /// Fences this side: the link closes, attempts whose fate is known here end, the others stay live.
  void fail(const Error& error);
  /// Live attempts that only the target can tell about.
  [[nodiscard]] bool unresolved() const noexcept;
  [[nodiscard]] LinkGen unresolved_generation() const noexcept;
  /// The target's final word on `generation`. With `newest` it never opened a later one, so attempts of later
  /// generations were not executed either.
  void resolve(LinkGen generation, const wire::ExecutedSet& executed, bool newest);
  /// The session is over, or the target is declared dead (R1 c): what is unresolved ends as `not_executed` with `why`.
  void give_up_unresolved(const Error& why);
  /// What this side executed of the peer's frames in the newest closed generation in which it executed any. Of later
  /// ones it executed nothing; earlier ones are settled, because the peer spoke in this one and had learned of them
  /// before. So this set alone, given at each handshake, settles everything that the peer has live (R4).
  struct Executed {
    LinkGen generation = 0;  ///< 0: none in this session
    wire::ExecutedSet set;
  };
  [[nodiscard]] const Executed& executed() const noexcept { return executed_; }
  /// The same as the answer to a question about one generation.
  [[nodiscard]] wire::ExecutedSet executed_in(LinkGen generation) const noexcept;
  /// The session has ended: nobody may ask any more.
  void forget_executed() noexcept { executed_ = {}; }

  /// Ends what can be ended at once of an operation: takes reads back. The number still live here.
  std::size_t withdraw(Operation& operation);
  /// Drops every attempt of an operation without an event (its end by lease).
  void drop(Operation& operation) noexcept;

  /// Our region was closed: true when no link of any generation lets the peer touch it any more.
  [[nodiscard]] bool revoke(RegionKey key);
  /// Destroys links whose copies have ended; call now and then while true. `lanes_idle`: no caller is in the lane.
  bool reap(bool lanes_idle);
  [[nodiscard]] bool draining() const noexcept { return !draining_.empty(); }

  [[nodiscard]] Instant last_heard() const noexcept;
  /// Of all generations, lane included.
  [[nodiscard]] links::Link::Traffic traffic() const noexcept;
  [[nodiscard]] memory::Lane::Totals lane_totals() const noexcept;

  /// Attempts whose end is not known, and their bytes.
  [[nodiscard]] std::size_t in_flight() const noexcept { return attempts_.size() - free_.size(); }
  [[nodiscard]] std::uint64_t bytes_in_flight() const noexcept { return inflight_bytes_; }
  /// Calls `see(operation)` for each of them that still belongs to one.
  template <class See>
  void each_live(See&& see) const {
    for (const Attempt& attempt : attempts_) {
      if (attempt.live && attempt.operation != nullptr) see(*attempt.operation);
    }
  }
  /// A connection broke or did not come about; told in LinkInfo for ever, while last_error ends when the link is up.
  void note_failure(const Error& error) {
    failures_ever_ += 1;
    failed_last_ = error;
  }
  [[nodiscard]] std::uint64_t failures_ever() const noexcept { return failures_ever_; }
  [[nodiscard]] const Error& failed_last() const noexcept { return failed_last_; }

  /// Dialling state, kept here because it is the link's; used by PeerActor.
  Instant next_dial{};
  Instant up_since{};
  std::uint32_t failures = 0;
  bool dialled = false;
  Error last_error{};

 private:
  struct Attempt {
    Operation* operation = nullptr;  // null: free, or dropped while `live`
    links::Link* link = nullptr;     // while its link exists
    Chunk chunk{};
    LinkGen generation = 0;
    LinkSeq sequence = 0;  // set when the link closes
    links::Verb verb{};
    bool live = false;
    bool in_hand = false;  // its completion was taken from the link and is about to be told
    std::array<links::Segment, wire::k_segments_max> segments{};
  };

  void on_up() override;
  void on_completions() override;
  void on_credit() override;
  void on_control(const wire::FrameHeader& header, ConstBytes body) override;
  void on_attached(RegionKey key, const Result<void>& result) override;
  void on_down(const Error& error) override;

  [[nodiscard]] Attempt* free_attempt() noexcept;
  void take_completions(links::Link& link);
  void finish(Attempt& attempt, AttemptEnd end, const Error& error);
  void settle_closed(links::Link& link);

  links::LinkFactory& factory_;
  LinkId id_;
  LinkActorEvents& events_;
  State state_ = State::idle;
  LinkGen generation_ = 0;
  LinkGen last_open_ = 0;
  bool blocked_ = false;
  std::uint64_t inflight_bytes_ = 0;
  std::vector<Attempt> attempts_;
  std::vector<std::uint32_t> free_;
  std::unique_ptr<links::Link> link_;
  memory::Lane* lane_ = nullptr;  // the link's while it is up, and callers may be inside even when it no longer is
  struct Closed {
    std::unique_ptr<links::Link> link;
    memory::Lane* lane = nullptr;
    bool settled = false;
  };
  std::vector<Closed> draining_;
  Executed executed_{};
  std::uint64_t failures_ever_ = 0;
  Error failed_last_{};
  links::Link::Traffic past_{};  // of closed generations
  memory::Lane::Totals past_lane_{};
  void add_to_past(links::Link& link) noexcept;
};

}  // namespace hixl::peer
