// SPDX-License-Identifier: Apache-2.0
#include "base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace hixl {

void assertion_failed(const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "hixl: assertion failed: %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace hixl
