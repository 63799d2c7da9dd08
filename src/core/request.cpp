// SPDX-License-Identifier: Apache-2.0
//
// Request: a reference to a slot of the request table until its end has been seen; from then on just the result.
#include <hixl/request.hpp>

#include <utility>

#include "runtime/request_table.hpp"

namespace hixl {

Request::Request(runtime::RequestTable& table, std::uint32_t slot, std::uint32_t generation) noexcept
    : table_(&table), life_(std::uint64_t{generation} << 32U | slot) {}

Request::Request(const Request& other) noexcept
    : table_(other.table_), life_(other.life_), seen_(other.seen_), value_(other.value_), error_(other.error_) {
  if (table_ == nullptr || table_->add_reference(slot(), generation())) return;
  // Somebody has seen the end of it, so the copy could only ever answer this.
  table_ = nullptr;
  seen_ = true;
  error_ = Error(ErrorCode::invalid_request);
}

Request::Request(Request&& other) noexcept { take(other); }

Request& Request::operator=(const Request& other) noexcept { return *this = Request(other); }

Request& Request::operator=(Request&& other) noexcept {
  if (this == &other) return *this;
  if (table_ != nullptr) table_->drop_reference(slot(), generation());
  take(other);
  return *this;
}

/// Word by word, as the constructor wrote them: read in wider pieces, the words would have to wait for every store that
/// is still under way, those of the post included.
void Request::take(Request& other) noexcept {
  table_ = std::exchange(other.table_, nullptr);
  life_ = other.life_;
  seen_ = std::exchange(other.seen_, false);
  if (!seen_) return;
  value_ = other.value_;
  error_ = other.error_;
}

Request::~Request() {
  if (table_ != nullptr) table_->drop_reference(slot(), generation());
}

void swap(Request& a, Request& b) noexcept {
  Request held(std::move(a));
  a = std::move(b);
  b = std::move(held);
}

bool Request::done() {
  if (table_ == nullptr) return true;
  switch (table_->look(slot(), generation(), error_, value_)) {
    case runtime::RequestTable::Look::pending:
      return false;
    case runtime::RequestTable::Look::ended:
      break;
    case runtime::RequestTable::Look::forked:
      error_ = Error(ErrorCode::forked);  // and the reference stays: the table is the parent's business
      break;
    case runtime::RequestTable::Look::invalid:
      table_->drop_reference(slot(), generation());
      error_ = Error(ErrorCode::invalid_request);
      break;
  }
  table_ = nullptr;
  seen_ = true;
  return true;
}

Result<void> Request::query() {
  if (!done()) return fail(ErrorCode::busy);
  if (!seen_) return fail(ErrorCode::invalid_request);
  if (error_.code != ErrorCode::ok) return fail(error_);
  return {};
}

Result<std::uint64_t> Request::value() {
  if (const Result<void> result = query(); !result) return fail(result.error());
  return value_;
}

Result<void> Request::wait(Timeout timeout) {
  if (!done()) {
    const Result<void> waited = runtime::RequestTable::wait_for_all(std::span(this, 1), timeout);
    if (!waited) return waited;
  }
  return query();
}

Result<void> Request::cancel() {
  if (table_ != nullptr && table_->forked()) return fail(ErrorCode::forked);
  if (table_ != nullptr) return table_->cancel(slot(), generation());
  if (!seen_ || error_.code == ErrorCode::invalid_request) return fail(ErrorCode::invalid_request);
  return {};
}

Result<void> Request::then(const Callback& callback) {
  if (callback.function == nullptr) return fail(ErrorCode::invalid_argument);
  if (table_ == nullptr) return fail(ErrorCode::invalid_request);
  // Once the table has the callback, it may be called and take this Request away with it.
  runtime::RequestTable& table = *table_;
  if (table.forked()) return fail(ErrorCode::forked);
  switch (table.promise(slot(), generation(), callback)) {
    case runtime::RequestTable::Promise::made:
      return {};
    case runtime::RequestTable::Promise::taken:
      return fail(ErrorCode::invalid_argument);
    case runtime::RequestTable::Promise::invalid:
      static_cast<void>(done());  // remembers that
      return fail(ErrorCode::invalid_request);
    case runtime::RequestTable::Promise::ended:
      break;
  }
  // This Request sees the end here, and lets go of it before the loop can tell the callback.
  const std::uint64_t life = life_;
  const auto end = table.ended_with(slot());
  error_ = end.error;
  value_ = end.value;
  seen_ = true;
  table_ = nullptr;
  return table.deliver(static_cast<std::uint32_t>(life), static_cast<std::uint32_t>(life >> 32U));
}

RequestAwaiter Request::operator co_await() & noexcept { return RequestAwaiter(*this); }
RequestAwaiter Request::operator co_await() && noexcept { return RequestAwaiter(std::move(*this)); }

bool RequestAwaiter::await_ready() {
  if (request_->table_ != nullptr && !request_->table_->would_deadlock()) return false;
  if (!request_->done()) return false;
  result_ = request_->query();
  return true;
}

/// Not inline, so that no compiler keeps its variables in the coroutine, which may end on the loop thread before this
/// returns.
bool RequestAwaiter::await_suspend(std::coroutine_handle<> coroutine) {
  coroutine_ = coroutine;
  const Result<void> promised = request_->then({&RequestAwaiter::resume, this});
  if (promised) return true;
  result_ = request_->seen_ ? request_->query() : promised;
  return false;
}

void RequestAwaiter::resume(void* awaiter, const Completion& completion) {
  auto& self = *static_cast<RequestAwaiter*>(awaiter);
  self.result_ = completion.result;
  self.coroutine_.resume();
}

Result<void> RequestAwaiter::await_resume() {
  static_cast<void>(request_->done());  // gives the slot back
  return std::move(result_);
}

Result<void> wait_all(std::span<Request> requests, Timeout timeout) {
  const Result<void> waited = runtime::RequestTable::wait_for_all(requests, timeout);
  if (!waited) return waited;
  Result<void> first;
  for (Request& request : requests) {
    Result<void> result = request.query();
    if (first && !result) first = std::move(result);
  }
  return first;
}

Result<std::size_t> wait_any(std::span<Request> requests, Timeout timeout) {
  if (requests.empty()) return fail(ErrorCode::invalid_argument);
  const Result<void> waited = runtime::RequestTable::wait_for_any(requests, timeout);
  if (!waited) return fail(waited.error());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].done()) return i;
  }
  return fail(ErrorCode::internal);  // one was no longer under way, and nothing ends twice
}

}  // namespace hixl
