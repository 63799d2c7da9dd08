// SPDX-License-Identifier: Apache-2.0
//
// Sequencer: the numbered frames of one link generation, both directions. Outgoing: numbers, credit for control frames,
// acknowledgements. Incoming: only the next number of the right session and generation is let in; what was executed
// is recorded and acknowledged once a turn. Every link kind has one over its frame stream.
//
// Loop-bound.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <hixl/result.hpp>

#include "base/ids.hpp"
#include "links/frame_stream.hpp"
#include "wire/messages.hpp"

namespace hixl::links {

class Sequencer {
 public:
  struct Identity {
    SessionId session = 0;
    LinkId link_id = 0;
    LinkGen link_gen = 0;
  };
  /// Which numbers frames have. `odd`: the even ones belong to what travels beside the stream (take_number()). A frame
  /// that has not arrived can then not be mistaken for something that went the other way.
  enum class Numbers : std::uint8_t { all, odd };
  /// `control_credit`: control frames that the peer has room for (its rx_depth). After close() the stream may go first.
  Sequencer(FrameStream& stream, const Identity& identity, std::uint32_t control_credit, runtime::Loop& loop,
            Numbers numbers = Numbers::all);

  // ---- outgoing ----
  /// A header with session, link and generation filled in, not sequenced.
  [[nodiscard]] wire::FrameHeader header(wire::FrameType type) const noexcept;
  /// The same with the next number. The caller must send it: ask FrameStream::room_for() before.
  [[nodiscard]] wire::FrameHeader next_header(wire::FrameType type) noexcept;
  /// With Numbers::odd: the next number for what does not go by the stream.
  [[nodiscard]] LinkSeq take_number() noexcept;
  /// ping, pong, ack and nack go unnumbered; every other control frame is numbered and takes one credit until it is
  /// acknowledged. False: no credit or no room in the stream; nothing was sent.
  [[nodiscard]] bool send_control(wire::FrameType type, ConstBytes body, std::span<const int> fds = {});
  /// False: acknowledges something never sent, or goes back: the peer is broken.
  [[nodiscard]] bool on_ack(LinkSeq upto) noexcept;
  [[nodiscard]] LinkSeq sent() const noexcept { return sent_; }
  [[nodiscard]] LinkSeq acked() const noexcept { return acked_; }
  /// True when send_control answered false for want of credit and on_ack has brought some since; clears the mark.
  [[nodiscard]] bool take_credit_returned() noexcept;

  // ---- incoming ----
  /// MALFORMED_FRAME unless session, link and generation match and the number is the next one (with Numbers::odd: a
  /// higher odd one; or 0 where that is allowed: ping, pong, ack, nack, read_data).
  [[nodiscard]] Result<void> accept(const wire::FrameHeader& header) noexcept;
  /// The frame accepted last has been dealt with; a refused one has its nack queued. Schedules one acknowledgement
  /// at the end of the turn. Nothing after close().
  void executed(LinkSeq seq, bool ok) noexcept;
  [[nodiscard]] const wire::ExecutedSet& executed_set() const noexcept { return executed_; }
  /// No acknowledgement leaves any more.
  void close() noexcept;

 private:
  [[nodiscard]] LinkSeq next_number() const noexcept { return numbers_ == Numbers::all ? sent_ + 1 : (sent_ + 1) | 1U; }
  /// Tells the peer how far we are, once a turn, or as soon as the stream has room.
  struct AckTask final : runtime::Task {
    explicit AckTask(Sequencer& sequencer) : owner(sequencer) {}
    void run() override { owner.acknowledge(); }
    Sequencer& owner;
  };
  void acknowledge();

  FrameStream& stream_;
  runtime::Loop& loop_;
  const Identity identity_;
  const Numbers numbers_;
  LinkSeq sent_ = 0;
  LinkSeq acked_ = 0;
  LinkSeq received_ = 0;
  LinkSeq acknowledged_ = 0;  ///< told to the peer
  wire::ExecutedSet executed_{};
  std::vector<LinkSeq> control_sent_;  ///< ring of the control frames that hold a credit; as large as the credit
  std::size_t control_first_ = 0;
  std::size_t control_count_ = 0;
  bool credit_wanted_ = false;
  bool credit_returned_ = false;
  bool closed_ = false;
  AckTask ack_task_{*this};
};

}  // namespace hixl::links
