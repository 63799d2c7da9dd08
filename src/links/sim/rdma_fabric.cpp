// SPDX-License-Identifier: Apache-2.0
//
// Cards, ports, processes and their devices. rdma_queue.cpp has memory and completion queues, rdma_queue_pair.cpp the
// queue pairs, rdma_wire.cpp what passes between them, rdma_target.cpp what a target does with it.
#include "links/sim/rdma_fabric.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "links/sim/rdma_parts.hpp"

namespace hixl::links {

using namespace sim;

namespace {

constexpr std::uint64_t k_token_bits = 4;

}  // namespace

RdmaFabric::RdmaFabric(runtime::VirtualWorld& world, std::uint32_t rails, const RdmaPlan& plan)
    : world_(world), rails_(rails), plan_(plan) {}

RdmaFabric::~RdmaFabric() = default;

// ---- cards and processes ----

std::size_t RdmaFabric::seat(runtime::EventPort& port, std::uint32_t host) {
  processes_.push_back({&port, host});
  return processes_.size() - 1;
}

sim::RdmaCard& RdmaFabric::card(std::uint32_t host, std::uint32_t rail) {
  const std::uint64_t id = std::uint64_t{host} * rails_ + rail;
  std::unique_ptr<RdmaCard>& card = cards_[id];
  if (card == nullptr) {
    card = std::make_unique<RdmaCard>();
    card->id = id;
    card->host = host;
    card->rail = rail;
    card->name = "sim" + std::to_string(rail);
    card->mtu = world_.choices().chance(plan_.mtu_per_mille) ? IBV_MTU_1024 : IBV_MTU_4096;
    card->gid = gid_of(*card);
  }
  return *card;
}

/// The address 10.rail.change.host, as RoCE writes it.
ibv_gid RdmaFabric::gid_of(const RdmaCard& card) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = 10;
  gid.raw[13] = static_cast<std::uint8_t>(card.rail);
  gid.raw[14] = card.gids;
  gid.raw[15] = static_cast<std::uint8_t>(card.host + 1);
  return gid;
}

sim::RdmaCard* RdmaFabric::card_at(const ibv_gid& gid) {
  for (const auto& [id, card] : cards_) {
    if (same(card->gid, gid)) return card->up && card->present ? card.get() : nullptr;
  }
  return nullptr;
}

void RdmaFabric::schedule(Duration delay, Token token, std::uint64_t id) {
  world_.schedule(delay, *this, id << k_token_bits | static_cast<std::uint64_t>(token));
}

Duration RdmaFabric::delay() {
  return Duration(world_.choices().between(static_cast<std::uint64_t>(plan_.delay_min.count()),
                                           static_cast<std::uint64_t>(plan_.delay_max.count())));
}

Duration RdmaFabric::up_to(Duration most) {
  return Duration(world_.choices().between(1, static_cast<std::uint64_t>(std::max<Duration::rep>(most.count(), 1))));
}

void RdmaFabric::on_world_event(std::uint64_t token) {
  if (halted_) return;
  const std::uint64_t id = token >> k_token_bits;
  switch (static_cast<Token>(token & ((1U << k_token_bits) - 1))) {
    case Token::packet:
      if (const auto wire = wires_.find(id); wire != wires_.end()) on_packet(*wire->second), reap(id);
      return;
    case Token::answer:
      if (const auto wire = wires_.find(id); wire != wires_.end()) on_answer(*wire->second), reap(id);
      return;
    case Token::landing:
      if (const auto pair = pairs_.find(id); pair != pairs_.end()) on_landing(*pair->second);
      return;
    case Token::flush:
      if (const auto pair = pairs_.find(id); pair != pairs_.end() && pair->second->flush_planned) flush(*pair->second);
      return;
    case Token::notice:
      if (const auto queue = queues_.find(id); queue != queues_.end())
        world_.set_ready(queue->second->descriptor, true);
      return;
    case Token::port_up:
      if (RdmaCard& card = *cards_.at(id); card.present && !card.up) port_up(card);
      return;
    case Token::card_back: {
      RdmaCard& card = *cards_.at(id);
      card.present = true;
      return port_up(card);
    }
    case Token::death:
      return vanish(id);
    case Token::work:
      if (const auto work = works_.find(id); work != works_.end()) {
        work->second->ready = true;
        if (work->second->wakeup != nullptr) work->second->wakeup->notify();
      }
      return;
  }
}

void RdmaFabric::kill(runtime::EventPort& process, Duration held) {
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].port != &process) continue;
    if (held == Duration{}) {
      vanish(i);
    } else {
      schedule(held, Token::death, i);
    }
  }
}

void RdmaFabric::vanish(std::size_t process) {
  processes_[process].dead = true;
  for (const auto& [id, pair] : pairs_) {
    if (pair->device->process != process || pair->gone) continue;
    leave_wire(*pair);
    pair->hidden.clear();
    pair->gone = true;
    pair->card().pairs.erase(pair->number);
    pair->card().left.push_back(pair->number);
  }
  for (const auto& [id, region] : regions_) {
    if (region->device->process != process) continue;
    region->device->card->keys.erase(region->local_key);
    region->device->card->keys.erase(region->remote_key);
  }
}

void RdmaFabric::flap(std::uint32_t host, std::uint32_t rail, Duration down) {
  RdmaCard& flapping = card(host, rail);
  if (!flapping.present || !std::exchange(flapping.up, false)) return;
  ++counts_.ports_down;
  tell(flapping, {.type = IBV_EVENT_PORT_ERR, .port = 1});
  schedule(down, Token::port_up, flapping.id);
}

void RdmaFabric::port_up(RdmaCard& card) {
  card.up = true;
  const bool fresh = world_.choices().chance(plan_.new_gid_per_mille);
  const bool active_first = fresh && world_.choices().chance(500);
  if (active_first) tell(card, {.type = IBV_EVENT_PORT_ACTIVE, .port = 1});
  if (fresh) {
    ++counts_.gids_changed;
    ++card.gids;
    card.gid = gid_of(card);
    tell(card, {.type = IBV_EVENT_GID_CHANGE, .port = 1});
  }
  if (!active_first) tell(card, {.type = IBV_EVENT_PORT_ACTIVE, .port = 1});
}

void RdmaFabric::remove(std::uint32_t host, std::uint32_t rail, Duration away) {
  RdmaCard& pulled = card(host, rail);
  if (!std::exchange(pulled.present, false)) return;
  ++counts_.devices_removed;
  pulled.up = false;
  for (const auto& [id, pair] : pairs_) {
    if (pair->device->card != &pulled || pair->gone) continue;
    leave_wire(*pair);
    // What the card had in hand is in memory, or will never be.
    if (world_.choices().chance(500)) show(*pair);
    pair->hidden.clear();
    pair->gone = true;
  }
  pulled.pairs.clear();
  pulled.keys.clear();
  for (const auto& [id, device] : devices_) {
    if (device->card != &pulled || device->gone) continue;
    device->gone = true;
    tell(*device, {.type = IBV_EVENT_DEVICE_FATAL});
  }
  schedule(away, Token::card_back, pulled.id);
}

void RdmaFabric::tell(RdmaCard& card, const roce::DeviceEvent& event) {
  for (const auto& [id, device] : devices_) {
    if (device->card == &card && !device->gone) tell(*device, event);
  }
}

void RdmaFabric::tell(RdmaDevice& device, const roce::DeviceEvent& event) {
  device.events.push_back(event);
  world_.set_ready(device.descriptor, true);
}

std::optional<roce::DeviceEvent> RdmaFabric::take_event(RdmaDevice& device) {
  if (device.events.empty()) return std::nullopt;
  const bool overtakes = world_.choices().chance(plan_.overtake_per_mille);
  const std::size_t index = overtakes ? world_.choices().below(device.events.size()) : 0;
  if (index > 0) ++counts_.events_reordered;
  const roce::DeviceEvent event = device.events[index];
  device.events.erase(device.events.begin() + static_cast<std::ptrdiff_t>(index));
  if (device.events.empty()) world_.set_ready(device.descriptor, false);
  return event;
}

void RdmaFabric::halt() {
  halted_ = true;
  wires_.clear();
  for (const auto& [id, pair] : pairs_) {
    pair->wire = nullptr;
    pair->hidden.clear();
  }
}

RdmaFabric::Holdings RdmaFabric::holdings(runtime::EventPort& process) const {
  const auto held = [&](const RdmaDevice& device) { return processes_[device.process].port == &process ? 1U : 0U; };
  Holdings holdings;
  for (const auto& [id, region] : regions_) holdings.regions += held(*region->device);
  for (const auto& [id, pair] : pairs_) holdings.queue_pairs += held(*pair->device);
  for (const auto& [id, queue] : queues_) holdings.queues += held(*queue->device);
  for (const auto& [id, device] : devices_) holdings.devices += held(*device);
  return holdings;
}

// ---- devices of processes ----

std::vector<std::string> RdmaFabric::cards_of(std::size_t process) {
  std::vector<std::string> names;
  for (std::uint32_t rail = 0; rail < rails_; ++rail) {
    if (const RdmaCard& one = card(processes_[process].host, rail); one.present) names.push_back(one.name);
  }
  return names;
}

Result<sim::RdmaDevice*> RdmaFabric::open(std::size_t process, const std::string& name) {
  const auto names = cards_of(process);
  const bool there = std::find(names.begin(), names.end(), name) != names.end();
  if (!there) return fail(ErrorCode::transport_unavailable, {.stage = Stage::connect, .os_error = ENODEV});
  if (world_.choices().chance(plan_.open_per_mille)) {
    const bool denied = world_.choices().chance(500);
    return fail(denied ? ErrorCode::access_denied : ErrorCode::transport_unavailable,
                {.stage = Stage::connect, .os_error = denied ? EACCES : ENOMEM});
  }
  auto device = std::make_unique<RdmaDevice>();
  device->id = next_id_++;
  for (std::uint32_t rail = 0; rail < rails_; ++rail) {
    if (RdmaCard& one = card(processes_[process].host, rail); one.name == name) device->card = &one;
  }
  device->process = process;
  device->descriptor = world_.make_descriptor();
  return (devices_[device->id] = std::move(device)).get();
}

void RdmaFabric::close(RdmaDevice& device) {
  const auto its = [&](const auto& entry) { return entry.second->device == &device; };
  HIXL_ASSERT(std::none_of(regions_.begin(), regions_.end(), its));
  HIXL_ASSERT(std::none_of(pairs_.begin(), pairs_.end(), its));
  world_.close_descriptor(device.descriptor);
  devices_.erase(device.id);
}

std::uint64_t RdmaFabric::begin_work(RdmaWork& work) {
  const std::uint64_t number = next_id_++;
  works_[number] = &work;
  schedule(up_to(plan_.work_max), Token::work, number);
  return number;
}

}  // namespace hixl::links
