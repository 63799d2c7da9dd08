// SPDX-License-Identifier: Apache-2.0
#include "runtime/process_barrier.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.hpp"

namespace hixl::runtime {

namespace {

long membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

bool prepare_process_barrier() noexcept {
  return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 &&
         membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
}

void process_barrier() noexcept {
  const long done = membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  HIXL_ASSERT(done == 0);
}

}  // namespace hixl::runtime
