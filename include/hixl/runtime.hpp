// SPDX-License-Identifier: Apache-2.0
//
// Runtime: one rank. Puts bytes into and gets bytes from registered memory of other ranks, whose programs do
// nothing for it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <hixl/group.hpp>
#include <hixl/inspect.hpp>
#include <hixl/memory.hpp>
#include <hixl/options.hpp>
#include <hixl/request.hpp>
#include <hixl/result.hpp>
#include <hixl/transfer.hpp>
#include <hixl/types.hpp>

struct uv_loop_s;  // libuv's loop, by name only: programs that embed the runtime hand in their own
namespace hixl {

/// Owner: the program. Threads: every function may be called from any thread unless it says otherwise.
/// Completion: as promised per operation. An asynchronous call (*_async) that returns an error has begun nothing and
/// never calls `done`; else `done` is called once on the loop thread, never inline, with STOPPED if the runtime ends
/// first. Its errors: INVALID_ARGUMENT (no `done`, a negative time, …), STOPPED, BUSY when the loop has no room. Close:
/// stop(), then destruction; requests may outlive the object.
/// Fork: the parent goes on as if nothing had happened. In the child every function of this object and of its requests
/// answers FORKED at once (those without an error: nothing, or 0), destruction releases nothing, and a new runtime may
/// be made. A child that forks inside a callback ends or becomes another program there. While a child keeps sockets,
/// peers on other hosts see its parent's death by lease only.
class Runtime {
 public:
  /// Starts a rank with a loop thread of its own and returns when it has joined the rendezvous.
  [[nodiscard]] static Result<std::unique_ptr<Runtime>> create(const RuntimeOptions& options);
  /// Starts a rank on the caller's libuv loop; call on that loop's thread and turn the loop. Returns at once; joined()
  /// ends when the rank has joined. The runtime never keeps the loop from ending but while it is open.
  [[nodiscard]] static Result<std::unique_ptr<Runtime>> create_on(uv_loop_s* loop, const RuntimeOptions& options);
  /// Starts a rank that the program turns by hand, from any loop: it watches fd() and calls poll(). Returns at once;
  /// joined() ends when the rank has joined. Callbacks run inside poll(). The thread that called poll() last (at first:
  /// this one) is the driving thread: its blocking calls turn the runtime while they wait, outside callbacks; there
  /// they answer WOULD_DEADLOCK. Blocking calls of other threads wait for it. When nobody has turned for a lease, by
  /// which time peers think this rank dead, a thread that waits becomes the driving one.
  [[nodiscard]] static Result<std::unique_ptr<Runtime>> create_polled(const RuntimeOptions& options);
  /// Readable (level) when poll() has something to do, timers included; for epoll, poll or select. Owner: the runtime,
  /// until its destruction. -1: not made by create_polled().
  [[nodiscard]] int fd() const noexcept;
  /// One bounded turn (a few hundred messages, timers and events each); never blocks. How much was done; 0 also when
  /// another thread turns at this moment, and inside a callback. Call it again when fd() is readable.
  std::size_t poll() noexcept;
  /// Stops (own thread: blocking, at most 5 s; else: at once, without draining). In a callback of its own it returns at
  /// once, the rest ends by itself, and what is open gets its callbacks: in at most 5 s; on a host's loop as by
  /// stop_async(0); turned by hand, as by destruction when that turn ends.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  [[nodiscard]] Request joined();
  [[nodiscard]] Rank rank() const noexcept;
  [[nodiscard]] std::uint32_t world_size() const noexcept;
  [[nodiscard]] std::uint64_t incarnation() const noexcept;

  // ---- memory ----
  /// Registers [data, data + size), which must be mapped. The same range again: the same region, one more reference.
  /// Registrations may overlap; an address then means the newest that holds the whole range.
  [[nodiscard]] Result<Region> register_memory(void* data, std::size_t size, const RegisterOptions& options = {});
  /// Memory that every link can use: a window that peers on this host map. Page aligned, zeroed, really there
  /// (never SIGBUS), not in core dumps. Errors name what was needed and the limit: NO_MEMORY, NO_SPACE, FD_LIMIT,
  /// LIMIT_REACHED; docs/memory.md has them all, and the kinds of memory.
  [[nodiscard]] Result<Region> allocate(std::size_t size, const AllocateOptions& options = {});
  /// Copies between ordinary memory and a region of this rank, whatever it lives on: the only way for the program to
  /// see device memory. Blocking, on the calling thread. OUT_OF_RANGE, STALE, INVALID_ARGUMENT (null).
  [[nodiscard]] Result<void> copy_in(const Region& to, std::uint64_t offset, const void* from, std::uint64_t size);
  [[nodiscard]] Result<void> copy_out(const Region& from, std::uint64_t offset, void* to, std::uint64_t size);
  /// Ends a registration (and frees allocated memory): after success no byte of it is read or written by anybody.
  /// Operations that still use it end with STALE. HELD when a stopped peer may still write. Blocking.
  [[nodiscard]] Result<void> deregister(const Region& region, Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<void> deregister_async(const Region& region, Timeout timeout, Done done, void* context);

  // ---- addresses ----
  /// Publishes `mine` to every rank of `with` and learns theirs. Both sides call it; no order is needed, and ranks
  /// may come late. One answer a rank, failed ones with the reason. Also prepares the links. Blocking.
  [[nodiscard]] std::vector<PeerAddresses> exchange(std::span<const Region> mine, std::span<const Rank> with,
                                                    Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<void> exchange_async(std::span<const Region> mine, std::span<const Rank> with, Timeout timeout,
                                            void (*done)(void* context, std::vector<PeerAddresses>&& answers),
                                            void* context);
  /// Tells ranks about `mine` and asks nothing of their programs: it may be used by its key, and dump_regions() shows
  /// it there. One answer a rank, without regions.
  [[nodiscard]] Result<void> publish_async(std::span<const Region> mine, std::span<const Rank> with, Timeout timeout,
                                           void (*done)(void* context, std::vector<PeerAddresses>&& answers),
                                           void* context);
  /// Makes all links to these ranks now, side by side, rather than with the first need, and keeps them. Success: one to
  /// each stands, and of the others it is known whether they do. Else the first rank's reason. Blocking.
  [[nodiscard]] Result<void> prewarm(std::span<const Rank> with, Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<void> prewarm_async(std::span<const Rank> with, Timeout timeout, Done done, void* context);
  // ---- transfers. Unordered among each other; see docs/ordering.md. ----
  [[nodiscard]] Result<Request> put(const void* local, const RemoteAddress& remote, std::uint64_t size,
                                    const OpOptions& options = {});
  [[nodiscard]] Result<Request> get(void* local, const RemoteAddress& remote, std::uint64_t size,
                                    const OpOptions& options = {});
  /// Success: the bytes are visible to the target's CPU (put) or here (get). On the loop thread: WOULD_DEADLOCK,
  /// unless the express lane can finish it at once.
  [[nodiscard]] Result<void> put_sync(const void* local, const RemoteAddress& remote, std::uint64_t size,
                                      Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<void> get_sync(void* local, const RemoteAddress& remote, std::uint64_t size,
                                      Timeout timeout = k_default_timeout);
  /// Puts and gets to one rank as one operation with one request. Entries are copied in the call; all are checked
  /// before the first byte moves, and an error names the first that is wrong. Neighbours are joined.
  [[nodiscard]] Result<Request> batch(std::span<const BatchEntry> entries, const OpOptions& options = {});
  [[nodiscard]] Result<void> batch_sync(std::span<const BatchEntry> entries, Timeout timeout = k_default_timeout);
  /// The signal word changes when all bytes of all entries are there. It may lie in no put of the batch.
  [[nodiscard]] Result<Request> batch_with_signal(std::span<const BatchEntry> entries, const Signal& signal,
                                                  const OpOptions& options = {});
  /// Many pieces here, one range there, in the order of the pieces. `pieces` is copied in the call.
  [[nodiscard]] Result<Request> put_gathered(std::span<const LocalPiece> pieces, const RemoteAddress& remote,
                                             const OpOptions& options = {});
  /// The other way round; where pieces overlap, the later one stands at the end.
  [[nodiscard]] Result<Request> get_scattered(std::span<const LocalPiece> pieces, const RemoteAddress& remote,
                                              const OpOptions& options = {});
  /// Blocks at equal distances. From the first block to the last, both sides lie within one region each.
  [[nodiscard]] Result<Request> put_strided(const Strided& strided, const OpOptions& options = {});
  [[nodiscard]] Result<Request> get_strided(const Strided& strided, const OpOptions& options = {});
  /// The signal word changes after the bytes are visible, exactly once. size 0 still signals.
  [[nodiscard]] Result<Request> put_with_signal(const void* local, const RemoteAddress& remote, std::uint64_t size,
                                                const Signal& signal, const OpOptions& options = {});
  /// Atomics on the 8-byte aligned word at `at` (Rights::atomic), each one step for everybody and exactly once,
  /// whatever becomes of links; sums wrap. The word before comes in Request::value() and Completion::value.
  /// OUTCOME_UNKNOWN when the target's life or lease ended with the atomic unanswered. See docs/ordering.md.
  [[nodiscard]] Result<Request> atomic_add(const RemoteAddress& at, std::uint64_t value, const OpOptions& options = {});
  [[nodiscard]] Result<Request> fetch_add(const RemoteAddress& at, std::uint64_t value, const OpOptions& options = {});
  /// Stores `desired` if the word holds `expected`; it did if the word before is `expected`.
  [[nodiscard]] Result<Request> compare_swap(const RemoteAddress& at, std::uint64_t expected, std::uint64_t desired,
                                             const OpOptions& options = {});
  [[nodiscard]] Result<Request> swap(const RemoteAddress& at, std::uint64_t value, const OpOptions& options = {});
  /// To their end; the word before. On the loop thread as put_sync().
  [[nodiscard]] Result<void> atomic_add_sync(const RemoteAddress& at, std::uint64_t value,
                                             Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<std::uint64_t> fetch_add_sync(const RemoteAddress& at, std::uint64_t value,
                                                     Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<std::uint64_t> compare_swap_sync(const RemoteAddress& at, std::uint64_t expected,
                                                        std::uint64_t desired, Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<std::uint64_t> swap_sync(const RemoteAddress& at, std::uint64_t value,
                                                Timeout timeout = k_default_timeout);
  /// Waits until the word in this rank's registered memory compares true, asleep. Gives the value seen.
  [[nodiscard]] Result<std::uint64_t> wait_signal(const void* word, Compare compare, std::uint64_t value,
                                                  Timeout timeout = k_default_timeout);

  // ---- order ----
  /// Ends when everything posted to `rank` before it has ended. Orders nothing itself.
  [[nodiscard]] Result<void> flush(Rank rank, Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<Request> flush_async(Rank rank, const OpOptions& options = {});
  /// What is posted to `rank` after it, by any thread, begins only when everything posted before it has ended. The
  /// request ends as a flush does, and need not be waited for; its deadline, or a cancel, ends it but not the order.
  /// What waits is under way already: its deadline counts from its post.
  [[nodiscard]] Result<Request> fence(Rank rank, const OpOptions& options = {});
  /// A flush of all ranks.
  [[nodiscard]] Result<void> quiet(Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<void> quiet_async(Timeout timeout, Done done, void* context);

  // ---- groups ----
  /// All ranks of `ranks` (empty: the whole world). Nobody leaves before the last has entered; on DEADLINE_EXCEEDED
  /// the error names the missing ranks, on PEER_LOST the dead one. Blocking.
  [[nodiscard]] Result<void> barrier(Timeout timeout = k_default_timeout, std::span<const Rank> ranks = {});
  [[nodiscard]] Result<void> barrier_async(std::span<const Rank> ranks, Timeout timeout, Done done, void* context);
  /// Makes a group of `ranks`, which all of them do with the same list, in the same order, and the same options.
  /// Duplicates, own rank missing, nobody, no such rank: INVALID_ARGUMENT or RANK_OUT_OF_RANGE. A member that means
  /// another list or other options: INVALID_ARGUMENT naming it. DEADLINE_EXCEEDED names the missing, PEER_LOST the
  /// dead one. At most 4 096 ranks. Blocking.
  [[nodiscard]] Result<Group> create_group(std::span<const Rank> ranks, const GroupOptions& options = {},
                                           Timeout timeout = k_default_timeout);
  [[nodiscard]] Result<void> create_group_async(std::span<const Rank> ranks, const GroupOptions& options,
                                                Timeout timeout, void (*done)(void* context, Result<Group>&& group),
                                                void* context);

  // ---- seeing inside (docs/api.md; inspect_text.hpp makes text and JSON of it): FORKED and STOPPED, or nothing ----
  [[nodiscard]] Counters counters() const;
  [[nodiscard]] std::vector<LinkInfo> links();
  [[nodiscard]] Result<RegionDump> dump_regions();
  /// Requests that hold a slot, oldest first; then callers that copy in their own threads.
  [[nodiscard]] Result<std::vector<OperationInfo>> outstanding();
  /// What a put to that range (need: write) or a get of it (read) would answer now, BUSY apart, by the same checks;
  /// nothing moves, nothing is waited for. Local: as source of a put (read), or sink of a get (write).
  [[nodiscard]] Result<void> check_access(const RemoteAddress& remote, std::uint64_t size, Rights need) const;
  [[nodiscard]] Result<void> check_access(const void* local, std::uint64_t size, Rights need) const;

  /// Tells the peers, drains until `timeout`, then fences the rest. Not on the loop thread: WOULD_DEADLOCK.
  [[nodiscard]] Result<void> stop(Timeout timeout = std::chrono::seconds(5));
  /// Without blocking, for a host's loop and poll(): turn on until `done` was called. STOPPED when that is over.
  [[nodiscard]] Result<void> stop_async(Timeout timeout, Done done, void* context);

 private:
  friend class RuntimeDoor;
  class State;
  explicit Runtime(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hixl
