// SPDX-License-Identifier: Apache-2.0
//
// The two halves of a handshake. A Dial connects, says hello and waits for welcome or reject. A Greeting is an accepted
// connection that has not said who it is. Both hand the frame stream on inside the frame's event, so that frames behind
// it already reach the link.
//
// Loop-bound. Results come once, never inline from the constructor; destruction ends everything silently.
#pragma once

#include <memory>

#include <hixl/result.hpp>

#include "links/frame_stream.hpp"
#include "peer/dial_slots.hpp"
#include "runtime/loop.hpp"
#include "wire/messages.hpp"

namespace hixl::peer {

class Dial;

class DialEvents {
 public:
  virtual void on_welcome(Dial& dial, const wire::Welcome& welcome) = 0;
  virtual void on_reject(Dial& dial, const wire::Reject& reject) = 0;
  /// CONNECT_REFUSED, CONNECT_TIMEOUT, HANDSHAKE_FAILED, VERSION_MISMATCH, MALFORMED_FRAME, …
  virtual void on_dial_failed(Dial& dial, const Error& error) = 0;

 protected:
  ~DialEvents() = default;
};

class Dial final : private runtime::StreamEvents,
                   private links::FrameSink,
                   private runtime::Timer,
                   private runtime::Task {
 public:
  Dial(runtime::Loop& loop, const runtime::Address& address, const wire::Hello& hello, Duration timeout,
       DialSlots::Slot slot, DialEvents& events);
  ~Dial() = default;
  [[nodiscard]] const wire::Hello& hello() const noexcept { return hello_; }
  [[nodiscard]] const runtime::Address& address() const noexcept { return address_; }
  /// Connected, so that the peer has our hello or will have it soon.
  [[nodiscard]] bool greeted() const noexcept { return stream_ != nullptr; }
  /// In on_welcome: the stream, for the link.
  [[nodiscard]] std::unique_ptr<links::FrameStream> take_stream();

 private:
  void on_connected(const Result<void>& result) override;
  void on_readable() override {}
  void on_writable() override {}
  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) override;
  void on_payload_start(const wire::FrameHeader& header, ConstBytes body) override;
  std::size_t payload_target(std::uint64_t, std::span<iovec>) override { return 0; }
  void on_payload_bytes(std::size_t) override {}
  void on_payload_end() override {}
  void on_sendable() override {}
  void on_sent(std::uint64_t) override {}
  void on_down(const Error& error) override;
  void on_timer() override;
  void run() override;
  void fail_later(const Error& error);

  runtime::Loop& loop_;
  runtime::Address address_;
  wire::Hello hello_;
  DialSlots::Slot slot_;  // until destruction, which follows the end in the same turn
  DialEvents& events_;
  std::unique_ptr<runtime::Stream> connecting_;
  std::unique_ptr<links::FrameStream> stream_;
  Error error_{};
  bool over_ = false;
};

class Greeting;

class GreetingEvents {
 public:
  /// Answer with welcome() or reject().
  virtual void on_hello(Greeting& greeting, const wire::Hello& hello) = 0;
  /// Nothing came of it (or the reject has left); destroy it.
  virtual void on_greeting_over(Greeting& greeting) = 0;

 protected:
  ~GreetingEvents() = default;
};

class Greeting final : private links::FrameSink, private runtime::Timer, private runtime::Task {
 public:
  Greeting(runtime::Loop& loop, std::unique_ptr<runtime::Stream> stream, GreetingEvents& events);
  ~Greeting() = default;
  /// Queues the welcome and gives the stream away.
  [[nodiscard]] std::unique_ptr<links::FrameStream> welcome(const wire::Welcome& welcome);
  void reject(const wire::Reject& reject);
  /// Why nothing came of it, when the other side broke the protocol; ok otherwise.
  [[nodiscard]] ErrorCode offence() const noexcept { return offence_; }
  [[nodiscard]] runtime::Stream::Credentials credentials() const { return stream_->stream().credentials(); }

 private:
  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) override;
  void on_payload_start(const wire::FrameHeader& header, ConstBytes body) override;
  std::size_t payload_target(std::uint64_t, std::span<iovec>) override { return 0; }
  void on_payload_bytes(std::size_t) override {}
  void on_payload_end() override {}
  void on_sendable() override {}
  void on_sent(std::uint64_t) override {}
  void on_down(const Error& error) override;
  void on_timer() override;
  void run() override { events_.on_greeting_over(*this); }

  runtime::Loop& loop_;
  GreetingEvents& events_;
  std::unique_ptr<links::FrameStream> stream_;
  bool greeted_ = false;
  ErrorCode offence_ = ErrorCode::ok;
};

}  // namespace hixl::peer
