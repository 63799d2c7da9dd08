// SPDX-License-Identifier: Apache-2.0
//
// Worker: does for a loop what takes too long for a turn and has no asynchronous form, as registering memory with a
// card. In production by threads; the simulated world has one of its own, in virtual time.
#pragma once

#include <cstdint>
#include <memory>

#include <hixl/result.hpp>

#include "runtime/loop.hpp"

namespace hixl::runtime {

/// One piece of work. Owner: whoever runs it; lives until done().
class Job {
 public:
  virtual void work() = 0;  ///< away from the loop: touches nothing that the loop touches
  virtual void done() = 0;  ///< on the loop, exactly once, never from inside run()

 protected:
  ~Job() = default;
};

/// Made for one loop, and loop-bound. Jobs may overtake one another. Destroyed after the done() of every job; in the
/// simulated world also at the end of a process' life, and then with jobs that will never be done.
class Worker {
 public:
  virtual ~Worker() = default;
  virtual void run(Job& job) = 0;
};

/// `threads`: how many jobs are worked on at once. The threads start with the first job and block all signals but those
/// of their own faults. Destroyed on the loop's thread; jobs that were not done by then are worked on, and their done()
/// is called, from there; what that brings is worked on by the same thread.
[[nodiscard]] std::unique_ptr<Worker> make_worker_threads(Loop& loop, std::uint32_t threads);

}  // namespace hixl::runtime
