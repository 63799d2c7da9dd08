// SPDX-License-Identifier: Apache-2.0
//
// What the command line of a process test says, besides doctest's own options.
#pragma once

#include <chrono>
#include <string>

namespace hixl::test {

struct Settings {
  std::string rank_program;      ///< --rank PATH: the driven rank, see rank_program.cpp
  std::string launcher_program;  ///< --run PATH: hixl_run
  /// --seconds N: how long the tests that last go on at least. 0: as long as each needs to prove its point.
  std::chrono::seconds at_least{0};
};
[[nodiscard]] const Settings& settings();

}  // namespace hixl::test
