// SPDX-License-Identifier: Apache-2.0
#include "core/factories.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.hpp"
#include "links/copy_pool.hpp"
#include "links/hccs/factory.hpp"
#include "links/pcie/factory.hpp"
#include "links/tcp/factory.hpp"

namespace hixl::core {

namespace {

/// Null: this build has no such kind.
std::unique_ptr<links::LinkFactory> make(LinkKind kind, const std::shared_ptr<links::CopyPool>& pool) {
  switch (kind) {
    case LinkKind::hccs:
      return links::make_hccs_factory(pool);
    case LinkKind::pcie:
      return links::make_pcie_factory(pool);
    case LinkKind::tcp:
      return links::make_tcp_factory();
    case LinkKind::roce:
    case LinkKind::ub:
    case LinkKind::sim:
      break;
  }
  return nullptr;
}

constexpr const char* k_not_in_build = "this build has no such link";

std::string why_off(LinkKind kind, const std::vector<LinkKind>& kinds, bool automatic) {
  const bool built = kind == LinkKind::hccs || kind == LinkKind::pcie || kind == LinkKind::tcp;
  if (!built || automatic) return k_not_in_build;
  if (kinds.size() == 1) return fmt::format("not configured: {} is forced", name(kinds.front()));
  return "not configured: the options name other kinds";
}

}  // namespace

Result<Factories> make_factories(const RuntimeOptions& options, runtime::Loop& loop) {
  std::vector<LinkKind> kinds = options.links;
  const bool automatic = kinds.empty();
  if (automatic) kinds = {LinkKind::hccs, LinkKind::pcie, LinkKind::tcp};
  Factories factories;
  Error last(ErrorCode::transport_unavailable, {.rank = options.rank, .stage = Stage::options});
  const auto pool = std::make_shared<links::CopyPool>(loop, options.copy_engines);  // its threads start with a link
  for (const LinkKind kind : kinds) {
    auto factory = make(kind, pool);
    Result<void> available = factory ? factory->available() : Result<void>(fail(last));
    if (available) {
      factories.used.push_back(std::move(factory));
      continue;
    }
    last = available.error();
    if (!automatic && kinds.size() == 1) {
      last.code = ErrorCode::transport_unavailable;
      log::warn("the forced link kind {} is not available: {}", description(kind), last.message());
      return fail(last);
    }
    log::warn("link kind {} is not available here and is left out: {}", description(kind), last.message());
    factories.off.push_back(
        {.kind = kind, .reason = factory ? "refused by the system: " + last.message() : k_not_in_build, .error = last});
  }
  if (factories.used.empty()) return fail(last);
  for (const LinkKind kind : {LinkKind::hccs, LinkKind::pcie, LinkKind::roce, LinkKind::ub, LinkKind::tcp}) {
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) continue;
    factories.off.push_back({.kind = kind, .reason = why_off(kind, kinds, automatic), .error = {}});
  }
  std::stable_sort(factories.used.begin(), factories.used.end(),
                   [](const auto& a, const auto& b) { return a->caps().rank_of_choice < b->caps().rank_of_choice; });
  return factories;
}

std::vector<peer::LinkChoice> number_links(const std::vector<std::unique_ptr<links::LinkFactory>>& factories,
                                           const RuntimeOptions& options) {
  const auto addresses = static_cast<std::uint32_t>(1 + std::count(options.bind.begin(), options.bind.end(), ','));
  const std::uint32_t tcp_links = std::min(options.tcp_links != 0 ? options.tcp_links : addresses, k_tcp_links_max);
  std::vector<peer::LinkChoice> choices;
  std::uint32_t counts[k_link_kinds] = {};
  for (const auto& factory : factories) {
    const LinkKind kind = factory->caps().kind;
    const std::uint32_t links = kind == LinkKind::tcp ? tcp_links : 1;
    for (std::uint32_t i = 0; i < links; ++i) {
      const std::uint32_t index = counts[static_cast<std::size_t>(kind)]++;
      choices.push_back({.factory = factory.get(),
                         .id = static_cast<LinkId>(static_cast<std::uint32_t>(kind) << 8U | index),
                         .index = index,
                         .max_bandwidth = index < options.max_bandwidth.size() ? options.max_bandwidth[index] : 0});
    }
  }
  for (peer::LinkChoice& choice : choices) {
    choice.siblings = counts[static_cast<std::size_t>(choice.factory->caps().kind)];
    choice.shares = choice.siblings > 1 || (options.pooling == Pooling::all_kinds && choices.size() > 1);
  }
  return choices;
}

peer::Timing timing_of(const RuntimeOptions& options, bool hosted) {
  peer::Timing timing;
  // One attempt; a job may wait longer for its members, but not for a lost SYN.
  timing.connect = std::min<Duration>(timing.connect, options.connect_timeout);
  if (options.lease.count() > 0) {
    timing.lease = options.lease;
  } else if (hosted) {
    timing.lease = std::chrono::seconds(30);
  }
  timing.stall = options.stall;
  timing.heartbeat = std::min<Duration>(timing.heartbeat, timing.lease / 10);
  return timing;
}

}  // namespace hixl::core
