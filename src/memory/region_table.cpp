// SPDX-License-Identifier: Apache-2.0
//
// The lock-free half of a RegionTable: pinning, checking, looking up; and closing, which they race with.
#include "memory/region_table.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "base/planted.hpp"
#include "memory/region_table_state.hpp"

namespace hixl::memory {
namespace {

using Kind = IntervalTable::Answer::Kind;

// A look-up is repeated when the region it found ended before it could be used, so that an older one that holds the
// range, or a new one in its place, gets its turn. Losing that race four times in one call is told as STALE.
constexpr int k_attempts = 4;

}  // namespace

Pin::Pin(Pin&& other) noexcept : table_(std::exchange(other.table_, nullptr)), id_(other.id_) {}

Pin& Pin::operator=(Pin&& other) noexcept {
  if (this == &other) return *this;
  release();
  table_ = std::exchange(other.table_, nullptr);
  id_ = other.id_;
  return *this;
}

void Pin::release() noexcept {
  if (table_ == nullptr) return;
  table_->impl_->slots[id_].pins.fetch_sub(1, std::memory_order_seq_cst);  // pairs with unpinned()
  table_ = nullptr;
}

Device& Pin::device() const noexcept {
  return table_ == nullptr ? host_device() : *table_->impl_->slots[id_].device.load();
}

/// The region of a slot, if one is open there.
std::optional<RegionInfo> RegionTable::Impl::snapshot(std::uint32_t id) const noexcept {
  if (id >= regions_max) return std::nullopt;
  const Slot& slot = slots[id];
  const std::uint64_t life = slot.life.load(std::memory_order_acquire);
  if (state_of(life) != State::open) return std::nullopt;
  const RegionInfo info{.key = {id, generation_of(life)},
                        .data = slot.data.load(),
                        .size = slot.size.load(),
                        .rights = slot.rights.load(),
                        .token = {slot.token_high.load(), slot.token_low.load()},
                        .tag = slot.tag.load(),
                        .window_id = slot.window_id.load(),
                        .window_offset = slot.window_offset.load(),
                        .device = slot.device.load(),
                        .owned = slot.owned.load(),
                        .writable = slot.writable.load()};
  if (slot.life.load(std::memory_order_relaxed) != life) return std::nullopt;
  return info;
}

/// Why no open region holds the range.
tl::unexpected<Error> RegionTable::Impl::refuse(std::uint64_t address, std::uint64_t length) const noexcept {
  ErrorDetail detail{.stage = Stage::local_check, .address = address, .length = length};
  IntervalTable::Answer answer = intervals.find(address, length);
  bool stale = answer.kind == Kind::found;
  if (const IntervalTable::Answer closed = closing.find(address, length); !stale && closed.kind == Kind::found) {
    stale = true;
    answer = closed;
  }
  detail.nearest_base = answer.nearest_base;
  detail.nearest_length = answer.nearest_length;
  if (stale) return fail(ErrorCode::stale, detail);
  if (answer.kind == Kind::none) return fail(ErrorCode::not_registered, detail);
  detail.limit = answer.nearest_length - (address - answer.nearest_base);
  return fail(ErrorCode::out_of_range, detail);
}

Result<Pin> RegionTable::pin(const void* data, std::uint64_t length, Rights need) {
  if (length == 0) return Pin{};
  const std::uint64_t address = number(data);
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    const IntervalTable::Answer answer = impl_->intervals.find(address, length);
    if (answer.kind != Kind::found) break;
    Slot& slot = impl_->slots[answer.value];
    slot.pins.fetch_add(1, std::memory_order_seq_cst);
    Pin pin;
    pin.table_ = this;
    pin.id_ = answer.value;
    if (state_of(slot.life.load(std::memory_order_seq_cst)) != State::open) continue;
    // Open and pinned: the fields stand still. They may be another life's than the one that was found.
    if (!holds(slot.data.load(), slot.size.load(), address, length)) continue;
    if (!includes(need, Rights::write) || slot.writable.load()) return pin;
    return fail(ErrorCode::access_denied, {.stage = Stage::local_check,
                                           .address = address,
                                           .length = length,
                                           .nearest_base = answer.nearest_base,
                                           .nearest_length = answer.nearest_length});
  }
  return impl_->refuse(address, length);
}

/// Asked for each frame of a peer: looks at one cache line, and thinks of an error only when there is one.
Result<RegionTable::Place> RegionTable::check(RegionKey key, const Token& token, std::uint64_t offset,
                                              std::uint64_t length, Rights need) const noexcept {
  if (!stands(key)) return impl_->deny(key, token, offset, length, need);
  const Slot& slot = impl_->slots[key.id];
  const std::uint64_t size = slot.size.load();
  const Token wanted{slot.token_high.load(), slot.token_low.load()};
  const bool admitted = (token == wanted || HIXL_PLANTED(token_unchecked)) && includes(slot.rights.load(), need) &&
                        offset <= size && length <= size - offset;
  const Place place{slot.data.load() + (admitted ? offset : 0), slot.device.load(), slot.owned.load()};
  // As in snapshot(): closed meanwhile, the fields may be another life's.
  if (!admitted || !stands(key)) return impl_->deny(key, token, offset, length, need);
  return place;
}

bool RegionTable::stands(RegionKey key) const noexcept {
  if (key.id >= impl_->regions_max) return false;
  const std::uint64_t life = impl_->slots[key.id].life.load(std::memory_order_acquire);
  return life == life_of(key.generation, State::open) ||
         (HIXL_PLANTED(generation_unchecked) && state_of(life) == State::open);
}

/// Why check() lets nobody in.
tl::unexpected<Error> RegionTable::Impl::deny(RegionKey key, const Token& token, std::uint64_t offset,
                                              std::uint64_t length, Rights need) const noexcept {
  ErrorDetail detail{.stage = Stage::remote_check, .length = length};
  const auto info = snapshot(key.id);
  const bool current = info && (info->key == key || HIXL_PLANTED(generation_unchecked));
  if (!current) return fail(ErrorCode::stale, detail);
  if (token != info->token) return fail(ErrorCode::access_denied, detail);  // a stranger learns nothing more
  detail.address = number(info->data) + offset;
  detail.nearest_base = number(info->data);
  detail.nearest_length = info->size;
  if (!includes(info->rights, need)) return fail(ErrorCode::access_denied, detail);
  detail.limit = offset > info->size ? 0 : info->size - offset;
  return fail(ErrorCode::out_of_range, detail);
}

Result<RegionInfo> RegionTable::find(const void* data, std::uint64_t length) const {
  const std::uint64_t address = number(data);
  for (int attempt = 0; attempt < k_attempts; ++attempt) {
    const IntervalTable::Answer answer = impl_->intervals.find(address, length);
    if (answer.kind != Kind::found) break;
    const auto info = impl_->snapshot(answer.value);
    if (info && holds(info->data, info->size, address, length)) return *info;
  }
  return impl_->refuse(address, length);
}

Result<RegionInfo> RegionTable::info(RegionKey key) const {
  const auto info = impl_->snapshot(key.id);
  if (!info || info->key != key) return fail(ErrorCode::stale, {.stage = Stage::local_check});
  return *info;
}

Result<bool> RegionTable::close(RegionKey key) {
  const std::lock_guard lock(impl_->mutex);
  const auto info = impl_->snapshot(key.id);
  if (!info || info->key != key) return fail(ErrorCode::stale, {.stage = Stage::memory});
  Slot& slot = impl_->slots[key.id];
  if (--slot.references > 0) return false;
  // The ranges first: who then finds the life closed and looks again comes to another region, or to STALE.
  const std::uint64_t base = number(info->data);
  const bool inserted = impl_->closing.insert(base, info->size, ++impl_->age, key.id);
  HIXL_ASSERT(inserted);
  impl_->intervals.erase(base, key.id);
  slot.life.store(life_of(key.generation, State::closed), std::memory_order_seq_cst);
  board_->close(key);
  const auto [begin, end] = impl_->open_ids_by_base.equal_range(base);
  impl_->open_ids_by_base.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == key.id; }));
  return true;
}

bool RegionTable::unpinned(RegionKey key) const noexcept {
  if (key.id >= impl_->regions_max) return true;
  const Slot& slot = impl_->slots[key.id];
  if (slot.life.load(std::memory_order_seq_cst) == life_of(key.generation, State::open)) return false;
  return slot.pins.load(std::memory_order_seq_cst) == 0;
}

RegionTable::WindowFd RegionTable::window_fd(std::uint32_t window_id) const {
  const std::lock_guard lock(impl_->mutex);
  const Window* window = impl_->windows.find(window_id);
  return window == nullptr ? WindowFd{} : WindowFd{window->fd(), window->size()};
}

std::vector<RegionInfo> RegionTable::list() const {
  std::vector<RegionInfo> regions;
  const std::lock_guard lock(impl_->mutex);
  regions.reserve(impl_->intervals.size());
  for (std::uint32_t id = 0; id < impl_->fresh_id; ++id) {
    if (const auto info = impl_->snapshot(id)) regions.push_back(*info);
  }
  return regions;
}

RegionTable::Piece RegionTable::look(std::uint32_t from, std::uint32_t ids) const {
  Piece piece;
  const std::lock_guard lock(impl_->mutex);
  const std::uint32_t end = impl_->fresh_id;
  from = std::min(from, end);
  piece.next = from + std::min(ids, end - from);
  piece.more = piece.next < end;
  for (std::uint32_t id = from; id < piece.next; ++id) {
    const Slot& slot = impl_->slots[id];
    const std::uint64_t life = slot.life.load(std::memory_order_acquire);
    if (state_of(life) == State::free) continue;
    const Story& story = impl_->stories[id];
    // Under the lock nobody opens, closes or retires, so the fields stand still.
    RegionLook& look = piece.regions.emplace_back();
    look.info = {.key = {id, generation_of(life)},
                 .data = slot.data.load(),
                 .size = slot.size.load(),
                 .rights = slot.rights.load(),
                 .tag = slot.tag.load(),
                 .window_id = slot.window_id.load(),
                 .window_offset = slot.window_offset.load(),
                 .device = slot.device.load(),
                 .owned = slot.owned.load(),
                 .writable = slot.writable.load(),
                 .page_bytes = story.page_bytes,
                 .spilled_bytes = story.spilled_bytes,
                 .numa_node = story.numa_node};
    look.number = story.number;
    look.opened = Instant(Duration(story.opened));
    look.references = slot.references;
    look.pins = slot.pins.load(std::memory_order_acquire);
    look.closed = state_of(life) == State::closed;
    look.held = slot.held;
  }
  return piece;
}

std::uint64_t RegionTable::held_bytes() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->held_bytes;
}

}  // namespace hixl::memory
