// SPDX-License-Identifier: Apache-2.0
//
// hixl_sim: runs the library's own actors in simulated clusters, one a seed, and looks for violations of the protocol.
//   hixl_sim --seeds 1000            seeds 1 … 1000 (--first to begin elsewhere)
//   hixl_sim --seed 4711 --narrate   one seed again, telling what happens
//   hixl_sim --check-determinism     every seed twice: both runs must be the same, event by event
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "cluster.hpp"

namespace {

/// From that many seeds on, a rare state that was never reached fails the run: the generator has become blind.
constexpr std::uint64_t k_seeds_for_rare = 200;

struct Totals {
  std::uint64_t seeds = 0;
  std::uint64_t events = 0;
  std::uint64_t operations = 0;
  std::uint64_t violations = 0;
  std::uint64_t unequal = 0;
  hixl::Duration simulated{};
  hixl::sim::RareCounts rare{};
  hixl::sim::RareCounts seeds_with{};

  void add(const hixl::sim::Report& report) {
    seeds += 1;
    events += report.events;
    operations += report.operations;
    simulated += report.simulated;
    for (std::size_t i = 0; i < hixl::sim::k_rare_count; ++i) {
      rare.counts[i] += report.rare.counts[i];
      seeds_with.counts[i] += report.rare.counts[i] > 0 ? 1 : 0;
    }
  }
};

hixl::sim::Report run(std::uint64_t seed, const hixl::sim::Cluster::Settings& settings) {
  return hixl::sim::Cluster(seed, settings).run();
}

std::string unknown_kind(const std::string& kind) {
  return hixl::sim::Shape{}.switch_off(kind)
             ? std::string()
             : "kill, leave, replace, pause, clog, reset, turnover, cancel, control, lie";
}

/// Prints the rare states; the number of required ones that no seed reached.
std::uint64_t print_rare(const Totals& totals) {
  std::uint64_t missing = 0;
  fmt::print("{:>10} {:>7}  rare state\n", "count", "seeds");
  for (std::size_t i = 0; i < hixl::sim::k_rare_count; ++i) {
    const auto& info = hixl::sim::k_rare[i];
    const bool missed = info.required && totals.rare.counts[i] == 0;
    missing += missed ? 1 : 0;
    fmt::print("{:>10} {:>7}  {}: {}{}\n", totals.rare.counts[i], totals.seeds_with.counts[i], info.name, info.text,
               missed ? "  NEVER REACHED" : "");
  }
  return missing;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seeds = 1000;
  std::uint64_t first = 1;
  std::uint64_t one = 0;
  std::uint64_t stop_after = 0;
  bool verbose = false;
  bool twice = false;
  hixl::sim::Cluster::Settings settings;
  CLI::App app{"Simulated clusters under faults; every failure is one seed."};
  app.add_option("--seeds", seeds, "how many seeds");
  app.add_option("--first", first, "the first of them");
  app.add_option("--seed", one, "run this one seed");
  app.add_option("--stop-after", stop_after, "end after that many violations");
  app.add_option("--without", settings.without, "kinds of trouble to switch off")
      ->delimiter(',')
      ->check(CLI::Validator(unknown_kind, "KIND"));
  app.add_flag("--verbose", verbose, "a line for each seed");
  app.add_flag("--narrate", settings.narrate, "a line for each post, end and fault");
  app.add_flag("--check-determinism", twice, "run every seed twice and compare");
  CLI11_PARSE(app, argc, argv);
  // Broken links are what this program is about; their warnings would hide its own lines.
  static_cast<void>(::setenv("HIXL_LOG", "off", 0));
  if (one != 0) {
    first = one;
    seeds = 1;
  } else if (const char* scale = std::getenv("HIXL_TEST_SCALE")) {
    seeds = std::max<std::uint64_t>(10, static_cast<std::uint64_t>(static_cast<double>(seeds) * std::atof(scale)));
  }

  Totals totals;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t seed = first; seed < first + seeds && (stop_after == 0 || totals.violations < stop_after);
       ++seed) {
    const hixl::sim::Report report = run(seed, settings);
    totals.add(report);
    if (verbose || one != 0) {
      fmt::print("seed={} events={} operations={} trace={:016x}\n", seed, report.events, report.operations,
                 report.trace_hash);
    }
    if (report.violation) {
      totals.violations += 1;
      fmt::print("seed {}: {}: {}\n  replay: {} --seed {}\n", seed, report.violation->invariant, report.violation->text,
                 argv[0], seed);
    }
    if (twice) {
      const hixl::sim::Report again = run(seed, settings);
      if (again.trace_hash != report.trace_hash || again.events != report.events) {
        totals.unequal += 1;
        fmt::print("seed {}: D1: two runs differ: {:016x} and {:016x}\n", seed, report.trace_hash, again.trace_hash);
      }
    }
    std::fflush(stdout);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const std::uint64_t missing = totals.seeds > 1 ? print_rare(totals) : 0;
  fmt::print("seeds={} events={} operations={} violations={} unequal={} seeds_per_s={:.0f} simulated_hours={:.2f}\n",
             totals.seeds, totals.events, totals.operations, totals.violations, totals.unequal,
             static_cast<double>(totals.seeds) / seconds.count(),
             std::chrono::duration<double>(totals.simulated).count() / 3600.0);
  const bool blind = missing > 0 && settings.without.empty() && totals.seeds >= k_seeds_for_rare;
  if (blind) fmt::print("{} rare states were never reached\n", missing);
  return totals.violations == 0 && totals.unequal == 0 && !blind ? 0 : 1;
}
