// SPDX-License-Identifier: Apache-2.0
//
// Doorbell: how the loop thread of a runtime tells Python that something has ended, without the GIL and without a lock.
//
// A Notice is made by the thread that posts, filled by the loop thread, and its address written to a pipe, whose other
// end asyncio or the dispatcher thread watches. Owner: the Notice is the library's from the post to the pipe, then
// Python's. The pipe cannot be full: at most as many notices of one doorbell are open as it has room for, which the GIL
// counts.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include <hixl/group.hpp>
#include <hixl/memory.hpp>
#include <hixl/request.hpp>

#include "abi.hpp"

namespace hixl::python {

/// The pipe. Lives until the doorbell is gone and no notice is open.
struct Bell {
  int read_fd = -1;
  int write_fd = -1;
  std::size_t open = 0;  // under the GIL
  /// Of `open`. 64 KiB as a rule, but a user with many pipes gets two pages (pipe(7), pipe-user-pages-soft). One page
  /// less than the pipe has: what has been read of a page is free only with the rest of it.
  std::size_t limit = 0;
  long process = 0;  // a forked child leaves the parent's alone
};

struct Notice {
  std::shared_ptr<Bell> bell;
  std::uint64_t ticket = 0;
  PyObject* runtime = nullptr;  ///< owned; group and regions of the answer belong to it
  std::variant<Result<void>, Completion, std::vector<PeerAddresses>, Result<Group>> outcome;
};

/// The bell of a Doorbell object and a ticket, as arguments; null with an exception set: wrong type, or BUSY.
[[nodiscard]] std::unique_ptr<Notice> open_notice(PyObject* doorbell, PyObject* ticket, PyObject* runtime);
/// After a post that was refused.
void drop_notice(std::unique_ptr<Notice> notice);
/// On the loop thread. `context` is a Notice that was released to the library.
void ring_done(void* context, const Result<void>& result);
void ring_completion(void* context, const Completion& completion);
void ring_addresses(void* context, std::vector<PeerAddresses>&& answers);
void ring_group(void* context, Result<Group>&& group);
/// Answers as Python values: what the blocking forms give.
[[nodiscard]] PyObject* to_python(const std::vector<PeerAddresses>& answers);
[[nodiscard]] PyObject* to_python(const Completion& completion);

}  // namespace hixl::python
