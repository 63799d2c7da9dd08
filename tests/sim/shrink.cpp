// SPDX-License-Identifier: Apache-2.0
//
// Shrinking. A run is random through and through, so the smaller world is not asked whether it fails in the same way
// at the same seed, but whether it still fails with the same invariant at one of a few seeds. Kinds of trouble and load
// go first, then sizes, then, in the run that is left, single choices: chances that came true are taken back.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "hunt.hpp"
#include "trial.hpp"

namespace hixl::sim {

namespace {

/// Seeds that a smaller world is given to fail at: a bug that the zoo finds in 100 seeds mostly shows in 30 of a world
/// in which nothing else happens.
constexpr std::uint64_t k_seeds = 32;
/// Seeds among which the shortest run is looked for at the end.
constexpr std::uint64_t k_seeds_last = 200;
/// Runs that the single choices are given.
constexpr std::size_t k_runs_max = 300;
constexpr std::size_t k_story_lines_max = 22;  // of the 30: what surrounds it takes 8
/// Below that a size is made less by one when half is too little.
constexpr std::uint64_t k_single_steps = 8;
constexpr unsigned k_seconds_max = 600;  // of processor time, for what never ends

Shape shape_of(const Trial& trial) {
  Tape tape({.run = trial.seed, .shape = trial.shape_seed});
  Choices choices = tape.lane(Lane::shape);
  Shape shape = Shape::draw(choices);
  for (const std::string& setting : trial.set) static_cast<void>(shape.set(setting));
  return shape;
}

class Shrinker {
 public:
  Shrinker(const Trial& failing, const ShrinkOptions& options) : best_(failing), options_(options) {
    if (best_.shape_seed == 0) best_.shape_seed = best_.seed;
  }
  void run();

 private:
  [[nodiscard]] std::vector<Catch> search(const Trial& trial, std::uint64_t seeds, const std::string& wanted) const;
  [[nodiscard]] bool still_fails(const std::vector<std::string>& set);
  void switch_off(Knob::Kind kind);
  void make_less(const Knob& knob);
  void find_shortest();
  void drop_idle_settings();
  [[nodiscard]] Catch fails(const Record& record) const;
  [[nodiscard]] std::size_t take_back_choices(Record& record) const;
  void tell(const Record* record) const;

  Trial best_;
  const ShrinkOptions options_;
  Catch found_{};
};

/// What each child has found.
std::vector<Catch> Shrinker::search(const Trial& trial, std::uint64_t seeds, const std::string& wanted) const {
  const std::uint64_t jobs = std::min<std::uint64_t>(options_.jobs, seeds);
  const auto outcomes = in_children(
      {.count = jobs, .at_once = jobs, .seconds_max = k_seconds_max, .mute = true},
      [&](std::size_t index, const Told& tell) {
        hunt({.first = trial.seed + index, .step = jobs, .count = seeds / jobs, .wanted = wanted}, tell,
             [&](std::uint64_t seed) {
               return sim::run({.seed = seed, .shape_seed = trial.shape_seed, .set = trial.set, .bug = trial.bug});
             });
      });
  std::vector<Catch> found;
  for (const Outcome& outcome : outcomes) {
    Catch one = understand(outcome);
    if (!one.invariant.empty() && (wanted.empty() || one.invariant == wanted)) found.push_back(std::move(one));
  }
  return found;
}

bool Shrinker::still_fails(const std::vector<std::string>& set) {
  Trial smaller = best_;
  smaller.set = set;
  const auto found = search(smaller, k_seeds, found_.invariant);
  if (found.empty()) return false;
  best_ = smaller;
  best_.seed = found.front().seed;
  found_ = found.front();
  return true;
}

/// Knobs of a kind, in ever smaller groups.
void Shrinker::switch_off(Knob::Kind kind) {
  std::vector<std::string> on;
  for (const Knob& knob : knobs()) {
    if (knob.kind == kind) on.emplace_back(knob.name);
  }
  for (std::size_t size = on.size(); size > 0 && !on.empty(); size = size == 1 ? 0 : (size + 1) / 2) {
    for (std::size_t from = 0; from < on.size();) {
      const auto begin = on.begin() + static_cast<std::ptrdiff_t>(from);
      const auto end = begin + static_cast<std::ptrdiff_t>(std::min(size, on.size() - from));
      std::vector<std::string> set = best_.set;
      set.insert(set.end(), begin, end);
      if (still_fails(set)) {
        on.erase(begin, end);
      } else {
        from += size;
      }
    }
  }
}

/// Halves it while it still fails.
void Shrinker::make_less(const Knob& knob) {
  const auto with = [&](std::uint64_t value) {
    std::vector<std::string> set = best_.set;
    std::erase_if(set, [&](const std::string& setting) { return setting.starts_with(fmt::format("{}=", knob.name)); });
    set.push_back(fmt::format("{}={}", knob.name, value));
    return set;
  };
  for (std::uint64_t value = knob.get(shape_of(best_)); value > knob.calm;) {
    std::uint64_t less = std::max(knob.calm, value / 2);
    if (!still_fails(with(less))) {
      less = value - 1;
      if (value > k_single_steps || !still_fails(with(less))) return;
    }
    value = less;
  }
}

/// What is off in that world anyway need not be switched off.
void Shrinker::drop_idle_settings() {
  Trial plain = best_;
  plain.set = {};
  std::erase_if(best_.set, [&](const std::string& setting) {
    Shape without = shape_of(plain);
    const Shape before = without;
    static_cast<void>(without.set(setting));
    return std::all_of(knobs().begin(), knobs().end(),
                       [&](const Knob& knob) { return knob.get(before) == knob.get(without); });
  });
}

void Shrinker::find_shortest() {
  // Each child stops at its first; many small searches see many.
  Trial trial = best_;
  for (std::uint64_t from = 0; from < k_seeds_last; from += 2 * options_.jobs) {
    trial.seed = best_.seed + from;
    for (const Catch& one : search(trial, 2 * options_.jobs, found_.invariant)) {
      if (one.events != 0 && (found_.events == 0 || one.events < found_.events)) found_ = one;
    }
  }
  best_.seed = found_.seed;
}

Catch Shrinker::fails(const Record& record) const {
  const auto outcomes = in_children(
      {.count = 1, .at_once = 1, .seconds_max = k_seconds_max, .mute = true}, [&](std::size_t, const Told& tell) {
        hunt({.wanted = found_.invariant}, tell, [&](std::uint64_t) { return run_again(record); });
      });
  return understand(outcomes.front());
}

/// Of the chances that came true, those that do not matter; how many are left.
std::size_t Shrinker::take_back_choices(Record& record) const {
  struct Place {
    std::size_t lane;
    std::uint32_t at;
  };
  std::vector<Place> yes;
  for (const Lane lane : {Lane::trouble, Lane::taps, Lane::load, Lane::world}) {
    const auto index = static_cast<std::size_t>(lane);
    for (const std::uint32_t at : record.yes[index]) yes.push_back({index, at});
  }
  std::size_t runs = 0;
  for (std::size_t size = yes.size(); size > 0; size /= 2) {
    for (std::size_t from = 0; from < yes.size() && runs < k_runs_max;) {
      const auto begin = yes.begin() + static_cast<std::ptrdiff_t>(from);
      const auto end = begin + static_cast<std::ptrdiff_t>(std::min(size, yes.size() - from));
      std::vector<std::uint64_t> before;
      std::for_each(begin, end, [&](const Place& place) {
        before.push_back(std::exchange(record.lanes[place.lane][place.at], 0));
      });
      ++runs;
      if (fails(record).invariant == found_.invariant) {
        yes.erase(begin, end);
        continue;
      }
      for (std::size_t i = 0; i < before.size(); ++i) {
        const Place& place = yes[from + i];
        record.lanes[place.lane][place.at] = before[i];
      }
      from += size;
    }
  }
  return yes.size();
}

/// Faults, and what is told of the operation or rank that the violation names, before anything else.
std::vector<std::string> abridge(const std::vector<std::string>& story) {
  constexpr std::array<std::string_view, 12> k_telling{
      "killed",   "break",  "nothing passes", "is stopped", "stops", "hangs",
      "register", "starts", "heals",          "VIOLATION",  "!",     "cancelled"};
  std::vector<bool> kept(story.size());
  std::size_t count = 0;
  const auto keep = [&](std::size_t i) {
    if (count == k_story_lines_max || kept[i]) return;
    kept[i] = true;
    ++count;
  };
  std::string subject;
  if (!story.empty()) {
    const std::size_t at = story.back().find("operation ");
    if (at != std::string::npos)
      subject = story.back().substr(at + 10, story.back().find_first_not_of("0123456789", at + 10) - at - 10);
  }
  const std::string of_it = fmt::format(" {}: ", subject);
  for (std::size_t i = story.size(); i-- > 0;) {
    if (i + 4 >= story.size() || (!subject.empty() && story[i].find(of_it) != std::string::npos)) keep(i);
  }
  for (std::size_t i = story.size(); i-- > 0;) {
    const bool telling = std::any_of(k_telling.begin(), k_telling.end(),
                                     [&](std::string_view word) { return story[i].find(word) != std::string::npos; });
    if (telling) keep(i);
  }
  for (std::size_t i = story.size(); i-- > 0;) keep(i);
  std::vector<std::string> short_one;
  for (std::size_t i = 0; i < story.size(); ++i) {
    if (kept[i]) short_one.push_back(story[i].substr(0, 160));
  }
  return short_one;
}

void Shrinker::tell(const Record* record) const {
  const Shape left = shape_of(best_);
  fmt::print("{}: {}\n", found_.invariant, found_.text);
  fmt::print("world: {}\nload: {}\ntrouble: {}\n", text_of(left, Knob::Kind::size), text_of(left, Knob::Kind::load),
             text_of(left, Knob::Kind::trouble));
  const auto outcomes = in_children(
      {.count = 1, .at_once = 1, .seconds_max = k_seconds_max, .mute = true}, [&](std::size_t, const Told& tell) {
        std::vector<std::string> story;
        const Story note = [&](std::string&& line) { story.push_back(std::move(line)); };
        static_cast<void>(record != nullptr ? run_again(*record, note) : sim::run(best_, note));
        for (const std::string& line : abridge(story)) tell(line + "\n");
      });
  fmt::print("{}", outcomes.front().told);
  if (record == nullptr) {
    fmt::print("replay: {} --narrate\n", command_of(best_, options_.program));
  } else {
    fmt::print("replay: {} --choices {}\n", options_.program, options_.file);
  }
}

void Shrinker::run() {
  const auto first = search(best_, 1, {});
  if (first.empty()) {
    fmt::print("seed {} does not fail\n", best_.seed);
    return;
  }
  found_ = first.front();
  fmt::print("seed {}: {} after {} events\n", best_.seed, found_.invariant, found_.events);
  switch_off(Knob::Kind::trouble);
  switch_off(Knob::Kind::load);
  for (const Knob& knob : knobs()) {
    if (knob.kind == Knob::Kind::size) make_less(knob);
  }
  drop_idle_settings();
  find_shortest();
  if (options_.file.empty() || found_.invariant == k_assertion) return tell(nullptr);
  Record record;
  static_cast<void>(run_and_record(best_, record));
  const std::size_t left = take_back_choices(record);
  fmt::print("{} chances that came true are left\n", left);
  if (!record.save(options_.file)) {
    fmt::print("{} cannot be written\n", options_.file);
    return tell(nullptr);
  }
  found_ = fails(record);
  tell(&record);
}

}  // namespace

void shrink(const Trial& failing, const ShrinkOptions& options) { Shrinker(failing, options).run(); }

}  // namespace hixl::sim
