// SPDX-License-Identifier: Apache-2.0
//
// Request slots: made at start, with generations. A slot's whole state is one atomic word, so that any thread may
// query, wait, copy and drop while the loop finishes.
//
// Life of a slot: free → pending (acquire) → ended (finish) → free (first look at the end, or last drop).
// Owner: core; outlives its runtime as long as somebody holds a Request (retire()).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include <hixl/request.hpp>
#include <hixl/result.hpp>
#include <hixl/types.hpp>

#include "runtime/futex.hpp"

namespace hixl::runtime {

class Loop;
class LoopThread;

class RequestTable {
 public:
  /// 1 … 131 072 slots. Without a loop nothing would deadlock.
  RequestTable(std::uint32_t slots, const Loop* loop);
  RequestTable(const RequestTable&) = delete;
  RequestTable& operator=(const RequestTable&) = delete;

  struct Acquired {
    std::uint32_t slot;
    std::uint32_t generation;
  };
  /// Thread-safe, never blocks, allocates nothing. BUSY (limit: slots) when none is free.
  /// Starts with one reference, which acquire()'s caller turns into a Request or drops.
  [[nodiscard]] Result<Acquired> acquire() noexcept;
  /// Thread-safe: gives an acquired slot back that was never posted, its reference included.
  void abandon(std::uint32_t slot) noexcept;

  /// Loop thread, once a life: stores the end, wakes waiters. With `seen` (a callback takes it) the slot counts as
  /// looked at. The slot may be free and reused as soon as this returns.
  void finish(std::uint32_t slot, const Result<void>& result, bool seen) noexcept;
  /// Failures that were freed without anybody having looked. Thread-safe.
  [[nodiscard]] std::uint64_t failed_unseen() const noexcept { return failed_unseen_.load(std::memory_order_relaxed); }
  /// Slots not free; a moment's estimate while others acquire and free. Thread-safe.
  [[nodiscard]] std::uint32_t in_use() const noexcept;

  // ---- used by Request, thread-safe ----
  // Whoever calls these holds a reference, dropped by drop_reference() or by a look() that answers `ended`; the table
  // may be gone when either returns.

  /// For one more holder of the same life. False when that life has been looked at (the copy would be invalid) or
  /// 2^24 - 1 hold it; nothing was added then.
  [[nodiscard]] bool add_reference(std::uint32_t slot, std::uint32_t generation) noexcept;
  void drop_reference(std::uint32_t slot, std::uint32_t generation) noexcept;
  /// `forked`: in a forked child; nothing was changed, and the reference is still held.
  enum class Look : std::uint8_t { pending, ended, invalid, forked };
  /// When ended: gives the result (code ok: success) and frees the slot, this caller's reference included.
  [[nodiscard]] Look look(std::uint32_t slot, std::uint32_t generation, Error& error) noexcept;

  /// Until all, or one, are no longer under way, without looking at the end: that is the caller's. Spins shortly, then
  /// sleeps. DEADLINE_EXCEEDED when `timeout` (negative: no limit) is over, WOULD_DEADLOCK on the loop thread of one
  /// that is under way, FORKED in a forked child. Requests of several tables may be mixed; wait_for_any then looks once
  /// a millisecond. The thread that drives a loop by hand turns it while it waits.
  [[nodiscard]] static Result<void> wait_for_all(std::span<const Request> requests, Timeout timeout) noexcept;
  [[nodiscard]] static Result<void> wait_for_any(std::span<const Request> requests, Timeout timeout) noexcept;
  [[nodiscard]] bool would_deadlock() const noexcept;
  [[nodiscard]] bool forked() const noexcept;

  /// The runtime is gone; nobody acquires or finishes any more, and what is still pending ends with STOPPED. Requests
  /// keep their results. Deletes the table now, or with the last Request.
  static void retire(std::unique_ptr<RequestTable> table) noexcept;
  ~RequestTable();

 private:
  struct Slot;
  class FreeList;
  [[nodiscard]] bool pending(std::uint32_t slot, std::uint32_t generation) const noexcept;
  [[nodiscard]] bool mark_waited(std::uint32_t slot, std::uint32_t generation) noexcept;
  [[nodiscard]] Result<void> wait_for_end(std::uint32_t slot, std::uint32_t generation,
                                          const WaitLimit& limit) noexcept;
  [[nodiscard]] bool turned_by_this_thread() const noexcept;
  [[nodiscard]] static bool any_pending_turns(std::span<const Request> requests) noexcept;
  [[nodiscard]] static Result<void> turn_for_any(std::span<const Request> requests, bool mixed,
                                                 const WaitLimit& limit) noexcept;
  [[nodiscard]] Result<void> wait_for_event(std::span<const Request> requests, bool mixed,
                                            const WaitLimit& limit) noexcept;
  void recycle(std::uint32_t slot, std::uint64_t ended) noexcept;
  void drop_stray(std::int64_t references) noexcept;

  std::uint32_t count_;
  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<FreeList> free_;
  std::shared_ptr<const LoopThread> thread_;
  std::atomic<std::uint64_t> failed_unseen_{0};
  // Requests that are no longer counted in a slot (its life is over, or the table is retired), and the owner's share.
  std::atomic<std::int64_t> strays_;
  std::atomic<std::uint32_t> any_waiters_{0};  // threads in wait_for_any()
  FutexWord any_events_{0};                    // ends while there were such threads
};

}  // namespace hixl::runtime
