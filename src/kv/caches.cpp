// SPDX-License-Identifier: Apache-2.0
//
// Caches of this rank: registered, told to the linked ranks, ended.
#include <algorithm>
#include <utility>

#include "byte_plan.hpp"
#include "state.hpp"

namespace hixl::kv {

namespace {

Error at_tensor(ErrorCode code, std::size_t index, std::uint64_t length, std::uint64_t limit) {
  return Error(code,
               {.stage = Stage::kv, .length = length, .limit = limit, .entry = static_cast<std::uint32_t>(index)});
}

/// The place of every tensor.
Result<void> place_tensors(LocalCache& cache, std::span<const TensorPlace> places) {
  const auto bytes = tensor_bytes(cache.desc.layout, cache.desc.blocks);
  if (!bytes) return fail(bytes.error());
  const std::uint32_t count = tensors_of(cache.desc);
  if (places.size() != 1 && places.size() != count) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::kv, .length = places.size(), .limit = count});
  }
  const bool in_a_row = places.size() == 1;
  for (std::uint32_t i = 0; i < count; ++i) {
    const TensorPlace& place = places[in_a_row ? 0 : i];
    // Fits: cache_bytes() of this cache was checked, and so was the row up to here.
    const std::uint64_t from_place = in_a_row ? i * *bytes : 0;
    const std::uint64_t room = place.region.size > place.offset ? place.region.size - place.offset : 0;
    if (place.region.data == nullptr || !place.region.key.valid()) {
      return fail(at_tensor(ErrorCode::invalid_argument, i, 0, 0));
    }
    if (from_place > room || room - from_place < *bytes) {
      return fail(at_tensor(ErrorCode::out_of_range, i, *bytes, from_place > room ? 0 : room - from_place));
    }
    cache.tensors.push_back(
        {.address = place.region.address() + place.offset + from_place, .region = place.region.key});
    const auto known = [&](const Region& region) { return region.key == place.region.key; };
    if (std::none_of(cache.regions.begin(), cache.regions.end(), known)) cache.regions.push_back(place.region);
  }
  return {};
}

}  // namespace

std::uint64_t DataDist::State::role_bits() const noexcept {
  std::uint64_t bits = 0;
  if ((static_cast<std::uint8_t>(role_now) & static_cast<std::uint8_t>(Role::prefill)) != 0) {
    bits |= gate::allowed(Access::pull);
  }
  if ((static_cast<std::uint8_t>(role_now) & static_cast<std::uint8_t>(Role::decode)) != 0) {
    bits |= gate::allowed(Access::push);
  }
  return bits;
}

std::shared_ptr<LocalCache> DataDist::State::cache(const CacheId& id) const {
  const auto found = caches.find(id.slot);
  if (found == caches.end() || found->second->id != id) return nullptr;
  return found->second->closing ? nullptr : found->second;
}

/// Through the runtime, so that a peer's get and this write meet in the loop where that reads the memory itself.
Result<void> DataDist::State::write_record(std::uint32_t slot, const LocalCache* cache, Instant deadline) {
  CacheRecord record;
  Bytes tensors;
  Bytes head(k_record_bytes, std::byte{0});
  if (cache != nullptr) {
    record.version = cache->id.version;
    record.desc = cache->desc;
    tensors = encode(cache->tensors);
    record.tensors_sum = checksum(tensors);
    head = encode(record);
  }
  const auto write = [&](const Bytes& bytes, std::uint64_t scratch, std::uint64_t to) -> Result<void> {
    if (bytes.empty()) return {};
    if (const auto copied = runtime.copy_in(region, scratch, bytes.data(), bytes.size()); !copied) return copied;
    return runtime.put_sync(region.data + scratch, own(to), bytes.size(), left(deadline));
  };
  if (const auto written = write(tensors, directory.scratch() + k_record_bytes, directory.tensors(slot)); !written) {
    return written;
  }
  return write(head, directory.scratch(), directory.record(slot));
}

Result<CacheId> DataDist::State::register_cache(const CacheDesc& desc, std::span<const TensorPlace> tensors,
                                                Timeout timeout) {
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  auto cache = std::make_shared<LocalCache>();
  cache->desc = desc;
  if (const auto valid = validate(desc); !valid) return fail(valid.error());
  Shard& shard = cache->desc.shard;
  if (shard.layers_total == 0) shard.layers_total = desc.layout.layers;
  if (shard.heads_total == 0) shard.heads_total = desc.layout.kv_heads;
  if (tensors_of(desc) > options.tensors_max) {
    return fail(ErrorCode::limit_reached,
                {.stage = Stage::kv, .length = tensors_of(desc), .limit = options.tensors_max});
  }
  if (const auto placed = place_tensors(*cache, tensors); !placed) return fail(placed.error());
  const std::uint64_t bytes = tensor_bytes(desc.layout, desc.blocks).value_or(0);
  for (const TensorAddress& tensor : cache->tensors) {
    const RemoteAddress at{
        .rank = own_rank, .address = tensor.address, .region = tensor.region, .incarnation = runtime.incarnation()};
    if (const auto usable = runtime.check_access(at, bytes, Rights::read); !usable) return fail(usable.error());
  }
  if (const auto waited = may_block(); !waited) return fail(waited.error());
  const auto turn = take_turn(registering, *deadline);
  if (!turn) return fail(turn.error());
  // The gates, then the record: who finds it may come in. Who has not heard of the regions by then waits in find(), so
  // that a rank which stands still holds nobody up. Who links from now on is told by link().
  std::vector<Link> others;
  {
    const std::lock_guard lock(mutex);
    if (closing.load()) return fail(error_of(ErrorCode::stopped, own_rank));
    std::uint32_t slot = 0;
    for (const auto& [at, other] : caches) {
      if (other->desc.key == desc.key && !other->closing) {
        return fail(ErrorCode::already_exists, {.stage = Stage::kv, .length = desc.key.name, .limit = desc.key.model});
      }
      if (at == slot) ++slot;
    }
    if (slot >= options.caches_max) {
      return fail(ErrorCode::limit_reached, {.stage = Stage::kv, .length = slot, .limit = options.caches_max});
    }
    cache->id = {.slot = slot, .version = ++versions};
    // A generation of its own in the word, where 0 is none.
    if ((versions & gate::k_generation_mask) == 0) cache->id.version = ++versions;
    caches[slot] = cache;
    for (const auto& [rank, link] : links) {
      if (link.open && !link.leaving) open_gate(link, *cache);
      others.push_back(link);
    }
  }
  for (const Link& link : others) publish(link, cache->regions, *deadline);
  const auto written = write_record(cache->id.slot, cache.get(), *deadline);
  if (written) return cache->id;
  // It may have been seen none the less.
  {
    const std::lock_guard lock(mutex);
    shut_gates(*cache);
  }
  static_cast<void>(end_cache(cache, now() + options.default_timeout));
  return fail(written.error());
}

/// New users come in from now on.
void DataDist::State::open_gate(const Link& link, const LocalCache& cache) {
  change(directory.gate(link.index, cache.id.slot), [&](std::uint64_t before) {
    return gate::reopened(before, static_cast<std::uint32_t>(cache.id.version) & gate::k_generation_mask, role_bits());
  });
}

Result<void> DataDist::State::unregister_cache(const CacheId& id, Timeout timeout) {
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  if (const auto waited = may_block(); !waited) return waited;
  const auto turn = take_turn(registering, *deadline);
  if (!turn) return fail(turn.error());
  std::shared_ptr<LocalCache> cache;
  {
    const std::lock_guard lock(mutex);
    const auto found = caches.find(id.slot);
    if (found == caches.end() || found->second->id != id) {
      return fail(error_of(ErrorCode::cache_stale, own_rank));
    }
    cache = found->second;
    shut_gates(*cache);
  }
  return end_cache(cache, *deadline);
}

void DataDist::State::shut_gates(LocalCache& cache) {
  cache.closing = true;
  marks.forget_local(cache.id.version);
  for (const auto& [rank, link] : links) {
    change(directory.gate(link.index, cache.id.slot), [](std::uint64_t word) { return word | gate::k_closing; });
  }
  leases.each([&](LeaseEntry& entry) {
    if (entry.cache_version != cache.id.version) return;
    leases.begin_end(entry, LeaseEnd::unregistered, [&](const LeaseEntry& at) { shut(at); });
  });
}

Result<void> DataDist::State::end_cache(const std::shared_ptr<LocalCache>& cache, Instant deadline) {
  const CacheId id = cache->id;
  if (const auto written = write_record(id.slot, nullptr, deadline); !written) return written;
  const auto unused = [&] {
    look_at_leases();
    std::vector<Link> in_use;
    {
      const std::lock_guard lock(mutex);
      bool leased = false;
      leases.each([&](const LeaseEntry& entry) { leased = leased || entry.cache_version == id.version; });
      if (cache->uses > 0 || leased) return false;
      for (const auto& [rank, link] : links) {
        if (gate::in_use(word(directory.gate(link.index, id.slot)).load())) in_use.push_back(link);
      }
    }
    return std::none_of(in_use.begin(), in_use.end(), [&](const Link& link) { return alive(link.directory); });
  };
  if (const auto waited = await(deadline, unused); !waited) return waited;
  const std::lock_guard lock(mutex);
  caches.erase(id.slot);
  return {};
}

}  // namespace hixl::kv
