// SPDX-License-Identifier: Apache-2.0
//
// LinkActor: one link of one peer through all its generations. It posts chunks as attempts, keeps count of the live
// ones, and when its link breaks finds out which of them were executed: alone where its own side knows (reads, copies
// that this side makes), by the target's fence answer otherwise. What was not executed goes back to the peer (R1 … R5).
//
//   idle ──open──▶ setup ──on_up──▶ up ──broken──▶ down (attempts unresolved until resolve()) ──open──▶ setup …
//
// While it is up it watches itself (link_watch.cpp). One that came back after a failure is on probation until its
// probes have been answered, and then is given its share by and by. One on which nothing of ours gets anywhere is
// suspected: nothing more is posted on it, and its peer fences it when another link shows that the peer lives.
// LinkHealth keeps what is remembered of failures and speed, a TokenBucket the limit of bytes a second.
//
// Loop-bound. Tells its peer by LinkActorEvents, which may be called from inside start(), fail() and resolve().
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "links/link.hpp"
#include "peer/handshake.hpp"
#include "peer/link_health.hpp"
#include "peer/operation.hpp"
#include "peer/services.hpp"
#include "peer/timing.hpp"
#include "peer/token_bucket.hpp"
#include "runtime/ticker.hpp"

namespace hixl::peer {

class LinkActor;

/// A question for a sign of life: its number.
inline constexpr std::size_t k_ping_bytes = sizeof(std::uint64_t);

/// What a chunk is part of. Bulk leaves some credit to those that are small, and keeps to the link's share and window,
/// however small its chunks are.
enum class Bulk : std::uint8_t { no, yes };

enum class AttemptEnd : std::uint8_t {
  executed,      ///< the bytes are there
  refused,       ///< the target (or the region's state) said no
  not_executed,  ///< the link broke before, or the bytes arrived corrupt; may be tried again
};

/// Why a link did not come about: what it takes is missing on one of the two sides, or between them. Nothing broke.
[[nodiscard]] constexpr bool is_refusal(ErrorCode code) noexcept {
  return code == ErrorCode::transport_unavailable || code == ErrorCode::no_route || code == ErrorCode::memlock_limit ||
         code == ErrorCode::access_denied;
}

class LinkActorEvents {
 public:
  virtual void on_attempt_end(LinkActor& link, Operation& operation, const Chunk& chunk, AttemptEnd end,
                              const Error& error) = 0;
  virtual void on_link_up(LinkActor& link) = 0;
  virtual void on_link_down(LinkActor& link, const Error& error) = 0;
  virtual void on_link_credit(LinkActor& link) = 0;
  virtual void on_link_control(LinkActor& link, const wire::FrameHeader& header, ConstBytes body) = 0;
  virtual void on_link_attached(LinkActor& link, RegionKey key, const Result<void>& result) = 0;
  /// Half of the time after which it is suspected is over: whether the peer lives should be known by then.
  virtual void on_link_quiet(LinkActor& link) = 0;
  virtual void on_link_suspect(LinkActor& link) = 0;

 protected:
  ~LinkActorEvents() = default;
};

class LinkActor final : private links::LinkEvents {
 public:
  enum class State : std::uint8_t { idle, setup, up, down };

  LinkActor(runtime::Loop& loop, const LinkChoice& choice, const Timing& timing, std::uint32_t tx_depth,
            LinkActorEvents& events);
  ~LinkActor();

  [[nodiscard]] LinkId id() const noexcept { return choice_.id; }
  [[nodiscard]] const LinkChoice& choice() const noexcept { return choice_; }
  [[nodiscard]] const links::LinkCaps& caps() const noexcept { return choice_.factory->caps(); }
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] bool up() const noexcept { return state_ == State::up; }
  [[nodiscard]] LinkGen generation() const noexcept { return generation_; }
  /// The generation that was open last; the peer's executed set is asked for it.
  [[nodiscard]] LinkGen last_open() const noexcept { return last_open_; }
  /// The newest generation of which we know that the peer's present life opened it. What it said before that is old.
  [[nodiscard]] LinkGen opened_there() const noexcept { return opened_there_; }
  void note_opened_there(LinkGen generation) noexcept { opened_there_ = std::max(opened_there_, generation); }
  void forget_opened_there() noexcept { opened_there_ = 0; }
  [[nodiscard]] links::Link* link() noexcept { return link_.get(); }

  /// Takes the stream of a finished handshake. The link of an earlier generation is failed first.
  void open(const links::LinkIdentity& identity, std::unique_ptr<links::FrameStream> stream,
            const links::LinkServices& services);
  /// The peer knows a newer generation: the next dial starts above it.
  void raise_generation(LinkGen generation) noexcept;

  /// Whether a chunk of that size may be posted now.
  [[nodiscard]] bool has_credit(std::uint64_t bytes = 0, Bulk bulk = Bulk::no) const noexcept;
  /// Nothing more is posted on it: nothing that was posted gets anywhere.
  [[nodiscard]] bool suspect() const noexcept { return suspect_; }
  [[nodiscard]] bool on_probation() const noexcept { return up() && health_.on_probation(); }
  [[nodiscard]] LinkHealth& health() noexcept { return health_; }
  [[nodiscard]] const LinkHealth& health() const noexcept { return health_; }
  /// When what is in flight, and one chunk more, would have ended at its present rate: the least takes the next chunk.
  [[nodiscard]] Duration backlog() const noexcept;
  /// Asks for a sign of life; at most one question is open. `bytes`: 8 … k_body_bytes_max.
  void ping(std::size_t bytes = k_ping_bytes);
  /// Shows the peer that we live: by a question, or when the last one is still unanswered, without one.
  void sign_of_life();
  /// Since when the peer's life has been in question because of this link; k_never: it is not.
  [[nodiscard]] Instant quiet_since() const noexcept { return questioned_ ? quiet_since_ : k_never; }
  /// Posts one attempt. busy: nothing happened.
  [[nodiscard]] links::Answer start(Operation& operation, const Chunk& chunk);
  [[nodiscard]] bool send(wire::FrameType type, ConstBytes body);

  /// Fences this side: the link closes, attempts whose fate is known here end, the others stay live.
  void fail(const Error& error);
  /// The link broke here, and the peer has neither confirmed it nor opened the link anew: it may not know.
  [[nodiscard]] bool peer_unaware() const noexcept { return peer_unaware_; }
  /// The session is over, and with it every question about it.
  void forget_peer() noexcept { peer_unaware_ = false; }
  /// Live attempts that only the target can tell about.
  [[nodiscard]] bool unresolved() const noexcept;
  [[nodiscard]] LinkGen unresolved_generation() const noexcept;
  /// The target's final word on `generation`, and on the later ones up to `upto`, of which it executed nothing. Of
  /// those beyond it says nothing: it may have opened them after it spoke.
  void resolve(LinkGen generation, const wire::ExecutedSet& executed, LinkGen upto);
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
    health_.note_failure(loop_.now());
  }
  [[nodiscard]] std::uint64_t failures_ever() const noexcept { return failures_ever_; }
  [[nodiscard]] const Error& failed_last() const noexcept { return failed_last_; }

  [[nodiscard]] std::uint64_t given_back() const noexcept { return given_back_; }
  [[nodiscard]] std::uint64_t stalls() const noexcept { return stalls_; }
  [[nodiscard]] Duration busy() const noexcept;

  /// Dialling state, kept here because it is the link's; used by PeerActor.
  Instant next_dial{};
  std::uint32_t dials = 0;     ///< in all: which of several addresses is next
  std::unique_ptr<Dial> dial;  ///< under way
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

  // ---- link_watch.cpp ----
  using Tick = runtime::Ticker<LinkActor>;
  /// Whether there is anything whose answer is missing.
  [[nodiscard]] bool waiting() const noexcept {
    return state_ == State::up && !caps().executed_by_initiator && (live_here_ > 0 || ping_open_);
  }
  void watch();
  void on_watch();
  void on_pace() { events_.on_link_credit(*this); }
  void note_progress();
  void on_pong(ConstBytes body);
  void begin_probation();
  void end_watch() noexcept;
  [[nodiscard]] std::uint64_t window() const noexcept;

  [[nodiscard]] Attempt* free_attempt() noexcept;
  void take_completions(links::Link& link);
  void finish(Attempt& attempt, AttemptEnd end, const Error& error);
  void settle_closed(links::Link& link);

  runtime::Loop& loop_;
  const LinkChoice choice_;
  const Timing& timing_;
  LinkActorEvents& events_;
  State state_ = State::idle;
  LinkGen generation_ = 0;
  LinkGen last_open_ = 0;
  LinkGen opened_there_ = 0;
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
  // What is watched.
  LinkHealth health_;
  TokenBucket bucket_;
  std::uint32_t live_here_ = 0;  // attempts on link_
  Instant progress_at_{};
  std::uint64_t progress_seen_ = 0;
  bool questioned_ = false;
  Instant quiet_since_{};
  bool suspect_ = false;
  Instant probation_until_{};
  bool ping_open_ = false;
  std::uint64_t pings_ = 0;
  std::size_t ping_size_ = 0;
  Instant ping_at_{};
  bool peer_unaware_ = false;
  Instant busy_since_{};
  Instant worked_at_{};
  Duration busy_{};
  std::uint64_t given_back_ = 0;
  std::uint64_t stalls_ = 0;
  Tick watch_tick_{*this, &LinkActor::on_watch};
  Tick pace_tick_{*this, &LinkActor::on_pace};

  std::uint64_t failures_ever_ = 0;
  Error failed_last_{};
  links::Link::Traffic past_{};  // of closed generations
  memory::Lane::Totals past_lane_{};
  void add_to_past(links::Link& link) noexcept;
};

}  // namespace hixl::peer
