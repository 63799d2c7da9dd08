// SPDX-License-Identifier: Apache-2.0
//
// The life of regions: how they are registered, allocated and retired. All under the table's lock.
#include "memory/region_table.hpp"

#include <cerrno>

#include <algorithm>
#include <utility>

#include "base/assert.hpp"
#include "memory/mapping.hpp"
#include "memory/memory_limit.hpp"
#include "memory/region_table_state.hpp"

namespace hixl::memory {

RegionTable::RegionTable(std::unique_ptr<Board> board, std::unique_ptr<Impl> impl)
    : board_(std::move(board)), impl_(std::move(impl)) {}
RegionTable::~RegionTable() = default;

Result<std::unique_ptr<RegionTable>> RegionTable::create(std::uint32_t regions_max, std::uint64_t seed,
                                                         std::uint32_t first_generation) {
  if (regions_max == 0 || first_generation == 0) return fail(ErrorCode::invalid_argument, {.stage = Stage::memory});
  auto board = Board::create(regions_max);
  if (!board) return fail(board.error());
  auto impl = std::make_unique<Impl>(regions_max, seed, first_generation);
  if (impl->slots.size() == 0 || impl->stories.size() == 0 || impl->intervals.capacity() == 0 ||
      impl->closing.capacity() == 0) {
    return fail(ErrorCode::no_memory, {.stage = Stage::memory,
                                       .os_error = ENOMEM,
                                       .length = regions_max * (sizeof(Slot) + sizeof(Story)),
                                       .limit = address_space_limit()});
  }
  return std::unique_ptr<RegionTable>(new RegionTable(std::move(*board), std::move(impl)));
}

void RegionTable::limit(const Limits& limits) {
  const std::lock_guard lock(impl_->mutex);
  impl_->hbm = std::make_unique<HbmHeap>(limits.hbm_bytes);
  impl_->held_bytes_max = limits.held_bytes_max;
}

Result<RegionInfo> RegionTable::add(void* data, std::size_t size, const RegisterOptions& options, Device& device,
                                    Instant opened) {
  ErrorDetail detail{.stage = Stage::memory, .address = number(data), .length = size};
  if (size == 0 || !includes(Rights::all, options.rights)) return fail(ErrorCode::invalid_argument, detail);
  if (size > std::numeric_limits<std::uint64_t>::max() - number(data)) return fail(ErrorCode::out_of_range, detail);
  RegionInfo info{.data = static_cast<std::byte*>(data),
                  .size = size,
                  .rights = options.rights,
                  .tag = options.tag,
                  .device = &device};
  const auto home_now = [&] {
    return &device == &host_device() ? impl_->windows.home_of(info.data, size) : RegionWindows::Home{};
  };
  RegionWindows::Home home;
  {
    const std::lock_guard lock(impl_->mutex);
    home = home_now();
  }
  if (home.device == nullptr && device.caps().cpu_addressable) {  // outside the lock: the kernel may take a while
    const auto protection = protection_of(data, size);
    if (!protection) return fail(protection.error());
    const bool others_write = includes(options.rights, Rights::write) || includes(options.rights, Rights::atomic);
    if (!protection->readable || (others_write && !protection->writable)) return fail(ErrorCode::access_denied, detail);
    info.writable = protection->writable;
  }
  const std::lock_guard lock(impl_->mutex);
  home = home_now();
  if (home.device != nullptr) info.device = home.device;
  if (const auto id = impl_->same_again(info)) {
    ++impl_->slots[*id].references;
    return *impl_->snapshot(*id);
  }
  if (home.held) return fail(ErrorCode::held, detail);
  const auto id = impl_->take_slot();
  if (!id) {
    detail.limit = impl_->regions_max;
    return fail(ErrorCode::limit_reached, detail);
  }
  info.window_offset = home.offset;
  return impl_->open(*id, info, home.id, *board_, opened);
}

Result<RegionInfo> RegionTable::allocate(std::size_t size, const AllocateOptions& options, Instant opened) {
  ErrorDetail detail{.stage = Stage::memory, .length = size};
  const bool hbm = options.kind == MemoryKind::hbm;
  const bool host_only = options.huge_pages != HugePages::none || options.numa_node != k_no_numa_node;
  if (!includes(Rights::all, options.rights) || (hbm && host_only) || (!hbm && options.kind != MemoryKind::host)) {
    return fail(ErrorCode::invalid_argument, detail);
  }
  std::optional<std::uint32_t> id;
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->held_bytes > impl_->held_bytes_max) {
      detail.nearest_length = impl_->held_bytes;
      detail.limit = impl_->held_bytes_max;
      return fail(ErrorCode::limit_reached, detail);
    }
    id = impl_->take_slot();
  }
  if (!id) {
    detail.limit = impl_->regions_max;
    return fail(ErrorCode::limit_reached, detail);
  }
  RegionInfo info{.size = size, .rights = options.rights, .tag = options.tag};
  const auto made = hbm ? impl_->make_block(info, options) : impl_->make_window(info, options);
  const std::lock_guard lock(impl_->mutex);
  if (made) return impl_->open(*id, info, *made, *board_, opened);
  impl_->free_ids.push_back(*id);
  return fail(made.error());
}

/// The new window's place among `windows`, or why there is none. Outside the lock: gigabytes take a while.
Result<std::uint32_t> RegionTable::Impl::make_window(RegionInfo& info, const AllocateOptions& options) {
  auto window = Window::create(info.size, "region",
                               {.reserve = true, .huge_pages = options.huge_pages, .numa_node = options.numa_node});
  if (!window) return fail(window.error());
  info.data = (*window)->data();
  info.device = &host_device();
  info.page_bytes = (*window)->page_bytes();
  info.numa_node = (*window)->numa_node();
  const std::lock_guard lock(mutex);
  return numbered(windows.adopt(std::move(*window), options.zero_on_release), info.size);
}

Result<std::uint32_t> RegionTable::Impl::make_block(RegionInfo& info, const AllocateOptions& options) {
  auto block = hbm->allocate(info.size, options.allow_paging_to_ddr);
  if (!block) return fail(block.error());
  info.data = (*block)->data();
  info.device = block->get();
  info.page_bytes = (*block)->page_bytes();
  info.spilled_bytes = (*block)->spilled_bytes();
  const std::uint64_t begin = number(info.data);
  const std::lock_guard lock(mutex);
  // Under the lock that all writers of these two hold; relaxed, since whoever may use the address learns of it later.
  blocks_begin.store(std::min(begin, blocks_begin.load(std::memory_order_relaxed)), std::memory_order_relaxed);
  blocks_end.store(std::max(begin + (*block)->size(), blocks_end.load(std::memory_order_relaxed)),
                   std::memory_order_relaxed);
  return numbered(windows.adopt(std::move(*block)), info.size);
}

Result<std::uint32_t> RegionTable::Impl::numbered(std::uint32_t home_id, std::size_t size) {
  if (home_id != 0) return home_id;
  return fail(ErrorCode::limit_reached,
              {.stage = Stage::memory, .length = size, .limit = std::numeric_limits<std::uint32_t>::max()});
}

std::optional<std::uint32_t> RegionTable::Impl::same_again(const RegionInfo& wanted) const noexcept {
  const auto [begin, end] = open_ids_by_base.equal_range(number(wanted.data));
  const auto found = std::find_if(begin, end, [&](const auto& base_and_id) {
    const Slot& slot = slots[base_and_id.second];
    return slot.size.load() == wanted.size && slot.rights.load() == wanted.rights && slot.tag.load() == wanted.tag &&
           slot.device.load() == wanted.device;
  });
  if (found == end) return std::nullopt;
  return found->second;
}

std::optional<std::uint32_t> RegionTable::Impl::take_slot() {
  if (free_ids.empty()) {
    if (fresh_id == regions_max) return std::nullopt;
    return fresh_id++;
  }
  const std::uint32_t id = free_ids.back();
  free_ids.pop_back();
  return id;
}

/// Begins the next life of a slot; a slot whose generations are used up is never taken.
RegionInfo RegionTable::Impl::open(std::uint32_t id, RegionInfo info, std::uint32_t home_id, Board& board,
                                   Instant opened) {
  Slot& slot = slots[id];
  info.key = {id, std::max(generation_of(slot.life.load(std::memory_order_relaxed)) + 1, first_generation)};
  info.token = {random.identity(), random.next()};
  slot.data.store(info.data);
  slot.size.store(info.size);
  slot.token_high.store(info.token.high);
  slot.token_low.store(info.token.low);
  slot.device.store(info.device);
  slot.rights.store(info.rights);
  slot.tag.store(info.tag);
  slot.window_offset.store(info.window_offset);
  info.window_id = info.device->caps().mappable ? home_id : 0;
  info.owned = home_id != 0;
  slot.window_id.store(info.window_id);
  slot.home_id.store(home_id);
  slot.owned.store(info.owned);
  slot.writable.store(info.writable);
  slot.references = 1;
  slot.held = false;
  if (home_id != 0) windows.enter(home_id);
  open_ids_by_base.emplace(number(info.data), id);
  board.open(info.key);
  slot.life.store(life_of(info.key.generation, State::open), std::memory_order_seq_cst);
  const bool inserted = intervals.insert(number(info.data), info.size, ++age, id);
  HIXL_ASSERT(inserted);  // a range for each slot at most
  stories[id] = {.number = age,
                 .opened = opened.time_since_epoch().count(),
                 .page_bytes = info.page_bytes,
                 .spilled_bytes = info.spilled_bytes,
                 .numa_node = info.numa_node};
  return info;
}

void RegionTable::hold(RegionKey key) {
  const std::lock_guard lock(impl_->mutex);
  HIXL_ASSERT(key.id < impl_->regions_max);
  Slot& slot = impl_->slots[key.id];
  HIXL_ASSERT(slot.life.load(std::memory_order_relaxed) == life_of(key.generation, State::closed));
  if (!std::exchange(slot.held, true)) impl_->held_bytes += slot.size.load();
}

LeavingWindow RegionTable::retire(RegionKey key, bool keep_memory) {
  const std::lock_guard lock(impl_->mutex);
  HIXL_ASSERT(key.id < impl_->regions_max);
  Slot& slot = impl_->slots[key.id];
  HIXL_ASSERT(slot.life.load(std::memory_order_relaxed) == life_of(key.generation, State::closed));
  impl_->closing.erase(number(slot.data.load()), key.id);
  slot.life.store(life_of(key.generation, State::free), std::memory_order_seq_cst);
  if (keep_memory && !slot.held) impl_->held_bytes += slot.size.load();
  if (!keep_memory && slot.held) impl_->held_bytes -= slot.size.load();
  const bool used_up = key.generation == std::numeric_limits<std::uint32_t>::max();
  if (!keep_memory && !used_up) impl_->free_ids.push_back(key.id);
  return slot.home_id.load() == 0 ? LeavingWindow{} : impl_->windows.leave(slot.home_id.load(), keep_memory);
}

bool RegionTable::on_device(const void* data, std::uint64_t length) const {
  const std::uint64_t address = number(data);
  if (address >= impl_->blocks_end.load(std::memory_order_relaxed)) return false;
  const std::uint64_t begin = impl_->blocks_begin.load(std::memory_order_relaxed);
  if (address < begin && begin - address >= length) return false;
  const std::lock_guard lock(impl_->mutex);
  return impl_->windows.touches_block(static_cast<const std::byte*>(data), length);
}

HbmHeap::Usage RegionTable::hbm_usage() const { return impl_->hbm->usage(); }

}  // namespace hixl::memory
