// SPDX-License-Identifier: Apache-2.0
//
// The second tcp link of every pair is cut in the middle of the run and comes back: when, and what the Prefills tell of
// their links meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "children.hpp"
#include "event_queue.hpp"
#include "options.hpp"
#include "plan.hpp"
#include "relays.hpp"
#include "report.hpp"

namespace pd {

class LinkCut {
 public:
  /// Null: standard error says why.
  [[nodiscard]] static std::unique_ptr<LinkCut> start(const Cut& cut, const Plan& plan);

  [[nodiscard]] const Relays& relays() const { return *relays_; }
  /// The run begins now; if the user said no times, the cut lasts for the second fifth of `span`.
  void begin(Clock::time_point now, Clock::duration span);
  /// When turn() has something to do.
  [[nodiscard]] Clock::time_point next() const;
  void turn(Clock::time_point now, Children& children);
  /// Cut and back, or past mending.
  [[nodiscard]] bool over() const { return step_ >= Step::over; }
  /// The last look, after the run, as often as it takes.
  void look_last(Children& children);
  [[nodiscard]] bool looked_last(Clock::time_point now) const { return told(k_looks - 1, now); }
  /// At the last look every link stood; one by way of the relay may well be DEGRADED, the slower one.
  [[nodiscard]] bool is_back() const;
  /// A Prefill's answer to look `look`.
  void on_look(std::size_t look, const Json& links);
  [[nodiscard]] CutReport report() const;

  /// Looks: before the cut (states), right after it (bytes, of which the cut link can move no more), before the end of
  /// the cut, and after the run.
  static constexpr std::size_t k_looks = 4;

 private:
  enum class Step : std::uint8_t { waits, looks_before, is_cut, looks_again, over, looks_last };
  struct Seen {
    std::array<std::uint64_t, k_looks> bytes{};
    std::array<std::map<std::string, std::uint64_t>, k_looks> states{};
    std::uint64_t failures = 0;
  };

  LinkCut(const Cut& cut, const Plan& plan, std::unique_ptr<Relays> relays)
      : cut_(cut), prefill_(plan.prefill), relays_(std::move(relays)) {}
  void ask(std::size_t look, Children& children);
  [[nodiscard]] bool told(std::size_t look, Clock::time_point now) const;
  void tell(const char* command);

  Cut cut_;
  const std::uint32_t prefill_;
  const std::unique_ptr<Relays> relays_;
  Clock::time_point begun_{};
  Clock::time_point asked_at_{};
  std::array<std::size_t, k_looks> asked_{};
  std::array<std::size_t, k_looks> answered_{};
  Step step_ = Step::waits;
  bool works_ = true;
  std::map<std::pair<std::string, std::uint32_t>, Seen> seen_;
};

}  // namespace pd
