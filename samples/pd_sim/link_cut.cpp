// SPDX-License-Identifier: Apache-2.0
#include "link_cut.hpp"

#include <algorithm>
#include <cstdio>

namespace pd {

namespace {

/// A Prefill answers when it is between two requests; beyond this the run does not wait for it.
constexpr std::chrono::seconds k_look_time{3};

}  // namespace

std::unique_ptr<LinkCut> LinkCut::start(const Cut& cut, const Plan& plan) {
  auto relays = Relays::start(plan.prefill + plan.decode);
  if (!relays) return nullptr;
  return std::unique_ptr<LinkCut>(new LinkCut(cut, plan, std::move(relays)));
}

void LinkCut::begin(Clock::time_point now, Clock::duration span) {
  begun_ = now;
  const double span_s = std::chrono::duration<double>(span).count();
  if (cut_.to_s == 0) cut_ = {.from_s = span_s * 0.2, .to_s = span_s * 0.4};
}

Clock::time_point LinkCut::next() const {
  switch (step_) {
    case Step::waits:
      return begun_ + seconds(cut_.from_s);
    case Step::is_cut:
      return begun_ + seconds(cut_.to_s);
    case Step::looks_before:
    case Step::looks_again:
    case Step::looks_last:
      return asked_at_ + k_look_time;
    case Step::over:
      break;
  }
  return Clock::time_point::max();
}

void LinkCut::turn(Clock::time_point now, Children& children) {
  if (step_ == Step::waits && now >= next()) {
    ask(0, children);
    step_ = Step::looks_before;
  }
  if (step_ == Step::looks_before && told(0, now)) {
    tell("cut");
    ask(1, children);
    step_ = Step::is_cut;
  }
  if (step_ == Step::is_cut && now >= next()) {
    ask(2, children);
    step_ = Step::looks_again;
  }
  if (step_ == Step::looks_again && told(2, now)) {
    tell("heal");
    step_ = Step::over;
  }
}

void LinkCut::look_last(Children& children) {
  constexpr std::size_t k_last = k_looks - 1;
  asked_[k_last] = answered_[k_last] = 0;
  for (auto& [name, seen] : seen_) {
    seen.bytes[k_last] = seen.failures = 0;
    seen.states[k_last].clear();
  }
  step_ = Step::looks_last;
  ask(k_last, children);
}

bool LinkCut::is_back() const {
  return std::all_of(seen_.begin(), seen_.end(), [](const auto& entry) {
    const auto& states = entry.second.states[k_looks - 1];
    return std::all_of(states.begin(), states.end(),
                       [](const auto& state) { return state.first == "UP" || state.first == "DEGRADED"; });
  });
}

void LinkCut::ask(std::size_t look, Children& children) {
  asked_at_ = Clock::now();
  for (std::uint32_t rank = 0; rank < prefill_; ++rank) {
    Child& child = children.all()[rank];
    if (!child.alive) continue;
    child.pipe.queue({{"look", look}});
    ++asked_[look];
  }
}

bool LinkCut::told(std::size_t look, Clock::time_point now) const {
  return answered_[look] == asked_[look] || now >= asked_at_ + k_look_time;
}

void LinkCut::tell(const char* command) {
  if (!works_) return;
  works_ = relays_->tell(command);
  if (!works_) std::fprintf(stderr, "hixl_pd_sim: the relay does not obey: %s\n", command);
}

void LinkCut::on_look(std::size_t look, const Json& links) {
  ++answered_[look];
  for (const Json& link : links) {
    Seen& seen = seen_[{link.at("kind"), link.at("id")}];
    seen.bytes[look] += link.at("bytes").get<std::uint64_t>();
    ++seen.states[look][link.at("state")];
    if (look + 1 == k_looks) seen.failures += link.at("failures").get<std::uint64_t>();
  }
}

CutReport LinkCut::report() const {
  CutReport report{.from_s = cut_.from_s, .to_s = cut_.to_s, .links = {}};
  const auto more = [](std::uint64_t late, std::uint64_t early) { return late - std::min(late, early); };
  for (const auto& [name, seen] : seen_) {
    const auto& bytes = seen.bytes;
    report.links.push_back({.kind = name.first,
                            .id = name.second,
                            .bytes = {bytes[1], more(bytes[2], bytes[1]), more(bytes[3], std::max(bytes[1], bytes[2]))},
                            .states = {seen.states[0], seen.states[2], seen.states[3]},
                            .failures = seen.failures});
  }
  return report;
}

}  // namespace pd
