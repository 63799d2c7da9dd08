// SPDX-License-Identifier: Apache-2.0
//
// Entries by region id, an interval table for look-ups by address alone, and one sequence around both, so that a reader
// sees either all of a change or nothing of it.
#include "memory/remote_table.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>

#include "memory/memory_limit.hpp"
#include "memory/sequence.hpp"
#include "memory/sparse_array.hpp"

namespace hixl::memory {
namespace {

using Word = Cell<std::uint64_t>;

struct Entry {
  Word epoch;  // known when it is the table's
  Word incarnation;
  Word token_high;
  Word token_low;
  Word base;
  Word length;
  Cell<std::byte*> mapped;
  Cell<std::uint32_t> generation;
  Cell<Rights> rights;
  Cell<std::uint32_t> tag;
  Cell<MemoryKind> kind;
  Cell<bool> retired;
};

}  // namespace

struct RemoteTable::Impl {
  explicit Impl(std::uint32_t max) : regions_max(max), entries(max), intervals(max) { epoch.store(1); }

  [[nodiscard]] bool known(std::uint32_t id) const noexcept {
    return id < entries.size() && entries[id].epoch.load() == epoch.load();
  }
  [[nodiscard]] bool standing(RegionKey key) const noexcept {
    return key.valid() && known(key.id) && entries[key.id].generation.load() == key.generation;
  }
  [[nodiscard]] bool same(const RemoteRegion& region) const noexcept;
  void put(const RemoteRegion& region) noexcept;
  [[nodiscard]] Result<RemoteView> resolve(const RemoteAddress& address, std::uint64_t length, Rights need) const;

  std::uint32_t regions_max;
  Sequence sequence;
  Word epoch;             // rises with clear(), which so forgets all entries at once
  Word incarnation_last;  // of the region that was added last
  Cell<std::size_t> size;
  Cell<std::uint32_t> ids_end;  // above all ids that were known since the last clear()
  SparseArray<Entry> entries;
  IntervalTable intervals;
  std::uint64_t age = 0;
};

RemoteTable::RemoteTable(std::uint32_t regions_max) : impl_(std::make_unique<Impl>(regions_max)) {}
RemoteTable::~RemoteTable() = default;

std::size_t RemoteTable::size() const noexcept { return impl_->size.load(); }

Result<void> RemoteTable::add(const RemoteRegion& region) {
  ErrorDetail detail{.rank = region.rank, .stage = Stage::exchange, .address = region.base, .length = region.length};
  if (region.key.id >= impl_->regions_max) {
    detail.limit = impl_->regions_max;
    return fail(ErrorCode::limit_reached, detail);
  }
  if (!region.key.valid() || region.length == 0) return fail(ErrorCode::invalid_argument, detail);
  if (region.length > std::numeric_limits<std::uint64_t>::max() - region.base) {
    return fail(ErrorCode::out_of_range, detail);
  }
  if (impl_->entries.size() == 0 || impl_->intervals.capacity() == 0) {
    detail.os_error = ENOMEM;
    detail.limit = address_space_limit();
    return fail(ErrorCode::no_memory, detail);
  }

  if (impl_->known(region.key.id)) {
    const Entry& entry = impl_->entries[region.key.id];
    // An old announcement that arrives late must not bring an old life back.
    if (entry.incarnation.load() == region.incarnation && entry.generation.load() > region.key.generation) {
      return fail(ErrorCode::stale, detail);
    }
    if (impl_->same(region)) return {};
  }
  impl_->sequence.write([&] { impl_->put(region); });
  return {};
}

bool RemoteTable::Impl::same(const RemoteRegion& region) const noexcept {
  const Entry& entry = entries[region.key.id];
  return entry.generation.load() == region.key.generation && entry.incarnation.load() == region.incarnation &&
         entry.base.load() == region.base && entry.length.load() == region.length &&
         entry.rights.load() == region.rights && Token{entry.token_high.load(), entry.token_low.load()} == region.token;
}

void RemoteTable::Impl::put(const RemoteRegion& region) noexcept {
  Entry& entry = entries[region.key.id];
  if (known(region.key.id)) {
    intervals.erase(entry.base.load(), region.key.id);
  } else {
    size.store(size.load() + 1);
  }
  entry.epoch.store(epoch.load());
  entry.incarnation.store(region.incarnation);
  entry.token_high.store(region.token.high);
  entry.token_low.store(region.token.low);
  entry.base.store(region.base);
  entry.length.store(region.length);
  entry.mapped.store(nullptr);
  entry.generation.store(region.key.generation);
  entry.rights.store(region.rights);
  entry.tag.store(region.tag);
  entry.kind.store(region.kind);
  entry.retired.store(false);
  ids_end.store(std::max(ids_end.load(), region.key.id + 1));
  incarnation_last.store(region.incarnation);
  // There is room: ids are below regions_max, and each has one range.
  static_cast<void>(intervals.insert(region.base, region.length, ++age, region.key.id));
}

void RemoteTable::set_mapping(RegionKey key, std::byte* data) noexcept {
  if (!impl_->standing(key)) return;
  impl_->sequence.write([&] { impl_->entries[key.id].mapped.store(data); });
}

void RemoteTable::set_retired(RegionKey key) noexcept {
  if (!impl_->standing(key)) return;
  impl_->sequence.write([&] { impl_->entries[key.id].retired.store(true); });
}

std::uint32_t RemoteTable::ids_end() const noexcept { return impl_->ids_end.load(); }

std::optional<RemoteLook> RemoteTable::look(std::uint32_t id) const noexcept {
  return impl_->sequence.read([&]() -> std::optional<RemoteLook> {
    if (!impl_->known(id)) return std::nullopt;
    const Entry& entry = impl_->entries[id];
    return RemoteLook{.key = {id, entry.generation.load()},
                      .incarnation = entry.incarnation.load(),
                      .base = entry.base.load(),
                      .length = entry.length.load(),
                      .rights = entry.rights.load(),
                      .tag = entry.tag.load(),
                      .kind = entry.kind.load(),
                      .mapped = entry.mapped.load() != nullptr,
                      .retired = entry.retired.load()};
  });
}

std::byte* RemoteTable::mapping(RegionKey key) const noexcept {
  return impl_->sequence.read([&] { return impl_->standing(key) ? impl_->entries[key.id].mapped.load() : nullptr; });
}

std::optional<RemoteGrant> RemoteTable::grant(RegionKey key) const noexcept {
  return impl_->sequence.read([&]() -> std::optional<RemoteGrant> {
    if (!impl_->standing(key)) return std::nullopt;
    const Entry& entry = impl_->entries[key.id];
    return RemoteGrant{
        entry.base.load(), entry.length.load(), {entry.token_high.load(), entry.token_low.load()}, entry.rights.load()};
  });
}

void RemoteTable::clear() noexcept {
  impl_->sequence.write([&] {
    impl_->epoch.store(impl_->epoch.load() + 1);
    impl_->incarnation_last.store(0);
    impl_->size.store(0);
    impl_->ids_end.store(0);
    impl_->intervals.clear();
  });
}

Result<RemoteView> RemoteTable::resolve(const RemoteAddress& address, std::uint64_t length,
                                        Rights need) const noexcept {
  return impl_->sequence.read([&] { return impl_->resolve(address, length, need); });
}

Result<RemoteView> RemoteTable::Impl::resolve(const RemoteAddress& address, std::uint64_t length, Rights need) const {
  const auto refuse = [&](ErrorCode code, std::uint64_t base, std::uint64_t bytes) {
    // The limit is what fits from this address on.
    const bool inside = address.address >= base && address.address - base <= bytes;
    return fail(code, {.rank = address.rank,
                       .stage = Stage::local_check,
                       .address = address.address,
                       .length = length,
                       .nearest_base = base,
                       .nearest_length = bytes,
                       .limit = inside ? bytes - (address.address - base) : 0});
  };
  if (size.load() == 0) return refuse(ErrorCode::not_exchanged, 0, 0);
  const bool other_life = address.incarnation != 0 && address.incarnation != incarnation_last.load();

  std::uint32_t id = address.region.id;
  const bool by_address = !address.region.valid();
  if (by_address || !known(id)) {
    const IntervalTable::Answer answer = intervals.find(address.address, length);
    if (!by_address || answer.kind != IntervalTable::Answer::Kind::found) {
      if (other_life) return refuse(ErrorCode::stale, answer.nearest_base, answer.nearest_length);
      const bool partly = by_address && answer.kind == IntervalTable::Answer::Kind::partly;
      return refuse(partly ? ErrorCode::out_of_range : ErrorCode::not_registered, answer.nearest_base,
                    answer.nearest_length);
    }
    id = answer.value;
  }
  // While a write is under way the id of the answer may be anything that ever was an id: in range, perhaps not current.
  const Entry& entry = entries[id];
  const RegionKey key{id, entry.generation.load()};
  const std::uint64_t base = entry.base.load();
  const std::uint64_t bytes = entry.length.load();
  const bool generation_differs = !by_address && address.region.generation != key.generation;
  const bool incarnation_differs = address.incarnation != 0 && address.incarnation != entry.incarnation.load();
  if (generation_differs || incarnation_differs) return refuse(ErrorCode::stale, base, bytes);

  const std::uint64_t offset = address.address - base;
  if (address.address < base || offset > bytes || length > bytes - offset) {
    return refuse(ErrorCode::out_of_range, base, bytes);
  }
  if (!includes(entry.rights.load(), need)) return refuse(ErrorCode::access_denied, base, bytes);
  std::byte* mapped = entry.mapped.load();
  return RemoteView{
      key, {entry.token_high.load(), entry.token_low.load()}, offset, mapped == nullptr ? nullptr : mapped + offset};
}

}  // namespace hixl::memory
