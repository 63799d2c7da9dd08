// SPDX-License-Identifier: Apache-2.0
#include "links/roce/rails.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/log.hpp"
#include "base/planted.hpp"

namespace hixl::links::roce {
namespace {

/// How often a port that is down, or a card that is gone, is looked at again when somebody wants it.
constexpr std::chrono::milliseconds k_look_again{100};
constexpr std::chrono::milliseconds k_open_again{1000};
/// A card that was taken away is closed when its links are; whoever takes it away may be waiting for that.
constexpr std::chrono::milliseconds k_reap_again{5};

tl::unexpected<Error> no_rail(ErrorCode code, int os_error) {
  return fail(code, {.stage = Stage::connect, .os_error = os_error});
}

}  // namespace

Rails::Rails(std::shared_ptr<Verbs> verbs, runtime::Loop& loop, const RoceSetting& setting)
    : verbs_(std::move(verbs)), loop_(loop), setting_(setting) {}

Rails::~Rails() {
  connector_.reset();  // what is under way ends first
  registrar_.reset();
}

Result<std::unique_ptr<Rails>> Rails::open(std::shared_ptr<Verbs> verbs, runtime::Loop& loop,
                                           const RoceSetting& setting) {
  const auto names = parse_rails(setting.rdma.devices);
  if (!names) return fail(names.error());
  auto rails = std::make_unique<Rails>(std::move(verbs), loop, setting);
  for (auto* const place : {&rails->registrar_, &rails->connector_}) {
    auto worker = rails->verbs_->make_worker(loop, setting.rdma.threads);
    if (!worker) return fail(worker.error());
    *place = std::move(*worker);
  }
  const Result<void> found = names->empty() ? rails->find_all() : rails->find_named(*names);
  if (!found) return fail(found.error());
  return rails;
}

// ---- which there are ----

Result<Adapter*> Rails::adapter_of(const std::string& device) {
  for (const auto& adapter : adapters_) {
    if (!adapter->lost() && adapter->device().name() == device) return adapter.get();
  }
  auto opened = Adapter::open(*verbs_, device, *registrar_, loop_, setting_.buffer_bytes, *this);
  if (!opened) return fail(opened.error());
  adapters_.push_back(std::move(*opened));
  return adapters_.back().get();
}

/// Adds the ports of a device that are wanted. Ports that nobody named have to work.
Result<void> Rails::add_ports(const std::string& device, const RailName& wanted) {
  const auto adapter = adapter_of(device);
  if (!adapter) return fail(adapter.error());
  Error why(ErrorCode::transport_unavailable, {.stage = Stage::connect, .os_error = ENETDOWN});
  bool any = false;
  const std::uint32_t ports = (*adapter)->device().limits().phys_port_cnt;
  if (wanted.port > ports) return no_rail(ErrorCode::transport_unavailable, ENXIO);
  for (std::uint32_t port = 1; port <= ports && rails_.size() < k_rdma_rails_max; ++port) {
    if (wanted.port != 0 && wanted.port != port) continue;
    Rail rail{.device = device, .port = port, .adapter = *adapter};
    const auto path = look(rail);
    if (!path) why = path.error();
    if (!path && wanted.port == 0) continue;
    if (wanted.address) {
      const wire::RoceGid address = wire_gid(*wanted.address);
      const bool its = path && std::any_of(path->gids.begin(), path->gids.end(),
                                           [&](const Gid& gid) { return wire_gid(gid.value) == address; });
      if (!its) continue;
    }
    rails_.push_back(rail);
    any = true;
  }
  if (any) return {};
  why.code = ErrorCode::transport_unavailable;
  return tl::unexpected<Error>(why);
}

Result<void> Rails::find_all() {
  const auto names = verbs_->device_names();
  if (!names) return fail(names.error());
  Error why(ErrorCode::transport_unavailable, {.stage = Stage::connect, .os_error = ENODEV});
  for (const std::string& device : *names) {
    if (const Result<void> added = add_ports(device, {}); !added) {
      why = added.error();
      log::debug("RDMA device {} is not used: {}", device, why.message());
    }
  }
  if (rails_.empty()) return tl::unexpected<Error>(why);
  // A card behind another socket is reached through the link between sockets, which has less room than the card.
  const auto distance = [&](const Rail& rail) {
    const int node = rail.adapter->device().numa_node();
    return setting_.numa_node < 0 || node == setting_.numa_node ? 0 : node < 0 ? 1 : 2;
  };
  std::stable_sort(rails_.begin(), rails_.end(),
                   [&](const Rail& a, const Rail& b) { return distance(a) < distance(b); });
  return {};
}

Result<void> Rails::find_named(std::span<const RailName> names) {
  bool works = false;
  Error why(ErrorCode::transport_unavailable, {.stage = Stage::connect, .os_error = ENODEV});
  for (const RailName& name : names) {
    std::vector<std::string> devices{name.device};
    if (name.address) {
      const auto all = verbs_->device_names();
      if (!all) return fail(all.error());
      devices = *all;
    }
    const std::size_t before = rails_.size();
    Error refusal(ErrorCode::transport_unavailable, {.stage = Stage::connect, .os_error = ENODEV});
    for (const std::string& device : devices) {
      if (const Result<void> added = add_ports(device, name); !added) refusal = added.error();
    }
    const std::string text = name.address ? text_of(*name.address) : name.device;
    if (rails_.size() == before) {
      log::error("RDMA devices: {} is not to be had: {}", text, refusal.message());
      return tl::unexpected<Error>(refusal);
    }
    for (std::size_t i = before; i < rails_.size(); ++i) {
      const auto path = look(rails_[i]);
      works = works || path.has_value();
      if (!path) why.detail.os_error = path.error().detail.os_error;
    }
  }
  if (!works) return tl::unexpected<Error>(why);
  return {};
}

// ---- how they are ----

Result<Rails::Path> Rails::look(Rail& rail) {
  rail.works = false;
  if (rail.adapter != nullptr && rail.adapter->lost()) rail.adapter = nullptr;
  if (rail.adapter == nullptr) {
    rail.next_look = loop_.now() + k_open_again;
    const auto adapter = adapter_of(rail.device);
    if (!adapter) return no_rail(ErrorCode::link_failed, ENODEV);
    rail.adapter = *adapter;
  }
  rail.next_look = loop_.now() + k_look_again;
  const auto port = rail.adapter->device().port(rail.port);
  if (!port) return no_rail(ErrorCode::link_failed, ENODEV);
  if (port->state != IBV_PORT_ACTIVE) return no_rail(ErrorCode::link_failed, ENETDOWN);
  if (port->link_layer != IBV_LINK_LAYER_ETHERNET) return no_rail(ErrorCode::link_failed, EPROTONOSUPPORT);
  const auto gids = rail.adapter->device().gids(rail.port);
  Path path{.adapter = rail.adapter,
            .port = rail.port,
            .mtu = port->active_mtu,
            .gids = gids ? usable_gids(*gids) : std::vector<Gid>(),
            .name = fmt::format("{}:{}", rail.device, rail.port)};
  if (path.gids.empty()) return no_rail(ErrorCode::link_failed, EADDRNOTAVAIL);
  rail.works = true;
  return path;
}

Result<Rails::Path> Rails::path(std::uint32_t index) { return look(rails_[index % count()]); }

Result<Rails::Answer> Rails::answer(std::uint32_t index, std::span<const wire::RoceGid> theirs) {
  std::optional<Answer> best;
  Error why(ErrorCode::no_route, {.stage = Stage::handshake});
  for (std::uint32_t i = 0; i < count(); ++i) {
    const std::uint32_t at = (index + i) % count();  // that of the same index first
    auto path = look(rails_[at]);
    if (!path) {
      if (i == 0) why = path.error();
      continue;
    }
    const auto pair = choose_pair(path->gids, theirs);
    if (!pair || (best && pair->nearness <= best->pair.nearness)) continue;
    best = Answer{.path = std::move(*path), .pair = *pair};
  }
  if (!best) return tl::unexpected<Error>(why);
  return std::move(*best);
}

bool Rails::ready(std::uint32_t index) {
  Rail& rail = rails_[index % count()];
  if (rail.works && rail.adapter != nullptr && !rail.adapter->lost()) return true;
  if (loop_.now() < rail.next_look) return false;
  return look(rail).has_value();
}

bool Rails::revoke(RegionKey key) {
  if (HIXL_PLANTED(rdma_region_left_registered)) return true;
  bool clear = true;
  for (const auto& adapter : adapters_) clear = adapter->registrations().revoke(key) && clear;
  return clear;
}

void Rails::on_reap() {
  for (Rail& rail : rails_) {
    if (rail.adapter != nullptr && rail.adapter->lost()) rail.adapter = nullptr;
  }
  std::erase_if(adapters_, [](const auto& adapter) { return adapter->lost() && adapter->idle(); });
  const bool more = std::any_of(adapters_.begin(), adapters_.end(), [](const auto& one) { return one->lost(); });
  if (more) loop_.start_after(reap_tick_, k_reap_again);
}

}  // namespace hixl::links::roce
