// SPDX-License-Identifier: Apache-2.0
//
// Request: one posted operation, seen from the program. A small value (slot, generation and, once somebody has
// looked at the end, the result itself).
#pragma once

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <hixl/result.hpp>
#include <hixl/types.hpp>

namespace hixl {

namespace runtime {
class RequestTable;
}

/// What an operation ended with.
/// Bytes from `begin` up to, and without, `end`.
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};
inline constexpr std::size_t k_written_ranges = 4;  ///< that an end can name

struct Completion {
  Result<void> result{};
  std::uint64_t user_data = 0;
  std::uint64_t bytes = 0;  ///< bytes of the operation when it succeeded; known-executed bytes when it did not
  std::uint64_t value = 0;  ///< of an atomic that succeeded: the word before it
  /// Of a put or get that failed: the bytes known to be at their place, numbered from its first one, ascending; those
  /// behind the last are empty. Of all others nothing is known. Not told for batches, nor by then() after the end.
  std::array<ByteRange, k_written_ranges> written{};
};

/// Called once, on the loop thread, after the operation has ended; never from inside the call that posted it.
/// Keep it short. It may post, query, cancel, and destroy the runtime; blocking calls answer WOULD_DEADLOCK. What it
/// throws is caught and counted (Counters::callback_errors).
struct Callback {
  void (*function)(void* context, const Completion& completion) = nullptr;
  void* context = nullptr;
};

class RequestAwaiter;

/// Thread-safe as a pointer is: one Request object is used by one thread at a time, copies by any.
///
/// The end is seen once by query() or wait(); then the slot is free, and this Request remembers the result and
/// gives it for ever. A copy that never saw the end answers INVALID_REQUEST once the slot lives another life.
/// Dropping every copy lets the operation go on; its slot frees itself at the end, and a failure is then counted
/// and logged at stop.
///
/// Ways to learn of the end, which may be combined: query(), wait(), wait_all(), wait_any(), a callback (at the post or
/// by then()), co_await, a completion queue (OpOptions::queue).
class Request {
 public:
  Request() = default;
  Request(runtime::RequestTable& table, std::uint32_t slot, std::uint32_t generation) noexcept;
  Request(const Request& other) noexcept;
  Request(Request&& other) noexcept;
  Request& operator=(const Request& other) noexcept;
  Request& operator=(Request&& other) noexcept;
  ~Request();
  /// One that has ended already and was looked at.
  [[nodiscard]] static Request ended(const Result<void>& result) noexcept {
    Request request;
    request.seen_ = true;
    if (!result) request.error_ = result.error();
    return request;
  }
  friend void swap(Request& a, Request& b) noexcept;

  /// True when the operation has ended (or this Request is invalid; see result()). Never blocks.
  [[nodiscard]] bool done();
  /// The result, or BUSY while the operation is under way. Never blocks. The same terminal answer every time.
  [[nodiscard]] Result<void> query();
  /// The same, and with success the word before an atomic; 0 for other operations.
  [[nodiscard]] Result<std::uint64_t> value();
  /// Waits at most `timeout` (k_default_timeout: until the end, which every operation reaches by its own deadline).
  /// DEADLINE_EXCEEDED here means the wait ended, not the operation. WOULD_DEADLOCK on the loop thread.
  [[nodiscard]] Result<void> wait(Timeout timeout = k_default_timeout);
  [[nodiscard]] bool empty() const noexcept { return table_ == nullptr && !seen_; }

  /// Asks that the operation end now. Never blocks. It ends by the usual way, once no byte of it can move any more:
  /// with CANCELLED, or with success when every byte turns out to be there. After the end, or asked twice: no effect.
  /// INVALID_REQUEST when this is empty or a stale copy; BUSY when the loop has no room for the question: ask again.
  [[nodiscard]] Result<void> cancel();
  /// Calls `callback` once on the loop thread after the end, never inline, also when the operation has ended already;
  /// then this Request has seen that end. Never blocks. Errors, after which nothing is ever called:
  ///   INVALID_ARGUMENT  no function, or a callback is there already (of the post, of then(), of co_await)
  ///   INVALID_REQUEST   empty, a stale copy, or this Request has given its result already
  ///   STOPPED, BUSY     it has ended and the runtime has stopped, or has no room; this Request has the result
  [[nodiscard]] Result<void> then(const Callback& callback);
  /// `Result<void> result = co_await request;` Goes on on the loop thread, never inside a call that posted; see
  /// RequestAwaiter. An lvalue must live until then.
  [[nodiscard]] RequestAwaiter operator co_await() & noexcept;
  [[nodiscard]] RequestAwaiter operator co_await() && noexcept;

 private:
  friend class runtime::RequestTable;
  friend class RequestAwaiter;
  [[nodiscard]] std::uint32_t slot() const noexcept { return static_cast<std::uint32_t>(life_); }
  [[nodiscard]] std::uint32_t generation() const noexcept { return static_cast<std::uint32_t>(life_ >> 32U); }
  void take(Request& other) noexcept;
  runtime::RequestTable* table_ = nullptr;  // null once the end has been seen
  std::uint64_t life_ = 0;                  // slot, and its generation above 32 bits
  bool seen_ = false;
  std::uint64_t value_ = 0;
  Error error_{};
};

/// What `co_await request` waits by; made by operator co_await, lives in the coroutine.
///
/// Does not suspend when this Request has given its result already, or has ended and this is the loop thread. When
/// then() would refuse (stale, a second callback, the runtime has stopped), the coroutine goes on at once, in its own
/// thread, with the result or that error. In all other cases it is resumed on the loop thread: whatever follows keeps
/// to the rules of callbacks. A coroutine that is suspended here must not be destroyed; cancel() ends the operation
/// early.
class RequestAwaiter {
 public:
  RequestAwaiter(RequestAwaiter&&) = delete;  // what waits must stay in its place
  [[nodiscard]] bool await_ready();
  [[nodiscard]] bool await_suspend(std::coroutine_handle<> coroutine);
  [[nodiscard]] Result<void> await_resume();

 private:
  friend class Request;
  explicit RequestAwaiter(Request& request) noexcept : request_(&request) {}
  explicit RequestAwaiter(Request&& request) noexcept : own_(std::move(request)), request_(&own_) {}
  static void resume(void* awaiter, const Completion& completion);

  Request own_;
  Request* request_;
  std::coroutine_handle<> coroutine_;
  Result<void> result_{};
};

/// Waits until all have ended; the first error in order of the span, after all have ended. Each keeps its own result.
[[nodiscard]] Result<void> wait_all(std::span<Request> requests, Timeout timeout = k_default_timeout);
/// Index of one that has ended. DEADLINE_EXCEEDED when none has; INVALID_ARGUMENT for an empty span.
[[nodiscard]] Result<std::size_t> wait_any(std::span<Request> requests, Timeout timeout = k_default_timeout);

}  // namespace hixl
