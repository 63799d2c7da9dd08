// SPDX-License-Identifier: Apache-2.0
//
// failover_bench: what two links give together, and what a program sees when a link or its peer breaks. One JSON line a
// question; every byte is verified.
//   failover_bench two_links | reset | silent | stuck | kill | all
//   failover_bench command --links roce --break "ip link set eth1 down" --heal "ip link set eth1 up"
#include <sys/utsname.h>

#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "failover.hpp"

int main(int argc, char** argv) {
  using namespace hixl::bench;
  using std::chrono::milliseconds;
  FailoverSettings settings;
  std::string what = "all";
  std::string links = "auto";
  std::vector<std::uint64_t> caps_mb;
  CLI::App app{"Two links as one, and what it costs when something breaks."};
  app.add_option("bench", what, "two_links, reset, silent, stuck, kill, command or all")
      ->check(CLI::IsMember({"two_links", "reset", "silent", "stuck", "kill", "command", "victim", "all"}));
  app.add_option("--rounds", settings.rounds, "breaks of reset, silent, stuck and command")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--caps", caps_mb, "of two_links, MB/s; instead of 200 200 and 100 300")->expected(2);
  app.add_option("--links", links, "of kill: as HIXL_LINKS; of command: roce or tcp");
  Commands commands;
  app.add_option("--break", commands.break_one, "of command: breaks one of the two links");
  app.add_option("--heal", commands.heal, "of command: makes it whole");
  app.add_option("--calm", commands.calm, "of command: as much work as --break, and no break");
  app.add_option("--seed", settings.seed, "of the moments");
  app.add_flag("--smoke", settings.smoke, "few rounds: shows that it works");
  CLI11_PARSE(app, argc, argv);
  if (what == "victim") return victim();
  if (settings.smoke) settings.rounds = 2;
  utsname kernel{};
  uname(&kernel);
  const auto tell = [&](nlohmann::json row) {
    row["kernel"] = kernel.release;
    row["compiler"] = __VERSION__;
    row["commit"] = HIXL_COMMIT;
    std::cout << row.dump() << std::endl;
  };
  const auto asked = [&](const char* name) { return what == name || what == "all"; };
  constexpr std::uint64_t k_mb = 1'000'000;
  if (asked("two_links")) {
    std::vector<std::vector<std::uint64_t>> pairs{{200, 200}, {100, 300}};
    if (!caps_mb.empty()) pairs.assign(1, caps_mb);
    for (std::vector<std::uint64_t>& pair : pairs) {
      for (std::uint64_t& cap : pair) cap *= k_mb;
      tell(bandwidth(settings, pair));
    }
  }
  if (asked("reset")) tell(gap(settings, Relay::Break::reset, milliseconds(200)));
  if (asked("silent")) {
    tell(gap(settings, Relay::Break::silent, milliseconds(200)));
    tell(gap(settings, Relay::Break::silent, milliseconds(25)));
  }
  if (asked("stuck")) tell(gap(settings, Relay::Break::stuck, milliseconds(200)));
  if (asked("kill")) tell(kill_peer(settings, links));
  if (what == "command") {
    commands.kind = links == "tcp" ? hixl::LinkKind::tcp : hixl::LinkKind::roce;
    tell(command_gap(settings, commands));
  }
  return 0;
}
