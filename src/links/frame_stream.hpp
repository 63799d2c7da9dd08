// SPDX-License-Identifier: Apache-2.0
//
// FrameStream: frames over a byte stream. Control bodies are buffered, bulk payload goes straight from and to the
// memory that the sink names. Handshakes, every link's control path and the rendezvous store use it.
//
// Loop-bound. No sink function is called from inside send(), and none after set_sink(nullptr) or destruction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <hixl/result.hpp>

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "base/list.hpp"
#include "links/frame_queue.hpp"
#include "runtime/event_port.hpp"
#include "runtime/loop.hpp"
#include "wire/frame.hpp"
#include "wire/messages.hpp"
#include "wire/payload_sum.hpp"

namespace hixl::links {

class FrameSink {
 public:
  /// A whole frame without payload. `fds` came with it; those not taken are closed.
  virtual void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) = 0;
  /// Header and body of a frame with payload, which follows through payload_target().
  virtual void on_payload_start(const wire::FrameHeader& header, ConstBytes body) = 0;
  /// Where the next at most `left` payload bytes go, at most `out.size()` pieces; called before every single read, so
  /// that the check of the region happens in the same turn as the read. Gives the pieces; 0: read and throw away.
  virtual std::size_t payload_target(std::uint64_t left, std::span<iovec> out) = 0;
  virtual void on_payload_bytes(std::size_t bytes) = 0;
  virtual void on_payload_end() = 0;
  /// Instead of on_payload_end(): the bytes are not those that the frame's checksum was made of; the first piece that
  /// is wrong. True: dealt with, the stream goes on behind the frame. False: it ends as CORRUPT.
  [[nodiscard]] virtual bool on_payload_corrupt(const wire::PayloadPiece& piece) {
    static_cast<void>(piece);
    return false;
  }
  /// The queue of outgoing frames has room again after `busy`.
  virtual void on_sendable() = 0;
  /// All bytes of the payload of the frame with this ticket have left (the memory is not read any more).
  virtual void on_sent(std::uint64_t ticket) = 0;
  /// Once: end of stream, error, or malformed frame. The stream is dead; destroy it when convenient, not in here.
  virtual void on_down(const Error& error) = 0;

 protected:
  ~FrameSink() = default;
};

class FrameStream final : private runtime::StreamEvents, private runtime::Task {
 public:
  /// `bytes_queued_max`: queued control bytes beyond which send() answers busy; bulk payload is referenced and does not
  /// count.
  FrameStream(std::unique_ptr<runtime::Stream> stream, runtime::Loop& loop, std::size_t bytes_queued_max = 256U << 10U);
  /// Closes at once. Also from inside a call of the sink: the body that it was given lives until that call returns.
  ~FrameStream();
  /// Who hears of frames from the next turn on. Bytes that were read already stay for it; nothing is read without a
  /// sink.
  void set_sink(FrameSink* sink);

  /// Queues a frame; lengths and checksums of the header, and marks of the payload, are filled in here. False: no room
  /// (nothing was queued); on_sendable() follows. A dead stream swallows the frame: on_down() says that it did not
  /// leave. `fds` are duplicated. Frames of one turn leave together in as few system calls as possible, at the end of
  /// the turn.
  [[nodiscard]] bool send(const wire::FrameHeader& header, ConstBytes body, std::span<const int> fds = {});
  /// The same with payload, which is read from `pieces` until on_sent(ticket) (ticket != 0) or destruction.
  [[nodiscard]] bool send(const wire::FrameHeader& header, ConstBytes body, std::span<const iovec> pieces,
                          std::uint64_t ticket);
  /// An answer that the peer is owed (nack, read_data, pong). It may use a reserve beyond bytes_queued_max that a peer
  /// which keeps to its limits cannot exhaust; false therefore means that this one asks and never reads.
  [[nodiscard]] bool send_answer(const wire::FrameHeader& header, ConstBytes body, std::span<const iovec> pieces = {},
                                 std::uint64_t ticket = 0);
  /// True when send() of a body of that size would take it now; otherwise on_sendable() follows.
  [[nodiscard]] bool room_for(std::size_t body_bytes);
  /// Defers the task when there is room again.
  void call_when_sendable(runtime::Task& task);
  /// True when a frame with this ticket is queued or half sent.
  [[nodiscard]] bool holds_ticket(std::uint64_t ticket) const noexcept {
    return writable() && out_.holds_ticket(ticket);
  }
  /// Writes what is queued now instead of at the end of the turn.
  void flush();
  /// Stops reading (back-pressure) or goes on.
  void want_read(bool on);
  [[nodiscard]] runtime::Stream& stream() noexcept { return *stream_; }
  [[nodiscard]] bool alive() const noexcept { return alive_; }
  [[nodiscard]] std::uint64_t send_calls() const noexcept { return send_calls_; }  ///< system calls made to write
  /// Pieces of payload that were copied out of the read buffer, instead of read in place.
  [[nodiscard]] std::uint64_t buffered_pieces() const noexcept { return buffered_pieces_; }

 private:
  enum class Step : std::uint8_t { progressed, need_bytes, stopped };
  struct In;
  struct Life;
  void on_connected(const Result<void>&) override {}
  void on_readable() override;
  void on_writable() override;
  void run() override;

  void pump();
  [[nodiscard]] Step parse();
  [[nodiscard]] Step parse_header();
  [[nodiscard]] Step parse_body();
  [[nodiscard]] Step take_payload();
  [[nodiscard]] Step end_payload();
  [[nodiscard]] Step read_more();
  [[nodiscard]] Step took(std::size_t payload_bytes);
  template <class Call>
  [[nodiscard]] Step tell(Call&& call);
  void report();
  [[nodiscard]] bool queue(const wire::FrameHeader& header, const FrameQueue::Frame& frame, std::size_t bytes_max);
  [[nodiscard]] bool fits(std::size_t body_bytes, std::size_t bytes_max);
  [[nodiscard]] bool sendable_again() const noexcept;
  [[nodiscard]] bool writable() const noexcept { return alive_ && !write_error_; }
  void write_out();
  void on_write_failed(const Error& error);
  void resume();
  void fail(const Error& error);

  std::unique_ptr<runtime::Stream> stream_;
  runtime::Loop& loop_;
  const std::size_t bytes_queued_max_;
  FrameSink* sink_ = nullptr;
  Life* life_ = nullptr;  ///< set while a sink may be running below us
  bool alive_ = true;
  bool wants_read_ = true;
  bool pump_due_ = false;       ///< buffered bytes wait for the task
  bool write_blocked_ = false;  ///< on_writable() will come
  bool down_told_ = false;
  Error down_error_{};
  std::optional<Error> write_error_{};  ///< nothing leaves any more; one more look at what has come, then the end
  std::size_t wanted_bytes_ = 0;        ///< the longest frame that was refused; 0: none since on_sendable()
  std::uint64_t send_calls_ = 0;
  std::uint64_t buffered_pieces_ = 0;
  FrameQueue out_;
  List<runtime::Task, runtime::TaskTag> waiting_;
  std::unique_ptr<In> in_;
};

/// Encodes a message into a frame and queues it.
template <class Message>
[[nodiscard]] bool send_message(FrameStream& stream, wire::FrameHeader header, const Message& message,
                                std::span<const int> fds = {}) {
  std::array<std::byte, wire::k_body_bytes_max> buffer;
  ByteWriter writer(buffer);
  encode(message, writer);
  HIXL_ASSERT(writer.ok());
  return stream.send(header, writer.written(), fds);
}

}  // namespace hixl::links
