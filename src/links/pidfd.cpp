// SPDX-License-Identifier: Apache-2.0
#include "links/pidfd.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434  // the same on every architecture; older C libraries do not name it
#endif

namespace hixl::links {

Result<runtime::Fd> own_pidfd() {
  const auto fd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));  // close-on-exec by nature
  if (fd < 0) {
    const ErrorCode code = errno == EMFILE || errno == ENFILE ? ErrorCode::fd_limit : ErrorCode::transport_unavailable;
    return fail(code, {.stage = Stage::handshake, .os_error = errno});
  }
  return runtime::Fd(fd);
}

bool is_pidfd(int fd) {
  // Only pidfds have a line "Pid:" there.
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("Pid:")) return true;
  }
  return false;
}

bool process_ended(int pidfd) noexcept {
  pollfd query{.fd = pidfd, .events = POLLIN, .revents = 0};
  return pidfd >= 0 && ::poll(&query, 1, 0) == 1 && (query.revents & POLLIN) != 0;
}

}  // namespace hixl::links
