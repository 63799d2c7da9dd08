// SPDX-License-Identifier: Apache-2.0
#include "core/factories.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "base/log.hpp"
#include "links/copy_pool.hpp"
#include "links/hccs/factory.hpp"
#include "links/pcie/factory.hpp"
#include "links/roce/system.hpp"
#include "links/tcp/factory.hpp"
#include "memory/numa.hpp"

namespace hixl::core {

namespace {

/// Null: this build has no such kind.
std::unique_ptr<links::LinkFactory> make(LinkKind kind, const std::shared_ptr<links::CopyPool>& pool,
                                         const RuntimeOptions& options, runtime::Loop& loop) {
  switch (kind) {
    case LinkKind::hccs:
      return links::make_hccs_factory(pool);
    case LinkKind::pcie:
      return links::make_pcie_factory(pool);
    case LinkKind::tcp:
      return links::make_tcp_factory();
    case LinkKind::roce: {
      const std::byte here{};  // where this thread's memory comes from
      return links::make_system_roce_factory(
          loop, {.rdma = options.rdma,
                 .max_inline = options.max_inline,
                 .buffer_bytes = std::min<std::size_t>(options.chunk_bytes, links::k_roce_chunk_bytes),
                 .numa_node = memory::numa_node_of(&here)});
    }
    case LinkKind::ub:
    case LinkKind::sim:
      break;
  }
  return nullptr;
}

constexpr const char* k_not_in_build = "this build has no such link";

std::string why_off(LinkKind kind, const std::vector<LinkKind>& kinds, bool automatic) {
  const bool built = kind != LinkKind::ub && kind != LinkKind::sim;
  if (!built || automatic) return k_not_in_build;
  if (kinds.size() == 1) return fmt::format("not configured: {} is forced", name(kinds.front()));
  return "not configured: the options name other kinds";
}

/// What a forced kind is refused with. These say what to do; anything else is that it is not there.
bool says_the_remedy(ErrorCode code) { return code == ErrorCode::memlock_limit; }

/// An error number of a card says little to whoever started the program.
std::string in_words(LinkKind kind, const Error& error, const RdmaOptions& rdma) {
  if (kind != LinkKind::roce || says_the_remedy(error.code)) return error.message();
  const std::string which = rdma.devices.empty() ? std::string("here") : rdma.devices;
  switch (error.detail.os_error) {
    case ENODEV:
    case ENOSYS:
    case ENOENT:
      return fmt::format("no RDMA device {}", which);
    case ENETDOWN:
      return fmt::format("the port of the RDMA device {} is down", which);
    case EADDRNOTAVAIL:
      return fmt::format("the RDMA device {} has no address of RoCE v2: give its network interface one", which);
    case EACCES:
      return fmt::format("no permission to open the RDMA device {}", which);
    default:
      return error.message();
  }
}

/// Most machines have no such cards, which is nothing to warn of unless somebody asked for them. One that has them and
/// does not let us is.
bool worth_a_warning(const Error& error, bool automatic) {
  const bool none = error.code == ErrorCode::transport_unavailable &&
                    (error.detail.os_error == ENODEV || error.detail.os_error == ENOSYS ||
                     error.detail.os_error == ENOENT || error.detail.os_error == 0);
  return !automatic || !none;
}

}  // namespace

Result<Factories> make_factories(const RuntimeOptions& options, runtime::Loop& loop) {
  std::vector<LinkKind> kinds = options.links;
  const bool automatic = kinds.empty();
  if (automatic) kinds = {LinkKind::hccs, LinkKind::pcie, LinkKind::roce, LinkKind::tcp};
  Factories factories;
  Error last(ErrorCode::transport_unavailable, {.rank = options.rank, .stage = Stage::options});
  const auto pool = std::make_shared<links::CopyPool>(loop, options.copy_engines);  // its threads start with a link
  for (const LinkKind kind : kinds) {
    auto factory = make(kind, pool, options, loop);
    Result<void> available = factory ? factory->available() : Result<void>(fail(last));
    if (available) {
      factories.used.push_back(std::move(factory));
      continue;
    }
    last = available.error();
    // An option that is wrong is wrong, whatever else there is.
    const bool misread =
        kind == LinkKind::roce && (last.code == ErrorCode::invalid_argument || last.code == ErrorCode::limit_reached);
    if (misread) return fail(last);
    if (!automatic && kinds.size() == 1) {
      if (!says_the_remedy(last.code)) last.code = ErrorCode::transport_unavailable;
      log::warn("the forced link kind {} is not available: {}", description(kind), in_words(kind, last, options.rdma));
      return fail(last);
    }
    if (worth_a_warning(last, automatic && options.rdma.devices.empty())) {
      log::warn("link kind {} is not available here and is left out: {}", description(kind),
                in_words(kind, last, options.rdma));
    }
    factories.off.push_back(
        {.kind = kind,
         .reason = factory ? "refused by the system: " + in_words(kind, last, options.rdma) : k_not_in_build,
         .error = last});
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
    const std::uint32_t links = kind == LinkKind::tcp ? tcp_links : factory->rails();
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
