// SPDX-License-Identifier: Apache-2.0
//
// A slot's `life` is its generation and state in one word. It opens after the slot's fields are written and closes
// before they may change, so a reader that sees the same open life before and after has read one region.
//
// Pinning and closing announce first and look second, both seq_cst: a pin counts itself and then reads the life;
// closing stores the life and then reads the count. One of the two sees the other.
#include "memory/region_table.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/assert.hpp"
#include "base/random.hpp"
#include "memory/region_windows.hpp"
#include "memory/sequence.hpp"
#include "memory/sparse_array.hpp"

namespace hixl::memory {
namespace {

using Word = Cell<std::uint64_t>;
using Kind = IntervalTable::Answer::Kind;

enum class State : std::uint32_t { free = 0, open = 1, closed = 2 };

constexpr std::uint64_t life_of(std::uint32_t generation, State state) noexcept {
  return std::uint64_t{generation} << 32U | static_cast<std::uint64_t>(state);
}
constexpr State state_of(std::uint64_t life) noexcept { return static_cast<State>(life & 0xffffffffU); }
constexpr std::uint32_t generation_of(std::uint64_t life) noexcept { return static_cast<std::uint32_t>(life >> 32U); }

// A look-up is repeated when the region it found ended before it could be used, so that an older one that holds the
// range, or a new one in its place, gets its turn. Losing that race four times in one call is told as STALE.
constexpr int k_attempts = 4;

std::uint64_t number(const void* data) noexcept { return reinterpret_cast<std::uint64_t>(data); }

/// No arithmetic here can wrap.
bool holds(const std::byte* data, std::uint64_t size, std::uint64_t address, std::uint64_t length) noexcept {
  return address >= number(data) && address - number(data) <= size && length <= size - (address - number(data));
}

/// The first cache line is read by all, the second written by those who pin.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> life;
  Cell<std::byte*> data;
  Word size;
  Word token_high;
  Word token_low;
  Cell<Device*> device;
  Cell<Rights> rights;
  Cell<std::uint32_t> tag;
  // Counts over all lives: a thread that comes too late may count itself in the next one for a moment.
  alignas(64) std::atomic<std::uint64_t> pins;
  Word window_offset;
  Cell<std::uint32_t> window_id;
  std::uint64_t references;  // under the lock
};

/// Whether each page of the range is mapped. With MS_ASYNC the kernel walks its list of mappings and does nothing else
/// (msync(2): ENOMEM for a hole), so the cost does not depend on the size.
bool mapped(const void* data, std::size_t size) noexcept {
  const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = number(data) & ~(page - 1);
  const std::uint64_t bytes = number(data) - begin + size;
  errno = ENOMEM;
  // The kernel rounds the length up without looking for a wrap; nothing is mapped in the last page anyway.
  if (bytes > std::numeric_limits<std::uint64_t>::max() - page) return false;
  return ::msync(reinterpret_cast<void*>(begin), bytes, MS_ASYNC) == 0;
}

}  // namespace

struct RegionTable::Impl {
  Impl(std::uint32_t max, std::uint64_t seed, std::uint32_t first)
      : regions_max(max), first_generation(first), slots(max), intervals(max), closing(max), random(seed) {}

  // Any thread.
  [[nodiscard]] std::optional<RegionInfo> snapshot(std::uint32_t id) const noexcept;
  [[nodiscard]] tl::unexpected<Error> refuse(std::uint64_t address, std::uint64_t length) const noexcept;
  // Under the lock.
  [[nodiscard]] std::optional<std::uint32_t> same_again(const RegionInfo& wanted) const noexcept;
  [[nodiscard]] std::optional<std::uint32_t> take_slot();
  [[nodiscard]] RegionInfo open(std::uint32_t id, RegionInfo info, Board& board);

  const std::uint32_t regions_max;
  const std::uint32_t first_generation;
  SparseArray<Slot> slots;
  IntervalTable intervals;  // open regions
  IntervalTable closing;    // closed ones until they retire, to tell STALE from NOT_REGISTERED
  mutable std::mutex mutex;             // guards all below
  std::vector<std::uint32_t> free_ids;  // used before
  std::uint32_t fresh_id = 0;           // from here on never used
  std::multimap<std::uint64_t, std::uint32_t> open_ids_by_base;
  RegionWindows windows;
  Random random;
  std::uint64_t age = 0;
  std::uint64_t held_bytes = 0;
};

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

RegionTable::RegionTable(std::unique_ptr<Board> board, std::unique_ptr<Impl> impl)
    : board_(std::move(board)), impl_(std::move(impl)) {}
RegionTable::~RegionTable() = default;

Result<std::unique_ptr<RegionTable>> RegionTable::create(std::uint32_t regions_max, std::uint64_t seed,
                                                         std::uint32_t first_generation) {
  if (regions_max == 0 || first_generation == 0) return fail(ErrorCode::invalid_argument, {.stage = Stage::memory});
  auto board = Board::create(regions_max);
  if (!board) return fail(board.error());
  auto impl = std::make_unique<Impl>(regions_max, seed, first_generation);
  if (impl->slots.size() == 0 || impl->intervals.capacity() == 0 || impl->closing.capacity() == 0) {
    return fail(ErrorCode::no_memory, {.stage = Stage::memory, .os_error = ENOMEM, .limit = regions_max});
  }
  return std::unique_ptr<RegionTable>(new RegionTable(std::move(*board), std::move(impl)));
}

Result<RegionInfo> RegionTable::add(void* data, std::size_t size, const RegisterOptions& options, Device& device) {
  ErrorDetail detail{.stage = Stage::memory, .address = number(data), .length = size};
  if (size == 0 || !includes(Rights::all, options.rights)) return fail(ErrorCode::invalid_argument, detail);
  if (size > std::numeric_limits<std::uint64_t>::max() - number(data)) return fail(ErrorCode::out_of_range, detail);
  if (device.caps().cpu_addressable && !mapped(data, size)) {
    detail.os_error = errno;
    return fail(ErrorCode::memory_unmapped, detail);
  }
  RegionInfo info{.data = static_cast<std::byte*>(data), .size = size, .rights = options.rights, .tag = options.tag,
                  .device = &device};
  const std::lock_guard lock(impl_->mutex);
  if (const auto id = impl_->same_again(info)) {
    ++impl_->slots[*id].references;
    return *impl_->snapshot(*id);
  }
  const auto home = &device == &host_device() ? impl_->windows.home_of(info.data, size) : RegionWindows::Home{};
  if (home.held) return fail(ErrorCode::held, detail);
  const auto id = impl_->take_slot();
  if (!id) {
    detail.limit = impl_->regions_max;
    return fail(ErrorCode::limit_reached, detail);
  }
  info.window_id = home.window_id;
  info.window_offset = home.offset;
  return impl_->open(*id, info, *board_);
}

Result<RegionInfo> RegionTable::allocate(std::size_t size, const AllocateOptions& options) {
  ErrorDetail detail{.stage = Stage::memory, .length = size};
  if (!includes(Rights::all, options.rights)) return fail(ErrorCode::invalid_argument, detail);
  std::optional<std::uint32_t> id;
  {
    const std::lock_guard lock(impl_->mutex);
    id = impl_->take_slot();
  }
  if (!id) {
    detail.limit = impl_->regions_max;
    return fail(ErrorCode::limit_reached, detail);
  }
  auto window = Window::create(size, "region");  // outside the lock: gigabytes take a while
  const std::lock_guard lock(impl_->mutex);
  if (!window) {
    impl_->free_ids.push_back(*id);
    return fail(window.error());
  }
  RegionInfo info{.data = (*window)->data(), .size = size, .rights = options.rights, .tag = options.tag,
                  .device = &host_device()};
  info.window_id = impl_->windows.adopt(std::move(*window), options.zero_on_release);
  if (info.window_id == 0) {
    impl_->free_ids.push_back(*id);
    detail.limit = std::numeric_limits<std::uint32_t>::max();
    return fail(ErrorCode::limit_reached, detail);
  }
  return impl_->open(*id, info, *board_);
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
RegionInfo RegionTable::Impl::open(std::uint32_t id, RegionInfo info, Board& board) {
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
  slot.window_id.store(info.window_id);
  slot.references = 1;
  if (info.window_id != 0) windows.enter(info.window_id);
  open_ids_by_base.emplace(number(info.data), id);
  board.open(info.key);
  slot.life.store(life_of(info.key.generation, State::open), std::memory_order_seq_cst);
  const bool inserted = intervals.insert(number(info.data), info.size, ++age, id);
  HIXL_ASSERT(inserted);  // a range for each slot at most
  return info;
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
                        .device = slot.device.load()};
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

Result<Pin> RegionTable::pin(const void* data, std::uint64_t length) {
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
    if (holds(slot.data.load(), slot.size.load(), address, length)) return pin;
  }
  return impl_->refuse(address, length);
}

Result<RegionTable::Place> RegionTable::check(RegionKey key, const Token& token, std::uint64_t offset,
                                              std::uint64_t length, Rights need) const noexcept {
  ErrorDetail detail{.stage = Stage::remote_check, .length = length};
  const auto info = impl_->snapshot(key.id);
  if (!info || info->key != key) return fail(ErrorCode::stale, detail);
  if (token != info->token) return fail(ErrorCode::access_denied, detail);  // a stranger learns nothing more
  detail.address = number(info->data) + offset;
  detail.nearest_base = number(info->data);
  detail.nearest_length = info->size;
  if (!includes(info->rights, need)) return fail(ErrorCode::access_denied, detail);
  if (offset > info->size || length > info->size - offset) {
    detail.limit = offset > info->size ? 0 : info->size - offset;
    return fail(ErrorCode::out_of_range, detail);
  }
  return Place{info->data + offset, info->device};
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

std::uint32_t RegionTable::retire(RegionKey key, bool keep_memory) {
  const LeavingWindow leaving = [&]() -> LeavingWindow {
    const std::lock_guard lock(impl_->mutex);
    HIXL_ASSERT(key.id < impl_->regions_max);
    Slot& slot = impl_->slots[key.id];
    HIXL_ASSERT(slot.life.load(std::memory_order_relaxed) == life_of(key.generation, State::closed));
    impl_->closing.erase(number(slot.data.load()), key.id);
    slot.life.store(life_of(key.generation, State::free), std::memory_order_seq_cst);
    if (keep_memory) impl_->held_bytes += slot.size.load();
    const bool used_up = key.generation == std::numeric_limits<std::uint32_t>::max();
    if (!keep_memory && !used_up) impl_->free_ids.push_back(key.id);
    if (slot.window_id.load() == 0) return {};
    return impl_->windows.leave(slot.window_id.load(), keep_memory);
  }();
  return leaving.id();
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

std::uint64_t RegionTable::held_bytes() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->held_bytes;
}

}  // namespace hixl::memory
