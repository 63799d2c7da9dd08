// SPDX-License-Identifier: Apache-2.0
//
// NUMA nodes: which there are, and where pages lie. Plain system calls: of libnuma this library would use three
// functions that are one call each. A machine without NUMA has one node, 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <hixl/result.hpp>

namespace hixl::memory {

/// The nodes that have memory, in rising order. Never empty.
[[nodiscard]] std::vector<int> numa_nodes();
/// "0-1,3" as {0, 1, 3}; empty for text that is no such list.
[[nodiscard]] std::vector<int> parse_node_list(std::string_view text);
/// INVALID_ARGUMENT (length: the node, limit: how many there are) unless it is one of them; NO_MEMORY (limit: what it
/// has left) when it cannot hold `bytes`: the kernel would kill for pages that are bound to a full node.
[[nodiscard]] Result<void> check_numa_node(int node, std::size_t bytes);
/// Sets where the pages of a mapping that has none yet will be: a node, or k_numa_auto for that of the calling thread.
/// UNSUPPORTED when the system does not let us and the node is not the only one.
[[nodiscard]] Result<void> place_on_node(void* data, std::size_t bytes, int node);
/// Node of the page at `data`, which is there; k_no_numa_node when the system does not say.
[[nodiscard]] int numa_node_of(const void* data) noexcept;

}  // namespace hixl::memory
