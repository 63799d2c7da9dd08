// SPDX-License-Identifier: Apache-2.0
//
// Waiting for requests of C programs; the same for both C interfaces.
#pragma once

#include <cstddef>

#include <hixl/transfer.h>

#include "api/world.hpp"

namespace hixl::api {

[[nodiscard]] Result<void> wait_for(hixl_request_t* req, int timeout_ms);
/// `statuses` may be null.
[[nodiscard]] Result<void> wait_for_all(std::size_t count, hixl_request_t* reqs, hixl_status_t* statuses,
                                        int timeout_ms);
[[nodiscard]] Result<void> wait_for_any(std::size_t count, hixl_request_t* reqs, std::size_t* index, int timeout_ms);

}  // namespace hixl::api
