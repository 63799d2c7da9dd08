// SPDX-License-Identifier: Apache-2.0
//
// HIXL_ASSERT: a statement about our own code, checked in every build. It never judges input.
#pragma once

namespace hixl {
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line) noexcept;
}

#define HIXL_ASSERT(expression)                       \
  (__builtin_expect(static_cast<bool>(expression), 1) \
       ? void(0)                                      \
       : ::hixl::assertion_failed(#expression, __FILE__, __LINE__))
