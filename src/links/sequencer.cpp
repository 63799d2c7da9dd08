// SPDX-License-Identifier: Apache-2.0
#include "links/sequencer.hpp"

#include <array>

#include "base/assert.hpp"

namespace hixl::links {
namespace {

enum class Numbering : std::uint8_t {
  never,  ///< answers and probes: losing one with its link loses nothing
  always,
  nowhere,  ///< has no place on an established link
};

Numbering numbering(wire::FrameType type) noexcept {
  using wire::FrameType;
  switch (type) {
    case FrameType::read_data:
    case FrameType::ack:
    case FrameType::nack:
    case FrameType::atomic_result:
    case FrameType::ping:
    case FrameType::pong:
      return Numbering::never;
    case FrameType::hello:
    case FrameType::welcome:
    case FrameType::reject:
    case FrameType::store_claim:
    case FrameType::store_claimed:
    case FrameType::store_lookup:
    case FrameType::store_member:
    case FrameType::store_leave:
      return Numbering::nowhere;
    default:
      return Numbering::always;
  }
}

}  // namespace

Sequencer::Sequencer(FrameStream& stream, const Identity& identity, std::uint32_t control_credit, runtime::Loop& loop,
                     Numbers numbers)
    : stream_(stream), loop_(loop), identity_(identity), numbers_(numbers), control_sent_(control_credit) {}

wire::FrameHeader Sequencer::header(wire::FrameType type) const noexcept {
  wire::FrameHeader header;
  header.type = type;
  header.session = identity_.session;
  header.link_id = identity_.link_id;
  header.link_gen = identity_.link_gen;
  return header;
}

wire::FrameHeader Sequencer::next_header(wire::FrameType type) noexcept {
  wire::FrameHeader next = header(type);
  next.link_seq = sent_ = next_number();
  return next;
}

LinkSeq Sequencer::take_number() noexcept {
  HIXL_ASSERT(numbers_ == Numbers::odd);
  return sent_ = (sent_ | 1U) + 1;
}

bool Sequencer::send_control(wire::FrameType type, ConstBytes body, std::span<const int> fds) {
  if (closed_) return false;
  if (numbering(type) == Numbering::never) return stream_.send(header(type), body, fds);
  if (control_count_ == control_sent_.size()) {
    credit_wanted_ = true;
    return false;
  }
  wire::FrameHeader next = header(type);
  next.link_seq = next_number();
  if (!stream_.send(next, body, fds)) return false;
  sent_ = next.link_seq;
  control_sent_[(control_first_ + control_count_) % control_sent_.size()] = sent_;
  ++control_count_;
  return true;
}

bool Sequencer::on_ack(LinkSeq upto) noexcept {
  if (upto > sent_ || upto < acked_) return false;
  acked_ = upto;
  while (control_count_ != 0 && control_sent_[control_first_] <= upto) {
    control_first_ = (control_first_ + 1) % control_sent_.size();
    --control_count_;
    credit_returned_ = credit_wanted_;
  }
  return true;
}

bool Sequencer::take_credit_returned() noexcept {
  if (!credit_returned_) return false;
  credit_returned_ = credit_wanted_ = false;
  return true;
}

Result<void> Sequencer::accept(const wire::FrameHeader& header) noexcept {
  if (header.session != identity_.session || header.link_id != identity_.link_id ||
      header.link_gen != identity_.link_gen) {
    return fail(ErrorCode::malformed_frame, {.length = header.link_gen, .limit = identity_.link_gen});
  }
  const Numbering rule = numbering(header.type);
  const bool gaps = numbers_ == Numbers::odd;
  const LinkSeq expected = rule == Numbering::never ? 0 : gaps ? (received_ + 1) | 1U : received_ + 1;
  const bool in_turn = gaps && rule == Numbering::always ? header.link_seq > received_ && header.link_seq % 2 == 1
                                                         : header.link_seq == expected;
  if (rule == Numbering::nowhere || !in_turn) {
    return fail(ErrorCode::malformed_frame, {.length = header.link_seq, .limit = expected});
  }
  if (rule == Numbering::always) received_ = header.link_seq;
  return {};
}

void Sequencer::executed(LinkSeq seq, bool ok) noexcept {
  if (closed_) return;
  HIXL_ASSERT(seq <= received_);
  executed_.record(seq, ok);
  // Waiting for room in the stream is waiting already.
  if (!ack_task_.linked()) loop_.defer(ack_task_);
}

void Sequencer::acknowledge() {
  if (closed_ || acknowledged_ == executed_.highest) return;
  std::array<std::byte, sizeof(LinkSeq)> body;
  ByteWriter writer(body);
  encode(wire::Ack{executed_.highest}, writer);
  if (!stream_.send(header(wire::FrameType::ack), writer.written())) {
    stream_.call_when_sendable(ack_task_);
    return;
  }
  acknowledged_ = executed_.highest;
  // This is the end of the turn already: the answer need not wait for the next one.
  stream_.flush();
}

void Sequencer::close() noexcept {
  closed_ = true;
  ack_task_.unlink();
}

}  // namespace hixl::links
