// SPDX-License-Identifier: Apache-2.0
#include "memory/region_windows.hpp"

#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "base/assert.hpp"

namespace hixl::memory {
namespace {

std::uintptr_t number(const std::byte* data) noexcept { return reinterpret_cast<std::uintptr_t>(data); }

}  // namespace

LeavingWindow::LeavingWindow(std::uint32_t id, std::unique_ptr<Window> window, bool zero)
    : id_(id), window_(std::move(window)), zero_(zero) {}

LeavingWindow::~LeavingWindow() {
  // A peer that still maps the window keeps its pages alive, but finds nothing in them.
  if (window_ != nullptr && zero_) std::memset(window_->data(), 0, window_->size());
}

RegionWindows::~RegionWindows() {
  for (auto& [id, record] : records_) LeavingWindow(id, std::move(record.window), record.zero_on_release);
}

std::uint32_t RegionWindows::adopt(std::unique_ptr<Window> window, bool zero_on_release) {
  if (last_id_ == std::numeric_limits<std::uint32_t>::max()) return 0;
  const std::uint32_t id = ++last_id_;
  ids_by_base_[number(window->data())] = id;
  records_[id] = {.window = std::move(window), .regions = 0, .zero_on_release = zero_on_release, .held = false};
  return id;
}

RegionWindows::Home RegionWindows::home_of(const std::byte* data, std::size_t size) const {
  auto next = ids_by_base_.upper_bound(number(data));
  if (next == ids_by_base_.begin()) return {};
  const auto& [base, id] = *std::prev(next);
  const Record& record = records_.at(id);
  const std::uint64_t offset = number(data) - base;
  if (offset > record.window->size() || size > record.window->size() - offset) return {};
  return {id, offset, record.held};
}

void RegionWindows::enter(std::uint32_t window_id) { ++records_.at(window_id).regions; }

LeavingWindow RegionWindows::leave(std::uint32_t window_id, bool hold) {
  const auto found = records_.find(window_id);
  HIXL_ASSERT(found != records_.end() && found->second.regions > 0);
  Record& record = found->second;
  record.held = record.held || hold;
  --record.regions;
  if (record.regions > 0 || record.held) return {};
  ids_by_base_.erase(number(record.window->data()));
  LeavingWindow leaving(window_id, std::move(record.window), record.zero_on_release);
  records_.erase(found);
  return leaving;
}

const Window* RegionWindows::find(std::uint32_t window_id) const {
  const auto found = records_.find(window_id);
  return found == records_.end() || found->second.regions == 0 ? nullptr : found->second.window.get();
}

}  // namespace hixl::memory
