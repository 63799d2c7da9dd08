// SPDX-License-Identifier: Apache-2.0
//
// A byte stream in memory, in one thread, with scripted short reads and writes, failures and a clock that stands still.
// What tests of frame streams and links need of an event port.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "runtime/event_port.hpp"
#include "runtime/loop.hpp"

namespace hixl::test {

class StillPort final : public runtime::EventPort {
 public:
  [[nodiscard]] Instant now() override { return time; }
  void wake() noexcept override {}
  [[nodiscard]] Result<std::unique_ptr<runtime::Listener>> listen(const runtime::Address&,
                                                                  runtime::ListenerEvents&) override {
    return fail(ErrorCode::unsupported);
  }
  [[nodiscard]] Result<std::unique_ptr<runtime::Stream>> connect(const runtime::Address&, Duration,
                                                                 runtime::StreamEvents&) override {
    return fail(ErrorCode::unsupported);
  }
  [[nodiscard]] Result<std::unique_ptr<runtime::Watch>> watch(int, runtime::WatchEvents&) override {
    return fail(ErrorCode::unsupported);
  }
  Instant time{std::chrono::seconds(1)};
};

/// One direction. Survives both ends, so that a test can look at it or write raw bytes into it.
struct Pipe {
  std::deque<std::byte> bytes;
  std::size_t capacity = 1U << 20U;
  bool closed = false;  ///< the writer is gone
  bool reader_gone = false;
  int read_error = 0;  ///< what the reader meets once the bytes are read
  int write_error = 0;
  std::size_t read_max = SIZE_MAX;   ///< most bytes of one read
  std::size_t write_max = SIZE_MAX;  ///< most bytes of one write
  std::uint64_t write_calls = 0;
  std::uint64_t read_calls = 0;
  std::uint64_t taken = 0;  ///< bytes read so far
  std::uint64_t largest_read_piece = 0;
  /// Descriptors and the offsets of the bytes that they came with. A read ends behind the write that carried some.
  struct Carried {
    std::uint64_t first;
    std::uint64_t end;
    std::vector<runtime::Fd> fds;
  };
  std::deque<Carried> carried;

  void put(ConstBytes data) { bytes.insert(bytes.end(), data.begin(), data.end()); }
};

class PipeStream final : public runtime::Stream {
 public:
  PipeStream(std::shared_ptr<Pipe> in, std::shared_ptr<Pipe> out) : in_(std::move(in)), out_(std::move(out)) {}
  ~PipeStream() override {
    out_->closed = true;
    in_->reader_gone = true;
    *lives_ = false;
  }
  void set_events(runtime::StreamEvents* events) override { events_ = events; }
  void want_read(bool on) override { want_read_ = on; }
  [[nodiscard]] std::string remote_text() const override { return "memory"; }
  [[nodiscard]] Credentials credentials() const override { return {}; }

  runtime::IoResult write(std::span<const iovec> pieces, std::span<const int> fds) override {
    ++out_->write_calls;
    if (out_->write_error != 0) return {runtime::IoResult::State::failed, 0, out_->write_error};
    if (out_->reader_gone) return {runtime::IoResult::State::failed, 0, EPIPE};
    std::size_t room = std::min(out_->capacity - std::min(out_->capacity, out_->bytes.size()), out_->write_max);
    std::size_t offered = 0;
    std::size_t written = 0;
    const std::uint64_t first = out_->taken + out_->bytes.size();
    for (const iovec& piece : pieces) {
      offered += piece.iov_len;
      const std::size_t part = std::min(room, piece.iov_len);
      out_->put({static_cast<const std::byte*>(piece.iov_base), part});
      room -= part;
      written += part;
    }
    want_write_ = written < offered;
    if (written == 0) return {runtime::IoResult::State::would_block, 0, 0};
    if (!fds.empty()) {
      out_->carried.push_back({first, first + written, {}});
      for (const int fd : fds) out_->carried.back().fds.emplace_back(::dup(fd));
    }
    return {runtime::IoResult::State::ok, written, 0};
  }

  runtime::IoResult read(std::span<const iovec> pieces, std::vector<runtime::Fd>* fds) override {
    ++in_->read_calls;
    if (in_->bytes.empty()) {
      if (in_->read_error != 0) return {runtime::IoResult::State::failed, 0, in_->read_error};
      return {in_->closed ? runtime::IoResult::State::closed : runtime::IoResult::State::would_block, 0, 0};
    }
    std::size_t most = in_->read_max;
    if (!in_->carried.empty()) most = std::min<std::size_t>(most, in_->carried.front().end - in_->taken);
    std::size_t count = 0;
    for (const iovec& piece : pieces) {
      const std::size_t part = std::min({most - count, piece.iov_len, in_->bytes.size()});
      std::copy_n(in_->bytes.begin(), part, static_cast<std::byte*>(piece.iov_base));
      in_->bytes.erase(in_->bytes.begin(), in_->bytes.begin() + static_cast<std::ptrdiff_t>(part));
      in_->largest_read_piece = std::max<std::uint64_t>(in_->largest_read_piece, part);
      count += part;
    }
    in_->taken += count;
    if (!in_->carried.empty() && in_->taken > in_->carried.front().first) {
      for (runtime::Fd& fd : in_->carried.front().fds) fds->push_back(std::move(fd));
      in_->carried.front().fds.clear();
      if (in_->taken >= in_->carried.front().end) in_->carried.pop_front();
    }
    return {runtime::IoResult::State::ok, count, 0};
  }

  /// Tells of what waits; true when there was something.
  bool deliver() {
    bool any = false;
    const std::shared_ptr<const bool> lives = lives_;  // an event may destroy the stream
    const bool something = !in_->bytes.empty() || in_->closed || in_->read_error != 0;
    if (events_ != nullptr && want_read_ && something) {
      any = true;
      events_->on_readable();
    }
    if (*lives && events_ != nullptr && want_write_ && (out_->bytes.size() < out_->capacity || out_->reader_gone)) {
      any = true;
      want_write_ = false;
      events_->on_writable();
    }
    return any;
  }

 private:
  std::shared_ptr<Pipe> in_;
  std::shared_ptr<Pipe> out_;
  runtime::StreamEvents* events_ = nullptr;
  bool want_read_ = true;
  bool want_write_ = false;
  std::shared_ptr<bool> lives_ = std::make_shared<bool>(true);
};

/// Two ends, each with a port and a loop of its own, turned in one thread.
class PipePair {
 public:
  struct End {
    StillPort port;
    runtime::Loop loop{port, 1, 64};
    std::shared_ptr<Pipe> out;     ///< towards the other end
    PipeStream* stream = nullptr;  ///< as long as its FrameStream lives
  };
  PipePair() {
    for (End& end : ends) end.out = std::make_shared<Pipe>();
  }
  /// The end's stream, to be given to its FrameStream.
  [[nodiscard]] std::unique_ptr<runtime::Stream> stream(std::size_t index) {
    auto made = std::make_unique<Watched>(*this, index);
    return made;
  }
  /// One turn of one end: events, then the loop.
  bool turn(std::size_t index) {
    End& end = ends[index];
    const bool told = end.stream != nullptr && end.stream->deliver();
    return end.loop.turn() || told;
  }
  /// Turns until nothing moves; false when `turns_max` were not enough.
  bool settle(std::size_t turns_max = 100'000) {
    for (std::size_t i = 0; i < turns_max; ++i) {
      const bool first = turn(0);
      const bool second = turn(1);
      if (!first && !second) return true;
    }
    return false;
  }
  std::array<End, 2> ends;

 private:
  /// Keeps `End::stream` true to whether the stream lives.
  class Watched final : public runtime::Stream {
   public:
    Watched(PipePair& pair, std::size_t index)
        : end_(pair.ends[index]), inner_(std::make_unique<PipeStream>(pair.ends[1 - index].out, end_.out)) {
      end_.stream = inner_.get();
    }
    ~Watched() override { end_.stream = nullptr; }
    void set_events(runtime::StreamEvents* events) override { inner_->set_events(events); }
    runtime::IoResult write(std::span<const iovec> pieces, std::span<const int> fds) override {
      return inner_->write(pieces, fds);
    }
    runtime::IoResult read(std::span<const iovec> pieces, std::vector<runtime::Fd>* fds) override {
      return inner_->read(pieces, fds);
    }
    void want_read(bool on) override { inner_->want_read(on); }
    [[nodiscard]] std::string remote_text() const override { return inner_->remote_text(); }
    [[nodiscard]] Credentials credentials() const override { return inner_->credentials(); }

   private:
    End& end_;
    std::unique_ptr<PipeStream> inner_;
  };
};

}  // namespace hixl::test
