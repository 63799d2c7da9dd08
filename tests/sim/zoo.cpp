// SPDX-License-Identifier: Apache-2.0
//
// The zoo: every planted bug of base/planted.hpp over seeds until something catches it. A simulated world that does not
// catch bugs which somebody has planted proves nothing about those that nobody has.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/planted.hpp"
#include "hunt.hpp"
#include "rdma_cards.hpp"
#include "trial.hpp"

namespace hixl::sim {

#ifdef HIXL_ZOO

namespace {

struct Animal {
  std::string_view name;
  std::string_view text;
};
constexpr Animal k_animals[] = {
#define HIXL_SIM_ANIMAL(name, text) {#name, text},
    HIXL_PLANTED_BUGS(HIXL_SIM_ANIMAL)
#undef HIXL_SIM_ANIMAL
};

/// Of processor time: what never ends is caught as well. A bug takes a few seconds, under sanitizers a minute.
constexpr unsigned k_seconds_max = 600;

}  // namespace

bool plant(const std::string& name) {
  planted_bug = Planted::none;
  const auto* const found =
      std::find_if(std::begin(k_animals), std::end(k_animals), [&](const Animal& one) { return one.name == name; });
  if (found != std::end(k_animals)) planted_bug = static_cast<Planted>(1 + (found - std::begin(k_animals)));
  return name.empty() || found != std::end(k_animals);
}

std::size_t visit_zoo(const ZooOptions& options) {
  std::vector<Animal> wanted;
  for (const Animal& animal : k_animals) {
    if (animal.name.starts_with("rdma_") && !RdmaCards::supported()) continue;
    if (options.only.empty() || options.only == animal.name) wanted.push_back(animal);
  }
  const Children children{.count = wanted.size(), .at_once = options.jobs, .seconds_max = k_seconds_max, .mute = true};
  const auto outcomes = in_children(children, [&](std::size_t index, const Told& tell) {
    const Hunt all{.first = options.first, .step = 1, .count = options.seeds_max, .wanted = {}};
    hunt(all, tell, [&](std::uint64_t seed) {
      return run({.seed = seed, .shape_seed = 0, .set = {}, .bug = std::string(wanted[index].name)});
    });
  });
  std::size_t escaped = 0;
  std::uint64_t seeds = 0;
  std::vector<std::uint64_t> counts;
  fmt::print("{:<32} {:>6}  {}\n", "planted bug", "seeds", "caught by");
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Catch found = understand(outcomes[i]);
    const std::uint64_t count = found.seed - options.first + 1;
    escaped += found.invariant.empty() ? 1 : 0;
    seeds += count;
    counts.push_back(count);
    fmt::print("{:<32} {:>6}  {}\n", wanted[i].name, count,
               found.invariant.empty() ? fmt::format("ESCAPED: {}", wanted[i].text)
                                       : fmt::format("{} {}", found.invariant, found.text.substr(0, 80)));
  }
  std::sort(counts.begin(), counts.end());
  fmt::print("bugs={} escaped={} seeds_max={} seeds={} median={} worst={}\n", wanted.size(), escaped, options.seeds_max,
             seeds, counts.empty() ? 0 : counts[counts.size() / 2], counts.empty() ? 0 : counts.back());
  return escaped;
}

#else

bool plant(const std::string& name) { return name.empty(); }
std::size_t visit_zoo(const ZooOptions&) { return 1; }

#endif

}  // namespace hixl::sim
