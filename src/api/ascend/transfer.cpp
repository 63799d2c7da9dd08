// SPDX-License-Identifier: Apache-2.0
//
// Hixl::State: transfers of lists, what became of them, and notes.
#include <algorithm>
#include <cstring>

#include "api/ascend/engine.hpp"
#include "api/world.hpp"

namespace hixl {

using namespace api;

namespace {

/// Answers that are kept, as many as a runtime has requests.
constexpr std::size_t k_answers_max = 4096;
constexpr std::size_t k_note_text_max = 1024;

/// Addresses alone, of rank 0 of the remote's world.
Result<std::vector<BatchEntry>> entries_of(TransferOp operation, const std::vector<TransferOpDesc>& descs) {
  if (operation != READ && operation != WRITE) return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
  std::vector<BatchEntry> entries;
  entries.reserve(descs.size());
  for (const TransferOpDesc& desc : descs) {
    entries.push_back({.verb = operation == READ ? TransferVerb::get : TransferVerb::put,
                       .local = reinterpret_cast<void*>(desc.local_addr),
                       .remote = {.rank = 0, .address = desc.remote_addr},
                       .size = desc.len});
  }
  return entries;
}

/// The remote may have registered memory since it was asked last.
bool may_be_news(const Error& error) noexcept {
  if (error.detail.rank != 0) return false;  // it is about memory of this rank
  switch (error.code) {
    case ErrorCode::not_registered:
    case ErrorCode::out_of_range:
    case ErrorCode::not_exchanged:
    case ErrorCode::stale:
      return true;
    default:
      return false;
  }
}

/// Learns what the remote offers now.
[[nodiscard]] bool refresh(RemoteEngine& remote, Timeout timeout) {
  return Offers::ask(*remote.runtime, 0, k_any_tag, timeout).has_value();
}

/// Posts with `time()`, and once more with what the remote offers now, should it not know the range.
template <class Time>
Result<Request> post_list(RemoteEngine& remote, const std::vector<BatchEntry>& entries, const Deadline& deadline,
                          Time&& time) {
  if (remote.outdated.exchange(false, std::memory_order_relaxed)) static_cast<void>(refresh(remote, deadline.left()));
  auto request = remote.runtime->batch(entries, {.timeout = time()});
  if (request || !may_be_news(request.error()) || !refresh(remote, deadline.left())) return request;
  return remote.runtime->batch(entries, {.timeout = time()});
}

TransferStatus status_of_end(const Result<void>& result) noexcept {
  if (result) return TransferStatus::COMPLETED;
  if (result.error().code == ErrorCode::busy) return TransferStatus::WAITING;
  const bool late = result.error().code == ErrorCode::deadline_exceeded;
  return late ? TransferStatus::TIMEOUT : TransferStatus::FAILED;
}

}  // namespace

Status Hixl::State::transfer(const std::string& name, TransferOp operation, const std::vector<TransferOpDesc>& descs,
                             std::int32_t timeout_ms) {
  if (timeout_ms <= 0) return failed(Error(ErrorCode::invalid_argument, {.stage = Stage::options}));
  const auto entries = entries_of(operation, descs);
  if (!entries) return failed(entries.error());
  Status status = SUCCESS;
  const Deadline deadline{std::chrono::milliseconds(timeout_ms)};
  const auto engine = remote(name, deadline, status);
  if (!engine) return status;
  for (bool again = false;; again = true) {
    auto request = post_list(**engine, *entries, deadline, [&] { return deadline.left(); });
    if (!request) return failed(request.error());
    const auto result = request->wait();
    if (result) return SUCCESS;
    // What the remote has registered anew lies where its old region lay, of which this rank still thinks.
    if (again || !may_be_news(result.error()) || !refresh(**engine, deadline.left())) return failed(result.error());
  }
}

Status Hixl::State::transfer_async(const std::string& name, TransferOp operation,
                                   const std::vector<TransferOpDesc>& descs, void* user_data, TransferReq& req) {
  constexpr std::chrono::seconds k_connect{1};  // as Connect(); what comes before the post has no more
  const auto entries = entries_of(operation, descs);
  if (!entries) return failed(entries.error());
  Status status = SUCCESS;
  const Deadline deadline{k_connect};
  const auto engine = remote(name, deadline, status);
  if (!engine) return status;
  auto request = post_list(**engine, *entries, deadline, [] { return k_default_timeout; });
  if (!request) return failed(request.error());
  const std::scoped_lock lock(mutex_);
  transfers_[++last_transfer_] = {.request = std::move(*request), .user_data = user_data, .remote = *engine};
  req = reinterpret_cast<TransferReq>(last_transfer_);
  return SUCCESS;
}

Status Hixl::State::transfer_status(TransferReq req, TransferStatus& status) {
  const std::scoped_lock lock(mutex_);
  const auto found = transfers_.find(reinterpret_cast<std::uint64_t>(req));
  if (found == transfers_.end()) return failed(Error(ErrorCode::invalid_request, {.stage = Stage::transfer}));
  const auto result = found->second.request.query();
  status = status_of_end(result);
  if (status == TransferStatus::WAITING) return SUCCESS;
  if (!result) {
    static_cast<void>(failed(result.error()));
    // The next transfer asks first.
    const auto remote = may_be_news(result.error()) ? found->second.remote.lock() : nullptr;
    if (remote != nullptr) remote->outdated.store(true, std::memory_order_relaxed);
  }
  if (!std::exchange(found->second.ended, true)) {
    ended_transfers_.push_back(found->first);
    if (ended_transfers_.size() > k_answers_max) {
      transfers_.erase(ended_transfers_.front());
      ended_transfers_.pop_front();
    }
  }
  return SUCCESS;
}

Status Hixl::State::transfer_statuses(const GetTransferStatusArgs& args, std::vector<TransferResult>& results) {
  std::vector<std::uint64_t> open;
  {
    const std::scoped_lock lock(mutex_);
    if (const Status now = ready(); now != SUCCESS) return now;
    for (const auto& [id, transfer] : transfers_) {
      if (!transfer.told) open.push_back(id);
    }
  }
  for (const std::uint64_t id : open) {
    if (args.max_query_count != 0 && results.size() >= args.max_query_count) break;
    TransferResult result{.req = reinterpret_cast<TransferReq>(id)};
    if (transfer_status(result.req, result.status) != SUCCESS) continue;  // its answer has made room for another
    if (result.status == TransferStatus::WAITING && args.skip_waiting) continue;
    const std::scoped_lock lock(mutex_);
    const auto found = transfers_.find(id);
    if (found == transfers_.end() || found->second.told) continue;
    result.user_data = found->second.user_data;
    found->second.told = result.status != TransferStatus::WAITING;
    results.push_back(result);
  }
  return SUCCESS;
}

// ---- notes ----

/// A note travels as the length of its name, its name, its text.
Status Hixl::State::send_notify(const std::string& name, const NotifyDesc& notify, std::int32_t timeout_ms) {
  const std::size_t name_size = notify.name.GetLength();
  const std::size_t text_size = notify.notify_msg.GetLength();
  if (timeout_ms <= 0 || name_size > k_note_text_max || text_size > k_note_text_max) {
    return failed(Error(ErrorCode::invalid_argument,
                        {.stage = Stage::options, .length = std::max(name_size, text_size), .limit = k_note_text_max}));
  }
  Status status = SUCCESS;
  const Deadline deadline{std::chrono::milliseconds(timeout_ms)};
  const auto engine = remote(name, deadline, status);
  if (!engine) return status;
  const auto size = static_cast<std::uint32_t>(name_size);
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes.append(notify.name.GetString(), name_size).append(notify.notify_msg.GetString(), text_size);
  const auto sent = (*engine)->notes->send(bytes.data(), bytes.size(), deadline.left());
  if (sent) return SUCCESS;
  const Status why = status_of(sent.error());
  return failed(why == FAILED ? NOTIFY_FAILED : why, sent.error());
}

Status Hixl::State::get_notifies(std::vector<NotifyDesc>& notifies) {
  const std::scoped_lock lock(mutex_);
  if (const Status now = ready(); now != SUCCESS) return now;
  for (const auto& ring : notes_) {
    // As many as can have been there at the call: a sender that never stops holds nobody up.
    for (std::uint32_t i = 0; i < k_notes_shape.slots; ++i) {
      const auto message = ring->receive(Timeout{});
      if (!message) break;
      const std::string bytes(reinterpret_cast<const char*>(message->data), message->size);
      static_cast<void>(ring->release(message->number));
      if (bytes.size() < sizeof(std::uint32_t)) continue;
      std::uint32_t name_size = 0;
      std::copy_n(bytes.data(), sizeof name_size, reinterpret_cast<char*>(&name_size));
      if (name_size > bytes.size() - sizeof name_size) continue;
      notifies.push_back({.name = bytes.substr(sizeof name_size, name_size),
                          .notify_msg = bytes.substr(sizeof name_size + name_size)});
    }
  }
  return SUCCESS;
}

}  // namespace hixl
