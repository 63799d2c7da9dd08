// SPDX-License-Identifier: Apache-2.0
#include "links/tcp/tcp_link.hpp"

#include <string_view>
#include <utility>

#include "base/assert.hpp"
#include "base/planted.hpp"

namespace hixl::links::tcp {
namespace {

// One flipped bit is chance, three within the life of a connection are its way of working: another connection may take
// another path, another queue of the card or another link.
constexpr std::uint32_t k_corrupt_max = 3;
constexpr std::string_view k_corrupt_topic = "corrupt payload on links of rank";

}  // namespace

TcpLink::TcpLink(const LinkCaps& caps, const LinkIdentity& identity, std::unique_ptr<FrameStream> stream,
                 const LinkServices& services, LinkEvents& events)
    : caps_(caps),
      identity_(identity),
      loop_(services.loop),
      events_(events),
      stream_(std::move(stream)),
      sequencer_(*stream_, {identity.session, identity.link_id, identity.link_gen}, services.rx_depth, services.loop),
      initiator_(identity, services, staging_),
      target_(identity, services, *stream_, sequencer_, staging_),
      last_heard_(services.loop.now()) {
  report_later();
}

// ---- the owner's side ----

Answer TcpLink::post(const Post& post) {
  if (stream_ == nullptr) return Answer::busy;
  const Answer answer = initiator_.post(post, *stream_, sequencer_);
  if (answer == Answer::busy) credit_wanted_ = true;
  report_later();
  return answer;
}

std::size_t TcpLink::poll(std::span<Completion> out) {
  const std::size_t count = initiator_.poll(out);
  if (!initiator_.any_done()) completions_told_ = false;
  if (count != 0) give_credit();
  return count;
}

bool TcpLink::send(wire::FrameType type, ConstBytes body) {
  if (stream_ == nullptr) return false;
  if (sequencer_.send_control(type, body)) return true;
  credit_wanted_ = true;
  return false;
}

Answer TcpLink::attach(const wire::RegionDescriptor& region) {
  static_cast<void>(region);
  return Answer::done;
}

bool TcpLink::revoke(RegionKey key) {
  if (stream_ != nullptr && target_.touches(key)) {
    end(Error(ErrorCode::link_failed, {.stage = Stage::transfer}));
  }
  return true;
}

void TcpLink::close() {
  closed_ = true;
  up_due_ = credit_due_ = down_due_ = false;
  drop_stream();
}

bool TcpLink::abandon(std::uint64_t cookie) {
  const bool taken_back = initiator_.abandon(cookie);
  if (!initiator_.any_done()) completions_told_ = false;
  give_credit();
  return taken_back;
}

Link::Traffic TcpLink::traffic() const noexcept {
  return {.bytes_out = initiator_.bytes_out(),
          .bytes_in = initiator_.bytes_in(),
          .copies = staging_.copies() + (stream_ != nullptr ? stream_->buffered_pieces() : copies_),
          .staging_bytes = staging_.bytes(),
          .corrupt = corrupt_in_ + corrupt_own_};
}

std::uint64_t TcpLink::progress() noexcept {
  return received_bytes_ + (stream_ != nullptr ? stream_->stream().bytes_delivered() : 0);
}

// ---- events ----

void TcpLink::give_credit() {
  if (!credit_wanted_) return;
  credit_due_ = true;
  report_later();
}

bool TcpLink::report_due() noexcept {
  return up_due_ || (initiator_.any_done() && !completions_told_) || credit_due_ || down_due_;
}

void TcpLink::report_later() {
  if (report_due()) loop_.defer(*this);
}

/// Tells one thing, last of all: the owner may destroy the link from there.
void TcpLink::run() {
  if (std::exchange(up_due_, false)) {
    report_later();
    // Only now, so that no frame is dealt with before the owner knows the link.
    if (stream_ != nullptr) stream_->set_sink(this);
    events_.on_up();
  } else if (initiator_.any_done() && !completions_told_) {
    completions_told_ = true;
    report_later();
    events_.on_completions();
  } else if (std::exchange(credit_due_, false)) {
    credit_wanted_ = false;
    report_later();
    events_.on_credit();
  } else if (std::exchange(down_due_, false)) {
    const Error error = down_error_;  // the owner may destroy us and go on reading it
    events_.on_down(error);
  }
}

void TcpLink::end(const Error& error) {
  if (stream_ == nullptr) return;
  down_error_ = error;
  drop_stream();
  down_error_.detail.rank = identity_.rank;
  down_error_.detail.link = identity_.link_id;
  down_due_ = true;
  report_later();
}

void TcpLink::drop_stream() {
  sequencer_.close();
  if (stream_ == nullptr) return;
  copies_ = stream_->buffered_pieces();
  stream_.reset();
}

// ---- the peer's frames ----

void TcpLink::on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) {
  static_cast<void>(fds);
  last_heard_ = loop_.now();
  // Nothing after a success: the owner may have destroyed this link while it dealt with a control frame.
  if (const Result<void> handled = handle(header, body); !handled) end(handled.error());
}

Result<void> TcpLink::handle(const wire::FrameHeader& header, ConstBytes body) {
  using wire::FrameType;
  if (header.type == FrameType::write || header.type == FrameType::read_data) {
    // Of no bytes, hence without payload.
    const Result<void> started = start_payload(header, body);
    return started ? end_payload() : started;
  }
  if (const Result<void> accepted = sequencer_.accept(header); !accepted) return accepted;
  switch (header.type) {
    case FrameType::read:
      return target_.on_read(header, body);
    case FrameType::signal:
      return target_.words().on_signal(header, body);
    case FrameType::atomic:
      return target_.words().on_atomic(header, body);
    case FrameType::atomic_result: {
      wire::AtomicResult result;
      if (!decode_body(body, result)) return fail(ErrorCode::malformed_frame);
      const Result<void> known = initiator_.on_atomic_result(result);
      report_later();
      return known;
    }
    case FrameType::ack:
      return on_ack(body);
    case FrameType::nack:
      return on_nack(body);
    case FrameType::ping:
      answer_ping(body);
      return {};
    case FrameType::pong:
      break;
    default:
      sequencer_.executed(header.link_seq, true);
      break;
  }
  events_.on_control(header, body);
  return {};
}

Result<void> TcpLink::on_ack(ConstBytes body) {
  wire::Ack ack;
  if (!decode_body(body, ack) || !sequencer_.on_ack(ack.upto)) return fail(ErrorCode::malformed_frame);
  const Result<void> ended = initiator_.on_ack(ack.upto, *stream_);
  if (sequencer_.take_credit_returned()) give_credit();
  report_later();
  return ended;
}

Result<void> TcpLink::on_nack(ConstBytes body) {
  wire::Nack nack;
  if (!decode_body(body, nack)) return fail(ErrorCode::malformed_frame);
  const Result<void> known = initiator_.on_nack(nack, *stream_);
  // Of a read that was taken back nothing but its place is left.
  if (!HIXL_PLANTED(refused_read_keeps_credit)) give_credit();
  report_later();
  if (!known || static_cast<ErrorCode>(nack.code) != ErrorCode::payload_corrupt) return known;
  return note_own_corrupt(
      Error(ErrorCode::payload_corrupt, {.address = nack.address, .length = nack.length, .limit = nack.limit}));
}

/// The attempt goes back to its owner, who tries again; a link that does it again and again is worth no more attempts.
Result<void> TcpLink::note_own_corrupt(const Error& error) {
  corrupt_own_ += 1;
  loop_.log().warn(
      {k_corrupt_topic, identity_.rank},
      "link {} to rank {}: {} bytes at {:#x} arrived corrupt, at offset {} of the peer's region; sent again",
      identity_.link_id, identity_.rank, error.detail.length, error.detail.address, error.detail.limit);
  if (corrupt_own_ < k_corrupt_max) return {};
  return tl::unexpected<Error>(error);
}

void TcpLink::answer_ping(ConstBytes body) {
  // A peer that probes and does not read gets no more answers; it learns nothing from them either.
  static_cast<void>(stream_->send_answer(sequencer_.header(wire::FrameType::pong), body));
}

void TcpLink::on_payload_start(const wire::FrameHeader& header, ConstBytes body) {
  last_heard_ = loop_.now();
  if (const Result<void> started = start_payload(header, body); !started) end(started.error());
}

Result<void> TcpLink::start_payload(const wire::FrameHeader& header, ConstBytes body) {
  if (const Result<void> accepted = sequencer_.accept(header); !accepted) return accepted;
  payload_is_write_ = header.type == wire::FrameType::write;
  if (payload_is_write_) return target_.on_write_start(header, body);
  wire::ReadData message;
  if (header.type != wire::FrameType::read_data || !decode_body(body, message)) {
    return fail(ErrorCode::malformed_frame);
  }
  return initiator_.on_read_start(message, header.payload_bytes);
}

std::size_t TcpLink::payload_target(std::uint64_t left, std::span<iovec> out) {
  static_cast<void>(left);
  const Result<std::size_t> count = payload_is_write_ ? target_.write_target(out) : initiator_.read_target(out);
  if (count) return *count;
  end(count.error());
  return 0;
}

void TcpLink::on_payload_bytes(std::size_t bytes) {
  last_heard_ = loop_.now();
  if (payload_is_write_) {
    target_.on_write_bytes(bytes);
  } else {
    received_bytes_ += bytes;
    initiator_.on_read_bytes(bytes);
  }
}

void TcpLink::on_payload_end() {
  if (const Result<void> ended = end_payload(); !ended) end(ended.error());
}

bool TcpLink::on_payload_corrupt(const wire::PayloadPiece& piece) {
  Result<void> ended;
  if (payload_is_write_) {
    Error told;
    ended = target_.on_write_corrupt(piece, told);
    if (told.code != ErrorCode::ok) {
      corrupt_in_ += 1;
      loop_.log().warn({k_corrupt_topic, identity_.rank},
                       "link {} from rank {}: {} bytes at {:#x} arrived corrupt, at offset {} of our region; refused",
                       identity_.link_id, identity_.rank, told.detail.length, told.detail.address, told.detail.limit);
    }
  } else {
    ended = note_own_corrupt(initiator_.on_read_corrupt(piece));
    give_credit();
    report_later();
  }
  if (!ended) end(ended.error());
  return true;
}

Result<void> TcpLink::end_payload() {
  if (payload_is_write_) return target_.on_write_end();
  initiator_.on_read_end();
  give_credit();
  report_later();
  return {};
}

void TcpLink::on_sent(std::uint64_t ticket) {
  if (ticket % 2 == 0) {  // our own writes end with the peer's acknowledgement
    if (staging_.on_sent(ticket)) give_credit();
    return;
  }
  if (const Result<void> answered = target_.on_sent(ticket); !answered) end(answered.error());
}

}  // namespace hixl::links::tcp
