// SPDX-License-Identifier: Apache-2.0
//
// BarrierPage: the barriers of a group whose members share a host, without messages. A page that all of them map holds
// the number that each has entered; the last to enter releases the others, who sleep on one word. Members that wait
// by message are marked, for the last one to have them told.
//
// Thread-safe. Owner: the group here and the program's handle of it, in common. Each process has one of its own on the
// shared page; only one call of a process is in a barrier at a time: it holds the turn.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <hixl/result.hpp>

#include "memory/window.hpp"

namespace hixl::memory {

class BarrierPage {
 public:
  /// Whoever enters looks at every member's line; beyond this messages are as cheap.
  static constexpr std::size_t k_members_max = 256;
  /// How another process of the same user on this host finds the page, and knows that it is this one.
  struct Location {
    std::uint64_t process = 0;  ///< 0: none
    std::uint32_t descriptor = 0;
    std::uint64_t challenge = 0;
  };
  [[nodiscard]] static Result<std::shared_ptr<BarrierPage>> create(std::vector<Rank> ranks, std::size_t place,
                                                                   std::uint64_t challenge);
  /// Any error: not this host, or not to be reached; the group goes by messages.
  [[nodiscard]] static Result<std::shared_ptr<BarrierPage>> open(const Location& location, std::vector<Rank> ranks,
                                                                 std::size_t place);
  [[nodiscard]] Location location() const noexcept;

  /// Every member has opened it.
  [[nodiscard]] bool shared() const noexcept;
  /// The loop has learnt that barriers after `number` go by the page.
  void start(std::uint64_t number) noexcept;
  [[nodiscard]] bool started() const noexcept { return started_.load(std::memory_order_acquire); }

  // ---- one call ----
  /// False: another call of this process is in a barrier.
  [[nodiscard]] bool take_turn() noexcept { return !turn_.exchange(true, std::memory_order_acquire); }
  enum class Wake : std::uint8_t { by_word, by_message };
  /// Enters the next number; the last to enter releases everybody. True: some are to be told by message.
  [[nodiscard]] bool enter(Wake wake) noexcept;
  enum class State : std::uint8_t { waiting, released, broken };
  [[nodiscard]] State look() const noexcept;
  /// Changes with everything that look() may answer. Read it before look(), then sleep while it is the same.
  [[nodiscard]] std::uint32_t rings() const noexcept;
  void await_ring(std::uint32_t rings, std::chrono::nanoseconds time) noexcept;
  /// Gives the turn back. A number that was not released is entered again by the next call.
  void leave() noexcept;

  [[nodiscard]] bool has_entered(std::size_t place) const noexcept;
  [[nodiscard]] bool waits_for_message(std::size_t place) const noexcept;
  /// That member is lost or gone (`why`), and with it the group: nothing is released any more, at any member.
  void mark(std::size_t place, ErrorCode why) noexcept;
  /// The group is over, for this process: whoever waits, or comes, is told `why`. The first one counts.
  void break_with(const Error& why) noexcept;
  /// Why it is broken.
  [[nodiscard]] Error error() const noexcept;

 private:
  struct Layout;
  BarrierPage(std::vector<Rank> ranks, std::size_t place) : ranks_(std::move(ranks)), place_(place) {}
  [[nodiscard]] Layout& layout() const noexcept;
  void ring() noexcept;

  const std::vector<Rank> ranks_;
  const std::size_t place_;
  std::unique_ptr<Window> own_;
  std::unique_ptr<MappedWindow> mapped_;
  std::byte* data_ = nullptr;
  std::atomic<bool> started_{false};  // release in start(), acquire in started()
  std::atomic<bool> turn_{false};     // acquire in take_turn(), release in leave(): what the turn guards goes with it
  std::uint64_t passed_ = 0;          // turn
  std::atomic<bool> broken_{false};   // release after error_ is set, acquire before it is read
  mutable std::mutex error_mutex_;
  Error error_{};
};

}  // namespace hixl::memory
