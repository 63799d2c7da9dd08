// SPDX-License-Identifier: Apache-2.0
//
// hixl_sim: runs the library's own actors in simulated clusters, one a seed, and looks for violations of the protocol.
//   hixl_sim --seeds 1000 --jobs 2   seeds 1 … 1000 (--first, --first-from to begin elsewhere)
//   hixl_sim --seed 4711 --narrate   one seed again, telling what happens
//   hixl_sim --seed 4711 --shrink    a small failing run instead of that large one
//   hixl_sim --check-determinism     every seed twice: both runs must be the same, event by event
//   hixl_sim --choices FILE          what --record or --shrink has written
//   hixl_sim --bytes FILE...         bytes decide, as a fuzzer makes them up
//   hixl_sim --zoo                   the planted bugs (hixl_zoo, which has them, does it)
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "children.hpp"
#include "totals.hpp"
#include "trial.hpp"

namespace {

using hixl::sim::Totals;
using hixl::sim::Trial;

/// From that many seeds on, a rare state that was never reached fails the run: the generator has become blind.
constexpr std::uint64_t k_seeds_for_rare = 200;
constexpr std::uint64_t k_seeds_for_rarest = 10'000;
/// Years of a machine's work; a -1 that has wrapped is more.
constexpr std::uint64_t k_seeds_max = 1'000'000'000'000;
constexpr int k_exit_usage = 2;

struct Options {
  std::uint64_t seeds = 1000;
  std::uint64_t first = 1;
  std::uint64_t one = 0;
  std::uint64_t shape_seed = 0;
  std::uint64_t stop_after = 0;
  std::size_t jobs = 1;
  bool verbose = false;
  bool narrate = false;
  bool twice = false;
  bool shrink = false;
  bool zoo = false;
  std::uint64_t limit = 5000;
  std::vector<std::string> set;
  std::string first_from;
  std::string bug;
  std::string choices;
  std::string record;
  std::vector<std::string> bytes;
  std::string program;

  [[nodiscard]] Trial trial(std::uint64_t seed) const {
    return {.seed = seed, .shape_seed = shape_seed, .set = set, .bug = bug};
  }
};

std::string unknown_knob(const std::string& setting) {
  if (hixl::sim::Shape{}.set(setting)) return {};
  std::string names;
  for (const auto& knob : hixl::sim::knobs()) names += fmt::format("{} ", knob.name);
  return setting + " is no knob, or its value no number; there are " + names;
}

/// Somewhere, the same for the same text.
std::uint64_t seed_from(const std::string& text) {
  std::uint64_t hash = 0;
  for (const char letter : text) hash = hixl::Random(hash ^ static_cast<unsigned char>(letter)).next();
  return 1 + hash % 1'000'000'000;
}

hixl::sim::Story aloud() {
  return [](std::string&& line) { fmt::print("{}\n", line); };
}

void print_violation(const Options& options, const Trial& trial, const hixl::sim::Violation& violation) {
  fmt::print("seed {}: {}: {}\n  replay: {} --narrate\n  make it small: {} --shrink\n", trial.seed, violation.invariant,
             violation.text, command_of(trial, options.program), command_of(trial, options.program));
}

void run_one(const Options& options, std::uint64_t seed, Totals& totals) {
  const Trial trial = options.trial(seed);
  hixl::sim::Record record;
  const auto report = options.record.empty() ? run(trial, options.narrate ? aloud() : hixl::sim::Story{})
                                             : run_and_record(trial, record);
  totals.add(report);
  if (options.verbose || options.one != 0) {
    fmt::print("seed={} events={} operations={} trace={:016x}\n", seed, report.events, report.operations,
               report.trace_hash);
  }
  if (report.violation) {
    totals.violations += 1;
    print_violation(options, trial, *report.violation);
  }
  if (!options.record.empty() && !record.save(options.record)) fmt::print("{} cannot be written\n", options.record);
  if (options.twice) {
    const auto again = run(trial);
    if (again.trace_hash != report.trace_hash || again.events != report.events) {
      totals.unequal += 1;
      fmt::print("seed {}: D1: two runs differ: {:016x} and {:016x}\n", seed, report.trace_hash, again.trace_hash);
    }
  }
  std::fflush(stdout);
}

/// Every `step`th seed.
Totals run_some(const Options& options, std::uint64_t from, std::uint64_t step) {
  Totals totals;
  for (std::uint64_t seed = options.first + from; seed < options.first + options.seeds; seed += step) {
    if (options.stop_after != 0 && totals.violations >= options.stop_after) break;
    run_one(options, seed, totals);
  }
  return totals;
}

Totals run_all(const Options& options) {
  if (options.jobs <= 1) return run_some(options, 0, 1);
  Totals totals;
  const auto outcomes = hixl::sim::in_children({.count = options.jobs, .at_once = options.jobs},
                                               [&](std::size_t index, const hixl::sim::Told& tell) {
                                                 const Totals part = run_some(options, index, options.jobs);
                                                 tell(&part, sizeof(part));
                                               });
  for (const auto& outcome : outcomes) {
    if (outcome.told.size() != sizeof(Totals)) {  // an assertion, whose text it has printed
      totals.violations += 1;
      continue;
    }
    Totals part;
    std::memcpy(static_cast<void*>(&part), outcome.told.data(), sizeof(part));
    totals.add(part);
  }
  return totals;
}

/// Prints the rare states; the number of required ones that no seed reached.
std::uint64_t print_rare(const Totals& totals) {
  std::uint64_t missing = 0;
  fmt::print("{:>10} {:>7}  rare state\n", "count", "seeds");
  for (std::size_t i = 0; i < hixl::sim::k_rare_count; ++i) {
    const auto& info = hixl::sim::k_rare[i];
    const bool here = !info.of_rdma() || hixl::sim::RdmaCards::supported();
    const bool missed = here && totals.rare.counts[i] == 0 && (info.required || totals.seeds >= k_seeds_for_rarest);
    missing += missed ? 1 : 0;
    fmt::print("{:>10} {:>7}  {}: {}{}\n", totals.rare.counts[i], totals.seeds_with.counts[i], info.name, info.text,
               missed ? "  NEVER REACHED" : "");
  }
  return missing;
}

int seeds(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  const Totals totals = run_all(options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const std::uint64_t missing = totals.seeds > 1 ? print_rare(totals) : 0;
  fmt::print("seeds={} events={} operations={} violations={} unequal={} seeds_per_s={:.0f} simulated_hours={:.2f}\n",
             totals.seeds, totals.events, totals.operations, totals.violations, totals.unequal,
             static_cast<double>(totals.seeds) / seconds.count(),
             std::chrono::duration<double>(totals.simulated).count() / 3600.0);
  const bool blind = missing > 0 && options.set.empty() && totals.seeds >= k_seeds_for_rare;
  if (blind) fmt::print("{} rare states were never reached\n", missing);
  return totals.violations == 0 && totals.unequal == 0 && !blind ? 0 : 1;
}

/// 0: no violation.
int tell_report(const hixl::sim::Report& report, const std::string& name) {
  fmt::print("{}: events={} operations={} trace={:016x}\n", name, report.events, report.operations, report.trace_hash);
  if (report.violation) fmt::print("{}: {}: {}\n", name, report.violation->invariant, report.violation->text);
  return report.violation ? 1 : 0;
}

int choices(const Options& options) {
  const auto record = hixl::sim::Record::load(options.choices);
  if (!record) {
    fmt::print(stderr, "{} is no record of choices, or cannot be read\n", options.choices);
    return 2;
  }
  const auto report = run_again(*record, aloud());
  return tell_report(report, options.choices);
}

int bytes(const Options& options) {
  int result = 0;
  for (const std::string& path : options.bytes) {
    std::ifstream file(path, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file) {
      fmt::print(stderr, "{} cannot be read\n", path);
      return 2;
    }
    result |= tell_report(hixl::sim::run_bytes(std::as_bytes(std::span(content))), path);
  }
  return result;
}

/// The other program has the bugs.
int zoo(const Options& options, char** argv) {
#ifdef HIXL_ZOO
  static_cast<void>(argv);
  const hixl::sim::ZooOptions zoo{
      .only = options.bug, .first = options.first, .seeds_max = options.limit, .jobs = options.jobs};
  return visit_zoo(zoo) == 0 ? 0 : 1;
#else
  const std::string path = options.program.substr(0, options.program.rfind('/') + 1) + "hixl_zoo";
  ::execv(path.c_str(), argv);
  fmt::print(stderr, "{}, which has the planted bugs, cannot be run\n", path);
  return 2;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.program = argv[0];
  CLI::App app{"Simulated clusters under faults; every failure is one seed."};
  const CLI::Range count(std::uint64_t{1}, k_seeds_max);
  app.add_option("--seeds", options.seeds, "how many seeds")->check(count);
  app.add_option("--first", options.first, "the first of them");
  app.add_option("--first-from", options.first_from, "makes the first one from a text, such as a commit's name");
  app.add_option("--seed", options.one, "run this one seed");
  app.add_option("--shape-seed", options.shape_seed, "the kind of world is that of another seed");
  app.add_option("--jobs", options.jobs, "processes side by side")->check(CLI::Range(1, 64));
  app.add_option("--stop-after", options.stop_after, "end after that many violations");
  app.add_option("--set,--without", options.set, "knobs of the world: NAME=NUMBER, or NAME to switch off")
      ->delimiter(',')
      ->check(CLI::Validator(unknown_knob, "KNOB"));
  app.add_flag("--verbose", options.verbose, "a line for each seed");
  app.add_flag("--narrate", options.narrate, "a line for each post, end and fault");
  app.add_flag("--check-determinism", options.twice, "run every seed twice and compare");
  app.add_flag("--shrink", options.shrink, "make the failing --seed small");
  app.add_option("--record", options.record, "file that takes the choices of the --seed, or of the small run");
  app.add_option("--choices", options.choices, "run the choices of that file");
  app.add_option("--bytes", options.bytes, "run the bytes of those files");
  app.add_flag("--zoo", options.zoo, "hunt the planted bugs");
  app.add_option("--limit", options.limit, "of seeds for each planted bug")->check(count);
  app.add_option("--bug", options.bug, "plant this bug");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : k_exit_usage;
  }
  // Broken links are what this program is about; their warnings would hide its own lines.
  static_cast<void>(::setenv("HIXL_LOG", "off", 0));
  if (options.zoo) return zoo(options, argv);
  if (!hixl::sim::plant(options.bug)) {
    fmt::print(stderr, "no bug of the name {} is planted in this program\n", options.bug);
    return 2;
  }
  if (!options.choices.empty()) return choices(options);
  if (!options.bytes.empty()) return bytes(options);
  if (!options.first_from.empty()) options.first = seed_from(options.first_from);
  if (options.one != 0) {
    options.first = options.one;
    options.seeds = options.jobs = 1;
  } else if (const char* scale = std::getenv("HIXL_TEST_SCALE")) {
    const double scaled = static_cast<double>(options.seeds) * std::atof(scale);
    options.seeds = std::max<std::uint64_t>(10, static_cast<std::uint64_t>(scaled));
  }
  if (options.shrink) {
    shrink(options.trial(options.first), {.program = options.program, .file = options.record, .jobs = 2});
    return 1;
  }
  if (!options.first_from.empty()) fmt::print("first={} from {}\n", options.first, options.first_from);
  return seeds(options);
}
