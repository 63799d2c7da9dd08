// SPDX-License-Identifier: Apache-2.0
//
// Request slots: made at start, with generations. A slot's whole state is one atomic word, so that any thread may
// query, wait, copy and drop while the loop finishes.
//
// Life of a slot: free → pending (acquire) → ended (finish) → free (first look at the end, or last drop). A callback
// that comes after the end takes the end, and the slot is free when the loop has told it.
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

/// Carries questions of Requests to the loop. Thread-safe, never blocks. Implemented by core.
class RequestKeeper {
 public:
  /// Asks the loop to end the operation. The question may overtake the operation's own mail; start of an operation
  /// therefore looks at cancel_asked().
  [[nodiscard]] virtual Result<void> cancel_later(std::uint32_t slot, std::uint32_t generation) = 0;
  /// Asks the loop to call RequestTable::take_delivery() for the slot, and then the callback. An error: it never will.
  [[nodiscard]] virtual Result<void> deliver_later(std::uint32_t slot) = 0;

 protected:
  ~RequestKeeper() = default;
};

/// What an end tells besides its result.
struct Effect {
  std::uint64_t bytes = 0;
  std::uint64_t value = 0;  ///< of an atomic that succeeded: the word before it
};

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

  /// Before the operation is handed over: whom its end is told, and what for.
  void prepare(std::uint32_t slot, const Callback& callback, std::uint64_t user_data) noexcept;

  struct Ended {
    Callback callback{};  ///< to be called by who ended it; without a function: nobody to call
    std::uint64_t user_data = 0;
    bool unseen = false;  ///< it failed, and nobody held it who could have looked
  };
  /// Loop thread, once a life: stores the end, wakes waiters. With `seen` (somebody else is told) or a callback the
  /// slot counts as looked at. The slot may be free and reused as soon as this returns.
  Ended finish(std::uint32_t slot, const Result<void>& result, bool seen, const Effect& effect = {}) noexcept;
  /// Loop thread: somebody has asked that this life end, perhaps before its mail came. Its life must not have ended.
  [[nodiscard]] bool cancel_asked(std::uint32_t slot) const noexcept;
  /// That life is under way. Loop thread: and stays so until the loop ends it.
  [[nodiscard]] bool pending(std::uint32_t slot, std::uint32_t generation) const noexcept;
  struct Delivery {
    Callback callback{};
    Completion completion{};
  };
  /// As deliver_later() asked, once: the callback and what to tell it. The slot may be free when this returns.
  [[nodiscard]] Delivery take_delivery(std::uint32_t slot) noexcept;
  /// Who carries questions; set before the first Request is made.
  void attach(RequestKeeper& keeper) noexcept { keeper_.store(&keeper, std::memory_order_release); }
  /// Returns when no thread is inside the keeper, nor will be.
  void detach() noexcept;
  /// Failures that were freed without anybody having looked. Thread-safe.
  [[nodiscard]] std::uint64_t failed_unseen() const noexcept { return failed_unseen_.load(std::memory_order_relaxed); }
  enum class Stand : std::uint8_t { free, pending, ended };
  struct Glance {
    Stand stand = Stand::free;
    std::uint32_t generation = 0;
    bool seen = false;  ///< ended: a callback or queue has had the end
    Error error{};      ///< ended: the result
  };
  /// Loop thread: how a slot stands now, for those who look inside. `pending` begins before the post is made.
  [[nodiscard]] Glance glance(std::uint32_t slot) const noexcept;
  /// Slots not free; a moment's estimate while others acquire and free. Thread-safe.
  [[nodiscard]] std::uint32_t in_use() const noexcept;

  // ---- used by Request, thread-safe ----
  // Whoever calls these holds a reference, dropped by drop_reference() or by a look() that answers `ended`; the table
  // may be gone when either returns.

  /// For one more holder of the same life. False when that life has been looked at (the copy would be invalid) or
  /// 2^22 - 1 hold it; nothing was added then.
  [[nodiscard]] bool add_reference(std::uint32_t slot, std::uint32_t generation) noexcept;
  void drop_reference(std::uint32_t slot, std::uint32_t generation) noexcept;
  /// `forked`: in a forked child; nothing was changed, and the reference is still held.
  enum class Look : std::uint8_t { pending, ended, invalid, forked };
  /// When ended: gives the result (code ok: success, with its value) and frees the slot, this caller's reference
  /// included.
  [[nodiscard]] Look look(std::uint32_t slot, std::uint32_t generation, Error& error, std::uint64_t& value) noexcept;
  /// As Request::cancel().
  [[nodiscard]] Result<void> cancel(std::uint32_t slot, std::uint32_t generation) noexcept;
  /// `made`: the callback will be called with the end, perhaps already. `taken`: there is one. `ended`: too late for
  /// that; the end now belongs to the caller, who asks ended_with() and then, giving its reference away, deliver().
  enum class Promise : std::uint8_t { made, taken, ended, invalid };
  [[nodiscard]] Promise promise(std::uint32_t slot, std::uint32_t generation, const Callback& callback) noexcept;
  struct End {
    Error error{};
    std::uint64_t value = 0;
  };
  [[nodiscard]] End ended_with(std::uint32_t slot) const noexcept;
  [[nodiscard]] Result<void> deliver(std::uint32_t slot, std::uint32_t generation) noexcept;

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
  class Visit;
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
  // A visitor counts itself before it reads the keeper, who goes looks at the count after it has cleared that; both
  // sequentially consistent, so one of them sees the other.
  std::atomic<RequestKeeper*> keeper_{nullptr};
  std::atomic<std::uint32_t> visitors_{0};
};

}  // namespace hixl::runtime
