// SPDX-License-Identifier: Apache-2.0
//
// RequestRing: the requests that C programs hold, by handle. A place whose end was looked at is used again when the
// ring has come round, so that an answer which was given once is given again for a long time, and nobody has to free
// anything.
//
// Each place has a lock of one bit that is held for a few instructions; who waits for an operation does so on a copy,
// and brings it back.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include <hixl/request.hpp>
#include <hixl/transfer.h>

#include "api/handles.hpp"

namespace hixl::api {

class RequestRing {
 public:
  explicit RequestRing(std::uint32_t epoch) : epoch_(epoch) {}
  RequestRing(const RequestRing&) = delete;
  RequestRing& operator=(const RequestRing&) = delete;

  /// A runtime that keeps at most `requests_max` requests comes, or goes: there are twice as many places as all keep,
  /// and some more, since threads take them a little out of turn. So an answer is kept while as many others are posted.
  void reserve(std::uint32_t requests_max);
  void release(std::uint32_t requests_max);

  /// A place that is locked for its next request.
  class Place;
  /// BUSY: every place holds an end that nobody has looked at.
  [[nodiscard]] Result<Place> take(ThreadNote& note);
  /// The handle of an operation that never began: it is the error's code itself. In place of BUSY, by which a request
  /// says that it is under way, LIMIT_REACHED.
  [[nodiscard]] static Handle failed(ErrorCode code) noexcept {
    if (code == ErrorCode::busy) code = ErrorCode::limit_reached;
    return Handle::make(HandleKind::failed, 0, static_cast<std::uint32_t>(code), k_failed);
  }
  /// That code; nothing: it is no such handle.
  [[nodiscard]] static std::optional<ErrorCode> code_of(Handle handle) noexcept;

  /// BUSY while it is under way; INVALID_REQUEST for what is no request here.
  [[nodiscard]] Result<void> query(Handle handle);
  [[nodiscard]] Result<void> wait(Handle handle, Timeout timeout);
  [[nodiscard]] Result<void> cancel(Handle handle);
  [[nodiscard]] Result<void> drop(Handle handle);
  /// A copy to be waited for with others; give_back() remembers the end that it has seen.
  [[nodiscard]] Result<Request> borrow(Handle handle);
  [[nodiscard]] Result<void> give_back(Handle handle, Request&& copy);

 private:
  static constexpr std::uint32_t k_failed = 0x6869'786c;  // a generation that no guess is likely to have
  static constexpr std::uint32_t k_chunk = 1024;
  static constexpr std::uint32_t k_chunks_max = 1024;
  // A place's word: generation above 32 bits, then flags, then how many copies are out.
  static constexpr std::uint64_t k_locked = 1U << 31U;
  static constexpr std::uint64_t k_open = 1U << 30U;     // holds an end that nobody has looked at
  static constexpr std::uint64_t k_calling = 1U << 29U;  // a callback has not yet been called
  static constexpr std::uint64_t k_copies = (1U << 16U) - 1;
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> word{0};
    hixl_callback_t callback = nullptr;
    void* user_data = nullptr;
    RequestRing* ring = nullptr;
    Request request;
  };
  using Chunk = std::array<Slot, k_chunk>;
  [[nodiscard]] Slot* find(std::uint32_t index) noexcept;
  [[nodiscard]] Slot* lock(Handle handle) noexcept;
  static void unlock(Slot& slot, std::uint64_t word) noexcept { slot.word.store(word, std::memory_order_release); }
  [[nodiscard]] static Result<void> settle(Slot& slot, std::uint64_t word) noexcept;
  static void on_end(void* place, const Completion& completion);

  const std::uint32_t epoch_;
  std::array<std::atomic<Chunk*>, k_chunks_max> chunks_{};
  std::atomic<std::uint32_t> size_{0};    // places; only grows
  std::atomic<std::uint32_t> cursor_{0};  // threads take runs of places from it
  std::mutex mutex_;                      // guards what is below
  std::uint64_t wanted_ = 0;
};

class RequestRing::Place {
 public:
  Place(Slot& slot, std::uint64_t word, Handle handle) noexcept : slot_(&slot), word_(word), handle_(handle) {}
  Place(Place&& other) noexcept
      : slot_(std::exchange(other.slot_, nullptr)), word_(other.word_), handle_(other.handle_) {}
  Place& operator=(Place&&) = delete;
  ~Place();
  /// What to post with so that this function is called with the end.
  [[nodiscard]] Callback call(hixl_callback_t function, void* user_data) noexcept;
  /// The place is this request's from now on.
  [[nodiscard]] Handle fill(Request&& request) noexcept;

 private:
  Slot* slot_;
  std::uint64_t word_;
  Handle handle_;
};

}  // namespace hixl::api
