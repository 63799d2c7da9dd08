// SPDX-License-Identifier: Apache-2.0
//
// When and where a life begins, so that a rendezvous can tell a later life of a rank from an earlier one.
#pragma once

#include "wire/store_messages.hpp"

namespace hixl::core {

/// Of a life that begins now. Any thread; does not fail: what the system does not tell is 0.
[[nodiscard]] wire::LifeStart life_start() noexcept;

}  // namespace hixl::core
