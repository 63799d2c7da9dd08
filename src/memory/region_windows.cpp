// SPDX-License-Identifier: Apache-2.0
#include "memory/region_windows.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/assert.hpp"

namespace hixl::memory {
namespace {

std::uintptr_t base_of(const std::byte* data) noexcept { return reinterpret_cast<std::uintptr_t>(data); }

}  // namespace

LeavingWindow::LeavingWindow(std::uint32_t id, std::unique_ptr<Window> window, std::unique_ptr<HbmBlock> block)
    : id_(id), window_(std::move(window)), block_(std::move(block)) {}

LeavingWindow::~LeavingWindow() { give_back(std::numeric_limits<std::size_t>::max()); }

std::size_t LeavingWindow::give_back(std::size_t bytes_max) noexcept {
  if (empty()) return 0;
  const std::size_t size = window_ != nullptr ? window_->size() : block_->size();
  const std::size_t bytes = std::min(bytes_max / HbmBlock::page_bytes() * HbmBlock::page_bytes(), size - given_back_);
  if (bytes != 0) window_ != nullptr ? window_->give_back(given_back_, bytes) : block_->give_back(given_back_, bytes);
  given_back_ += bytes;
  if (given_back_ == size) {
    window_.reset();
    block_.reset();
  }
  return bytes;
}

RegionWindows::~RegionWindows() {
  for (auto& [id, record] : records_) {
    if (record.zero_on_release) LeavingWindow(id, std::move(record.window), nullptr);
  }
}

std::uint32_t RegionWindows::adopt(std::unique_ptr<Window> window, bool zero_on_release) {
  Record record;
  record.window = std::move(window);
  record.zero_on_release = zero_on_release;
  return adopt(std::move(record));
}

std::uint32_t RegionWindows::adopt(std::unique_ptr<HbmBlock> block) {
  Record record;
  record.block = std::move(block);
  return adopt(std::move(record));
}

std::uint32_t RegionWindows::adopt(Record record) {
  if (last_id_ == std::numeric_limits<std::uint32_t>::max()) return 0;
  const std::uint32_t id = ++last_id_;
  ids_by_base_[base_of(record.data())] = id;
  records_[id] = std::move(record);
  return id;
}

RegionWindows::Home RegionWindows::home_of(const std::byte* data, std::size_t size) const {
  auto next = ids_by_base_.upper_bound(base_of(data));
  if (next == ids_by_base_.begin()) return {};
  const auto& [base, id] = *std::prev(next);
  const Record& record = records_.at(id);
  const std::uint64_t offset = base_of(data) - base;
  if (offset > record.size() || size > record.size() - offset) return {};
  return {.id = id, .offset = offset, .held = record.held, .device = record.block.get()};
}

bool RegionWindows::touches_block(const std::byte* data, std::size_t size) const {
  const std::uintptr_t first = base_of(data);
  const std::uintptr_t last = first + std::min<std::uintptr_t>(size, ~first);
  for (auto next = ids_by_base_.upper_bound(last); next != ids_by_base_.begin();) {
    --next;
    const Record& record = records_.at(next->second);
    if (next->first + record.size() <= first) return false;
    if (record.block != nullptr && next->first < last) return true;
  }
  return false;
}

void RegionWindows::enter(std::uint32_t id) { ++records_.at(id).regions; }

LeavingWindow RegionWindows::leave(std::uint32_t id, bool hold) {
  const auto found = records_.find(id);
  HIXL_ASSERT(found != records_.end() && found->second.regions > 0);
  Record& record = found->second;
  record.held = record.held || hold;
  --record.regions;
  if (record.regions > 0 || record.held) return {};
  ids_by_base_.erase(base_of(record.data()));
  const bool mapped_by_peers = record.window != nullptr;
  LeavingWindow leaving(mapped_by_peers ? id : 0, std::move(record.window), std::move(record.block));
  records_.erase(found);
  return leaving;
}

const Window* RegionWindows::find(std::uint32_t id) const {
  const auto found = records_.find(id);
  return found == records_.end() || found->second.regions == 0 ? nullptr : found->second.window.get();
}

}  // namespace hixl::memory
