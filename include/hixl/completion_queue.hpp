// SPDX-License-Identifier: Apache-2.0
//
// CompletionQueue: the ends of many operations in one place, for programs that run an event loop of their own (epoll,
// asyncio, libuv) or a thread that does nothing but take ends. Several runtimes may share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <hixl/request.hpp>
#include <hixl/result.hpp>
#include <hixl/types.hpp>

namespace hixl {

namespace core {
class Core;
class QueueState;
}  // namespace core

/// Named at the post (OpOptions::queue). A post takes a place in the queue for its end, and answers BUSY with the
/// queue's capacity as limit when there is none; so no end is ever lost, and none ever waits for the program.
///
/// Owner: the program. Thread-safe. Completion: ends of one runtime come in the order in which its loop ended them;
/// nothing is ordered across runtimes. When an end can be polled, its Request is done() as well. Close: destruction at
/// any time when nobody is inside poll() or wait(), or posting with it; ends that come later are dropped and counted
/// (Counters::completions_dropped). In a forked child it gives nothing, and wait() answers FORKED.
class CompletionQueue {
 public:
  /// `capacity`: 1 … 1 048 576 operations that are open or whose end has not been polled; about 200 bytes each.
  /// INVALID_ARGUMENT, FD_LIMIT.
  [[nodiscard]] static Result<std::unique_ptr<CompletionQueue>> create(std::uint32_t capacity);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  /// A descriptor that is readable while there is something to poll; only to be waited on (level or edge), never read
  /// or closed. It may become readable once for nothing. A queue whose descriptor nobody ever asked for, or which is
  /// not empty when an end comes, costs no system call.
  [[nodiscard]] int fd();
  /// Takes what is there, oldest first: the number written to the front of `out`. Any thread; pollers wait for each
  /// other while one copies, loops and posts never wait.
  [[nodiscard]] std::size_t poll(std::span<Completion> out);
  /// The same, but waits until there is something, at most `timeout`. DEADLINE_EXCEEDED; INVALID_ARGUMENT for an empty
  /// span or a negative time; WOULD_DEADLOCK on the loop thread of a runtime that has posted with this queue. Runtimes
  /// of create_polled() that this thread drives are turned meanwhile.
  [[nodiscard]] Result<std::size_t> wait(std::span<Completion> out, Timeout timeout);
  /// Places taken: operations that are open, and ends not yet polled. A moment's value.
  [[nodiscard]] std::uint32_t in_use() const noexcept;
  [[nodiscard]] std::uint32_t capacity() const noexcept;

 private:
  friend class core::Core;
  explicit CompletionQueue(std::shared_ptr<core::QueueState> state) noexcept;
  std::shared_ptr<core::QueueState> state_;  // shared with the operations that are open
};

}  // namespace hixl
