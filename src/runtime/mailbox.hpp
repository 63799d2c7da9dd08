// SPDX-License-Identifier: Apache-2.0
//
// Mailbox: how other threads talk to a loop. FIFO per sender, nothing across senders. A sender wakes the loop only
// when it sleeps. mailbox.cpp is the one file that includes moodycamel's queue.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace hixl::runtime {

class EventPort;
struct Mail;

/// Receives mail on the loop thread. Must outlive every mail sent to it.
class MailTarget {
 public:
  virtual void on_mail(const Mail& mail) = 0;

 protected:
  ~MailTarget() = default;
};

/// One message: a target and plain numbers. Meaning of kind, a and b is the target's.
struct Mail {
  MailTarget* target = nullptr;
  std::uint32_t kind = 0;
  std::uint32_t a = 0;
  std::uint64_t b = 0;
};

/// Whether the loop sleeps, and how to end that. The sender's look at the flag comes after its message, the loop's last
/// look for messages after its change of the flag, so one of them sees the other. Two ways to order that: both sides
/// touch the flag by seq_cst read-modify-writes only; or the loop makes the barrier for both (let_sleeper_pay()).
class Wakeup {
 public:
  explicit Wakeup(EventPort& port) : port_(port) {}
  /// Before the first message. From now on a sender pays nothing but a look at the flag: the read-modify-write would
  /// make it wait until its message is through to the memory, about the time of a cache line's round trip. For loops
  /// that seldom sleep, since each sleep takes a system call more. False: this kernel does not offer it.
  bool let_sleeper_pay() noexcept;
  /// Thread-safe. Call after the message can be seen. No system call while the loop is awake.
  void notify() noexcept;
  void asleep() noexcept;
  void awake() noexcept { asleep_.exchange(0, std::memory_order_seq_cst); }
  /// Orders what the caller did before it against every sender's message: a sender whose message the caller does not
  /// see afterwards will see, once notify() has returned, what the caller did.
  void barrier() noexcept;

 private:
  EventPort& port_;
  bool sleeper_pays_ = false;
  alignas(64) std::atomic<std::uint32_t> asleep_{0};
};

class Mailbox {
 public:
  Mailbox(EventPort& port, std::size_t capacity);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// Thread-safe, never blocks. No allocation after a thread's first post (with up to 64 posting threads; beyond that
  /// a block now and then). False when `capacity` messages or more wait; nothing was posted then.
  [[nodiscard]] bool post(const Mail& mail) noexcept { return post(mail.target, mail.kind, mail.a, mail.b); }
  [[nodiscard]] bool post(MailTarget* target, std::uint32_t kind, std::uint32_t a, std::uint64_t b) noexcept;
  /// The same for the few messages that cannot be refused: whatever waits, by allocating if need be. False: no memory.
  [[nodiscard]] bool post_beyond_capacity(const Mail& mail) noexcept;
  /// Loop thread, not from on_mail(): delivers at most `budget`; the count delivered.
  std::size_t drain(std::size_t budget);
  /// Thread-safe. Exact for messages whose post() is ordered before this call.
  [[nodiscard]] bool empty() const noexcept;
  [[nodiscard]] Wakeup& wakeup() noexcept { return wakeup_; }

 private:
  struct Queue;
  // First, and not behind the flag: a sender reads it, and what follows a mailbox is its loop's.
  std::unique_ptr<Queue> queue_;
  Wakeup wakeup_;
};

}  // namespace hixl::runtime
