// SPDX-License-Identifier: Apache-2.0
//
// What doctor finds: one row a question, each with what was found and, where it is not well, the command that mends it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "system.hpp"

namespace hixl::cli {

enum class Health : std::uint8_t {
  ok,
  note,  ///< something that is not there; whoever does not use it need not care
  warn,  ///< it works, and slower or less of it than it could
  bad,   ///< something will fail
};
[[nodiscard]] std::string_view name(Health health) noexcept;  ///< "bad"

struct Finding {
  std::string subject;  ///< "memlock"
  Health health = Health::ok;
  std::string found;
  std::string remedy;  ///< empty: none is needed
};
using Findings = std::vector<Finding>;

// Each adds its rows. Limits, shared memory and ports are this process' own, whatever the root of `system`.
void look_at_limits(const System& system, Findings& out);
void look_at_memory(const System& system, Findings& out);
void look_at_rdma(const System& system, Findings& out);
void look_at_nodes(const System& system, Findings& out);
void look_at_ports(Findings& out);
void look_at_routes(const System& system, Findings& out);

}  // namespace hixl::cli
