// SPDX-License-Identifier: Apache-2.0
//
// Trial: everything that decides one run, and the command that runs it again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster.hpp"

namespace hixl::sim {

struct Trial {
  std::uint64_t seed = 1;
  std::uint64_t shape_seed = 0;    ///< of the kind of world; 0: the same
  std::vector<std::string> set{};  ///< knobs that are turned
  std::string bug{};               ///< planted; needs hixl_zoo
};

/// In this process.
[[nodiscard]] Report run(const Trial& trial, const Story& story = {});
/// The same, keeping every choice.
[[nodiscard]] Report run_and_record(const Trial& trial, Record& record);
/// What was recorded; its settings are taken as well.
[[nodiscard]] Report run_again(const Record& record, const Story& story = {});
/// Bytes decide.
[[nodiscard]] Report run_bytes(std::span<const std::byte> bytes);

/// Switches a planted bug on, or with "" off. False: none of that name in this build.
[[nodiscard]] bool plant(const std::string& name);

/// The one command; `program` is argv[0].
[[nodiscard]] std::string command_of(const Trial& trial, const std::string& program);

/// Makes a failing trial small and tells it in at most 30 lines; `file`: takes the choices that are left.
struct ShrinkOptions {
  std::string program{};
  std::string file{};
  std::size_t jobs = 2;
};
void shrink(const Trial& failing, const ShrinkOptions& options);

/// Every planted bug over seeds until it is caught. The number of those that are not.
struct ZooOptions {
  std::string only{};  ///< this one bug
  std::uint64_t first = 1;
  std::uint64_t seeds_max = 5000;
  std::size_t jobs = 2;
};
[[nodiscard]] std::size_t visit_zoo(const ZooOptions& options);

}  // namespace hixl::sim
