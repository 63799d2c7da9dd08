// SPDX-License-Identifier: Apache-2.0
//
// Core: one runtime, put together from the rooms below. Callers' threads check and post; the loop does the rest. The
// public Runtime is a thin shell over this.
//
// Split by idea: core_start.cpp (birth), core_stop.cpp (death), core_post.cpp (checks and posting), core_batch.cpp
// (many ranges in one operation), core_atomic.cpp (atomics both ways), core_order.cpp (fence, flush, quiet),
// core_lane.cpp (express lane), core_memory.cpp (regions), core_calls.cpp (exchange, deregister, barrier, counters,
// links), offers.cpp (what others may ask for), core_group.cpp (groups), core_inspect.cpp (looking inside),
// core_sweep.cpp (the sweeper), core_wait.cpp (ends and who is told).
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <hixl/runtime.hpp>

#include "base/log_quota.hpp"
#include "core/post_note.hpp"
#include "core/queue_state.hpp"
#include "core/self_actor.hpp"
#include "core/waiting.hpp"
#include "group/barrier.hpp"
#include "group/formation.hpp"
#include "group/rendezvous.hpp"
#include "group/store_server.hpp"
#include "memory/private_pages.hpp"
#include "peer/directory.hpp"
#include "runtime/drivers.hpp"
#include "runtime/request_table.hpp"

namespace hixl::core {

/// Of operations that belong to the loop itself, not to a request.
inline constexpr std::uint32_t k_no_slot = 0xffffffffU;

/// Work handed to the loop by a caller. One of the two is called, once, on the loop thread and never inside call(). The
/// loop's thread may have ended: then by who ends the runtime, before its end is told.
class LoopCall {
 public:
  virtual ~LoopCall() = default;
  virtual void run() = 0;
  virtual void refuse() = 0;  ///< the loop has come to its end
};

/// What a runtime is made of beyond its options; tests and the simulator bring their own.
struct Parts {
  std::unique_ptr<runtime::Driver> driver;
  std::vector<std::unique_ptr<links::LinkFactory>> factories;  ///< empty: made by the options
  /// Adds those that are made for a loop; null: none.
  std::function<void(std::vector<std::unique_ptr<links::LinkFactory>>&, runtime::Loop&)> add_factories;
  bool hosted = false;
  std::uint32_t atomic_window = links::k_atomic_window;
  wire::LifeStart start{};  ///< zeros: the rendezvous counts
};

class Core final : private peer::PeerListener,
                   private runtime::MailTarget,
                   private runtime::RequestKeeper,
                   private group::MembershipEvents,
                   private runtime::Timer {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Core>> create(const RuntimeOptions& options, Parts parts);
  ~Core();
  /// The program's last word: destroys it, unless a callback of its own is just running. Then it ends by itself: with a
  /// loop thread of its own as by stop(5 s), on a host's loop as by stop_async(0).
  static void let_go(std::unique_ptr<Core> core);

  [[nodiscard]] const RuntimeOptions& options() const noexcept { return options_; }
  [[nodiscard]] Incarnation incarnation() const noexcept { return services_->incarnation; }
  [[nodiscard]] runtime::Loop& loop() noexcept { return *loop_; }
  [[nodiscard]] memory::RegionTable& regions() noexcept { return *regions_; }
  [[nodiscard]] Request joined();

  // ---- posting: any thread ----
  [[nodiscard]] Result<Request> post(TransferVerb verb, const void* local, const RemoteAddress& remote,
                                     std::uint64_t size, const Signal* signal, const OpOptions& options);
  [[nodiscard]] Result<Request> post_batch(std::span<const BatchEntry> entries, const Signal* signal,
                                           const OpOptions& options);
  [[nodiscard]] Result<Request> post_pieces(TransferVerb verb, std::span<const LocalPiece> pieces,
                                            const RemoteAddress& remote, const OpOptions& options);
  [[nodiscard]] Result<Request> post_strided(TransferVerb verb, const Strided& strided, const OpOptions& options);
  [[nodiscard]] Result<Request> post_flush(Rank rank, const OpOptions& options) {
    return post_order(peer::Operation::Kind::flush, rank, options);
  }
  [[nodiscard]] Result<Request> post_fence(Rank rank, const OpOptions& options) {
    return post_order(peer::Operation::Kind::fence, rank, options);
  }
  [[nodiscard]] Result<void> transfer_sync(TransferVerb verb, const void* local, const RemoteAddress& remote,
                                           std::uint64_t size, Timeout timeout, LinkSet links = {});
  [[nodiscard]] Result<void> batch_sync(std::span<const BatchEntry> entries, Timeout timeout);
  struct AtomicCall {
    links::Verb verb = links::Verb::atomic_add;
    std::uint64_t value = 0;
    std::uint64_t expected = 0;
  };
  [[nodiscard]] Result<Request> post_atomic(const RemoteAddress& word, const AtomicCall& atomic,
                                            const OpOptions& options);
  [[nodiscard]] Result<std::uint64_t> atomic_sync(const RemoteAddress& word, const AtomicCall& atomic, Timeout timeout);
  /// Posts until there is room or the time is over, then waits.
  template <class Post>
  [[nodiscard]] Result<void> post_and_wait(Timeout timeout, Post&& post);
  /// The same; a request that has ended well is shown to `see`.
  template <class Post, class See>
  [[nodiscard]] Result<void> post_and_wait(Timeout timeout, Post&& post, See&& see);

  // ---- calls: any thread ----
  [[nodiscard]] Result<Region> register_memory(void* data, std::size_t size, const RegisterOptions& options);
  [[nodiscard]] Result<Region> allocate(std::size_t size, const AllocateOptions& options);
  [[nodiscard]] Result<void> copy(const Region& region, std::uint64_t offset, void* in_or_out, std::uint64_t size,
                                  TransferVerb verb);
  // The asynchronous ones: an error means that nothing was begun and `done` will never be called.
  [[nodiscard]] Result<void> deregister(const Region& region, Timeout timeout, void (*done)(void*, const Result<void>&),
                                        void* context);
  [[nodiscard]] Result<void> prewarm(std::span<const Rank> with, Timeout timeout, Done done, void* context);
  [[nodiscard]] Result<void> exchange(std::span<const Region> mine, std::span<const Rank> with, Timeout timeout,
                                      void (*done)(void*, std::vector<PeerAddresses>&&), void* context,
                                      const peer::ExchangeStream& stream = {});
  [[nodiscard]] Result<void> offer(std::span<const Region> regions, Done done, void* context);
  [[nodiscard]] Result<void> barrier(std::span<const Rank> ranks, Timeout timeout,
                                     void (*done)(void*, const Result<void>&), void* context);
  [[nodiscard]] Result<void> quiet(Timeout timeout, void (*done)(void*, const Result<void>&), void* context);
  using GroupFormed = Result<group::FormationActor::Formed>;
  [[nodiscard]] Result<void> create_group(std::span<const Rank> ranks, const GroupOptions& options, Timeout timeout,
                                          void (*done)(void*, const GroupFormed&), void* context);
  [[nodiscard]] Result<void> group_barrier(std::uint64_t name, Timeout timeout,
                                           void (*done)(void*, const Result<void>&), void* context);
  /// Nothing: the barrier is to go by the loop. `ranks` in the group's order. Not on the loop's thread.
  [[nodiscard]] std::optional<Result<void>> barrier_by_page(memory::BarrierPage& page, std::uint64_t name,
                                                            std::span<const Rank> ranks, Timeout timeout);
  void close_group(std::uint64_t name);
  /// TRANSPORT_UNAVAILABLE when this runtime uses none of them.
  [[nodiscard]] Result<void> check_links(LinkSet links, Rank rank) const noexcept;
  /// This core, until the program lets go of it; whoever may outlive that holds the pointer's place.
  [[nodiscard]] std::shared_ptr<const std::atomic<Core*>> self() const noexcept { return door_; }
  [[nodiscard]] Result<std::uint64_t> wait_signal(const void* word, Compare compare, std::uint64_t value,
                                                  Timeout timeout);
  [[nodiscard]] Counters counters();
  [[nodiscard]] std::vector<LinkInfo> links();
  [[nodiscard]] Result<RegionDump> dump_regions();
  [[nodiscard]] Result<std::vector<OperationInfo>> outstanding();
  [[nodiscard]] Result<void> check_access(const RemoteAddress& remote, std::uint64_t size, Rights need) const;
  [[nodiscard]] Result<void> check_access(const void* local, std::uint64_t size, Rights need);
  [[nodiscard]] Result<void> stop(Timeout timeout, void (*done)(void*, const Result<void>&), void* context);
  [[nodiscard]] Result<void> stop_and_join(Timeout timeout);

  [[nodiscard]] bool on_loop_thread() const noexcept { return loop_->on_loop_thread(); }
  /// FORKED in a forked child, STOPPED after stop began.
  [[nodiscard]] Result<void> admit() const noexcept;
  [[nodiscard]] bool forked() const noexcept { return mark_->forked(); }
  [[nodiscard]] const std::shared_ptr<const ForkMark>& fork_mark() const noexcept { return mark_; }
  /// Null: not turned by hand.
  [[nodiscard]] const std::shared_ptr<runtime::HandTurn>& hand() const noexcept { return loop_->thread()->hand(); }
  [[nodiscard]] Result<Instant> deadline_of(Timeout timeout) const;
  /// Until then; 0 when it is past.
  [[nodiscard]] Duration left(Instant deadline) const {
    return std::max<Duration>(deadline - loop_->port().now(), Duration{});
  }
  /// The time that a call has by its options; negative ones stay negative.
  [[nodiscard]] Duration allowed(Timeout timeout) const noexcept;

 private:
  friend class Answering;  // asks by call(), on a thread of its own
  enum class Life : std::uint8_t { running, stopping, stopped };
  enum MailKind : std::uint32_t { k_mail_operation, k_mail_call, k_mail_cancel, k_mail_deliver };

  explicit Core(const RuntimeOptions& options, Parts parts);
  [[nodiscard]] Result<void> build();
  [[nodiscard]] Result<void> listen();
  void start_joining();
  void on_joined(const Result<void>& result) override;
  void finish_joined(const Result<void>& result);

  void on_mail(const runtime::Mail& mail) override;
  void start_operation(peer::Operation& operation);
  [[nodiscard]] std::optional<Error> over_before_start(const peer::Operation& operation) const;
  void on_operation_end(peer::Operation& operation, const Result<void>& result) override;
  [[nodiscard]] Degrade on_degrade(FailedPiece piece, const peer::Operation& operation) override;
  void on_barrier(peer::PeerLife from, const wire::Barrier& message) override;
  void on_group_join(peer::PeerLife from, const wire::GroupJoin& message) override;
  void on_group_answer(peer::PeerLife from, const wire::GroupAnswer& message) override;
  [[nodiscard]] bool has_group(std::uint64_t name) const noexcept override { return barrier_->has(name); }
  void on_peer_down(peer::PeerLife who, peer::PeerEnd end, const Error& why) override;
  void on_same_host_count(std::size_t peers) override;
  void on_timer() override;  // steps of stopping, regions that wait to be released

  [[nodiscard]] Result<void> check_rank(Rank rank) const noexcept;
  [[nodiscard]] Result<memory::RegionInfo> find_own(const Region& region) const;
  [[nodiscard]] static wire::RegionDescriptor descriptor_of(const memory::RegionInfo& info);
  /// `need`: write for the sink of a get.
  [[nodiscard]] Result<memory::Pin> pin_local(const void* local, std::uint64_t size, Rights need);
  /// Whether a post copies its source itself, so that it needs no registration.
  [[nodiscard]] bool inlines(TransferVerb verb, const void* local, std::uint64_t size) const;
  [[nodiscard]] Result<void> fill_entry(peer::Entry& entry, TransferVerb verb, const void* local,
                                        const RemoteAddress& remote, std::uint64_t size);
  [[nodiscard]] Result<void> fill_signal(peer::SignalEntry& entry, const Signal& signal, Rank rank);
  void share_pin(peer::Operation& operation, peer::Entry& entry, memory::Pin&& pin);
  [[nodiscard]] Result<void> add_entry(peer::Operation& operation, const BatchEntry& item);
  [[nodiscard]] Result<void> add_entries(peer::Operation& operation, std::span<const BatchEntry> items,
                                         const Signal* signal);
  [[nodiscard]] Result<void> add_pieces(peer::Operation& operation, TransferVerb verb,
                                        std::span<const LocalPiece> pieces, const RemoteAddress& remote);
  template <class Fill>
  [[nodiscard]] Result<Request> post_filled(Rank rank, const OpOptions& options, Fill&& fill);
  [[nodiscard]] memory::PostingOrder* posting_order(Rank rank) noexcept;
  [[nodiscard]] Result<Request> post_order(peer::Operation::Kind kind, Rank rank, const OpOptions& options);
  struct Quiet;
  void on_quiet_part(peer::Operation& operation, const Result<void>& result);
  void start_quiet(Instant deadline, void (*done)(void*, const Result<void>&), void* context);
  [[nodiscard]] Result<memory::RemoteView> resolve(const RemoteAddress& remote, std::uint64_t size, Rights need) const;
  void fetch_slot(std::uint32_t slot) noexcept;
  [[nodiscard]] Result<void> fill_transfer(std::uint32_t slot, TransferVerb verb, const void* local,
                                           const RemoteAddress& remote, std::uint64_t size, const Signal* signal,
                                           const OpOptions& options);
  /// What a post says of its operation for those who look inside. Handed over rather than read back: the operation's
  /// later cache lines are still the loop's.
  struct Said {
    OperationVerb verb = OperationVerb::put;
    bool signal = false;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Result<Request> submit(peer::Operation& operation, runtime::RequestTable::Acquired acquired,
                                       const OpOptions& options, const Said& said);
  [[nodiscard]] Result<void> hand_over(peer::Operation& operation, const OpOptions& options);
  [[nodiscard]] std::optional<Result<void>> try_lane(TransferVerb verb, const void* local, const RemoteAddress& remote,
                                                     std::uint64_t size);
  [[nodiscard]] Result<void> check_word(const RemoteAddress& word) const;
  [[nodiscard]] std::optional<Result<std::uint64_t>> try_atomic_lane(const RemoteAddress& word,
                                                                     const AtomicCall& atomic);
  [[nodiscard]] bool lane_open(Rank rank) const noexcept;
  [[nodiscard]] bool lane_takes(std::span<const BatchEntry> entries);
  [[nodiscard]] Result<void> copy_along(TransferVerb verb, const void* local, const RemoteAddress& remote,
                                        std::uint64_t size, Timeout timeout, LinkSet links);
  [[nodiscard]] bool uses(LinkKind kind) const noexcept;
  [[nodiscard]] Result<void> check_group(std::span<const Rank> ranks, const GroupOptions& options) const;
  /// STOPPED, BUSY: neither of its ends will be called.
  [[nodiscard]] Result<void> call(std::unique_ptr<LoopCall> call);
  /// The same for a question that must be answered: STOPPED only when the runtime's end is complete.
  [[nodiscard]] bool call_to_the_end(std::unique_ptr<LoopCall> call);
  void on_call(LoopCall& call);
  /// Later mail may no longer count on the loop; what came before is answered.
  void end_calls();
  void set_stopped();
  /// Between two tries of a thread that waits for room.
  void give_way() noexcept;
  [[nodiscard]] Result<std::uint64_t> turn_for_signal(const memory::Pin& pin, const std::byte* word, Compare compare,
                                                      std::uint64_t value, Timeout timeout);
  void drain_after_end();
  void drain_late();
  [[nodiscard]] bool came_too_late(peer::Operation& operation);

  // ---- ends and who is told (core_wait.cpp) ----
  [[nodiscard]] Result<void> cancel_later(std::uint32_t slot, std::uint32_t generation) override;
  [[nodiscard]] Result<void> deliver_later(std::uint32_t slot) override;
  void cancel_operation(std::uint32_t slot, std::uint32_t generation);
  void deliver(std::uint32_t slot);
  /// Runs a piece of the program on the loop; what it throws is counted and goes no further.
  template <class Program>
  void tell(Program&& program) noexcept;
  template <class Value>
  struct Teller;  // function_call.hpp
  void callback_threw() noexcept;

  struct Release;
  void warn_of_allocation(const Error& error, std::size_t size, const AllocateOptions& options);
  void release_step();
  void stop_step();
  void teardown();
  void tell_stopped();
  void finish_hosted();
  void close_hosted();
  void count_links(Counters& counters);
  void count_memory(Counters& counters) const;
  [[nodiscard]] Counters look();

  // ---- looking inside (core_inspect.cpp, core_sweep.cpp) ----
  /// What `look` gives, on the loop; STOPPED when the loop has come to its end.
  template <class Look>
  [[nodiscard]] auto ask(Look&& look) -> Result<decltype(look())>;
  struct Ways;
  void look_at_own(std::vector<OwnRegion>& out) const;
  void look_at_peer(const Ways& ways, std::vector<PeerRegion>& out) const;
  /// Loop, ages as of `now`: the requests of `count` slots from `from` on.
  [[nodiscard]] std::vector<OperationInfo> look_at_slots(std::uint32_t from, std::uint32_t count, Instant now);
  [[nodiscard]] std::optional<OperationInfo> look_at_slot(std::uint32_t slot, Instant now);
  void look_at_lanes(std::vector<OperationInfo>& out);
  void note_post(const peer::Operation& operation, std::uint32_t generation, const OpOptions& options,
                 const Said& said) noexcept;
  void note_join(runtime::RequestTable::Acquired acquired);
  void start_sweeping();
  void note_unseen(OperationInfo&& operation, const Error& error);
  struct Sweep;

  RuntimeOptions options_;
  Parts parts_;
  std::shared_ptr<const ForkMark> mark_;
  std::uint64_t seed_ = 0;
  std::atomic<Life> life_{Life::running};
  std::unique_ptr<runtime::RequestTable> requests_;
  std::unique_ptr<runtime::Loop> loop_;
  std::unique_ptr<memory::RegionTable> regions_;
  std::unique_ptr<memory::SignalPage> signals_;
  std::unique_ptr<peer::Operation[]> operations_;
  memory::PrivatePages inline_bytes_;           // max_inline a slot
  std::unique_ptr<PostNote[]> notes_;           // a slot's; the poster's, read by the loop
  std::unique_ptr<QueuePlace[]> queue_places_;  // a slot's; the poster's, then the loop's, as the operation
  memory::PostingOrder self_order_;
  // Null when the program has let go. Relaxed would do: that and its calls are ordered by the program.
  std::shared_ptr<std::atomic<Core*>> door_ = std::make_shared<std::atomic<Core*>>(this);

  // Loop, on cache lines of its own: callers read what is above with every post.
  alignas(64) Counters counters_{};
  std::vector<std::unique_ptr<links::LinkFactory>> factories_;
  std::unique_ptr<group::StoreServer> store_;
  std::unique_ptr<group::Rendezvous> membership_;
  struct NoBook;
  std::unique_ptr<NoBook> no_book_;
  std::unique_ptr<peer::PeerServices> services_;
  std::unique_ptr<peer::Directory> directory_;
  std::unique_ptr<SelfActor> self_;
  std::unique_ptr<group::BarrierActor> barrier_;
  std::unique_ptr<group::FormationActor> formation_;
  struct UnixDoor;
  std::unique_ptr<UnixDoor> unix_door_;
  std::unique_ptr<runtime::Listener> unix_listener_;
  std::vector<std::unique_ptr<runtime::Listener>> tcp_listeners_;  // in the order of options_.bind
  wire::Endpoints endpoints_{};
  std::vector<std::unique_ptr<Release>> releases_;
  std::vector<std::uint8_t> begun_;  // by slot: its operation is the loop's, from its mail to its end
  std::unique_ptr<Sweep> sweep_;     // null: off
  std::size_t quiets_ = 0;           // open ones
  std::uint32_t telling_ = 0;        // pieces of the program that are running on the loop

  std::atomic<std::uint64_t> callback_errors_{0};
  std::mutex allocation_log_mutex_;  // guards allocation_log_
  log::Quota allocation_log_;
  std::mutex calls_mutex_;   // makes a call's post and the loop's last look exclude each other; held for a post at most
  bool calls_over_ = false;  // calls_mutex_

  // Joining and stopping.
  std::mutex joined_mutex_;  // guards joined_request_
  std::mutex end_mutex_;     // who joins the loop's thread, and who takes mail out after the loop's end
  bool late_ = false;        // end_mutex_: operations that are taken out now are refused by their posts
  Request joined_request_;
  std::uint32_t joined_slot_ = 0;
  bool joined_pending_ = false;
  Instant stop_deadline_{};
  enum class StopStage : std::uint8_t { none, draining, closing, ended } stop_stage_ = StopStage::none;
  struct StopWaiter {
    void (*done)(void*, const Result<void>&);
    void* context;
  };
  std::vector<StopWaiter> stop_waiters_;  // loop
  Result<void> stop_result_{};
  Counters last_counters_{};
  bool driver_stopped_ = false;
};

template <class Program>
void Core::tell(Program&& program) noexcept {
  telling_ += 1;
  try {
    program();
  } catch (...) {
    callback_threw();
  }
  telling_ -= 1;
}

template <class Post>
Result<void> Core::post_and_wait(Timeout timeout, Post&& post) {
  return post_and_wait(timeout, std::forward<Post>(post), [](Request&) {});
}

template <class Post, class See>
Result<void> Core::post_and_wait(Timeout timeout, Post&& post, See&& see) {
  if (const auto admitted = admit(); !admitted) return admitted;
  if (on_loop_thread()) return fail(ErrorCode::would_deadlock);
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  for (;;) {
    const Duration left = *deadline - loop_->port().now();
    Result<Request> request = post(std::max(left, Duration{}));
    if (request) {
      Result<void> ended = request->wait();
      if (ended) see(*request);
      return ended;
    }
    // A full table is back-pressure: the sync form waits for room, as long as its time allows.
    if (request.error().code != ErrorCode::busy || left <= Duration{}) return fail(request.error());
    give_way();
  }
}

}  // namespace hixl::core
