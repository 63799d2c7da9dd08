// SPDX-License-Identifier: Apache-2.0
//
// HostLink: what the links between two processes of one host have in common. Their frames carry control only; data is
// copied by this side into the peer's memory, under announcements of the lane, so that the peer can revoke and fence.
// How the peer's memory is reached is what the kinds differ in.
//
// Set-up, both sides at once: each offers descriptors of its board, lane page and process (and what its kind needs
// besides); each answers the other's offer with the number that it found in the lane page. A side is up when it has
// done the one and got the other. Everything from the peer is hostile until checked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "links/attached.hpp"
#include "links/copy_pool.hpp"
#include "links/link.hpp"
#include "links/sequencer.hpp"

namespace hixl::links {

/// Posts up to this size are copied by the loop itself: some 5 µs, less than handing them to another thread and back.
inline constexpr std::uint64_t k_short_bytes_max = 64U << 10U;

[[nodiscard]] std::uint64_t total_bytes(std::span<const Segment> segments) noexcept;
/// How a copy that did not run is told to the owner. LINK_FAILED means: not executed, through no fault of the post.
[[nodiscard]] ErrorCode code_of(memory::Lane::Outcome outcome) noexcept;
[[nodiscard]] ErrorCode code_of(memory::CopyJob::Outcome outcome) noexcept;

class HostLink : public Link, private FrameSink, private CopyClient {
 public:
  std::size_t poll(std::span<Completion> out) final;
  [[nodiscard]] bool send(wire::FrameType type, ConstBytes body) final;
  [[nodiscard]] bool revoke(RegionKey key) final;
  void close() final;
  [[nodiscard]] bool drained() final;
  [[nodiscard]] const wire::ExecutedSet& executed() const noexcept final { return sequencer_.executed_set(); }
  [[nodiscard]] LinkSeq sequence_of(std::uint64_t) const noexcept final { return 0; }  // posts are no frames
  [[nodiscard]] bool abandon(std::uint64_t cookie) final;
  [[nodiscard]] int pidfd() const noexcept final { return peer_process_.get(); }
  [[nodiscard]] Instant last_heard() const noexcept final { return last_heard_; }
  [[nodiscard]] Traffic traffic() const noexcept final { return traffic_; }

 protected:
  /// The two frames of a kind's set-up.
  struct SetUpFrames {
    wire::FrameType offer;
    wire::FrameType ready;
  };
  /// A frame of the link itself that has yet to leave. Its body is made when it does.
  struct Order {
    wire::FrameType type;
    std::uint32_t window_id;
  };
  enum class State : std::uint8_t { setting_up, up, broken, closed };
  /// What every offer has; the descriptors stay the caller's.
  struct Offered {
    std::uint64_t challenge;
    std::uint32_t regions_max;
    const runtime::Fd& board;
    const runtime::Fd& page;
    const runtime::Fd& process;
  };

  HostLink(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream, const LinkServices& services,
           LinkEvents& events, CopyPool& pool, const SetUpFrames& frames);
  ~HostLink() override = default;
  /// Last in the constructor of a kind: prepares this side's half and sends the offer.
  void begin();
  /// First in the destructor of a kind: closes, and if the owner could not wait for drained(), waits for the pieces
  /// that engines are at.
  void let_go();

  // ---- what the kinds differ in ----
  [[nodiscard]] virtual bool send_order(const Order& order) = 0;
  [[nodiscard]] virtual Result<void> on_offer(ConstBytes body, std::vector<runtime::Fd>& fds) = 0;
  [[nodiscard]] virtual Result<void> on_ready(ConstBytes body) = 0;
  /// What has to be done besides offer and answer.
  [[nodiscard]] virtual bool proved() const noexcept { return true; }
  /// Another frame of the kind; nothing: not one of its own.
  [[nodiscard]] virtual std::optional<Result<void>> handle_own(wire::FrameType type, ConstBytes body,
                                                               std::vector<runtime::Fd>& fds);
  /// The link closes: nothing of the peer's memory is found through it any more.
  virtual void on_close() {}
  /// What the end of a job means for its post.
  [[nodiscard]] virtual Error error_of(const memory::CopyJob& job) { return Error(code_of(job.outcome)); }

  // ---- frames (host_link_frames.cpp) ----
  [[nodiscard]] Result<std::unique_ptr<memory::Lane>> open_lane(const Offered& offered) const;
  /// The offer was right: from now on the peer's copies are let in.
  void accept_peer(std::unique_ptr<memory::Lane> lane, runtime::Fd process);
  /// The peer's answer: it has seen the lane page.
  [[nodiscard]] Result<void> check_answer(std::uint64_t challenge) const;
  /// Up, if nothing is missing. The owner may destroy the link in it.
  void finish_set_up();
  [[nodiscard]] Result<void> order(wire::FrameType type, std::uint32_t window_id);
  [[nodiscard]] static tl::unexpected<Error> malformed(Stage stage);
  template <class Message>
  bool send_own(wire::FrameType type, const Message& message, std::span<const int> fds = {});

  // ---- posts ----
  [[nodiscard]] Answer refuse(const Post& post, const Error& error);
  [[nodiscard]] Answer refuse(const Post& post, ErrorCode code) { return refuse(post, Error(code)); }
  [[nodiscard]] Answer busy();
  [[nodiscard]] bool take_turn_budget(std::uint64_t bytes);
  /// A job with all but its segments; null: none is free.
  [[nodiscard]] memory::CopyJob* job_for(const Post& post);
  [[nodiscard]] Answer submit(memory::CopyJob& job);
  void count(bool outgoing, std::uint64_t bytes) noexcept;
  /// Completions that nobody has fetched take no more posts.
  [[nodiscard]] bool crowded() const noexcept { return completions_.size() >= 2 * std::size_t{services_.tx_depth}; }

  // ---- events ----
  [[nodiscard]] bool up() const noexcept { return state_ == State::up; }
  [[nodiscard]] bool alive() const noexcept { return state_ == State::up || state_ == State::setting_up; }
  void complete(std::uint64_t cookie, const Error& error, std::uint64_t value = 0);
  void break_down(const Error& error);
  void schedule_events();
  [[nodiscard]] Error located(Error error) const noexcept;

  const LinkIdentity identity_;
  const LinkServices services_;
  std::unique_ptr<FrameStream> stream_;

  // Ours, for the peer.
  std::uint64_t challenge_;
  std::unique_ptr<memory::LaneDoor> door_;
  runtime::Fd own_process_;
  bool answered_ = false;  // the peer has proved that it sees our memory
  // The peer's, for us.
  std::unique_ptr<memory::Lane> lane_;
  runtime::Fd peer_process_;
  std::vector<Attached> attached_;  // events that wait for the task

 private:
  struct EventTask final : runtime::Task {
    explicit EventTask(HostLink& link) : owner(link) {}
    void run() override { owner.deliver(); }
    HostLink& owner;
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

  [[nodiscard]] Result<void> prepare();
  [[nodiscard]] Result<void> handle(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds);
  [[nodiscard]] Result<void> handle_set_up(wire::FrameType type, ConstBytes body, std::vector<runtime::Fd>& fds);
  [[nodiscard]] Result<void> on_ack(ConstBytes body);
  void send_orders_and_offer_credit();
  void on_copied(memory::CopyJob& job) override;
  void become_up();
  [[nodiscard]] bool event_due() const noexcept;
  void deliver();

  const SetUpFrames frames_;
  LinkEvents& events_;
  CopyPool& pool_;
  Sequencer sequencer_;
  State state_ = State::setting_up;
  Instant last_heard_;
  Traffic traffic_{};

  std::deque<Order> orders_;
  std::unique_ptr<memory::CopyJob[]> jobs_;  // tx_depth of them; those with an owner are at an engine
  std::vector<memory::CopyJob*> free_jobs_;
  std::vector<Completion> completions_;
  Instant budget_turn_{};
  std::uint64_t budget_left_ = 0;

  // Events that wait for the task.
  std::size_t attached_told_ = 0;
  bool completions_due_ = false;
  bool completions_told_ = false;
  bool credit_wanted_ = false;
  bool credit_due_ = false;
  bool down_due_ = false;
  Error down_error_{};
  EventTask event_task_{*this};
};

template <class Message>
bool HostLink::send_own(wire::FrameType type, const Message& message, std::span<const int> fds) {
  std::array<std::byte, 64> buffer;  // the longest of these bodies has 28 bytes
  ByteWriter writer(buffer);
  encode(message, writer);
  HIXL_ASSERT(writer.ok());
  return sequencer_.send_control(type, writer.written(), fds);
}

}  // namespace hixl::links
