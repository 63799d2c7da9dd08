// SPDX-License-Identifier: Apache-2.0
//
// Checks that several ways of posting share.
#pragma once

#include <hixl/result.hpp>
#include <hixl/transfer.hpp>

namespace hixl::core {

/// OVERLAP when the signal's word is part of a range that is put with it.
[[nodiscard]] Result<void> check_apart(const Signal& signal, const RemoteAddress& data, std::uint64_t size);

/// What is copied in the call must be somewhere.
[[nodiscard]] constexpr bool has_source(const void* local, std::uint64_t size) noexcept {
  return local != nullptr || size == 0;
}
[[nodiscard]] inline tl::unexpected<Error> no_source(std::uint64_t size) {
  return fail(ErrorCode::invalid_argument, {.stage = Stage::local_check, .length = size});
}

/// What the local side of a transfer must allow.
[[nodiscard]] constexpr Rights local_need(TransferVerb verb) noexcept {
  return verb == TransferVerb::put ? Rights::read : Rights::write;
}
/// And the remote side.
[[nodiscard]] constexpr Rights remote_need(TransferVerb verb) noexcept {
  return verb == TransferVerb::put ? Rights::write : Rights::read;
}

}  // namespace hixl::core
