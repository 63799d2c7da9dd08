// SPDX-License-Identifier: Apache-2.0
//
// What the command line of the rank program says, and the small limits that it may ask to live within.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <chrono>
#include <cstddef>

#include "../api/pattern.hpp"

namespace hixl::test {

struct Options {
  std::size_t bytes = 8U << 20U;
  bool registered = false;
  bool mirrored = false;
  bool forbid_attach = false;
  long patience_ms = std::chrono::milliseconds(k_patience).count();
  bool hosted = false;
  long lease_ms = 0;
  long connect_timeout_ms = 0;
  bool tell_environment = false;
  long exit_code_at_rank = -1;
  int exit_code = 0;
  long descriptors_max = -1;
  long memlock_kib = -1;
  bool tiny_shm = false;
};

/// What some systems give a process; before the runtime is made. False: this system does not let us.
inline bool live_within_limits(const Options& options) {
  const auto lower = [](auto resource, long value) {
    const rlimit limit{static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
    return value < 0 || setrlimit(resource, &limit) == 0;
  };
  if (!lower(RLIMIT_NOFILE, options.descriptors_max) || !lower(RLIMIT_MEMLOCK, options.memlock_kib * 1024))
    return false;
  if (!options.tiny_shm) return true;
  // A /dev/shm of 1 MiB, without room, for this process alone.
  const bool apart = unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                     mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") == 0;
  const int fd = apart ? open("/dev/shm/full", O_CREAT | O_RDWR | O_CLOEXEC, 0600) : -1;
  return fd >= 0 && posix_fallocate(fd, 0, 1L << 20) == 0;
}

}  // namespace hixl::test
