// SPDX-License-Identifier: Apache-2.0
//
// What other ranks have registered: read from their directories by get.
#include "find.hpp"

#include <utility>

#include "byte_plan.hpp"
#include "state.hpp"

namespace hixl::kv {

namespace {

/// A record that is being written is read again; registrations take milliseconds, so more would be no accident.
constexpr int k_attempts = 100;

}  // namespace

Rank RemoteCache::rank() const noexcept { return state_ ? state_->rank : k_no_rank; }
std::uint64_t RemoteCache::version() const noexcept { return state_ ? state_->version : 0; }
const CacheDesc& RemoteCache::desc() const noexcept {
  static const CacheDesc none{};
  return state_ ? state_->desc : none;
}

/// One at a time.
Result<Bytes> DataDist::State::fetch(const RemoteAddress& from, std::size_t size, Instant deadline) {
  const auto turn = take_turn(fetching, deadline);
  if (!turn) return fail(turn.error());
  if (fetched.size < size) {
    auto wider = runtime.allocate(size);
    if (!wider) return fail(wider.error());
    std::swap(fetched, *wider);
    // Nobody else knows it, so there is nothing to wait for.
    if (wider->data != nullptr) static_cast<void>(runtime.deregister(*wider, left(deadline)));
  }
  if (const auto got = runtime.get_sync(fetched.data, from, size, left(deadline)); !got) return fail(got.error());
  Bytes bytes(size);
  if (const auto copied = runtime.copy_out(fetched, 0, bytes.data(), size); !copied) return fail(copied.error());
  return bytes;
}

Result<DirectoryCounts> DataDist::State::fetch_counts(const RemoteAddress& at, Instant deadline) {
  const auto bytes = fetch(at, k_header_bytes, deadline);
  if (!bytes) return fail(bytes.error());
  const auto counts = decode_counts(*bytes);
  if (!counts) return fail(error_of(ErrorCode::version_mismatch, at.rank));
  return *counts;
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
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    const auto records = fetch(at(link.there.records()), std::size_t{slots} * k_record_bytes, *deadline);
    if (!records) return fail(records.error());
    bool torn = false;
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      CacheRecord record;
      const auto decoded = decode(std::span(*records).subspan(slot * k_record_bytes, k_record_bytes), record);
      torn = torn || decoded == Decoded::torn;
      if (decoded != Decoded::valid || record.desc.key != key) continue;
      const std::uint32_t count = tensors_of(record.desc);
      if (count > link.there.counts().tensors) return fail(error_of(ErrorCode::malformed_frame, rank));
      const auto tensors = fetch(at(link.there.tensors(slot)), count * k_tensor_bytes, *deadline);
      if (!tensors) return fail(tensors.error());
      if (checksum(*tensors) != record.tensors_sum) {
        torn = true;  // another cache took the slot in between
        break;
      }
      auto state = std::make_shared<RemoteCache::State>();
      state->rank = rank;
      state->directory = link.directory;
      state->slot = slot;
      state->version = record.version;
      state->desc = record.desc;
      state->tensors = decode_tensors(*tensors);
      return RemoteCache(std::move(state));
    }
    if (!torn) {
      return fail(ErrorCode::cache_unknown, {.rank = rank, .stage = Stage::kv, .length = key.name, .limit = key.model});
    }
  }
  return fail(error_of(ErrorCode::busy, rank));
}

}  // namespace hixl::kv
