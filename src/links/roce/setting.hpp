// SPDX-License-Identifier: Apache-2.0
//
// What the makers of roce links are told by the runtime.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hixl/options.hpp>

namespace hixl::links {

/// The largest post; smaller where chunks are.
inline constexpr std::uint32_t k_roce_chunk_bytes = 1U << 20U;

struct RoceSetting {
  RdmaOptions rdma{};
  std::uint32_t max_inline = 64;  ///< bytes of a post that go along with the request
  std::size_t buffer_bytes = k_roce_chunk_bytes;
  int numa_node = -1;  ///< of this process' memory; -1: unknown
};

}  // namespace hixl::links
