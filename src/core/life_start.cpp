// SPDX-License-Identifier: Apache-2.0
#include "core/life_start.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "group/rank_set.hpp"
#include "runtime/event_port.hpp"

namespace hixl::core {

namespace {

std::uint64_t microseconds(clockid_t clock) noexcept {
  timespec now{};
  if (::clock_gettime(clock, &now) != 0 || now.tv_sec < 0) return 0;
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000U + static_cast<std::uint64_t>(now.tv_nsec) / 1'000U;
}

/// Names what makes the boot's clock this one: the boot, and the time namespace, which may shift it.
std::uint64_t boot_number() noexcept {
  std::array<unsigned char, 64> id{};
  const runtime::Fd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  const ssize_t got = file ? ::read(file.get(), id.data(), id.size()) : -1;
  if (got < 36) return 0;  // a UUID
  std::uint64_t number = group::hash_of(static_cast<std::uint64_t>(got));
  for (const unsigned char byte : id) number = group::hash_of(byte, number);
  struct stat space {};
  if (::stat("/proc/self/ns/time", &space) == 0) number = group::hash_of(space.st_ino, number);  // Linux 5.6 and later
  return std::max<std::uint64_t>(number, 1);
}

}  // namespace

wire::LifeStart life_start() noexcept {
  return {.born = std::min(microseconds(CLOCK_REALTIME), wire::k_birth_max),
          .host = boot_number(),
          .since_boot = microseconds(CLOCK_BOOTTIME)};
}

}  // namespace hixl::core
