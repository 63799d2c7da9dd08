// SPDX-License-Identifier: Apache-2.0
//
// pidfds: a process seen through a descriptor, which works across pid namespaces and never means another process.
#pragma once

#include <hixl/result.hpp>

#include "runtime/event_port.hpp"

namespace hixl::links {

/// TRANSPORT_UNAVAILABLE with the error number where the kernel has none (before 5.3).
[[nodiscard]] Result<runtime::Fd> own_pidfd();
/// A peer may send any descriptor; one of another sort could be readable, that is "dead", at its will.
[[nodiscard]] bool is_pidfd(int fd);
[[nodiscard]] bool process_ended(int pidfd) noexcept;

}  // namespace hixl::links
