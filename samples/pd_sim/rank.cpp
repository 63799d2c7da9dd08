// SPDX-License-Identifier: Apache-2.0
#include "rank.hpp"

#include <sys/socket.h>

#include <cstdio>
#include <numeric>

namespace pd {

namespace {

/// Time for all ranks to start, find each other and publish their regions; a loaded machine starts a dozen processes
/// and clears gigabytes of memory within it.
constexpr std::chrono::seconds k_meeting_time{60};

std::vector<hixl::Rank> counterparts_of(hixl::Rank rank, const Plan& plan) {
  const bool prefill = rank < plan.prefill;
  std::vector<hixl::Rank> ranks(prefill ? plan.decode : plan.prefill);
  std::iota(ranks.begin(), ranks.end(), prefill ? plan.prefill : 0);
  return ranks;
}

const hixl::RemoteRegion* find(const hixl::PeerAddresses& peer, std::uint32_t tag) {
  for (const hixl::RemoteRegion& region : peer.regions) {
    if (region.tag == tag) return &region;
  }
  return nullptr;
}

}  // namespace

Rank::Rank(std::unique_ptr<hixl::Runtime> made, LinePipe to_launcher, const Plan& shared)
    : runtime(std::move(made)),
      pipe(std::move(to_launcher)),
      plan(shared),
      mailroom(*runtime, counterparts_of(runtime->rank(), plan), index_of(runtime->rank())) {}

Rank::~Rank() {
  ::shutdown(pipe.fd(), SHUT_RD);
  if (reader_.joinable()) reader_.join();
  mailroom.stop();
}

hixl::Result<void> Rank::meet(const hixl::Region& pool) {
  const auto control = mailroom.open();
  if (!control) return hixl::fail(control.error());
  std::vector<hixl::Region> mine{*control};
  if (pool.key.valid()) mine.push_back(pool);
  std::vector<hixl::RemoteRegion> remotes;
  for (const auto& peer : runtime->exchange(mine, counterparts_of(runtime->rank(), plan), k_meeting_time)) {
    if (!peer.result) return hixl::fail(peer.result.error());
    const hixl::RemoteRegion* const remote_control = find(peer, k_tag_control);
    if (remote_control == nullptr) return hixl::fail(hixl::ErrorCode::not_exchanged, {.rank = peer.rank});
    remotes.push_back(*remote_control);
    const hixl::RemoteRegion* const remote_pool = find(peer, k_tag_pool);
    if (is_prefill() && remote_pool == nullptr) return hixl::fail(hixl::ErrorCode::not_exchanged, {.rank = peer.rank});
    if (is_prefill()) pools.push_back(*remote_pool);
  }
  mailroom.start(std::move(remotes), [this](hixl::Rank from, Message&& message) {
    events.push({.from = from, .message = std::move(message), .line = {}});
  });
  if (const auto met = runtime->barrier(k_meeting_time); !met) return met;
  reader_ = std::thread([this] {
    while (!pipe.ended()) {
      for (Json& line : pipe.read(true)) {
        // Looked at once, and told when the main thread, which alone writes to the pipe, comes to it.
        if (line.contains("look")) line["pool"] = links_now();
        events.push({.from = hixl::k_no_rank, .message = {}, .line = std::move(line)});
      }
    }
    events.push({.from = hixl::k_no_rank, .message = {}, .line = {{"finish", true}}});
  });
  pipe.write({{"ready", true}});
  return {};
}

Json Rank::links_now() const {
  Json result = Json::array();
  for (const hixl::LinkInfo& link : runtime->links()) {
    // Prefills and Prefills met at a barrier, but move no KV.
    if (link.state == "OFF" || link.rank < plan.prefill) continue;
    result.push_back({{"kind", std::string(name(link.kind))},
                      {"id", link.id},
                      {"bytes", link.bytes_out},
                      {"state", link.state},
                      {"failures", link.failures}});
  }
  return result;
}

void Rank::leave() {
  const hixl::Counters counters = runtime->counters();
  Json links = Json::object();
  for (std::size_t kind = 0; kind < hixl::k_link_kinds; ++kind) {
    if (counters.bytes_out[kind] != 0)
      links[std::string(name(static_cast<hixl::LinkKind>(kind)))] = counters.bytes_out[kind];
  }
  mailroom.stop();
  const auto stopped = runtime->stop();
  pipe.write({{"left", true},
              {"links", links},
              {"copies", counters.copies},
              {"stop", stopped ? "" : stopped.error().message()}});
}

int run_rank(int pipe_fd) {
  LinePipe pipe(pipe_fd);
  const std::vector<Json> lines = pipe.read(true);
  if (lines.empty()) return 1;
  const Plan plan = plan_from_json(lines.front());
  const auto options = hixl::RuntimeOptions::from_environment();
  if (!options) {
    std::fprintf(stderr, "hixl_pd_sim: %s\n", options.error().message().c_str());
    return 1;
  }
  auto started = *options;
  started.connect_timeout = k_meeting_time;
  auto runtime = hixl::Runtime::create(started);
  if (!runtime) {
    std::fprintf(stderr, "hixl_pd_sim: rank %u: %s\n", options->rank, runtime.error().message().c_str());
    return 1;
  }
  Rank rank(std::move(*runtime), std::move(pipe), plan);
  const int code = rank.is_prefill() ? run_prefill(rank) : run_decode(rank);
  rank.leave();
  return code;
}

}  // namespace pd
