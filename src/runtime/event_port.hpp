// SPDX-License-Identifier: Apache-2.0
//
// EventPort: everything a loop asks of the world (clock, sleep, sockets). Two exist: libuv's (uv_port.cpp) and a
// virtual one for the simulated world (virtual_port.cpp). Actors see only this.
//
// Loop-bound, but for wake() and now(). No event is ever delivered from inside a call into the port.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <hixl/result.hpp>

#include "base/fork_mark.hpp"
#include "base/time.hpp"
#include "runtime/address.hpp"

namespace hixl::runtime {

/// A file descriptor that closes itself. -1 is empty.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd();
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int release() noexcept {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_ = -1;
};

class StreamEvents {
 public:
  /// The connection stands, or failed (CONNECT_REFUSED, CONNECT_TIMEOUT, HOST_UNRESOLVED, NO_ROUTE, …). Once, and
  /// only for streams made by connect().
  virtual void on_connected(const Result<void>& result) = 0;
  /// Bytes, end of stream or an error wait to be read. Level: comes again each turn until all is read.
  virtual void on_readable() = 0;
  /// Room to write again, after a write that took less than offered.
  virtual void on_writable() = 0;

 protected:
  ~StreamEvents() = default;
};

/// What one read or write did.
struct IoResult {
  enum class State : std::uint8_t { ok, would_block, closed, failed } state = State::ok;
  std::size_t bytes = 0;
  int os_error = 0;
};

/// A connected byte stream. Owner: whoever holds it. Destruction closes at once; no event comes afterwards, and
/// no byte is read or written by the kernel on its behalf into memory of the owner.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Null mutes. A new stream is muted until this is called.
  virtual void set_events(StreamEvents* events) = 0;
  /// Takes what the socket takes now, in order. With `fds` (unix streams only) at least one byte must be offered;
  /// they travel beside the first byte. Never raises SIGPIPE.
  virtual IoResult write(std::span<const iovec> pieces, std::span<const int> fds = {}) = 0;
  /// Reads into `pieces`. `closed` is the orderly end. Descriptors that came along are added to `fds`, close-on-exec.
  virtual IoResult read(std::span<const iovec> pieces, std::vector<Fd>* fds = nullptr) = 0;
  /// Back-pressure: while false, on_readable is not delivered. True at first.
  virtual void want_read(bool on) = 0;
  /// Bytes written of which the other host (of a unix stream: the other process) has taken delivery; 0 where that is
  /// not known. Tells a slow path from a dead one.
  [[nodiscard]] virtual std::uint64_t bytes_delivered() { return 0; }
  /// For logs: "127.0.0.1:4711".
  [[nodiscard]] virtual std::string remote_text() const = 0;
  /// Process and user at the other end of a unix stream; pid 0 where that is unknown.
  struct Credentials {
    std::int32_t pid = 0;
    std::uint32_t uid = 0;
  };
  [[nodiscard]] virtual Credentials credentials() const = 0;
};

class ListenerEvents {
 public:
  virtual void on_accept(std::unique_ptr<Stream> stream) = 0;

 protected:
  ~ListenerEvents() = default;
};

class Listener {
 public:
  virtual ~Listener() = default;
  /// The bound address, with the real port.
  [[nodiscard]] virtual const Address& address() const = 0;
};

/// Reports that a descriptor is readable (pidfd: the process died; eventfd), a level like on_readable(). Destruction
/// stops it; the fd stays open, and was made non-blocking. One watch a descriptor.
class WatchEvents {
 public:
  virtual void on_ready() = 0;

 protected:
  ~WatchEvents() = default;
};
class Watch {
 public:
  virtual ~Watch() = default;
};

class EventPort {
 public:
  virtual ~EventPort() = default;

  /// Tells a forked child that what stands on this port belongs to its parent: descriptors, rings and peers are shared,
  /// and whatever the child did to them would hit both. Thread-safe.
  [[nodiscard]] const std::shared_ptr<const ForkMark>& fork_mark() const noexcept { return fork_mark_; }

  /// Monotonic, does not stop in suspend where the kernel offers that. Thread-safe.
  [[nodiscard]] virtual Instant now() = 0;
  /// Ends a sleep of the loop, or makes its next one end at once. Thread-safe, signal-safe not. Coalesces.
  virtual void wake() noexcept = 0;

  /// ADDRESS_IN_USE, HOST_UNRESOLVED, OS_ERROR. Port 0 chooses a free one. SO_REUSEADDR is set, port sharing is not.
  [[nodiscard]] virtual Result<std::unique_ptr<Listener>> listen(const Address& address, ListenerEvents& events) = 0;
  /// Starts to connect; on_connected tells the rest, at the latest after `timeout`. Name look-up does not block.
  [[nodiscard]] virtual Result<std::unique_ptr<Stream>> connect(const Address& address, Duration timeout,
                                                                StreamEvents& events) = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Watch>> watch(int fd, WatchEvents& events) = 0;

 private:
  std::shared_ptr<const ForkMark> fork_mark_ = std::make_shared<const ForkMark>();
};

}  // namespace hixl::runtime
