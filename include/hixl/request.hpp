// SPDX-License-Identifier: Apache-2.0
//
// Request: one posted operation, seen from the program. A small value (slot, generation and, once somebody has
// looked at the end, the result itself).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <hixl/result.hpp>
#include <hixl/types.hpp>

namespace hixl {

namespace runtime {
class RequestTable;
}

/// What an operation ended with.
struct Completion {
  Result<void> result{};
  std::uint64_t user_data = 0;
  std::uint64_t bytes = 0;  ///< bytes of the operation when it succeeded; known-executed bytes when it did not
};

/// Called once, on the loop thread, after the operation has ended; never from inside the call that posted it.
/// Keep it short. It may post, query and cancel; blocking calls answer WOULD_DEADLOCK.
struct Callback {
  void (*function)(void* context, const Completion& completion) = nullptr;
  void* context = nullptr;
};

/// Thread-safe as a pointer is: one Request object is used by one thread at a time, copies by any.
///
/// The end is seen once by query() or wait(); then the slot is free, and this Request remembers the result and
/// gives it for ever. A copy that never saw the end answers INVALID_REQUEST once the slot lives another life.
/// Dropping every copy lets the operation go on; its slot frees itself at the end, and a failure is then counted
/// and logged at stop.
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
  /// Waits at most `timeout` (k_default_timeout: until the end, which every operation reaches by its own deadline).
  /// DEADLINE_EXCEEDED here means the wait ended, not the operation. WOULD_DEADLOCK on the loop thread.
  [[nodiscard]] Result<void> wait(Timeout timeout = k_default_timeout);
  [[nodiscard]] bool empty() const noexcept { return table_ == nullptr && !seen_; }

 private:
  friend class runtime::RequestTable;
  [[nodiscard]] std::uint32_t slot() const noexcept { return static_cast<std::uint32_t>(life_); }
  [[nodiscard]] std::uint32_t generation() const noexcept { return static_cast<std::uint32_t>(life_ >> 32U); }
  void take(Request& other) noexcept;
  runtime::RequestTable* table_ = nullptr;  // null once the end has been seen
  std::uint64_t life_ = 0;                  // slot, and its generation above 32 bits
  bool seen_ = false;
  Error error_{};
};

/// Waits until all have ended; the first error in order of the span, after all have ended. Each keeps its own result.
[[nodiscard]] Result<void> wait_all(std::span<Request> requests, Timeout timeout = k_default_timeout);
/// Index of one that has ended. DEADLINE_EXCEEDED when none has; INVALID_ARGUMENT for an empty span.
[[nodiscard]] Result<std::size_t> wait_any(std::span<Request> requests, Timeout timeout = k_default_timeout);

}  // namespace hixl
