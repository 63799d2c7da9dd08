// SPDX-License-Identifier: Apache-2.0
//
// HccsLink: the window link. Data is copied by this side into the peer's mapped windows, long posts by copy engines;
// signals and atomics are executed on the words in them.
//
// Its offer brings board, lane page, signal page and process; windows are asked for by number when a region is
// attached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "links/hccs/peer_windows.hpp"
#include "links/host_link.hpp"

namespace hixl::links {

[[nodiscard]] const LinkCaps& hccs_caps() noexcept;

class HccsLink final : public HostLink {
 public:
  HccsLink(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream, const LinkServices& services,
           LinkEvents& events, CopyPool& pool);
  ~HccsLink() override;

  [[nodiscard]] const LinkCaps& caps() const noexcept override { return hccs_caps(); }
  [[nodiscard]] Answer post(const Post& post) override;
  [[nodiscard]] Answer attach(const wire::RegionDescriptor& region) override;
  void drop_window(std::uint32_t window_id) override;
  [[nodiscard]] memory::Lane* lane() noexcept override { return up() ? lane_.get() : nullptr; }
  [[nodiscard]] memory::SignalBell* bell() noexcept override { return up() ? bell_.get() : nullptr; }

 private:
  [[nodiscard]] bool send_order(const Order& order) override;
  [[nodiscard]] Result<void> on_offer(ConstBytes body, std::vector<runtime::Fd>& fds) override;
  [[nodiscard]] Result<void> on_ready(ConstBytes body) override;
  [[nodiscard]] std::optional<Result<void>> handle_own(wire::FrameType type, ConstBytes body,
                                                       std::vector<runtime::Fd>& fds) override;
  [[nodiscard]] Result<void> handle_window(wire::FrameType type, ConstBytes body, std::vector<runtime::Fd>& fds);
  void on_close() override { windows_.clear(); }
  bool give_back() override { return windows_.give_back(); }

  [[nodiscard]] Answer post_word(const Post& post, std::byte* mapped);
  [[nodiscard]] Answer post_short(const Post& post, std::byte* mapped, std::uint64_t bytes);
  [[nodiscard]] Answer post_long(const Post& post, std::byte* mapped);

  std::unique_ptr<memory::SignalBell> bell_;
  PeerWindows windows_;
};

}  // namespace hixl::links
