// SPDX-License-Identifier: Apache-2.0
//
// HccsLink: the window link. Its frames carry control only; data is copied by this side into the peer's mapped windows,
// under announcements of the lane, so that the peer can revoke and fence.
//
// Set-up, both sides at once: each offers descriptors of its board, lane page, signal page and process; each answers
// the other's offer with the number that it found in the lane page. A side is up when it has done the one and got the
// other. Everything from the peer is hostile until checked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "links/hccs/copy_pool.hpp"
#include "links/hccs/peer_windows.hpp"
#include "links/link.hpp"
#include "links/sequencer.hpp"

namespace hixl::links {

[[nodiscard]] const LinkCaps& hccs_caps() noexcept;

class HccsLink final : public Link, private FrameSink, private CopyClient {
 public:
  HccsLink(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream, const LinkServices& services,
           LinkEvents& events, CopyPool& pool);
  /// If the owner could not wait for drained(): waits for the pieces that engines are at.
  ~HccsLink() override;

  [[nodiscard]] const LinkCaps& caps() const noexcept override { return hccs_caps(); }
  [[nodiscard]] Answer post(const Post& post) override;
  std::size_t poll(std::span<Completion> out) override;
  [[nodiscard]] bool send(wire::FrameType type, ConstBytes body) override;
  [[nodiscard]] Answer attach(const wire::RegionDescriptor& region) override;
  [[nodiscard]] bool revoke(RegionKey key) override;
  void close() override;
  [[nodiscard]] bool drained() override;
  [[nodiscard]] const wire::ExecutedSet& executed() const noexcept override { return sequencer_.executed_set(); }
  [[nodiscard]] LinkSeq sequence_of(std::uint64_t) const noexcept override { return 0; }  // posts are no frames
  [[nodiscard]] bool abandon(std::uint64_t cookie) override;
  void drop_window(std::uint32_t window_id) override;
  [[nodiscard]] memory::Lane* lane() noexcept override { return up() ? lane_.get() : nullptr; }
  [[nodiscard]] memory::SignalBell* bell() noexcept override { return up() ? bell_.get() : nullptr; }
  [[nodiscard]] int pidfd() const noexcept override { return peer_process_.get(); }
  [[nodiscard]] Instant last_heard() const noexcept override { return last_heard_; }
  [[nodiscard]] Traffic traffic() const noexcept override { return traffic_; }

 private:
  /// A frame of the link itself that has yet to leave. Its body is made when it does.
  struct Order {
    wire::FrameType type;
    std::uint32_t window_id;
  };
  enum class State : std::uint8_t { setting_up, up, broken, closed };
  struct EventTask final : runtime::Task {
    explicit EventTask(HccsLink& link) : owner(link) {}
    void run() override { owner.deliver(); }
    HccsLink& owner;
  };

  // ---- FrameSink ----
  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) override;
  void on_payload_start(const wire::FrameHeader& header, ConstBytes body) override;
  std::size_t payload_target(std::uint64_t, std::span<iovec>) override { return 0; }
  void on_payload_bytes(std::size_t) override {}
  void on_payload_end() override {}
  void on_sendable() override { send_orders_and_offer_credit(); }
  void on_sent(std::uint64_t) override {}
  void on_down(const Error& error) override { break_down(error); }

  // ---- frames of this kind ----
  [[nodiscard]] Result<void> handle(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds);
  [[nodiscard]] Result<void> handle_set_up(wire::FrameType type, ConstBytes body, std::vector<runtime::Fd>& fds);
  [[nodiscard]] Result<void> handle_window(wire::FrameType type, ConstBytes body, std::vector<runtime::Fd>& fds);
  [[nodiscard]] Result<void> on_offer(ConstBytes body, std::vector<runtime::Fd>& fds);
  [[nodiscard]] Result<void> on_ready(ConstBytes body);
  [[nodiscard]] Result<void> on_ack(ConstBytes body);
  [[nodiscard]] Result<void> prepare();
  [[nodiscard]] Result<void> order(wire::FrameType type, std::uint32_t window_id);
  [[nodiscard]] bool send_order(const Order& order);
  void send_orders_and_offer_credit();

  // ---- posts ----
  [[nodiscard]] Answer post_signal(const Post& post, std::byte* mapped);
  [[nodiscard]] Answer post_short(const Post& post, std::byte* mapped, std::uint64_t bytes);
  [[nodiscard]] Answer post_long(const Post& post, std::byte* mapped);
  [[nodiscard]] Answer refuse(const Post& post, ErrorCode code);
  [[nodiscard]] Answer busy();
  [[nodiscard]] bool take_turn_budget(std::uint64_t bytes);
  void on_copied(memory::CopyJob& job) override;
  void count(bool outgoing, std::uint64_t bytes) noexcept;

  // ---- events ----
  [[nodiscard]] bool up() const noexcept { return state_ == State::up; }
  [[nodiscard]] bool alive() const noexcept { return state_ == State::up || state_ == State::setting_up; }
  void complete(std::uint64_t cookie, const Error& error);
  void become_up();
  void break_down(const Error& error);
  [[nodiscard]] bool event_due() const noexcept;
  void schedule_events();
  void deliver();
  [[nodiscard]] Error located(Error error) const noexcept;

  const LinkIdentity identity_;
  const LinkServices services_;
  LinkEvents& events_;
  CopyPool& pool_;
  std::unique_ptr<FrameStream> stream_;
  Sequencer sequencer_;
  State state_ = State::setting_up;
  Instant last_heard_;
  Traffic traffic_{};

  // Ours, for the peer.
  std::uint64_t challenge_;
  std::unique_ptr<memory::LaneDoor> door_;
  runtime::Fd own_process_;
  bool answered_ = false;  // the peer has proved that it sees our memory
  // The peer's, for us.
  std::unique_ptr<memory::Lane> lane_;
  std::unique_ptr<memory::SignalBell> bell_;
  runtime::Fd peer_process_;
  PeerWindows windows_;

  std::deque<Order> orders_;
  std::unique_ptr<memory::CopyJob[]> jobs_;  // tx_depth of them; those with an owner are at an engine
  std::vector<memory::CopyJob*> free_jobs_;
  std::vector<Completion> completions_;
  Instant budget_turn_{};
  std::uint64_t budget_left_ = 0;

  // Events that wait for the task.
  std::vector<PeerWindows::Attached> attached_;
  std::size_t attached_told_ = 0;
  bool completions_due_ = false;
  bool completions_told_ = false;
  bool credit_wanted_ = false;
  bool credit_due_ = false;
  bool down_due_ = false;
  Error down_error_{};
  EventTask event_task_{*this};
};

}  // namespace hixl::links
