// SPDX-License-Identifier: Apache-2.0
//
// The cards of this host as the kernel shows them, through rdma-core's libibverbs.
#pragma once

#include <memory>

#include "links/roce/verbs.hpp"

namespace hixl::links::roce {

/// Changes nothing that belongs to the process: no fork mode, no environment, no handler (others use verbs as well).
[[nodiscard]] std::shared_ptr<Verbs> make_ibv_verbs();

}  // namespace hixl::links::roce
