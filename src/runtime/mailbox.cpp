// SPDX-License-Identifier: Apache-2.0
//
// The mailbox on moodycamel's queue: one sub-queue per posting thread, which is exactly FIFO per sender.
//
// Data races: the queue's elements are plain data, published by a release store of the sub-queue's tail and taken by
// an acquire load of it; blocks travel back through acquire and release operations of its free list. The fences that
// the queue has besides are not needed for that, so a checker that does not model fences still sees every order.
#include "runtime/mailbox.hpp"

#include <concurrentqueue/concurrentqueue.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/assert.hpp"
#include "runtime/event_port.hpp"
#include "runtime/process_barrier.hpp"

namespace hixl::runtime {

namespace {

/// Threads for which blocks are made at the start. More may post; each of them may cost a block or two of its own.
constexpr std::size_t k_posting_threads = 64;
/// Messages that one delivery takes out at a time, 24 bytes each: enough to make taking cheap, few enough
/// to stay in the first-level cache.
constexpr std::size_t k_batch = 32;

struct Traits : moodycamel::ConcurrentQueueDefaultTraits {
  /// Messages a block: 3 KiB. Every thread holds one or two blocks partly used, so larger blocks waste memory; smaller
  /// ones need a larger index.
  static constexpr std::size_t BLOCK_SIZE = 128;
  /// Blocks a thread may have in use before its index grows, 24 bytes each: 131 072 requests and as many cancels.
  static constexpr std::size_t IMPLICIT_INITIAL_INDEX_SIZE = 2048;
  /// The table of threads grows (within a thread's first post) when it is half full.
  static constexpr std::size_t INITIAL_IMPLICIT_PRODUCER_HASH_SIZE = 4 * k_posting_threads;
};

using MailQueue = moodycamel::ConcurrentQueue<Mail, Traits>;

}  // namespace

bool Wakeup::let_sleeper_pay() noexcept { return sleeper_pays_ = prepare_process_barrier(); }

void Wakeup::notify() noexcept {
  if (sleeper_pays_) {
    // The message is stored, this is loaded; the loop's barrier falls before both, between them, or after both.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_relaxed) == 0) return;
  } else if (asleep_.fetch_add(0, std::memory_order_seq_cst) == 0) {
    // An addition of nothing, because it must be a read-modify-write and x86 has no cheaper one that gives the value.
    return;
  }
  if (asleep_.exchange(0, std::memory_order_seq_cst) != 0) port_.wake();
}

void Wakeup::asleep() noexcept {
  asleep_.exchange(1, std::memory_order_seq_cst);
  barrier();
}

void Wakeup::barrier() noexcept {
  if (sleeper_pays_) process_barrier();
}

struct Mailbox::Queue {
  explicit Queue(std::size_t capacity_messages)
      : capacity(std::max<std::size_t>(capacity_messages, 1)),
        mail(capacity + Traits::BLOCK_SIZE, 0, k_posting_threads),
        consumer(mail) {}

  std::size_t capacity;
  MailQueue mail;
  moodycamel::ConsumerToken consumer;  // takes turns between senders, so that a busy one does not starve the others
  std::array<Mail, k_batch> batch;
};

Mailbox::Mailbox(EventPort& port, std::size_t capacity) : queue_(std::make_unique<Queue>(capacity)), wakeup_(port) {}
Mailbox::~Mailbox() = default;

bool Mailbox::post(MailTarget* target, std::uint32_t kind, std::uint32_t a, std::uint64_t b) noexcept {
  HIXL_ASSERT(target != nullptr);
  // Written as the queue's copy reads it: a read that is wider than the writes before it has to wait until these, and
  // with them all earlier stores of this thread, are through to the cache.
  using Vector __attribute__((vector_size(16), may_alias)) = std::uint64_t;
  const Vector head = {reinterpret_cast<std::uint64_t>(target), kind | std::uint64_t{a} << 32U};
  alignas(16) Mail mail;
  static_assert(offsetof(Mail, kind) == 8 && offsetof(Mail, a) == 12 && offsetof(Mail, b) == sizeof(head));
  *reinterpret_cast<Vector*>(&mail) = head;
  mail.b = b;
  if (!queue_->mail.try_enqueue(mail)) {
    // Either the mailbox is full, or so many threads post that their partly used blocks hold all the room. Only the
    // latter allocates: one block, which stays. The number of such blocks is bounded by the number of threads.
    if (queue_->mail.size_approx() >= queue_->capacity || !queue_->mail.enqueue(mail)) return false;
  }
  wakeup_.notify();
  return true;
}

bool Mailbox::post_beyond_capacity(const Mail& mail) noexcept {
  HIXL_ASSERT(mail.target != nullptr);
  if (!queue_->mail.enqueue(mail)) return false;
  wakeup_.notify();
  return true;
}

std::size_t Mailbox::drain(std::size_t budget) {
  auto& batch = queue_->batch;
  std::size_t delivered = 0;
  while (delivered < budget) {
    const std::size_t wanted = std::min(k_batch, budget - delivered);
    const std::size_t count = queue_->mail.try_dequeue_bulk(queue_->consumer, batch.begin(), wanted);
    for (std::size_t i = 0; i < count; ++i) batch[i].target->on_mail(batch[i]);
    delivered += count;
    if (count < wanted) break;
  }
  return delivered;
}

bool Mailbox::empty() const noexcept { return queue_->mail.size_approx() == 0; }

}  // namespace hixl::runtime
