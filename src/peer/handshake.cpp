// SPDX-License-Identifier: Apache-2.0
#include "peer/handshake.hpp"

#include <cerrno>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "peer/timing.hpp"

namespace hixl::peer {

namespace {

wire::FrameHeader plain_header(wire::FrameType type) {
  wire::FrameHeader header;
  header.type = type;
  return header;
}

}  // namespace

Dial::Dial(runtime::Loop& loop, const runtime::Address& address, const wire::Hello& hello, Duration timeout,
           DialSlots::Slot slot, DialEvents& events)
    : loop_(loop), address_(address), hello_(hello), slot_(std::move(slot)), events_(events) {
  auto stream = loop_.port().connect(address, timeout, *this);
  loop_.start_after(*this, timeout);
  if (stream) {
    connecting_ = std::move(*stream);
  } else {
    fail_later(stream.error());
  }
}

std::unique_ptr<links::FrameStream> Dial::take_stream() {
  HIXL_ASSERT(stream_ != nullptr);
  runtime::Timer::cancel();
  over_ = true;
  stream_->set_sink(nullptr);
  return std::move(stream_);
}

void Dial::on_connected(const Result<void>& result) {
  if (!result) {
    fail_later(result.error());
    return;
  }
  stream_ = std::make_unique<links::FrameStream>(std::move(connecting_), loop_);
  stream_->set_sink(this);
  if (!send_message(*stream_, plain_header(wire::FrameType::hello), hello_)) {
    fail_later(Error(ErrorCode::handshake_failed, {.rank = hello_.rank, .stage = Stage::handshake}));
  }
}

void Dial::on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) {
  static_cast<void>(fds);
  if (over_) return;
  if (header.type == wire::FrameType::welcome) {
    if (wire::Welcome welcome; decode_body(body, welcome)) {
      events_.on_welcome(*this, welcome);
      return;
    }
  } else if (header.type == wire::FrameType::reject) {
    if (wire::Reject reject; decode_body(body, reject)) {
      over_ = true;
      events_.on_reject(*this, reject);
      return;
    }
  }
  fail_later(Error(ErrorCode::malformed_frame, {.stage = Stage::handshake}));
}

void Dial::on_payload_start(const wire::FrameHeader& header, ConstBytes body) {
  static_cast<void>(header);
  static_cast<void>(body);
  fail_later(Error(ErrorCode::malformed_frame, {.stage = Stage::handshake}));
}

void Dial::on_down(const Error& error) {
  if (over_) return;
  // A peer that closes without an answer, such as a stranger that does not know the protocol.
  Error told = error;
  if (told.code == ErrorCode::link_failed) told.code = ErrorCode::handshake_failed;
  told.detail.stage = Stage::handshake;
  fail_later(told);
}

void Dial::on_timer() {
  fail_later(
      Error(ErrorCode::connect_timeout, {.stage = stream_ ? Stage::handshake : Stage::connect, .os_error = ETIMEDOUT}));
}

void Dial::fail_later(const Error& error) {
  if (over_) return;
  over_ = true;
  error_ = error;
  if (error_.detail.port == 0) address_.name_in(error_.detail);
  loop_.defer(*this);
}

void Dial::run() { events_.on_dial_failed(*this, error_); }

Greeting::Greeting(runtime::Loop& loop, std::unique_ptr<runtime::Stream> stream, GreetingEvents& events)
    : loop_(loop), events_(events), stream_(std::make_unique<links::FrameStream>(std::move(stream), loop)) {
  stream_->set_sink(this);
  loop_.start_after(*this, k_greeting_time);
}

std::unique_ptr<links::FrameStream> Greeting::welcome(const wire::Welcome& welcome) {
  runtime::Timer::cancel();
  // The queue of a fresh stream always has room for one small frame.
  const bool sent = send_message(*stream_, plain_header(wire::FrameType::welcome), welcome);
  HIXL_ASSERT(sent);
  stream_->set_sink(nullptr);
  loop_.defer(*this);
  return std::move(stream_);
}

void Greeting::reject(const wire::Reject& reject) {
  const bool sent = send_message(*stream_, plain_header(wire::FrameType::reject), reject);
  HIXL_ASSERT(sent);
  stream_->flush();  // at once: this runtime may be about to end
  // The dialler closes when it has read this; the greeting's timer ends one that does not.
}

void Greeting::on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) {
  static_cast<void>(fds);
  wire::Hello hello;
  if (greeted_ || header.type != wire::FrameType::hello || !decode_body(body, hello)) {
    offence_ = ErrorCode::malformed_frame;
    loop_.defer(*this);
    return;
  }
  greeted_ = true;
  events_.on_hello(*this, hello);
}

void Greeting::on_payload_start(const wire::FrameHeader& header, ConstBytes body) {
  static_cast<void>(header);
  static_cast<void>(body);
  offence_ = ErrorCode::malformed_frame;
  loop_.defer(*this);
}

void Greeting::on_down(const Error& error) {
  if (!greeted_) log::debug("a connection ended before its hello: {}", error.message());
  if (!greeted_ && error.code != ErrorCode::link_failed) offence_ = error.code;  // anything but an ordinary end
  if (!greeted_ && error.code == ErrorCode::version_mismatch) {
    // The stream is closed for frames. One header of our version, written past it, lets the other side see the reason.
    std::array<std::byte, wire::k_header_bytes> bytes;
    wire::encode(wire::FrameHeader{.type = wire::FrameType::reject, .flags = wire::k_flag_optional}, bytes);
    const iovec piece{bytes.data(), bytes.size()};
    stream_->stream().write(std::span(&piece, 1));
  }
  loop_.defer(*this);
}

void Greeting::on_timer() {
  if (!greeted_) offence_ = ErrorCode::connect_timeout;
  loop_.defer(*this);
}

}  // namespace hixl::peer
