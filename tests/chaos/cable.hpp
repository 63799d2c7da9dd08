// SPDX-License-Identifier: Apache-2.0
//
// Cables between hosts of one's own that are slow, so that what happens in the middle of a stream really does; and the
// commands that make a rank program's stream over them.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "../process/hosts.hpp"

namespace hixl::test {

/// False, with the reason told: no networks of one's own here, or the rate of a cable cannot be set.
inline bool cables_can_be_slow() {
  if (!permitted()) return false;
  Child probe("/usr/bin/unshare", {"-n", "/bin/sh", "-c",
                                   "ip link add name hx0 type veth peer name hx1 && "
                                   "tc qdisc add dev hx0 root tbf rate 200mbit burst 64k latency 50ms"});
  if (probe.wait() == 0) return true;
  MESSAGE("skipped: no token bucket filter here: " << probe.log());
  return false;
}

/// What an interface of the process' network has sent so far.
inline std::uint64_t sent_by(const Child& rank, const std::string& interface) {
  std::ifstream file("/proc/" + std::to_string(rank.pid()) + "/net/dev");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    if (name != interface + ":") continue;
    std::uint64_t number = 0;
    for (int i = 0; i < 9; ++i) fields >> number;
    return number;
  }
  return 0;
}

struct Blocks {
  std::uint64_t bytes;  ///< of each
  std::uint64_t first;
  std::uint64_t count;
};
/// `verb`: "pour" or "drain".
inline std::string stream_words(const char* verb, Rank rank, const Blocks& blocks) {
  return std::string(verb) + " " + std::to_string(rank) + " 0 " + std::to_string(blocks.bytes) + " " +
         std::to_string(blocks.count) + " " + std::to_string(blocks.first);
}

}  // namespace hixl::test
