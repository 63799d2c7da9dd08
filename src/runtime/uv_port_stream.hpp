// SPDX-License-Identifier: Apache-2.0
//
// UvStream: a socket of our own under libuv's readiness events. Private to uv_port*.cpp.
#pragma once

#include <memory>
#include <string>

#include "runtime/event_port.hpp"
#include "runtime/uv_port_dialer.hpp"
#include "runtime/uv_port_handles.hpp"

namespace hixl::runtime {

class UvStream final : public Stream, private PollTarget, private DialerEvents {
 public:
  /// A connected socket, from an accept.
  [[nodiscard]] static Result<std::unique_ptr<Stream>> adopt(UvHandles& handles, Fd socket, std::string remote);
  [[nodiscard]] static Result<std::unique_ptr<Stream>> dial(UvHandles& handles, const Address& address,
                                                            Duration timeout, StreamEvents& events);

  void set_events(StreamEvents* events) override;
  IoResult write(std::span<const iovec> pieces, std::span<const int> fds) override;
  IoResult read(std::span<const iovec> pieces, std::vector<Fd>* fds) override;
  void want_read(bool on) override;
  [[nodiscard]] std::uint64_t bytes_delivered() override;
  [[nodiscard]] std::string remote_text() const override { return remote_; }
  [[nodiscard]] Credentials credentials() const override;

 private:
  UvStream(UvHandles& handles, std::string remote)
      : handles_(handles), mark_(handles.fork_mark()), remote_(std::move(remote)) {}
  [[nodiscard]] Result<void> open(Fd socket);
  void on_dialed(Result<Fd> socket) override;
  void on_poll(int events) override;
  void arm();

  UvHandles& handles_;
  std::shared_ptr<const ForkMark> mark_;  // may outlive the handles
  std::string remote_;
  StreamEvents* events_ = nullptr;
  std::unique_ptr<Dialer> dialer_;  // until the connection stands
  std::uint64_t bytes_written_ = 0;
  bool want_read_ = true;
  bool want_write_ = false;  // the last write took less than offered
  Fd socket_;                // after it the poll: closed before the descriptor is, as libuv asks
  UvPoll poll_;
};

}  // namespace hixl::runtime
