// SPDX-License-Identifier: Apache-2.0
//
// A memory barrier for two sides of which one is rare: the rare side makes it for every thread of this process, the
// frequent side makes none. The kernel does it (membarrier, private expedited) by interrupting the processors that run
// threads of this process: about 0.1 µs when none does, some 10 µs on a virtual machine when one does.
#pragma once

namespace hixl::runtime {

/// Asks the kernel for it, for this process; may be asked again. False: not offered here (old kernel, seccomp filter).
/// Thread-safe.
[[nodiscard]] bool prepare_process_barrier() noexcept;

/// Orders what this thread did before it ahead of what it does after it, as seen by every thread of this process, as if
/// each had made a full fence meanwhile. Only after prepare_process_barrier() gave true. Thread-safe.
void process_barrier() noexcept;

}  // namespace hixl::runtime
