// SPDX-License-Identifier: Apache-2.0
//
// Makes simulated links: control frames over the stream like every other kind, data through a SimFabric. For tests
// only.
#pragma once

#include <memory>

#include "links/link.hpp"
#include "links/sim/fabric.hpp"

namespace hixl::links {

/// The fabric outlives its links.
[[nodiscard]] std::unique_ptr<LinkFactory> make_sim_factory(SimFabric& fabric);

}  // namespace hixl::links
