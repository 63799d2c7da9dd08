// SPDX-License-Identifier: Apache-2.0
#include "rdma_cards.hpp"

namespace hixl::sim {

bool RdmaCards::supported() noexcept { return false; }

std::unique_ptr<RdmaCards> RdmaCards::make(runtime::VirtualWorld&, std::uint32_t, const links::RdmaPlan&) {
  return nullptr;
}

}  // namespace hixl::sim
