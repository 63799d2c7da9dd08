// SPDX-License-Identifier: Apache-2.0
//
// DataDist::State: what a DataDist is made of. Callers' threads, the runtime's loop (callbacks of operations) and the
// keeper's thread meet here under one mutex, which is never held while somebody blocks or the program is called.
//
// Split by idea: state.cpp (time, waiting, hops), state_keep.cpp (the keeper), open.cpp (birth and
// death), caches.cpp, link.cpp, unlink.cpp, find.cpp, leases.cpp, moves.cpp, steps.cpp.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <hixl/kv/data_dist.hpp>

#include "directory.hpp"
#include "gate_book.hpp"
#include "lease_book.hpp"
#include "marks.hpp"
#include "passes.hpp"
#include "returns.hpp"

namespace hixl::kv {

/// Finds a rank's directory among its regions; the header is looked at besides.
inline constexpr std::uint32_t k_directory_tag = 0x4b565f44;  // "KV_D"

struct LocalCache {
  CacheId id{};
  CacheDesc desc{};
  std::vector<TensorAddress> tensors;
  std::vector<Region> regions;  // each once
  std::uint32_t uses = 0;       // own transfers that are open
  bool closing = false;
};

/// Whether the ticket was given in the life of that directory.
[[nodiscard]] inline bool is_from(const LeaseTicket& ticket, const RemoteAddress& directory) noexcept {
  return ticket.incarnation == directory.incarnation && ticket.directory == directory.region;
}

struct Link {
  Rank rank = k_no_rank;
  std::uint32_t index = 0;  // ours: which gates are theirs
  RemoteAddress directory{};
  Directory there{};
  std::uint32_t index_there = 0;
  bool linked = false;
  bool open = false;         // our gates are, unless it is leaving
  bool leaving = false;      // unlink() has begun, and shut them
  std::uint32_t moving = 0;  // own transfers with it, and gates there that are still to be left
};

/// One operation that has to be posted, whatever room there is.
struct Errand {
  std::function<Result<void>()> post;      // BUSY: again, later
  std::function<void(const Error&)> lost;  // it will not be posted: refused for good, or close() could not wait
};

class DataDist::State : public std::enable_shared_from_this<DataDist::State> {
 public:
  State(Runtime& runtime, const DataDistOptions& options) noexcept;
  ~State();

  // ---- state.cpp: any thread ----
  [[nodiscard]] static Instant now();
  /// Every call of the program holds a pass as long as it may touch the runtime or the directory. STOPPED, FORKED.
  [[nodiscard]] Result<Passes::Pass> enter();
  template <class Work>
  [[nodiscard]] auto inside(Work&& work) -> decltype(work());
  [[nodiscard]] Result<Instant> deadline_of(Timeout timeout) const;
  [[nodiscard]] static Timeout left(Instant deadline);
  /// Waits until `over` is true; asked again whenever something has changed. DEADLINE_EXCEEDED, WOULD_DEADLOCK; STOPPED
  /// when close() has begun.
  template <class Over>
  [[nodiscard]] Result<void> await(Instant deadline, Over&& over) {
    return watch(deadline, closing, std::forward<Over>(over));
  }
  /// For what close() itself waits for: `given_up` says when it does so no longer.
  template <class Over>
  [[nodiscard]] Result<void> watch(Instant deadline, const std::atomic<bool>& given_up, Over&& over);
  /// WOULD_DEADLOCK on the loop thread.
  [[nodiscard]] Result<void> may_block() const;
  [[nodiscard]] Result<void> doze(std::uint64_t seen, Instant until);
  /// Given back by its end.
  class Turn {
   public:
    Turn(State& home, bool& taken) noexcept : home_(&home), taken_(&taken) {}
    Turn(Turn&& other) noexcept : home_(std::exchange(other.home_, nullptr)), taken_(other.taken_) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    State* home_;
    bool* taken_;
  };
  /// Waits, with a deadline, until nobody else has it.
  [[nodiscard]] Result<Turn> take_turn(bool& taken, Instant deadline);
  [[nodiscard]] std::uint64_t bell() const noexcept;
  /// Wakes those who wait, if there are any.
  void ring();
  /// On the loop thread, later; on this thread when there is no loop any more.
  void hop(std::function<void()> work);
  /// What posts an operation whose callback uses this, or hands that on, says so: close() waits until all are back.
  void begin_errand();
  void end_errand();
  /// Posts it, now or, while there is no room for it, by the keeper; either its operation ends or it is lost, once.
  void post_or_retry(Errand&& errand);
  void ring_there(const RemoteAddress& bell);
  [[nodiscard]] std::atomic_ref<std::uint64_t> word(std::uint64_t offset) const noexcept;
  [[nodiscard]] RemoteAddress own(std::uint64_t offset) const noexcept;
  /// That directory is there, and our session with its rank stands. Where it does not, what that rank had under way
  /// here is over: the runtime has fenced it.
  [[nodiscard]] bool alive(const RemoteAddress& directory) const;
  [[nodiscard]] Error error_of(ErrorCode code, Rank rank) const noexcept;

  // ---- state_keep.cpp ----
  void keep();
  /// There is something to look after again.
  void wake_keeper();
  void look_at_leases();

  // ---- open.cpp ----
  [[nodiscard]] Result<void> open();
  [[nodiscard]] Result<void> close(Timeout timeout);
  [[nodiscard]] Result<void> start_keeper();
  [[nodiscard]] Result<void> take_down(Instant deadline);
  void let_go();
  /// No transfer of ours is open, and no gate is to be left: nothing comes back that would look at the directory.
  [[nodiscard]] bool at_rest() const;  // locked by the caller

  // ---- caches.cpp ----
  [[nodiscard]] Result<CacheId> register_cache(const CacheDesc& desc, std::span<const TensorPlace> tensors,
                                               Timeout timeout);
  [[nodiscard]] Result<void> unregister_cache(const CacheId& id, Timeout timeout);
  [[nodiscard]] std::shared_ptr<LocalCache> cache(const CacheId& id) const;  // locked by the caller
  [[nodiscard]] Result<void> write_record(std::uint32_t slot, const LocalCache* cache, Instant deadline);
  [[nodiscard]] std::uint64_t role_bits() const noexcept;
  void open_gate(const Link& link, const LocalCache& cache);  // locked by the caller
  void shut_gates(LocalCache& cache);                         // locked by the caller
  /// Of one whose gates are shut; success: nobody uses it any more.
  [[nodiscard]] Result<void> end_cache(const std::shared_ptr<LocalCache>& cache, Instant deadline);
  /// All of one word of ours, as one step. Gives the new one.
  template <class Change>
  std::uint64_t change(std::uint64_t offset, Change&& change);

  // ---- link.cpp, unlink.cpp ----
  [[nodiscard]] std::vector<Result<void>> link(std::span<const Rank> ranks, Timeout timeout);
  [[nodiscard]] Result<void> unlink(Rank rank, Timeout timeout);
  [[nodiscard]] LinkState link_state(Rank rank) const;
  [[nodiscard]] Result<void> switch_role(Role role, Timeout timeout);
  [[nodiscard]] LinkWord said_by(Rank rank) const noexcept;
  /// Tells that rank of regions, in the background. When its session is lost it is told in the next one.
  void publish(const Link& to, const std::vector<Region>& what, Instant deadline);
  [[nodiscard]] std::vector<Region> regions_of_caches() const;
  /// That of the rank's DataDist, if it has told us.
  [[nodiscard]] std::optional<RemoteAddress> find_directory(Rank rank) const;
  /// Of that life, in place and open for our caches.
  [[nodiscard]] Result<Link> prepare_link(const RemoteAddress& directory);
  void begin_gates_anew(const Link& link);  // locked by the caller
  [[nodiscard]] Result<void> complete_link(const RemoteAddress& directory, std::uint32_t index_there,
                                           const DirectoryCounts& counts);
  [[nodiscard]] bool gates_in_use(const Link& link) const noexcept;
  void close_gates(const Link& link);
  void end_leases_of(std::uint32_t link, LeaseEnd why);  // locked by the caller
  /// In the background; what it gives becomes true when that is over.
  std::shared_ptr<const std::atomic<bool>> tell(const Link& link, LinkSays says);
  void cancel_moves(Rank rank, const Error& why);

  // ---- find.cpp ----
  [[nodiscard]] Result<RemoteCache> find(Rank rank, const CacheKey& key, Timeout timeout);
  [[nodiscard]] Result<Bytes> fetch(const RemoteAddress& from, std::size_t size, Instant deadline);
  [[nodiscard]] Result<Region> lend_buffer(std::size_t size);
  void take_buffer_back(const Region& buffer);
  [[nodiscard]] bool told_of(const RemoteCache::State& cache) const;

  // ---- moves.cpp ----
  struct Call {
    TransferVerb verb = TransferVerb::put;
    const CacheId& local;
    const RemoteCache& remote;
    const Slice& slice;
    const TransferOptions& options;
  };
  [[nodiscard]] Result<Transfer> move(const Call& call);
  [[nodiscard]] Result<GateThere> gate_for(const Call& call, const Link& link) const;  // locked by the caller
  /// What a transfer that is not admitted is told.
  [[nodiscard]] Error refused(const GateThere& gate, std::uint64_t word) const;
  /// Takes our user away from the gate, in the background; link(rank).moving counts until then.
  void leave(const GateThere& gate, bool release);
  void left_gate(Rank rank);
  /// When our session with that rank stands again; the keeper looks for it.
  void leave_later(const GateThere& gate, bool release);
  void return_to_gates();
  /// Before and after a step at a gate; `how` as the operation ended.
  void begin_step(const GateThere& gate);
  void end_step(const GateThere& gate, const GateBook::End& how);
  /// Reads a gate of which it is not known what it counts, and puts it right. In the background.
  void ask_gate(const GateBook::Question& question);
  void give_back(const GateThere& gate);
  /// Out of the open ones; gives what keeps it alive.
  [[nodiscard]] std::shared_ptr<Transfer::State> take_out(Transfer::State* transfer);

  // ---- leases.cpp ----
  [[nodiscard]] Result<Lease> grant(const CacheId& cache, const LeaseOptions& options);
  [[nodiscard]] Result<void> end_lease(const LeaseId& id);
  [[nodiscard]] Result<void> extend(const LeaseId& id, std::chrono::milliseconds time);
  [[nodiscard]] LeaseState lease_state(const LeaseId& id) const;
  [[nodiscard]] Result<bool> layer_arrived(const LeaseId& id, std::uint32_t layer) const;
  [[nodiscard]] Result<void> wait_layer(const LeaseId& id, std::uint32_t layer, Timeout timeout);
  [[nodiscard]] Result<void> release(const LeaseTicket& ticket);
  void shut(const LeaseEntry& entry);
  [[nodiscard]] std::uint64_t lease_gate(const LeaseEntry& entry) const noexcept;  // its offset
  void tell_ended(LeaseEntry&& entry);

  Runtime& runtime;
  const Rank own_rank;  // the runtime's, which may be gone after close()
  const DataDistOptions options;
  Region region{};
  Directory directory{};

  mutable std::mutex mutex;  // all below
  Role role_now;
  std::map<std::uint32_t, std::shared_ptr<LocalCache>> caches;  // by slot
  std::uint64_t versions;  // rising from the clock, so that no other DataDist of this process gives the same ones
  std::map<Rank, Link> links;
  mutable LeaseBook leases;
  std::uint32_t gate_generations = 0;
  std::vector<bool> arrivals_taken;
  Marks marks;
  std::unordered_set<std::shared_ptr<Transfer::State>> moves;
  std::vector<Errand> retries;  // found no room
  bool kept = true;             // the keeper looks after them
  ReturnBook returns;
  GateBook gates_there;
  std::vector<Region> buffers;  // of fetches, those that are free
  std::uint32_t errands = 0;    // operations of ours whose ends come back to us
  Result<void> close_result{};

  Passes passes;
  std::atomic<bool> closing{false};   // nothing new begins; set under `mutex`
  std::atomic<bool> closed{false};    // close() has answered
  std::atomic<bool> stopping{false};  // the keeper ends
  std::atomic<bool> idle{false};      // the keeper sleeps long
  std::atomic<std::uint32_t> waiters{0};
  std::mutex closing_up;
  bool registering = false;  // one registration at a time, since it uses the scratch; under `mutex`
  std::thread keeper;
};

template <class Work>
auto DataDist::State::inside(Work&& work) -> decltype(work()) {
  const auto pass = enter();
  if (!pass) return fail(pass.error());
  return work();
}

template <class Over>
Result<void> DataDist::State::watch(Instant deadline, const std::atomic<bool>& given_up, Over&& over) {
  waiters.fetch_add(1);
  Result<void> result;
  for (;;) {
    const std::uint64_t seen = bell();
    if (over()) break;
    if (given_up.load()) {
      result = fail(error_of(ErrorCode::stopped, own_rank));
      break;
    }
    if (result = doze(seen, deadline); result) continue;
    if (result.error().code == ErrorCode::deadline_exceeded && over()) result = {};
    break;
  }
  waiters.fetch_sub(1);
  return result;
}

template <class Change>
std::uint64_t DataDist::State::change(std::uint64_t offset, Change&& change) {
  const auto at = word(offset);
  std::uint64_t before = at.load();
  std::uint64_t after = change(before);
  while (!at.compare_exchange_weak(before, after)) after = change(before);
  return after;
}

}  // namespace hixl::kv
