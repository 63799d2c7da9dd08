// SPDX-License-Identifier: Apache-2.0
//
// Result<T>: a value or an Error. An alias of tl::expected, whose header is installed beside this one, so that
// the type is the same whatever C++ standard a program is compiled with.
#pragma once

#include <hixl/error.hpp>
#include <hixl/tl/expected.hpp>

namespace hixl {

template <class T>
using Result = tl::expected<T, Error>;

/// Told once, on the loop thread, how an asynchronous call without a Request has ended.
using Done = void (*)(void* context, const Result<void>& result);

/// `return fail(ErrorCode::busy);`
[[nodiscard]] inline tl::unexpected<Error> fail(ErrorCode code, const ErrorDetail& detail = {}) {
  return tl::unexpected<Error>(Error(code, detail));
}
[[nodiscard]] inline tl::unexpected<Error> fail(const Error& error) { return tl::unexpected<Error>(error); }

}  // namespace hixl
