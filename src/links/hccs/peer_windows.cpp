// SPDX-License-Identifier: Apache-2.0
#include "links/hccs/peer_windows.hpp"

namespace hixl::links {
namespace {

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

}  // namespace hixl::links
