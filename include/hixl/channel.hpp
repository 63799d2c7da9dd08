// SPDX-License-Identifier: Apache-2.0
//
// Channel: messages to one rank, in their order, through a ring in the receiver's memory. For programs that think in
// send and receive; it is made of put_with_signal() and costs no copy: the receiver reads messages where they arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <hixl/runtime.hpp>

namespace hixl {

/// What a ring is made of. Both sides have to mean the same.
struct RingShape {
  std::uint32_t slots = 1024;       ///< 1 … 65 536 messages not yet released
  std::uint64_t bytes = 4U << 20U;  ///< 4 KiB … 1 TiB of messages not yet released, each rounded up to 64
  [[nodiscard]] std::uint64_t message_max() const noexcept { return bytes / 2; }
  [[nodiscard]] std::uint64_t region_bytes() const noexcept;  ///< of the memory that holds it
  [[nodiscard]] Result<void> validate() const;
};

/// The sending side of one ring, which is the only one that sends to it.
/// Owner: the program; not longer than the runtime. Threads: any; posts of several threads are put in some order.
/// Completion: send() returns, and a request of post() ends, when the receiver can see the message. After one has
/// failed the ring is over: what comes behind it is never seen. Close: destruction, when nobody is inside.
class MessageSender {
 public:
  /// `ring`: the start of a ring in a region of the receiver. Goes on where an earlier sender stopped. Blocking.
  /// INVALID_ARGUMENT: the receiver means another shape (length: slots or bytes here, limit: there); VERSION_MISMATCH.
  [[nodiscard]] static Result<std::unique_ptr<MessageSender>> attach(Runtime& runtime, const RemoteAddress& ring,
                                                                     const RingShape& shape,
                                                                     Timeout timeout = k_default_timeout);
  ~MessageSender();
  /// Waits for room, then for the end. `data`: registered, or at most max_inline bytes, or (send) 4 KiB of any memory.
  /// INVALID_ARGUMENT (longer than RingShape::message_max()), DEADLINE_EXCEEDED (also: the receiver releases nothing),
  /// WOULD_DEADLOCK, CANCELLED.
  [[nodiscard]] Result<void> send(const void* data, std::uint64_t size, Timeout timeout = k_default_timeout);
  /// The same without waiting, on any thread. BUSY: no room is known of; the receiver has been asked for more, and a
  /// later post knows its answer.
  [[nodiscard]] Result<Request> post(const void* data, std::uint64_t size, const OpOptions& options = {});
  /// Nothing is sent any more: who waits for room ends at once, with CANCELLED, and what is under way by its deadline.
  void close();

 private:
  class State;
  explicit MessageSender(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A message where it arrived; valid, and never written, until it is released.
struct Message {
  const std::byte* data = nullptr;
  std::uint64_t size = 0;
  std::uint64_t number = 0;  ///< 0, 1, 2, … in a ring
};

/// The receiving side. Owner: the program; not longer than the runtime or the region. Threads: any; each message is
/// given once. Close: destruction, when nobody is inside.
class MessageReceiver {
 public:
  /// A ring that is all zero, at `offset` (a multiple of 64) of a region from allocate(). INVALID_ARGUMENT,
  /// OUT_OF_RANGE.
  [[nodiscard]] static Result<std::unique_ptr<MessageReceiver>> create(Runtime& runtime, const Region& region,
                                                                       std::uint64_t offset, const RingShape& shape);
  ~MessageReceiver();
  /// The next message; asleep until it is there. Timeout 0 looks once, on any thread. DEADLINE_EXCEEDED: none came;
  /// WOULD_DEADLOCK: none was there, and this is the loop thread; CANCELLED: closed; CORRUPT: the sender wrote
  /// nonsense, and the ring is over.
  [[nodiscard]] Result<Message> receive(Timeout timeout = k_default_timeout);
  /// Gives a message's room back to the sender, in any order. INVALID_ARGUMENT: not one that is held.
  [[nodiscard]] Result<void> release(std::uint64_t number);
  /// Nothing is received any more: who waits ends within a tenth of a second, with CANCELLED.
  void close();

 private:
  class State;
  explicit MessageReceiver(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Both ways with one rank, which connects as well; no order is needed, and neither side meets an earlier channel of
/// the other. At most one channel between two ranks.
/// Owner: the program; not longer than the runtime. Close: destruction; what the peer still sends then fails.
class Channel {
 public:
  /// INVALID_ARGUMENT: there is one already, or the two sides mean other shapes. DEADLINE_EXCEEDED: the peer did not.
  [[nodiscard]] static Result<std::unique_ptr<Channel>> connect(Runtime& runtime, Rank peer,
                                                                const RingShape& shape = {},
                                                                Timeout timeout = k_default_timeout);
  ~Channel();
  [[nodiscard]] Rank peer() const noexcept;
  [[nodiscard]] MessageSender& sender() noexcept;
  [[nodiscard]] MessageReceiver& receiver() noexcept;
  /// Closes both. Destruction is for when nobody is inside any more.
  void close();

 private:
  class State;
  explicit Channel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hixl
