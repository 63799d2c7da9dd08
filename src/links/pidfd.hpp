// SPDX-License-Identifier: Apache-2.0
//
// pidfds: a process seen through a descriptor, which works across pid namespaces and never means another process.
#pragma once

#include <cstdint>

#include <hixl/result.hpp>

#include "memory/foreign_memory.hpp"
#include "runtime/event_port.hpp"

namespace hixl::links {

/// TRANSPORT_UNAVAILABLE with the error number where the kernel has none (before 5.3).
[[nodiscard]] Result<runtime::Fd> own_pidfd();
/// A peer may send any descriptor; one of another sort could be readable, that is "dead", at its will.
[[nodiscard]] bool is_pidfd(int fd);
/// The process' number as seen from here; 0: it is of another pid namespace, or has ended, or that is no pidfd.
[[nodiscard]] std::int32_t pid_of(int pidfd);
using memory::process_ended;

}  // namespace hixl::links
