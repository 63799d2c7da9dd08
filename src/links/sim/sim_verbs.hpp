// SPDX-License-Identifier: Apache-2.0
//
// Verbs of a simulated process, on the cards of an RdmaFabric.
#pragma once

#include <memory>

#include "links/sim/rdma_fabric.hpp"

namespace hixl::links {

/// The cards of `host`, as the process of `port` sees them: "sim0", "sim1", one a rail, each with one port and RoCE v1
/// and v2 at an address of IPv4. The fabric outlives what is made of it.
[[nodiscard]] std::unique_ptr<roce::Verbs> make_sim_verbs(RdmaFabric& fabric, runtime::EventPort& port,
                                                          std::uint32_t host);

}  // namespace hixl::links
