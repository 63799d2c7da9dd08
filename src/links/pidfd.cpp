// SPDX-License-Identifier: Apache-2.0
#include "links/pidfd.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434  // the same on every architecture; older C libraries do not name it
#endif

namespace hixl::links {
namespace {

/// Only pidfds have a line "Pid:" there: 0 when the process is not of our namespace, -1 when it has ended.
std::optional<std::int32_t> pid_line(int fd) {
  constexpr std::string_view k_key = "Pid:";
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd));
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with(k_key))
      return static_cast<std::int32_t>(std::strtol(line.c_str() + k_key.size(), nullptr, 10));
  }
  return std::nullopt;
}

}  // namespace

Result<runtime::Fd> own_pidfd() {
  const auto fd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));  // close-on-exec by nature
  if (fd < 0) {
    const ErrorCode code = errno == EMFILE || errno == ENFILE ? ErrorCode::fd_limit : ErrorCode::transport_unavailable;
    return fail(code, {.stage = Stage::handshake, .os_error = errno});
  }
  return runtime::Fd(fd);
}

bool is_pidfd(int fd) { return static_cast<bool>(pid_line(fd)); }

std::int32_t pid_of(int pidfd) { return std::max(pid_line(pidfd).value_or(0), 0); }

}  // namespace hixl::links
