// SPDX-License-Identifier: Apache-2.0
//
// PeerActor: everything about one remote rank. Owns its links, the operations that are open to it, their deadlines and
// live attempts, the session, and the exchange of addresses. Survives the lives of the rank: when one ends, the next
// finds the same actor.
//
// Loop-bound. Owner: Directory. Close: stop(), then destruction once stopped() is true.
//
// Split by idea: peer_session.cpp (dial), peer_hello.cpp (being dialled), peer_life.cpp (session, death),
// peer_connect.cpp (ahead of need), peer_transfer.cpp (operations), peer_retry.cpp (pieces that come back),
// peer_atomic.cpp (those that are atomics), peer_order.cpp (fences and flushes), peer_reach.cpp (which link),
// peer_control.cpp (control frames, fences of links), peer_exchange.cpp (addresses), peer_inspect.cpp (what is told).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <hixl/inspect.hpp>
#include <hixl/memory.hpp>

#include "memory/peer_memory.hpp"
#include "peer/arrivals.hpp"
#include "peer/atomic_numbers.hpp"
#include "peer/dial_slots.hpp"
#include "peer/handshake.hpp"
#include "peer/link_actor.hpp"
#include "peer/reach.hpp"
#include "peer/services.hpp"
#include "peer/waits.hpp"
#include "runtime/ticker.hpp"

namespace hixl::peer {

class PeerActor final : private LinkActorEvents,
                        private DialEvents,
                        private AddressWatcher,
                        private OperationTimer::Events,
                        private runtime::WatchEvents,
                        private runtime::Task {
 public:
  PeerActor(PeerServices& services, Rank rank, memory::PeerMemory& memory, DialSlots& dial_slots);
  ~PeerActor();

  [[nodiscard]] Rank rank() const noexcept { return rank_; }

  /// A checked operation from the mailbox. Ends by PeerListener::on_operation_end, never inline.
  /// With `over` nothing of it begins: it only takes its place and ends with that error.
  void post(Operation& operation, const Error* over = nullptr);
  /// The program wants an open operation to end: CANCELLED, or success if it turns out to be executed wholly. Never
  /// told inline.
  void cancel(Operation& operation);
  void exchange(std::vector<wire::RegionDescriptor> mine, const ExchangeWait& wait);
  void serve_questions();  ///< of this peer, as far as what is offered answers them
  /// False: the queue is full.
  [[nodiscard]] bool send_control(wire::FrameType type, ConstBytes body);
  /// Connects now rather than with the first need. Ends when each link stands or has failed once, and one stands; or at
  /// the deadline, with success if any stands.
  void prewarm(const ConnectWait& wait);

  /// An accepted connection that said hello for this rank.
  void on_hello(Greeting& greeting, const wire::Hello& hello);

  /// Our loop was late, and nothing that came meanwhile has been looked at.
  void on_late(Duration lag);
  /// A local region was closed: operations that use it end with STALE.
  void end_operations_on(std::uint32_t region_id);
  /// True when no link of this peer touches our region any more.
  [[nodiscard]] bool revoke(RegionKey key);
  void drop_window(std::uint32_t window_id);

  /// Says goodbye, ends all operations with STOPPED, closes the links. Where no link stands, stays to be asked by the
  /// peer, until `farewell_until` at most.
  void stop(Instant farewell_until);
  [[nodiscard]] bool stopped();
  /// Ends everything now: own copies are waited for (they are short), nobody is asked.
  void abort();
  [[nodiscard]] bool has_open_operations() const noexcept { return !open_.empty() || !ended_.empty(); }
  void describe(std::vector<LinkInfo>& out) const;
  [[nodiscard]] Reach reach() const noexcept;
  /// Of an operation that its post() has had and whose end has not been told.
  [[nodiscard]] static OperationState state_of(const Operation& operation) noexcept;
  /// Calls `see(operation, kind)` for every live attempt.
  template <class See>
  void each_live(See&& see) const {
    for (const auto& link : links_) {
      link->each_live([&](const Operation& operation) { see(operation, link->caps().kind); });
    }
  }
  /// Adds this peer's traffic, lane included.
  void count(Counters& counters) const;

 private:
  // ---- session (peer_session.cpp) ----
  void on_address(const wire::Endpoints& endpoints) override;
  void on_address_gone(Rank rank, Incarnation incarnation) override;
  void on_welcome(Dial& dial, const wire::Welcome& welcome) override;
  void on_reject(Dial& dial, const wire::Reject& reject) override;
  void on_dial_failed(Dial& dial, const Error& error) override;
  void on_link_up(LinkActor& link) override;
  void on_link_down(LinkActor& link, const Error& error) override;
  void on_link_quiet(LinkActor& link) override;
  void on_link_suspect(LinkActor& link) override;
  void fence_suspects();
  void compare_rates();
  void on_ready() override;  // pidfd: the process died
  void want();
  void consider_dialling();
  void dial(LinkActor& link, DialSlots::Slot slot, Duration timeout);
  void end_dial(LinkActor& link);
  void end_dials();
  /// The link that dials, if any does; of several the first.
  [[nodiscard]] LinkActor* dialling() noexcept;
  void back_off(LinkActor& link, Duration at_least);
  [[nodiscard]] bool needed() const noexcept;
  [[nodiscard]] bool reachable_by(const LinkActor& link) const noexcept;
  [[nodiscard]] std::string address_for(const LinkActor& link) const;
  void begin_session(Incarnation incarnation, SessionId session, std::uint32_t lease_ms, std::uint32_t rx_depth);
  /// What is over: the session alone, the life of the rank behind it, or that life because the next one is here.
  enum class Over : std::uint8_t { session, life, replaced };
  void end_session(const Error& why, Over over);
  void release_life();
  void bury(Incarnation incarnation) noexcept;
  /// How a life compares with the newest one that was ever heard of.
  enum class Age : std::uint8_t { newer, present, over, impostor };
  [[nodiscard]] Age age_of(Birth birth, Incarnation incarnation) const noexcept;
  void note_life(Birth birth, Incarnation incarnation) noexcept;
  void forsaken();
  void watch_process(int pidfd);
  void heartbeat();
  [[nodiscard]] Instant heard() const noexcept;
  [[nodiscard]] Error silence() const;
  void doubt_session(Duration lag);
  void update_gate();
  [[nodiscard]] LinkActor* find(LinkId id) noexcept;
  [[nodiscard]] LinkActor* best_up() noexcept;
  [[nodiscard]] wire::RejectReason judge(const wire::Hello& hello, wire::Reject& reject, bool& accept);
  void accept(Greeting& greeting, const wire::Hello& hello);
  void open_link(LinkActor& link, LinkGen generation, std::unique_ptr<links::FrameStream> stream, bool dialled);

  // ---- connecting ahead (peer_connect.cpp) ----
  [[nodiscard]] bool connected() const noexcept;
  void serve_connects();
  void on_connect_tick();
  void fail_connects(const Error& error);
  [[nodiscard]] Error too_late(Stage stage) noexcept;

  // ---- operations (peer_transfer.cpp) ----
  void on_attempt_end(LinkActor& link, Operation& operation, const Chunk& chunk, AttemptEnd end,
                      const Error& error) override;
  void on_link_credit(LinkActor& link) override;
  void on_operation_timer(OperationTimer& timer) override;
  void run() override;  // the pump
  void pump_later() { services_.loop.defer(*this); }
  void pump_if_waiting() {
    if (!returned_.empty() || small_.count + bulk_.count > 0) pump_later();
  }
  /// Not posted before `due`.
  void return_chunk(Operation& operation, const Chunk& chunk, Instant due = {}) {
    returned_.push_back({&operation, chunk, due});
    operation.returned += 1;
    if (due > services_.loop.now() && (!retry_tick_.active() || retry_tick_.due() > due)) {
      services_.loop.start(retry_tick_, due);
    }
  }
  void take_back_returned(Operation& operation);
  bool post_returned();
  struct Ready {
    List<Operation, ReadyTag> list;  // with bytes to cut
    std::size_t count = 0;
  };
  /// Bytes that were cut; nothing when nobody can go on.
  [[nodiscard]] std::uint64_t post_ready(Ready& ready);
  void post_turn();
  void settle(Operation& operation);
  void end(Operation& operation, const Error& error);
  void end_refused(Operation& operation, const LinkActor& link, const Error& why);
  void end_later(Operation& operation, const Error& error);
  void end_operations_to(RegionKey key);
  void end_all(const Error& error);
  void finish(Operation& operation);
  void tell_end(Operation& operation);
  void tell_ends();

  // ---- retries (peer_retry.cpp) ----
  void try_again(const LinkActor& link, Operation& operation, Chunk chunk, const Error& error);
  [[nodiscard]] Degrade ask_degrade(const LinkActor& link, const Operation& operation, const Chunk& chunk,
                                    const Error& error) const;
  void end_retried(Operation& operation, Error error);
  void on_retry_tick();

  // ---- order (peer_order.cpp) ----
  [[nodiscard]] bool held(const Operation& operation) const noexcept;
  void make_ready(Operation& operation);
  void leave_ready(Operation& operation) noexcept;
  void keep_order(const Operation& operation);
  void settle_order();
  void release_waiting();
  void finish_orders();

  // ---- reach (peer_reach.cpp) ----
  [[nodiscard]] Result<void> check_reach_of(RegionKey key, bool words, LinkSet kinds);
  [[nodiscard]] Result<void> check_reach(const Operation& operation);
  [[nodiscard]] static bool reaches(LinkActor& link, RegionKey region) noexcept;
  [[nodiscard]] bool reached_elsewhere(const LinkActor& link, const Operation& operation, RegionKey key) noexcept;
  void warn_of_refused_network();
  void warn_of_tcp(const wire::RegionDescriptor& region, LinkSet kinds);
  /// What an attempt needs of its link.
  enum class Need : std::uint8_t { bytes, word, word_at_target };
  /// The link that an attempt of an operation on a region takes now; null: none that stands, or it has no credit.
  /// `bytes`: of the chunk; of one that is still to be cut, at most.
  [[nodiscard]] LinkActor* choose(const Operation& operation, RegionKey region, Need need,
                                  std::uint64_t bytes) noexcept;
  [[nodiscard]] bool unreachable_by(LinkSet kinds) const noexcept;
  [[nodiscard]] Error unreachable() const noexcept;
  void end_unreachable();
  [[nodiscard]] static bool takes(const LinkActor& link, bool mapped, MemoryKind kind, Need need) noexcept;
  /// The link that choose() takes for memory of a sort, credit aside; null: none that stands.
  [[nodiscard]] const LinkActor* serving(bool mapped, MemoryKind kind, Need need) const noexcept;
  [[nodiscard]] std::string why(const LinkActor& link, const LinkInfo& info) const;

  // ---- atomics (peer_atomic.cpp) ----
  enum class Verdict : std::uint8_t { settled, again };
  void begin_atomic(Operation& operation);
  [[nodiscard]] static Need need_of(const Operation& operation, const Chunk& chunk) noexcept;
  [[nodiscard]] bool number_atomic(Operation& operation, const LinkActor& link) noexcept;
  static void note_asked(Operation& operation, const LinkActor& link) noexcept;
  [[nodiscard]] Verdict judge_atomic(Operation& operation, AttemptEnd how, const Error& error);
  void settle_atomic(Operation& operation);
  void close_atomic(Operation& operation) noexcept;
  void give_up_atomics();

  // ---- control (peer_control.cpp) ----
  void on_link_control(LinkActor& link, const wire::FrameHeader& header, ConstBytes body) override;
  void on_link_attached(LinkActor& link, RegionKey key, const Result<void>& result) override;
  template <class Message>
  [[nodiscard]] static std::vector<std::byte> encoded(const Message& message);
  template <class Message>
  bool send_message(wire::FrameType type, const Message& message) {
    return send_control(type, encoded(message));
  }
  void flush_control();
  void request_fences();
  void on_fence_request(const wire::FenceRequest& request);
  void act_on_control();
  void answer_fence(const wire::FenceRequest& request);

  // ---- exchange (peer_exchange.cpp) ----
  struct Waiter {
    std::uint64_t number;
    std::vector<wire::RegionDescriptor> regions;  // ours
    ExchangeWait wait;
    Error refused{};
    std::optional<ArrivedExchange> answer{};  // to a question
    bool in_doubt = false;                    // a question: an answer came before it was acknowledged
  };
  void on_exchange(const wire::Exchange& message);
  void on_exchange_ack(const wire::ExchangeAck& message);
  void attach_all();
  void region_gone(RegionKey key);
  void refuse_region(Error error);
  void arrived_exchange_settled();
  [[nodiscard]] bool room_for_exchange();
  void publish();
  void publish_again();
  void publish_unacknowledged();
  void look_at_exchanges_by(Instant time);
  void match_exchanges();
  void answer_question(std::uint32_t tag);
  void serve_exchanges();
  [[nodiscard]] std::optional<ArrivedExchange> take_answer(Waiter& waiter);
  void take_exchange(ArrivedExchange&& arrived);
  [[nodiscard]] std::deque<Waiter> forget_exchanges();
  void ask_again(std::deque<Waiter> waiters);
  void fail_exchanges(std::deque<Waiter> waiters, const Error& error);

  using Ticker = runtime::Ticker<PeerActor>;
  void on_dial_tick() { consider_dialling(); }
  void on_fence_tick() { request_fences(); }
  void on_compare_tick() { compare_rates(); }
  void on_exchange_tick();
  void on_reap_tick();

  PeerServices& services_;
  const Rank rank_;
  memory::PeerMemory& memory_;
  links::AtomicWindow atomic_window_;  // of the peer's atomics here; before the links, which use it
  AtomicNumbers atomic_numbers_;       // of ours there
  std::vector<std::unique_ptr<LinkActor>> links_;

  // The rank's present life.
  bool watching_ = false;
  bool address_known_ = false;
  wire::Endpoints endpoints_{};
  Incarnation incarnation_ = 0;  // whom the session is with; 0: none
  SessionId session_ = 0;        // newest number known with that life
  bool session_active_ = false;
  bool came_up_ = false;   // a link has, in this session
  bool joinable_ = false;  // a reject told of an active session that we may join
  std::uint32_t peer_rx_depth_ = 32;
  Duration lease_{};
  // The newest life ever heard of, by whatever way. All with a lower birth are over, and it is if it is buried.
  struct Newest {
    Birth birth = 0;
    Incarnation incarnation = 0;
    bool buried = false;
  } newest_;
  runtime::Fd process_;  // our own duplicate: the link that brought it may be gone before the kernel reports the death
  std::unique_ptr<runtime::Watch> process_watch_;
  bool process_known_ = false;
  std::vector<std::unique_ptr<Dial>> over_dials_;  // destroyed a turn later, never in their own event
  Instant last_contact_{};                         // link events count as signs of life, besides frames
  links::Link* gate_link_ = nullptr;               // whose lane callers' threads use
  bool closing_ = false;
  bool prewarm_ = false;
  std::vector<ConnectWait> connects_;
  bool stopping_ = false;
  Instant farewell_until_{};  // the goodbye that no link could take is said to a hello until then
  Error connect_error_{};     // the last reason why no link stands

  // Operations.
  List<Operation, OpenTag> open_;   // all, in order of posting
  List<Operation, OpenTag> ended_;  // whose end is to be told when nothing walks over open_
  bool ends_held_ = false;
  Ready small_;
  Ready bulk_;
  struct Returned {
    Operation* operation;
    Chunk chunk;
    Instant due;
  };
  std::deque<Returned> returned_;  // chunks, signals and atomics to (re)post
  Arrivals arrivals_;
  std::deque<std::uint64_t> fence_places_;  // places of fences with something open before them, ascending
  std::size_t waiting_count_ = 0;

  // Control.
  struct Control {
    wire::FrameType type;
    std::vector<std::byte> body;
  };
  std::deque<Control> control_;
  std::vector<LinkId> broken_links_;  // brought nonsense; fail outside their own event
  std::vector<wire::FenceRequest> fences_asked_;
  std::size_t fence_turn_ = 0;                                       // fences are asked for over each link in turn
  bool suspects_due_ = false;                                        // somebody was heard while a link is suspected
  std::vector<RegionKey> gone_;                                      // retired by the peer
  bool left_ = false;                                                // the peer said goodbye
  std::unordered_map<std::uint32_t, wire::RegionDescriptor> known_;  // the peer's regions, by id

  struct OutExchange {
    std::uint64_t number;
    std::vector<wire::RegionDescriptor> regions;
    ExchangeStream stream{};
    std::size_t regions_queued = 0;
    bool queued_whole = false;
  };
  std::uint64_t exchanges_out_ = 0;
  std::uint64_t exchanges_in_ = 0;  // the last one that arrived whole
  std::deque<OutExchange> publishing_;
  std::map<std::uint32_t, wire::RegionDescriptor> published_;  // all that the peer was ever told; told in each session
  bool had_session_ = false;
  std::uint64_t exchanges_acknowledged_ = 0;
  bool exchange_ready_ = false;
  std::deque<Waiter> waiters_;
  ArrivingExchange arriving_{};
  std::size_t attaching_ = 0;
  bool arrived_whole_ = false;
  std::deque<ArrivedExchange> arrived_;  // not yet given to a waiter
  std::vector<std::uint32_t> asked_;     // tags of the peer's questions that wait for an offer

  Ticker dial_tick_{*this, &PeerActor::on_dial_tick};
  DialSlots& dial_slots_;
  DialTurn<PeerActor> dial_turn_{*this, &PeerActor::consider_dialling};
  Ticker fence_tick_{*this, &PeerActor::on_fence_tick};
  Ticker connect_tick_{*this, &PeerActor::on_connect_tick};
  Ticker retry_tick_{*this, &PeerActor::on_retry_tick};
  Ticker compare_tick_{*this, &PeerActor::on_compare_tick};
  Ticker exchange_tick_{*this, &PeerActor::on_exchange_tick};
  Ticker heartbeat_tick_{*this, &PeerActor::heartbeat};
  Ticker reap_tick_{*this, &PeerActor::on_reap_tick};
};

template <class Message>
std::vector<std::byte> PeerActor::encoded(const Message& message) {
  std::vector<std::byte> buffer(wire::k_body_bytes_max);
  ByteWriter writer(buffer);
  encode(message, writer);
  HIXL_ASSERT(writer.ok());
  buffer.resize(writer.size());
  return buffer;
}

}  // namespace hixl::peer
