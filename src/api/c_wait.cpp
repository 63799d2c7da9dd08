// SPDX-License-Identifier: Apache-2.0
//
// hixl/transfer.h: looking at the end of requests.
#include <hixl/transfer.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "api/world.hpp"

using namespace hixl;
using namespace hixl::api;

namespace {

/// The parent's requests are told from numbers that never were requests.
Result<void> told(World& world, Handle handle, Result<void>&& result) {
  if (result || result.error().code != ErrorCode::invalid_request) return std::move(result);
  const Error error = world.wrong(handle).value();
  return error.code == ErrorCode::forked ? Result<void>(fail(error)) : std::move(result);
}

/// Copies of requests that are waited for together, and how they come back.
class Borrowed {
 public:
  Borrowed(World& world, std::size_t count, const hixl_request_t* reqs) : world_(world), reqs_(reqs) {
    copies_.reserve(count);
    borrowed_.reserve(count);  // nothing may be thrown once a copy is out
    for (std::size_t i = 0; i < count; ++i) {
      auto copy = world.requests.borrow(Handle::of(reqs[i]));
      borrowed_.push_back(copy.has_value());
      // What is no request has ended, with that.
      if (!copy) copy = Request::ended(told(world, Handle::of(reqs[i]), fail(copy.error())));
      copies_.push_back(std::move(*copy));
    }
  }
  [[nodiscard]] std::span<Request> all() noexcept { return copies_; }
  [[nodiscard]] Result<void> give_back(std::size_t i) {
    if (!borrowed_[i]) return copies_[i].query();
    borrowed_[i] = false;
    return world_.requests.give_back(Handle::of(reqs_[i]), std::move(copies_[i]));
  }

 private:
  World& world_;
  const hixl_request_t* reqs_;
  std::vector<Request> copies_;
  std::vector<bool> borrowed_;
};

Result<void> wait_for(hixl_request_t* req, int timeout_ms) {
  if (req == nullptr) return missing_argument();
  if (const auto valid = check_time(timeout_ms); !valid) return valid;
  World& world = World::get();
  const Handle handle = Handle::of(*req);
  if (const auto allowed = may_wait(world.note()); !allowed) {
    auto now = world.requests.query(handle);
    return !now && now.error().code == ErrorCode::busy ? allowed : told(world, handle, std::move(now));
  }
  return told(world, handle, world.requests.wait(handle, timeout_of(timeout_ms)));
}

Result<void> wait_for_all(std::size_t count, hixl_request_t* reqs, hixl_status_t* statuses, int timeout_ms) {
  if (statuses != nullptr) std::fill_n(statuses, count, hixl_status_t{HIXL_ERR_BUSY});  // none is known to have ended
  if (reqs == nullptr && count > 0) return missing_argument();
  if (const auto valid = check_time(timeout_ms); !valid) return valid;
  World& world = World::get();
  Borrowed borrowed(world, count, reqs);
  const auto allowed = may_wait(world.note());
  const auto waited = allowed ? wait_all(borrowed.all(), timeout_of(timeout_ms)) : allowed;
  Result<void> first;
  bool open = false;
  for (std::size_t i = 0; i < count; ++i) {
    Result<void> result = borrowed.give_back(i);
    open |= !result && result.error().code == ErrorCode::busy;
    if (statuses != nullptr) statuses[i] = static_cast<hixl_status_t>(result ? ErrorCode::ok : result.error().code);
    if (first && !result) first = std::move(result);
  }
  // While one is under way the wait has failed, whatever others ended with.
  return open && !waited ? waited : first;
}

Result<void> wait_for_any(std::size_t count, hixl_request_t* reqs, std::size_t* index, int timeout_ms) {
  if (index != nullptr) *index = count;
  if (reqs == nullptr || index == nullptr || count == 0) return missing_argument();
  if (const auto valid = check_time(timeout_ms); !valid) return valid;
  World& world = World::get();
  Borrowed borrowed(world, count, reqs);
  const auto allowed = may_wait(world.note());
  auto ended = wait_any(borrowed.all(), allowed ? timeout_of(timeout_ms) : Timeout{});
  if (!ended && !allowed) ended = fail(allowed.error());
  // The one that has ended first: only its copy knows the end, which other copies of the same request need.
  const Result<void> result = ended ? borrowed.give_back(*ended) : fail(ended.error());
  for (std::size_t i = 0; i < count; ++i) {
    if (!ended || i != *ended) static_cast<void>(borrowed.give_back(i));
  }
  if (ended) *index = *ended;
  return result;
}

}  // namespace

hixl_status_t hixl_wait(hixl_request_t* req) {
  return guarded([&] { return wait_for(req, HIXL_TIMEOUT_DEFAULT); });
}

hixl_status_t hixl_wait_timeout(hixl_request_t* req, int timeout_ms) {
  return guarded([&] { return wait_for(req, timeout_ms); });
}

hixl_status_t hixl_query(hixl_request_t req) {
  return guarded([&] {
    World& world = World::get();
    return told(world, Handle::of(req), world.requests.query(Handle::of(req)));
  });
}

hixl_status_t hixl_wait_all(size_t count, hixl_request_t* reqs, hixl_status_t* statuses, int timeout_ms) {
  return guarded([&] { return wait_for_all(count, reqs, statuses, timeout_ms); });
}

hixl_status_t hixl_wait_any(size_t count, hixl_request_t* reqs, size_t* index, int timeout_ms) {
  return guarded([&] { return wait_for_any(count, reqs, index, timeout_ms); });
}

hixl_status_t hixl_cancel(hixl_request_t req) {
  return guarded([&] {
    World& world = World::get();
    return told(world, Handle::of(req), world.requests.cancel(Handle::of(req)));
  });
}

hixl_status_t hixl_request_drop(hixl_request_t* req) {
  return guarded([&]() -> Result<void> {
    if (req == nullptr) return missing_argument();
    World& world = World::get();
    auto dropped = told(world, Handle::of(*req), world.requests.drop(Handle::of(*req)));
    if (dropped) *req = nullptr;
    return dropped;
  });
}
