// SPDX-License-Identifier: Apache-2.0
//
// CopyPool: the copy engines of one runtime, shared by its links on this host. The loop polls it for jobs that have
// ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <hixl/result.hpp>

#include "memory/copy_engine.hpp"
#include "runtime/loop.hpp"

namespace hixl::links {

/// Gets its jobs back. Every job's `owner` points to one; it outlives the job.
class CopyClient {
 public:
  virtual void on_copied(memory::CopyJob& job) = 0;

 protected:
  ~CopyClient() = default;
};

/// Loop-bound. Completion: each submitted job ends in one on_copied(), from poll(). Close: destruction, after all jobs.
class CopyPool final : public runtime::Poller {
 public:
  CopyPool(runtime::Loop& loop, std::uint32_t engines);

  /// Makes the threads, once. OS_ERROR.
  [[nodiscard]] Result<void> start();
  /// To the engine with the least to do. False: all are full.
  [[nodiscard]] bool submit(memory::CopyJob& job, CopyClient& client);

  bool poll() override;
  /// An engine wakes the loop only if that sleeps; what ended since the last poll has to be seen here.
  [[nodiscard]] bool can_sleep() override;

 private:
  runtime::Loop& loop_;
  std::uint32_t engines_wanted_;
  std::vector<std::unique_ptr<memory::CopyEngine>> engines_;
};

}  // namespace hixl::links
