// SPDX-License-Identifier: Apache-2.0
//
// PeerWindows: the windows of one peer that are mapped here for one link, and the regions that lie in them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <hixl/result.hpp>
#include <hixl/types.hpp>

#include "links/attached.hpp"
#include "memory/remote_table.hpp"
#include "memory/window.hpp"
#include "runtime/event_port.hpp"
#include "wire/messages.hpp"

namespace hixl::links {

/// Loop-bound. Close: clear() takes the mappings out of the table; destruction unmaps.
class PeerWindows {
 public:
  enum class Step : std::uint8_t {
    mapped,   ///< usable now
    waiting,  ///< its window has been asked for
    request,  ///< the same, and this is the first: ask for the window
  };

  explicit PeerWindows(memory::RemoteTable& remotes) : remotes_(remotes) {}

  /// OUT_OF_RANGE when the region does not lie inside its window.
  [[nodiscard]] Result<Step> attach(const wire::RegionDescriptor& region);
  /// The peer's answer. Adds what became of the regions that waited. MALFORMED_FRAME: not asked for, or no answer.
  [[nodiscard]] Result<void> on_window(const wire::WindowBody& window, const runtime::Fd& fd,
                                       std::vector<Attached>& attached);
  /// The peer's window is gone. The memory goes back at once; the address range stays taken until the end, because
  /// a caller's thread may hold a pointer into it, and a peer that drops a window which it has not closed must not
  /// crash that thread.
  /// Adds its regions, as STALE.
  void drop(std::uint32_t window_id, std::vector<Attached>& attached);
  void clear();
  /// After clear(), when nobody holds a pointer any more: unmaps a part; true when little is left.
  [[nodiscard]] bool give_back() noexcept;

 private:
  struct Window {
    std::unique_ptr<memory::MappedWindow> mapping;  // null while the answer is awaited
    std::vector<wire::RegionDescriptor> waiting;
    std::map<std::uint32_t, RegionKey> regions;  // by id: a later life replaces the earlier one
  };
  [[nodiscard]] Result<void> place(Window& window, const wire::RegionDescriptor& region);
  void forget(const Window& window);

  memory::RemoteTable& remotes_;
  std::map<std::uint32_t, Window> windows_;
  std::vector<std::unique_ptr<memory::MappedWindow>> detached_;
};

}  // namespace hixl::links
