// SPDX-License-Identifier: Apache-2.0
//
// Names of link kinds. What is emulated says so wherever a program or a person reads it.
#include <hixl/types.hpp>

namespace hixl {

std::string_view name(LinkKind kind) noexcept {
  switch (kind) {
    case LinkKind::hccs: return "hccs";
    case LinkKind::pcie: return "pcie";
    case LinkKind::roce: return "roce";
    case LinkKind::ub: return "ub";
    case LinkKind::tcp: return "tcp";
    case LinkKind::sim: return "sim";
  }
  return "unknown";
}

std::string_view name(MemoryKind kind) noexcept {
  switch (kind) {
    case MemoryKind::host: return "host";
    case MemoryKind::hbm: return "hbm";
  }
  return "unknown";
}

std::string_view description(LinkKind kind) noexcept {
  switch (kind) {
    case LinkKind::hccs: return "hccs (emulated: shared memory)";
    case LinkKind::pcie: return "pcie (emulated: cross-memory attach)";
    case LinkKind::roce: return "roce (RDMA verbs)";
    case LinkKind::ub: return "ub (Ascend unified bus)";
    case LinkKind::tcp: return "tcp";
    case LinkKind::sim: return "sim (simulated)";
  }
  return "unknown";
}

}  // namespace hixl
