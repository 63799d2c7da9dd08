// SPDX-License-Identifier: Apache-2.0
#include "trial.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/assert.hpp"

namespace hixl::sim {

namespace {

constexpr const char* k_bug = "bug=";

Report run_on(Tape& tape, const Cluster::Settings& settings) { return Cluster(tape, settings).run(); }

}  // namespace

Report run(const Trial& trial, const Story& story) {
  HIXL_ASSERT(plant(trial.bug));
  Tape tape({.run = trial.seed, .shape = trial.shape_seed});
  return run_on(tape, {.set = trial.set, .story = story});
}

Report run_and_record(const Trial& trial, Record& record) {
  HIXL_ASSERT(plant(trial.bug));
  record.settings = trial.set;
  if (!trial.bug.empty()) record.settings.push_back(k_bug + trial.bug);
  Tape tape({.run = trial.seed, .shape = trial.shape_seed}, record);
  return run_on(tape, {.set = trial.set});
}

Report run_again(const Record& record, const Story& story) {
  Cluster::Settings settings{.set = {}, .story = story};
  std::string bug;
  for (const std::string& setting : record.settings) {
    if (setting.starts_with(k_bug)) {
      bug = setting.substr(std::char_traits<char>::length(k_bug));
    } else {
      settings.set.push_back(setting);
    }
  }
  HIXL_ASSERT(plant(bug));
  Tape tape(record);
  return run_on(tape, settings);
}

Report run_bytes(std::span<const std::byte> bytes) {
  Tape tape(bytes);
  return run_on(tape, {});
}

std::string command_of(const Trial& trial, const std::string& program) {
  std::string command = fmt::format("{} --seed {}", program, trial.seed);
  if (trial.shape_seed != 0 && trial.shape_seed != trial.seed)
    command += fmt::format(" --shape-seed {}", trial.shape_seed);
  if (!trial.bug.empty()) command += fmt::format(" --bug {}", trial.bug);
  std::string sign = " --set ";
  for (const std::string& setting : trial.set) command += std::exchange(sign, ",") + setting;
  return command;
}

}  // namespace hixl::sim
