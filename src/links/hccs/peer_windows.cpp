// SPDX-License-Identifier: Apache-2.0
#include "links/hccs/peer_windows.hpp"

#include <algorithm>
#include <iterator>

namespace hixl::links {
namespace {

/// Unmapped at a time: 3 ms where a core is free, and some tens where it is not, each below the lag at which the loop
/// warns. A multiple of the common huge pages (2 MiB), so that those come off in pieces as well.
constexpr std::size_t k_unmapped_at_a_time = 16U << 20U;
/// What a small window counts: the call takes as long as some pages do.
constexpr std::size_t k_least_cost = 64U << 10U;

Result<std::unique_ptr<memory::MappedWindow>> map(const wire::WindowBody& window, const runtime::Fd& fd) {
  const auto code = static_cast<ErrorCode>(window.code);
  if (code != ErrorCode::ok) return fail(code, {.stage = Stage::exchange});
  return memory::MappedWindow::map(fd.get(), window.bytes, true);
}

bool well_formed(const wire::WindowBody& window, const runtime::Fd& fd) {
  const auto code = static_cast<ErrorCode>(window.code);
  if (code == ErrorCode::ok) return static_cast<bool>(fd);
  return name(code) != "UNKNOWN" && !fd;
}

}  // namespace

Result<PeerWindows::Step> PeerWindows::attach(const wire::RegionDescriptor& region) {
  const auto [entry, fresh] = windows_.try_emplace(region.window_id);
  Window& window = entry->second;
  if (window.mapping == nullptr) {
    window.waiting.push_back(region);
    return fresh ? Step::request : Step::waiting;
  }
  if (const Result<void> placed = place(window, region); !placed) return fail(placed.error());
  return Step::mapped;
}

Result<void> PeerWindows::place(Window& window, const wire::RegionDescriptor& region) {
  const std::uint64_t size = window.mapping->size();
  if (region.length > size || region.window_offset > size - region.length) {
    return fail(
        ErrorCode::out_of_range,
        {.stage = Stage::exchange, .address = region.window_offset, .length = region.length, .nearest_length = size});
  }
  remotes_.set_mapping(region.key, window.mapping->data() + region.window_offset);
  window.regions[region.key.id] = region.key;
  return {};
}

Result<void> PeerWindows::on_window(const wire::WindowBody& answer, const runtime::Fd& fd,
                                    std::vector<Attached>& attached) {
  const auto entry = windows_.find(answer.window_id);
  if (entry == windows_.end() || entry->second.mapping != nullptr || !well_formed(answer, fd)) {
    return fail(ErrorCode::malformed_frame, {.stage = Stage::exchange, .length = answer.window_id});
  }
  Window& window = entry->second;
  const std::vector<wire::RegionDescriptor> waiting = std::move(window.waiting);
  window.waiting.clear();
  auto mapping = map(answer, fd);
  if (!mapping) {
    windows_.erase(entry);  // a later attach() asks again
    for (const auto& region : waiting) attached.push_back({region.key, fail(mapping.error())});
    return {};
  }
  window.mapping = std::move(*mapping);
  for (const auto& region : waiting) attached.push_back({region.key, place(window, region)});
  return {};
}

void PeerWindows::forget(const Window& window) {
  if (window.mapping == nullptr) return;
  const std::byte* const begin = window.mapping->data();
  for (const auto& [id, key] : window.regions) {
    // Another link may have mapped the region meanwhile: that mapping is not ours to take back.
    const std::byte* const data = remotes_.mapping(key);
    if (data >= begin && data < begin + window.mapping->size()) remotes_.set_mapping(key, nullptr);
  }
}

void PeerWindows::drop(std::uint32_t window_id, std::vector<Attached>& attached) {
  const auto entry = windows_.find(window_id);
  // One that is awaited will be refused by its answer.
  if (entry == windows_.end() || entry->second.mapping == nullptr) return;
  forget(entry->second);
  for (const auto& [id, key] : entry->second.regions) {
    attached.push_back({key, fail(ErrorCode::stale, {.stage = Stage::remote_check})});
  }
  entry->second.mapping->detach();
  detached_.push_back(std::move(entry->second.mapping));
  windows_.erase(entry);
}

void PeerWindows::clear() {
  for (const auto& [id, window] : windows_) forget(window);
}

bool PeerWindows::give_back() noexcept {
  for (std::size_t budget = k_unmapped_at_a_time; budget > 0;) {
    if (detached_.empty() && windows_.empty()) return true;
    const bool old = !detached_.empty();
    memory::MappedWindow* const mapping =
        old ? detached_.back().get() : std::prev(windows_.end())->second.mapping.get();
    const std::size_t size = mapping != nullptr ? mapping->size() : 0;
    if (mapping != nullptr && !mapping->shrink(k_unmapped_at_a_time)) return false;
    old ? detached_.pop_back() : static_cast<void>(windows_.erase(std::prev(windows_.end())));
    budget -= std::min(budget, std::max(size, k_least_cost));
  }
  return detached_.empty() && windows_.empty();
}

}  // namespace hixl::links
