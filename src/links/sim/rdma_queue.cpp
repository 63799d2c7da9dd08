// SPDX-License-Identifier: Apache-2.0
//
// Memory that the cards may reach, and the queues of completions with their events.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "links/sim/rdma_parts.hpp"

namespace hixl::links {

using namespace sim;

namespace {

/// The memlock limit that a failed registration names.
constexpr std::uint64_t k_memlock = 64U << 10U;

}  // namespace

// ---- memory ----

Result<sim::RdmaRegion*> RdmaFabric::register_region(RdmaDevice& device, void* data, std::size_t size, int access) {
  if (device.gone) return fail(ErrorCode::os_error, {.stage = Stage::memory, .os_error = EIO});
  const bool writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (size == 0 || (writes && (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
    return fail(ErrorCode::os_error, {.stage = Stage::memory, .os_error = EINVAL, .length = size});
  }
  if (size > k_region_max) {
    return fail(ErrorCode::limit_reached, {.stage = Stage::memory, .length = size, .limit = k_region_max});
  }
  if (world_.choices().chance(plan_.register_per_mille)) {
    ++counts_.registrations_failed;
    return fail(ErrorCode::memlock_limit,
                {.stage = Stage::memory, .os_error = ENOMEM, .length = size, .limit = k_memlock});
  }
  auto region = std::make_unique<RdmaRegion>();
  RdmaCard& card = *device.card;
  region->id = next_id_++;
  region->device = &device;
  region->data = static_cast<std::byte*>(data);
  region->size = size;
  region->access = access;
  region->local_key = card.next_key;
  region->remote_key = card.next_key + 1;
  card.next_key += 0x100;
  card.keys[region->local_key] = card.keys[region->remote_key] = region.get();
  return (regions_[region->id] = std::move(region)).get();
}

void RdmaFabric::deregister(RdmaRegion& region) {
  RdmaCard& card = *region.device->card;
  if (const auto key = card.keys.find(region.local_key); key != card.keys.end() && key->second == &region) {
    card.keys.erase(key);
    card.keys.erase(region.remote_key);
  }
  bool busy = false;
  for (const auto& [id, pair] : pairs_) {
    if (pair->device != region.device) continue;
    const std::size_t before = pair->hidden.size();
    show_range(*pair, region.data, region.size);
    busy = busy || pair->hidden.size() < before;
  }
  for (const auto& [id, wire] : wires_) {
    busy = busy || std::any_of(wire->packets.begin(), wire->packets.end(),
                               [&](const RdmaPacket& packet) { return packet.key == region.remote_key; });
  }
  counts_.regions_closed_busy += busy ? 1 : 0;
  regions_.erase(region.id);
}

// ---- completions ----

Result<sim::RdmaQueue*> RdmaFabric::create_queue(RdmaDevice& device, std::uint32_t depth) {
  if (device.gone || depth == 0 || depth > k_queue_max) {
    return fail(ErrorCode::os_error, {.stage = Stage::connect, .os_error = device.gone ? EIO : EINVAL});
  }
  auto queue = std::make_unique<RdmaQueue>();
  queue->id = next_id_++;
  queue->device = &device;
  queue->depth = depth;
  queue->descriptor = world_.make_descriptor();
  return (queues_[queue->id] = std::move(queue)).get();
}

void RdmaFabric::destroy(RdmaQueue& queue) {
  HIXL_ASSERT(
      std::none_of(pairs_.begin(), pairs_.end(), [&](const auto& entry) { return entry.second->queue == &queue; }));
  world_.close_descriptor(queue.descriptor);
  queues_.erase(queue.id);
}

void RdmaFabric::push(const RdmaQueuePair& pair, const ibv_wc& wc, std::uint64_t number, bool receive) {
  RdmaQueue& queue = *pair.queue;
  if (queue.broken || queue.device->gone) return;
  if (queue.entries.size() >= queue.depth || world_.choices().chance(plan_.overrun_per_mille)) return overrun(queue);
  queue.entries.push_back({wc, pair.id, number, receive});
  if (queue.armed) {
    notify(queue);
  } else {
    ++counts_.slept_through;
  }
}

void RdmaFabric::notify(RdmaQueue& queue) {
  queue.armed = false;
  if (world_.choices().chance(plan_.whim_per_mille)) {
    ++counts_.whims;
    return schedule(delay(), Token::notice, queue.id);
  }
  world_.set_ready(queue.descriptor, true);
}

/// A real card tells of the next completion only. It may tell of one that came before, and it may err.
void RdmaFabric::arm(RdmaQueue& queue) {
  queue.armed = true;
  if (!world_.choices().chance(plan_.whim_per_mille)) return;
  if (queue.entries.empty()) ++counts_.whims;
  notify(queue);
}

void RdmaFabric::overrun(RdmaQueue& queue) {
  ++counts_.overruns;
  queue.broken = true;
  tell(*queue.device, {.type = IBV_EVENT_CQ_ERR});
  for (const auto& [id, pair] : pairs_) {
    if (pair->queue != &queue || pair->gone) continue;
    tell(*queue.device, {.type = IBV_EVENT_QP_FATAL, .queue_pair = pair->number});
    fail_pair(*pair);
  }
}

Result<std::size_t> RdmaFabric::take(RdmaQueue& queue, std::span<ibv_wc> out) {
  if (queue.device->gone || queue.broken) {
    return fail(ErrorCode::os_error, {.stage = Stage::transfer, .os_error = queue.broken ? EOVERFLOW : EIO});
  }
  const std::size_t count = std::min(out.size(), queue.entries.size());
  for (std::size_t i = 0; i < count; ++i) {
    const RdmaQueue::Entry& entry = queue.entries.front();
    out[i] = entry.wc;
    if (const auto pair = pairs_.find(entry.pair); pair != pairs_.end()) {
      std::uint64_t& freed = entry.receive ? pair->second->receives_freed : pair->second->freed;
      freed = std::max(freed, entry.number);
    }
    queue.entries.pop_front();
  }
  return count;
}

}  // namespace hixl::links
