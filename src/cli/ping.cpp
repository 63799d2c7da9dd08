// SPDX-License-Identifier: Apache-2.0
//
// hixl_diag --ping HOST: puts of the library to that host, each timed to its completion and read back.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "caller.hpp"
#include "checks.hpp"
#include "verbs.hpp"

namespace hixl::cli {

namespace {

using Clock = std::chrono::steady_clock;

struct Ping {
  Dial dial;
  std::uint32_t count = 10;
  std::uint32_t size = 8;
  double interval_s = 0.1;
};

struct Outcome {
  std::vector<double> put_us;  ///< of puts that completed, whose bytes were there
  std::uint32_t sent = 0;
  std::uint32_t wrong = 0;  ///< completed, and the bytes read back differ
  Error last_error{};
};

volatile std::sig_atomic_t g_interrupted = 0;

/// Ctrl-C ends the pings, and what was measured is printed.
void end_on_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
}

void pause_for(double seconds) { ::poll(nullptr, 0, static_cast<int>(seconds * 1000)); }

/// Different in every place, every round, and for every caller.
void fill(std::byte* bytes, std::uint32_t size, std::uint32_t round, Rank caller) {
  for (std::uint32_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + round * 7 + caller);
}

/// Nearest rank: a value that was measured.
double percentile(const std::vector<double>& sorted, double part) {
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

/// The memory that is pinged lives as long as the answering side: what else ends it, ends that.
std::string text_of(const Error& error) {
  const bool nobody_listens = error.code == ErrorCode::deadline_exceeded && error.detail.os_error == ECONNREFUSED;
  const bool gone = error.code == ErrorCode::stale || error.code == ErrorCode::peer_lost ||
                    error.code == ErrorCode::peer_gone || nobody_listens;
  return gone ? "the answering side is gone (" + std::string(name(error.code)) + ")" : error.message();
}

tl::expected<Outcome, Failure> measure(const Ping& ping, const Caller& caller, const Common& common) {
  Runtime& runtime = *caller.runtime;
  const auto local = runtime.allocate(std::size_t{2} * ping.size);
  if (!local) return tl::make_unexpected(failure_of(local.error(), "this host"));
  const RemoteAddress there = caller.memory.at(Diagnosis::offset_of(runtime.rank()));
  const auto timeout = std::chrono::duration_cast<Timeout>(std::chrono::duration<double>(ping.dial.timeout_s));
  std::byte* const out = local->data;
  std::byte* const back = out + ping.size;
  Outcome result;
  for (; result.sent < ping.count && g_interrupted == 0; ++result.sent) {
    if (result.sent > 0) pause_for(ping.interval_s);
    fill(out, ping.size, result.sent, runtime.rank());
    const auto begin = Clock::now();
    auto done = runtime.put_sync(out, there, ping.size, timeout);
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    if (done) done = runtime.get_sync(back, there, ping.size, timeout);
    if (!done) {
      result.last_error = done.error();
      if (!common.json) std::printf("%u: %s\n", result.sent + 1, text_of(done.error()).c_str());
    } else if (!std::equal(out, back, back)) {
      ++result.wrong;
      if (!common.json) std::printf("%u: the bytes that were read back are others\n", result.sent + 1);
    } else {
      result.put_us.push_back(us);
      if (!common.json) std::printf("%u: %u bytes in %.2f us\n", result.sent + 1, ping.size, us);
    }
    if (!common.json) std::fflush(stdout);
  }
  return result;
}

Json json_of(const Ping& ping, const Caller& caller, const LinkInfo& link, const Outcome& result) {
  const auto there = static_cast<std::uint32_t>(result.put_us.size());
  Json put = Json();
  if (there > 0) {
    double sum = 0;
    for (const double us : result.put_us) sum += us;
    put = {{"min_us", result.put_us.front()},
           {"avg_us", sum / there},
           {"p50_us", percentile(result.put_us, 0.5)},
           {"p99_us", percentile(result.put_us, 0.99)},
           {"max_us", result.put_us.back()}};
  }
  Json json = {{"ok", there == result.sent && there > 0},
               {"host", ping.dial.host},
               {"address", caller.place},
               {"bytes", ping.size},
               {"sent", result.sent},
               {"there", there},
               {"wrong", result.wrong},
               {"loss_percent", result.sent == 0 ? 0.0 : 100.0 * (result.sent - there) / result.sent},
               {"put", put},
               {"link", {{"kind", name(link.kind)}, {"name", description(link.kind)}, {"reason", link.reason}}},
               {"stages", to_json(caller.stages)}};
  if (result.last_error.code != ErrorCode::ok || result.wrong > 0) {
    json["stage"] = name(Step::transfer);
    json["message"] = result.wrong > 0 ? "bytes that were put are not there" : text_of(result.last_error);
  }
  return json;
}

void print(const Json& json, const Caller& caller) {
  std::printf("\n%s: %u puts of %u bytes, %u there, %.0f %% lost\n", caller.place.c_str(), json["sent"].get<unsigned>(),
              json["bytes"].get<unsigned>(), json["there"].get<unsigned>(), json["loss_percent"].get<double>());
  if (const Json& put = json["put"]; !put.is_null()) {
    std::printf("put     min %.2f  avg %.2f  p50 %.2f  p99 %.2f  max %.2f us\n", put["min_us"].get<double>(),
                put["avg_us"].get<double>(), put["p50_us"].get<double>(), put["p99_us"].get<double>(),
                put["max_us"].get<double>());
  }
  std::printf("link    %s: %s\n", json["link"]["name"].get<std::string>().c_str(),
              json["link"]["reason"].get<std::string>().c_str());
  std::printf("stages  %s\n", to_text(caller.stages).c_str());
}

void run(const Ping& ping, Common& common) {
  const auto caller = Caller::call(ping.dial);
  if (!caller) return report(caller.error(), common);
  const LinkInfo link = caller->link();
  end_on_interrupt();
  auto result = measure(ping, *caller, common);
  if (!result) return report(result.error(), common);
  std::ranges::sort(result->put_us);
  const Json json = json_of(ping, *caller, link, *result);
  if (common.json) {
    std::printf("%s\n", to_text(json).c_str());
  } else {
    print(json, *caller);
  }
  common.exit_code = json["ok"].get<bool>() ? 0 : static_cast<int>(Step::transfer);
}

}  // namespace

void add_ping(CLI::App& app, Common& common) {
  const auto ping = std::make_shared<Ping>();
  auto* const host = app.add_option("--ping", ping->dial.host, "host to put to: a name, an IPv4 or an IPv6 address")
                         ->transform(host_alone());
  app.add_option("--count", ping->count, "how many puts")->capture_default_str()->check(whole(1, 1'000'000));
  app.add_option("--size", ping->size, "bytes of a put")->capture_default_str()->check(whole(1, k_diagnosis_bytes_max));
  app.add_option("--interval", ping->interval_s, "seconds between two puts")
      ->capture_default_str()
      ->check(real(0, 3600));
  add_dial_options(app, ping->dial);
  // Who types a verb, as of the others, is told the option. Not listed.
  auto* const verb = app.add_subcommand("ping")->group("")->allow_extras();
  verb->callback([] { throw CLI::ValidationError("ping", "is an option: hixl_diag --ping HOST"); });
  app.callback([ping, host, &app, &common] {
    if (!app.get_subcommands().empty()) {
      if (host->count() > 0) throw CLI::ValidationError("--ping", "goes without another verb");
      return;
    }
    if (host->count() == 0) throw CLI::RequiredError("a verb, or --ping HOST,");
    common.run = [ping, &common] { run(*ping, common); };
  });
}

}  // namespace hixl::cli
