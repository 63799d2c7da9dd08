// SPDX-License-Identifier: Apache-2.0
#include "caller.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <random>

#include <hixl/offers.hpp>

#include "checks.hpp"
#include "reach.hpp"
#include "settings.hpp"

namespace hixl::cli {

namespace {

using Clock = std::chrono::steady_clock;

/// What is left of the time is never less than this, so that a late stage can still say what it met.
constexpr std::chrono::milliseconds k_least_time{20};

constexpr Rank k_answering = 0;

class Stopwatch {
 public:
  explicit Stopwatch(double seconds)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  [[nodiscard]] std::chrono::nanoseconds left() const {
    return std::max<std::chrono::nanoseconds>(end_ - Clock::now(), k_least_time);
  }
  [[nodiscard]] bool over() const { return Clock::now() >= end_; }
  [[nodiscard]] std::chrono::nanoseconds lap() {
    const auto now = Clock::now();
    return now - std::exchange(last_, now);
  }

 private:
  Clock::time_point end_;
  Clock::time_point last_ = Clock::now();
};

/// What the environment says of links and RDMA, in a world of our own.
tl::expected<RuntimeOptions, Failure> options_for(const Dial& dial, const Reached& reached) {
  auto options = settings_with(dial.links);
  if (!options) return options;
  options->world_size = Diagnosis::world_size();
  options->store = "tcp://" + reached.place(dial.port);
  options->host_store = false;
  options->guest = true;  // what listens there may be the store of a job that has not begun
  options->job = Diagnosis::world_of(dial.job);
  // Nobody needs to call us: whoever answers does so on the connection that we make.
  options->bind = reached.v6 ? "::1" : "127.0.0.1";
  options->advertise.clear();
  return options;
}

Failure joining_failure(const Error& error, const std::string& place) {
  Failure failure = failure_of(error, place);
  if (error.code == ErrorCode::invalid_argument) {
    failure.message = place + ": a rendezvous of a job of " + std::to_string(error.detail.limit) +
                      " ranks answers there, not a hixl_diag";
    failure.step = Step::handshake;
  }
  if (error.code == ErrorCode::rendezvous_unreachable && error.detail.os_error == ETIMEDOUT) {
    failure.message = place + ": what listens there accepts connections and does not answer; perhaps it is stopped";
  }
  if (failure.step == Step::handshake) {
    failure.remedy = "see what listens there (ss -ltnp): hixl_diag calls hixl_diag serve, or a program with HIXL_DIAG";
  }
  return failure;
}

tl::expected<std::unique_ptr<Runtime>, Failure> join(RuntimeOptions options, const std::string& place,
                                                     Stopwatch& watch) {
  const Rank first = std::random_device{}() % k_diagnosis_callers;
  for (Rank tried = 1;; ++tried) {
    options.rank = 1 + (first + tried) % k_diagnosis_callers;
    // Less than all: a connection that fails by its own time names address and cause, a deadline over it does not.
    options.connect_timeout = std::chrono::ceil<std::chrono::milliseconds>(watch.left() * 2 / 3);
    auto runtime = Runtime::create(options);
    if (runtime) return std::move(*runtime);
    if (runtime.error().code != ErrorCode::rank_conflict || tried == k_diagnosis_callers || watch.over()) {
      return tl::make_unexpected(joining_failure(runtime.error(), place));
    }
  }
}

/// Why no kind that the options allow is to be had there, where the library knows it: what both sides may use has
/// nothing in common, or that side is on another host.
std::string no_kind_in_common(Runtime& runtime) {
  std::string why;
  for (const LinkInfo& link : runtime.links()) {
    if (link.rank != k_answering || link.state == "OFF") continue;
    // The library tells this in words only; diag_stage_test.py holds them to it.
    if (!link.reason.starts_with("the peer offers no link") && !link.reason.starts_with("no process of this host")) {
      return {};
    }
    if (!why.empty()) why += "; ";
    why += std::string(name(link.kind)) + ": " + link.reason;
  }
  return why;
}

/// In slices, so that a kind which cannot be had is told when that is known and not at the end of the time.
std::optional<Failure> make_links(Runtime& runtime, const std::string& place, Stopwatch& watch) {
  constexpr std::chrono::nanoseconds k_slice = std::chrono::milliseconds(500);
  for (;;) {
    const auto left = watch.left();
    const auto warm = runtime.prewarm({&k_answering, 1}, std::min(left, k_slice));
    if (warm) return {};
    if (const std::string why = no_kind_in_common(runtime); !why.empty()) {
      return Failure{Step::link, place + ": " + why, "allow a kind on both sides (--links, HIXL_LINKS), or auto"};
    }
    if (warm.error().code != ErrorCode::deadline_exceeded || left <= k_slice) return failure_of(warm.error(), place);
  }
}

}  // namespace

void add_dial_options(CLI::App& app, Dial& dial) {
  app.add_option("--port", dial.port, "port of the answering side")->capture_default_str()->check(whole(1, 65'535));
  app.add_option("--timeout", dial.timeout_s, "seconds allowed until the links stand, and for each put")
      ->capture_default_str()
      ->check(real(0.01, 600));
  app.add_option("--job", dial.job, "name of the job that the answering side serves")->envname("HIXL_JOB");
  app.add_option("--links", dial.links, "kinds of links that may be used, as HIXL_LINKS: \"tcp\", \"hccs,tcp\"");
}

Json to_json(const Stages& stages) {
  Json all = Json::object();
  for (const auto& [stage, time] : stages) {
    all[stage + "_us"] = std::chrono::duration<double, std::micro>(time).count();
  }
  return all;
}

std::string to_text(const Stages& stages) {
  std::string text;
  for (const auto& [stage, time] : stages) {
    char item[64];
    const double ms = std::chrono::duration<double, std::milli>(time).count();
    std::snprintf(item, sizeof item, "%s%s %.2f ms", text.empty() ? "" : ", ", stage.c_str(), ms);
    text += item;
  }
  return text;
}

tl::expected<Caller, Failure> Caller::call(const Dial& dial) {
  if (const auto few = few_descriptors()) return tl::make_unexpected(*few);
  Stopwatch watch(dial.timeout_s);
  const auto reached = reach(dial.host, dial.port, watch.left());
  if (!reached) return tl::make_unexpected(reached.error());
  Caller caller{.place = reached->place(dial.port), .runtime = nullptr, .memory = {}, .stages = {}};
  caller.stages = {{"resolve", reached->resolving}, {"connect", reached->connecting}};
  auto options = options_for(dial, *reached);
  if (!options) return tl::make_unexpected(options.error());
  static_cast<void>(watch.lap());
  auto runtime = join(std::move(*options), caller.place, watch);
  if (!runtime) return tl::make_unexpected(runtime.error());
  caller.runtime = std::move(*runtime);
  caller.stages.emplace_back("join", watch.lap());
  if (auto failure = make_links(*caller.runtime, caller.place, watch)) return tl::make_unexpected(std::move(*failure));
  caller.stages.emplace_back("links", watch.lap());
  const auto regions = Offers::ask(*caller.runtime, k_answering, k_diagnosis_tag, watch.left());
  if (!regions) return tl::make_unexpected(failure_of(regions.error(), caller.place));
  caller.memory = *std::ranges::find(*regions, k_diagnosis_tag, &RemoteRegion::tag);  // that is what was asked for
  caller.stages.emplace_back("exchange", watch.lap());
  return caller;
}

tl::expected<std::string, Failure> Caller::ask(Diagnosis::Subject subject, std::chrono::nanoseconds timeout) const {
  const Rank own = runtime->rank();
  const std::uint32_t tag = 1 + std::random_device{}() % (Diagnosis::k_answer_tags - 1);
  const auto put = [&](std::uint64_t question) -> Result<void> {
    const Signal bell{.word = memory.at(Diagnosis::k_bell_offset), .value = 1, .op = SignalOp::add};
    auto request = runtime->put_with_signal(&question, memory.at(Diagnosis::question_offset(own)), sizeof question,
                                            bell, {.timeout = timeout});
    return request ? request->wait() : fail(request.error());
  };
  const auto failed = [&](const Error& error) {
    return tl::make_unexpected(Failure{Step::transfer, place + ": " + error.message(),
                                       "a program whose loop does not turn cannot answer; else ask again"});
  };
  if (const auto asked = put(Diagnosis::question(subject, tag)); !asked) return failed(asked.error());
  const auto regions = Offers::ask(*runtime, 0, tag, timeout);
  if (!regions) return failed(regions.error());
  const RemoteRegion answer = *std::ranges::find(*regions, tag, &RemoteRegion::tag);
  Diagnosis::AnswerHead head;
  const auto local = runtime->allocate(answer.length);
  if (!local) return failed(local.error());
  if (const auto got = runtime->get_sync(local->data, answer.at(0), answer.length, timeout); !got) {
    return failed(got.error());
  }
  static_cast<void>(put(0));  // where that fails, the next question of this place lets the answer go
  if (const auto copied = runtime->copy_out(*local, 0, &head, sizeof head); !copied) return failed(copied.error());
  if (head.code != 0) return failed(Error(static_cast<ErrorCode>(head.code)));
  if (head.bytes > answer.length - sizeof head) return failed(Error(ErrorCode::truncated_frame));
  return std::string(reinterpret_cast<const char*>(local->data + sizeof head), head.bytes);
}

tl::expected<std::string, Failure> answer_of(const Dial& dial, Diagnosis::Subject subject) {
  const auto caller = Caller::call(dial);
  if (!caller) return tl::make_unexpected(caller.error());
  return caller->ask(subject, std::chrono::duration_cast<Timeout>(std::chrono::duration<double>(dial.timeout_s)));
}

LinkInfo Caller::link() const {
  LinkInfo taken;
  for (LinkInfo& link : runtime->links()) {
    if (link.rank == 0 && link.windows && link.chosen) return std::move(link);
    if (link.rank == 0 && link.chosen) taken = std::move(link);
  }
  return taken;
}

}  // namespace hixl::cli
