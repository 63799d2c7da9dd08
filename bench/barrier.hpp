// SPDX-License-Identifier: Apache-2.0
//
// The barrier benchmark: ranks in processes of their own, one of them this process; beside it, if it was built, the
// same of MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace hixl::bench {

struct BarrierSettings {
  std::uint32_t ranks = 12;
  std::size_t rounds = 2000;
  std::string program;  ///< this one, which is started once more for every other rank
  std::string mpi;      ///< the program of MPI's barrier; empty: without
};
[[nodiscard]] nlohmann::json barrier(const BarrierSettings& settings);
/// What the other ranks do, with HIXL_* set. The exit code.
[[nodiscard]] int barrier_rank(std::size_t rounds);

}  // namespace hixl::bench
