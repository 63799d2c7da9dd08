// SPDX-License-Identifier: Apache-2.0
//
// UvStream. Readiness is level-triggered all the way: what is armed stays armed and a callback that leaves bytes
// behind is called again. Arming is changed once at the end of a callback, since each change is a system call.
#include "runtime/uv_port_stream.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace hixl::runtime {

Result<std::unique_ptr<Stream>> UvStream::adopt(UvHandles& handles, Fd socket, std::string remote) {
  std::unique_ptr<UvStream> stream(new UvStream(handles, std::move(remote)));
  if (const Result<void> opened = stream->open(std::move(socket)); !opened) return fail(opened.error());
  return stream;
}

Result<std::unique_ptr<Stream>> UvStream::dial(UvHandles& handles, const Address& address, Duration timeout,
                                               StreamEvents& events) {
  std::unique_ptr<UvStream> stream(new UvStream(handles, address.text()));
  stream->events_ = &events;
  stream->dialer_.reset(new Dialer(handles, *stream));
  if (const Result<void> started = stream->dialer_->start(address, timeout); !started) return fail(started.error());
  return stream;
}

Result<void> UvStream::open(Fd socket) {
  socket_ = std::move(socket);
  const int error = poll_.open(handles_, socket_.get(), *this);
  if (error == 0) return {};
  socket_ = Fd();
  return fail(socket_error(-error, Stage::connect));
}

void UvStream::on_dialed(Result<Fd> socket) {
  const std::unique_ptr<Dialer> done = std::move(dialer_);  // its last act is this call; it goes when we return
  const Result<void> result = socket ? open(std::move(*socket)) : Result<void>(fail(socket.error()));
  const UvOwner::Witness witness(poll_);
  if (events_ != nullptr) events_->on_connected(result);
  if (witness.alive()) arm();
}

void UvStream::on_poll(int events) {
  const UvOwner::Witness witness(poll_);
  if ((events & UV_READABLE) != 0 && want_read_ && events_ != nullptr) {
    events_->on_readable();
    if (!witness.alive()) return;
  }
  if ((events & UV_WRITABLE) != 0 && want_write_ && events_ != nullptr) {
    want_write_ = false;
    events_->on_writable();
    if (!witness.alive()) return;
  }
  arm();
}

void UvStream::arm() {
  const int events = (want_read_ ? UV_READABLE : 0) | (want_write_ ? UV_WRITABLE : 0);
  poll_.arm(events_ == nullptr ? 0 : events);
}

void UvStream::set_events(StreamEvents* events) {
  events_ = events;
  arm();
}

void UvStream::want_read(bool on) {
  want_read_ = on;
  arm();
}

IoResult UvStream::write(std::span<const iovec> pieces, std::span<const int> fds) {
  if (dialer_ != nullptr) {
    want_write_ = true;  // on_writable follows on_connected
    return {IoResult::State::would_block, 0, 0};
  }
  if (!socket_) return {IoResult::State::failed, 0, ENOTCONN};
  if (mark_->forked()) return {IoResult::State::would_block, 0, 0};
  const IoResult result = write_socket(socket_.get(), pieces, fds);
  bytes_written_ += result.bytes;
  const bool shorter = result.state == IoResult::State::ok && result.bytes < bytes_in(pieces);
  if (shorter || result.state == IoResult::State::would_block) {
    want_write_ = true;
    arm();
  }
  return result;
}

IoResult UvStream::read(std::span<const iovec> pieces, std::vector<Fd>* fds) {
  if (dialer_ != nullptr) return {IoResult::State::would_block, 0, 0};
  if (!socket_) return {IoResult::State::failed, 0, ENOTCONN};
  if (mark_->forked()) return {IoResult::State::would_block, 0, 0};
  return read_socket(socket_.get(), pieces, fds);
}

std::uint64_t UvStream::bytes_delivered() {
  int held = 0;  // by our kernel: not sent, or not acknowledged
  if (!socket_ || mark_->forked() || ::ioctl(socket_.get(), SIOCOUTQ, &held) != 0) return 0;
  return bytes_written_ - std::min(bytes_written_, static_cast<std::uint64_t>(held));
}

Stream::Credentials UvStream::credentials() const {
  ucred peer{};
  socklen_t size = sizeof(peer);
  const bool known = socket_ && ::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  return known ? Credentials{peer.pid, peer.uid} : Credentials{};
}

}  // namespace hixl::runtime
