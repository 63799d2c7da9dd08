// SPDX-License-Identifier: Apache-2.0
//
// World: everything that the C interfaces keep in one process, in the one static object of the library that is allowed:
// the table of handles. A forked child gets a new one with its first call; the parent's handles are told from its own
// by their epoch.
#pragma once

#include <cstdint>
#include <new>
#include <optional>
#include <utility>

#include <hixl/result.hpp>
#include <hixl/status.h>

#include "api/deadline.hpp"
#include "api/engine_table.hpp"
#include "api/handles.hpp"
#include "api/request_ring.hpp"

namespace hixl::api {

class World {
 public:
  /// This process'. Never destroyed: threads may be inside it until the very end.
  [[nodiscard]] static World& get();

  explicit World(std::uint32_t epoch) : handles(epoch), requests(epoch) {}
  [[nodiscard]] ThreadNote& note() { return handles.note(); }
  /// INVALID_HANDLE, or FORKED for one of the parent's.
  [[nodiscard]] tl::unexpected<Error> wrong(Handle handle) const;

  HandleTable handles;
  RequestRing requests;
  EngineTable engines;
};

/// A call that is inside of what a handle names, which stays until this goes.
template <class Named>
class Inside {
 public:
  explicit Inside(const void* handle) : Inside(Handle::of(handle)) {}
  explicit Inside(Handle handle) : world_(World::get()), note_(world_.note()), handle_(handle) {
    named_ = static_cast<Named*>(world_.handles.enter(note_, handle, Named::k_kind));
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() {
    if (named_ != nullptr) HandleTable::leave(note_);
  }
  explicit operator bool() const noexcept { return named_ != nullptr; }
  Named* operator->() const noexcept { return named_; }
  Named& operator*() const noexcept { return *named_; }
  [[nodiscard]] tl::unexpected<Error> error() const { return world_.wrong(handle_); }
  [[nodiscard]] World& world() const noexcept { return world_; }
  [[nodiscard]] ThreadNote& note() const noexcept { return note_; }

 private:
  World& world_;
  ThreadNote& note_;
  Handle handle_;
  Named* named_ = nullptr;
};

/// Remembers it as this thread's last failure; its number.
hixl_status_t note_failure(const Error& error) noexcept;

/// A call of the C interface: what fails is remembered, and nothing that is thrown leaves.
template <class Call>
hixl_status_t guarded(Call&& call) noexcept {
  try {
    const Result<void> result = std::forward<Call>(call)();
    if (result) return HIXL_OK;
    return note_failure(result.error());
  } catch (const std::bad_alloc&) {
    return note_failure(Error(ErrorCode::no_memory));
  } catch (...) {
    return note_failure(Error(ErrorCode::internal));
  }
}

/// The same for calls that give a handle or number: `wrong` on failure.
template <class Value, class Call>
Value guarded_or(Value wrong, Call&& call) noexcept {
  Value value = wrong;
  static_cast<void>(guarded([&]() -> Result<void> {
    auto result = std::forward<Call>(call)();
    if (!result) return fail(result.error());
    value = *result;
    return {};
  }));
  return value;
}

/// For calls that wait: not in callbacks, also where the core would not notice.
[[nodiscard]] inline Result<void> may_wait(const ThreadNote& note) {
  if (note.callbacks == 0) return {};
  return fail(ErrorCode::would_deadlock);
}

[[nodiscard]] inline tl::unexpected<Error> missing_argument(Stage stage = Stage::options) {
  return fail(ErrorCode::invalid_argument, {.stage = stage});
}

/// Closes what a handle names: `end` makes the calls that wait in it leave, and is handed what it names. What they do
/// not leave in the time of a call that names none goes when they have, and the answer is DEADLINE_EXCEEDED.
template <class Named, class End>
[[nodiscard]] Result<void> close_handle(const void* pointer, End&& end) {
  World& world = World::get();
  const Handle handle = Handle::of(pointer);
  if (const auto allowed = may_wait(world.note()); !allowed) return allowed;
  std::optional<Deadline> deadline;
  {
    const Inside<Named> inside(handle);
    if (!inside) return inside.error();
    deadline.emplace(inside->engine->options.default_timeout);
    end(*inside);
  }
  switch (world.handles.take(handle, Named::k_kind, *deadline)) {
    case HandleTable::Taken::wrong:
      return world.wrong(handle);
    case HandleTable::Taken::late:
      return fail(ErrorCode::deadline_exceeded, {.stage = Stage::shutdown});
    case HandleTable::Taken::ended:
      break;
  }
  return {};
}

/// Negative times but for HIXL_TIMEOUT_DEFAULT: INVALID_ARGUMENT.
[[nodiscard]] inline Result<void> check_time(int timeout_ms) {
  if (timeout_ms >= HIXL_TIMEOUT_DEFAULT) return {};
  return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
}

/// Milliseconds of the C interface; a negative one but for HIXL_TIMEOUT_DEFAULT is refused by the core.
[[nodiscard]] constexpr Timeout timeout_of(int timeout_ms) noexcept {
  return timeout_ms == -1 ? k_default_timeout : Timeout(std::chrono::milliseconds(timeout_ms));
}
/// Negative ranks become one that no world has.
[[nodiscard]] constexpr Rank rank_of(int rank) noexcept { return rank < 0 ? k_no_rank : static_cast<Rank>(rank); }
[[nodiscard]] inline void* pointer_of(std::uint64_t address) noexcept { return reinterpret_cast<void*>(address); }

}  // namespace hixl::api
