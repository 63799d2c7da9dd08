// SPDX-License-Identifier: Apache-2.0
//
// Fd: the one descriptor owner of the library.
#include "runtime/event_port.hpp"

#include <unistd.h>

#include <utility>

namespace hixl::runtime {

Fd::~Fd() {
  // Linux has let go of the descriptor even when close() reports EINTR or EIO; a second try could close a stranger's.
  if (fd_ >= 0) ::close(fd_);
}

Fd& Fd::operator=(Fd&& other) noexcept {
  // What was held is closed by the temporary, after this object already holds the new one; self-assignment is harmless.
  const Fd old(std::exchange(fd_, other.release()));
  return *this;
}

}  // namespace hixl::runtime
