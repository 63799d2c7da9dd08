// SPDX-License-Identifier: Apache-2.0
//
// What the kernel tells about processes: descriptors, mappings, listening ports.
#pragma once

#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "lines.hpp"

namespace hixl::test {

/// Looks every 2 ms until it holds; false after k_patience. For what only the kernel or another process can make true.
template <class Holds>
[[nodiscard]] bool eventually(Holds&& holds) {
  const auto end = std::chrono::steady_clock::now() + k_patience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    static_cast<void>(::poll(nullptr, 0, 2));
  }
  return true;
}

[[nodiscard]] std::size_t open_descriptors(pid_t pid = getpid());
/// Lines of /proc/PID/maps that name memory of the library.
[[nodiscard]] std::size_t library_mappings(pid_t pid = getpid());
/// Port of a loopback tcp socket on which the process listens; 0: none. With several: the highest.
[[nodiscard]] std::uint16_t listening_port(pid_t pid);
/// Port of the tcp socket that listens at exactly this IPv4 address in this network namespace; 0: none.
[[nodiscard]] std::uint16_t listening_port_at(const std::string& host);
/// Name of an abstract local socket of the library on which the process listens, without the leading zero; empty: none.
[[nodiscard]] std::string listening_name(pid_t pid);
/// A descriptor of this process for memory of the library of exactly this size, opened anew; -1: none.
[[nodiscard]] int open_window_of(std::size_t bytes);
[[nodiscard]] bool process_exists(pid_t pid);
/// Directory entries.
[[nodiscard]] std::size_t entries_of(const std::string& directory);

}  // namespace hixl::test
