// SPDX-License-Identifier: Apache-2.0
#include "memory/numa.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <string>

#include <hixl/memory.hpp>

#include "memory/memory_limit.hpp"

namespace hixl::memory {
namespace {

// Of the kernel's interface; its header belongs to a package that nothing else here needs.
constexpr int k_policy_preferred = 1;
constexpr int k_policy_bind = 2;
constexpr unsigned long k_ask_node_of_address = 3;  // MPOL_F_NODE | MPOL_F_ADDR
constexpr int k_nodes_max = 1024;                   // the largest that Linux is built for

int node_of_this_thread() noexcept {
  unsigned node = 0;
  return syscall(SYS_getcpu, nullptr, &node, nullptr) == 0 ? static_cast<int>(node) : 0;
}

}  // namespace

std::vector<int> parse_node_list(std::string_view text) {
  std::vector<int> nodes;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto take = [&](int& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc{} && value >= 0 && value < k_nodes_max;
  };
  while (at != end && *at != '\n') {
    int first = 0;
    if (!take(first)) return {};
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      if (!take(last)) return {};
    }
    for (int node = first; node <= last; ++node) nodes.push_back(node);
    if (at != end && *at == ',') ++at;
  }
  return nodes;
}

std::vector<int> numa_nodes() {
  std::ifstream file("/sys/devices/system/node/has_memory");
  std::string text;
  std::getline(file, text);
  std::vector<int> nodes = parse_node_list(text);
  if (nodes.empty()) nodes.push_back(0);
  return nodes;
}

Result<void> check_numa_node(int node, std::size_t bytes) {
  const std::vector<int> nodes = numa_nodes();
  if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::memory,
                                              .length = static_cast<std::uint64_t>(static_cast<std::int64_t>(node)),
                                              .limit = nodes.size()});
  }
  if (const std::uint64_t left = node_available_bytes(node); bytes > left) {
    return fail(ErrorCode::no_memory, {.stage = Stage::memory, .length = bytes, .limit = left});
  }
  return {};
}

Result<void> place_on_node(void* data, std::size_t bytes, int node) {
  const bool automatic = node == k_numa_auto;
  if (automatic) node = node_of_this_thread();
  constexpr std::size_t k_bits = 8 * sizeof(unsigned long);
  std::array<unsigned long, k_nodes_max / k_bits> mask{};
  mask[static_cast<std::size_t>(node) / k_bits] |= 1UL << (static_cast<std::size_t>(node) % k_bits);
  // The kernel reads one bit less than it is told.
  const long bound = syscall(SYS_mbind, data, bytes, automatic ? k_policy_preferred : k_policy_bind, mask.data(),
                             static_cast<unsigned long>(k_nodes_max) + 1, 0UL);
  if (bound == 0 || automatic || numa_nodes().size() == 1) return {};
  return fail(ErrorCode::unsupported, {.stage = Stage::memory, .os_error = errno, .length = bytes});
}

int numa_node_of(const void* data) noexcept {
  int node = k_no_numa_node;
  const long asked = syscall(SYS_get_mempolicy, &node, nullptr, 0UL, data, k_ask_node_of_address);
  return asked == 0 ? node : k_no_numa_node;
}

}  // namespace hixl::memory
