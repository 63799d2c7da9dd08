// SPDX-License-Identifier: Apache-2.0
//
// TcpLink: a link over one byte stream. Writes go from the source straight into the socket and from the socket straight
// into the target's region; reads come back the same way. Both halves share one frame stream and one sequencer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "links/link.hpp"
#include "links/sequencer.hpp"
#include "links/tcp/initiator.hpp"
#include "links/tcp/target.hpp"

namespace hixl::links::tcp {

class TcpLink final : public Link, private FrameSink, private runtime::Task {
 public:
  TcpLink(const LinkCaps& caps, const LinkIdentity& identity, std::unique_ptr<FrameStream> stream,
          const LinkServices& services, LinkEvents& events);

  [[nodiscard]] const LinkCaps& caps() const noexcept override { return caps_; }
  [[nodiscard]] Answer post(const Post& post) override;
  std::size_t poll(std::span<Completion> out) override;
  [[nodiscard]] bool send(wire::FrameType type, ConstBytes body) override;
  /// Every region of the peer is reachable by its frames.
  [[nodiscard]] Answer attach(const wire::RegionDescriptor& region) override;
  [[nodiscard]] bool revoke(RegionKey key) override;
  void close() override;
  /// Nothing but the loop's own turn moves bytes here.
  [[nodiscard]] bool drained() override { return true; }
  [[nodiscard]] const wire::ExecutedSet& executed() const noexcept override { return sequencer_.executed_set(); }
  [[nodiscard]] LinkSeq sequence_of(std::uint64_t cookie) const noexcept override {
    return initiator_.sequence_of(cookie);
  }
  [[nodiscard]] bool abandon(std::uint64_t cookie) override;
  [[nodiscard]] std::uint64_t progress() noexcept override;
  [[nodiscard]] Instant last_heard() const noexcept override { return last_heard_; }
  [[nodiscard]] Traffic traffic() const noexcept override;

 private:
  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) override;
  void on_payload_start(const wire::FrameHeader& header, ConstBytes body) override;
  std::size_t payload_target(std::uint64_t left, std::span<iovec> out) override;
  void on_payload_bytes(std::size_t bytes) override;
  void on_payload_end() override;
  [[nodiscard]] bool on_payload_corrupt(const wire::PayloadPiece& piece) override;
  void on_sendable() override { give_credit(); }
  void on_sent(std::uint64_t ticket) override;
  void on_down(const Error& error) override { end(error); }
  void run() override;

  [[nodiscard]] Result<void> handle(const wire::FrameHeader& header, ConstBytes body);
  [[nodiscard]] Result<void> start_payload(const wire::FrameHeader& header, ConstBytes body);
  [[nodiscard]] Result<void> end_payload();
  [[nodiscard]] Result<void> on_nack(ConstBytes body);
  [[nodiscard]] Result<void> note_own_corrupt(const Error& error);
  [[nodiscard]] Result<void> on_ack(ConstBytes body);
  void answer_ping(ConstBytes body);
  void give_credit();
  void report_later();
  [[nodiscard]] bool report_due() noexcept;
  /// Ends this generation from this side: nothing is read or sent any more, on_down() follows.
  void end(const Error& error);
  void drop_stream();

  const LinkCaps caps_;
  const LinkIdentity identity_;
  runtime::Loop& loop_;
  LinkEvents& events_;
  std::unique_ptr<FrameStream> stream_;  ///< null once this generation has ended
  Sequencer sequencer_;
  Staging staging_;
  Initiator initiator_;
  Target target_;
  Instant last_heard_;
  std::uint64_t received_bytes_ = 0;  ///< of the payload of answers
  std::uint64_t copies_ = 0;          ///< of the stream that is gone
  std::uint64_t corrupt_in_ = 0;      ///< the peer's writes that arrived corrupt
  std::uint32_t corrupt_own_ = 0;     ///< our writes that did at the peer, and data of our reads
  bool payload_is_write_ = false;     ///< of the frame under way; else it is data of a read
  bool up_due_ = true;
  bool completions_told_ = false;
  bool credit_wanted_ = false;
  bool credit_due_ = false;
  bool down_due_ = false;
  bool closed_ = false;
  Error down_error_{};
};

}  // namespace hixl::links::tcp
