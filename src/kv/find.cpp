// SPDX-License-Identifier: Apache-2.0
//
// What other ranks have registered: read from their directories by get.
#include "find.hpp"

#include <algorithm>
#include <utility>

#include "byte_plan.hpp"
#include "fetch.hpp"
#include "state.hpp"

namespace hixl::kv {

namespace {

/// A record that is being written is read again, and a cache of whose regions we have not heard yet is looked for
/// again, this much later: about as long as that takes.
constexpr std::chrono::milliseconds k_pause{1};

}  // namespace

Rank RemoteCache::rank() const noexcept { return state_ ? state_->rank : k_no_rank; }
std::uint64_t RemoteCache::version() const noexcept { return state_ ? state_->version : 0; }
const CacheDesc& RemoteCache::desc() const noexcept {
  static const CacheDesc none{};
  return state_ ? state_->desc : none;
}

Result<Region> DataDist::State::lend_buffer(std::size_t size) {
  Region buffer{};
  {
    const std::lock_guard lock(mutex);
    if (!buffers.empty()) {
      buffer = buffers.back();
      buffers.pop_back();
    }
  }
  if (buffer.size >= size) return buffer;
  // Nobody else knows it, so there is nothing to wait for.
  if (buffer.data != nullptr) static_cast<void>(runtime.deregister(buffer, options.default_timeout));
  return runtime.allocate(size, {.rights = Rights::none});
}

void DataDist::State::take_buffer_back(const Region& buffer) {
  const std::lock_guard lock(mutex);
  buffers.push_back(buffer);
}

Result<Bytes> DataDist::State::fetch(const RemoteAddress& from, std::size_t size, Instant deadline) {
  const auto begun = Fetch::begin(shared_from_this(), from, size, deadline);
  if (!begun) return fail(begun.error());
  std::optional<Result<Bytes>> ended;
  const auto waited = await(deadline, [&] { return (ended = (*begun)->look()).has_value(); });
  if (ended) return *ended;
  (*begun)->give_up();
  return fail(waited.error());
}

/// A cache may be found before its owner's word of the regions has come.
bool DataDist::State::told_of(const RemoteCache::State& cache) const {
  RegionKey last{};
  for (const TensorAddress& tensor : cache.tensors) {
    if (tensor.region == last) continue;
    last = tensor.region;
    const RemoteAddress at{.rank = cache.rank,
                           .address = tensor.address,
                           .region = tensor.region,
                           .incarnation = cache.directory.incarnation};
    if (!runtime.check_access(at, 1, Rights::read)) return false;
  }
  return true;
}

Result<RemoteCache> DataDist::State::find(Rank rank, const CacheKey& key, Timeout timeout) {
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  if (const auto waited = may_block(); !waited) return fail(waited.error());
  Link link;
  {
    const std::lock_guard lock(mutex);
    const auto found = links.find(rank);
    if (found == links.end() || !found->second.linked) return fail(error_of(ErrorCode::not_linked, rank));
    link = found->second;
  }
  const auto at = [&](std::uint64_t offset) {
    RemoteAddress address = link.directory;
    address.address += offset;
    return address;
  };
  const std::uint32_t slots = link.there.counts().caches;
  for (;;) {
    const auto records = fetch(at(link.there.records()), std::size_t{slots} * k_record_bytes, *deadline);
    if (!records) return fail(records.error());
    bool again = false;
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      CacheRecord record;
      const auto decoded = decode(std::span(*records).subspan(slot * k_record_bytes, k_record_bytes), record);
      again = again || decoded == Decoded::torn;
      if (decoded != Decoded::valid || record.desc.key != key) continue;
      const std::uint32_t count = tensors_of(record.desc);
      if (count > link.there.counts().tensors) return fail(error_of(ErrorCode::malformed_frame, rank));
      const auto tensors = fetch(at(link.there.tensors(slot)), count * k_tensor_bytes, *deadline);
      if (!tensors) return fail(tensors.error());
      auto state = std::make_shared<RemoteCache::State>();
      state->rank = rank;
      state->directory = link.directory;
      state->slot = slot;
      state->version = record.version;
      state->desc = record.desc;
      state->tensors = decode_tensors(*tensors);
      // Else another cache took the slot in between, or will be told of.
      if (checksum(*tensors) == record.tensors_sum && told_of(*state)) return RemoteCache(std::move(state));
      again = true;
      break;
    }
    if (!again) {
      return fail(ErrorCode::cache_unknown, {.rank = rank, .stage = Stage::kv, .length = key.name, .limit = key.model});
    }
    if (const auto paused = doze(bell(), std::min(*deadline, now() + k_pause)); !paused) return fail(paused.error());
  }
}

}  // namespace hixl::kv
