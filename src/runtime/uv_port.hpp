// SPDX-License-Identifier: Apache-2.0
//
// UvPort: the event port on a libuv loop. libuv tells when descriptors are ready, keeps timers and looks names up;
// sockets are ours, so that writes are gathered and descriptors travel. Private to uv_port*.cpp.
#pragma once

#include <functional>
#include <memory>

#include "runtime/event_port.hpp"
#include "runtime/uv_port_handles.hpp"

namespace hixl::runtime {

/// What a negative answer of libuv means while a port or its driver is made.
[[nodiscard]] Error set_up_error(int uv_error);
/// Opens /dev/null in place of those of the descriptors 0, 1 and 2 that are closed: libuv ends the program when it
/// closes one of them, and what is written to standard error must reach no socket. 0, or libuv's error.
[[nodiscard]] int hold_standard_descriptors() noexcept;

/// Owner: a driver. Loop-bound, but for wake(). Close: close(); streams, listeners and watches that outlive it are
/// inert.
class UvPort final : public EventPort, private PollTarget {
 public:
  [[nodiscard]] static Result<std::unique_ptr<UvPort>> open(uv_loop_t* loop);

  [[nodiscard]] Instant now() override { return boot_time(); }
  void wake() noexcept override;
  [[nodiscard]] Result<std::unique_ptr<Listener>> listen(const Address& address, ListenerEvents& events) override;
  [[nodiscard]] Result<std::unique_ptr<Stream>> connect(const Address& address, Duration timeout,
                                                        StreamEvents& events) override;
  [[nodiscard]] Result<std::unique_ptr<Watch>> watch(int fd, WatchEvents& events) override;

  [[nodiscard]] UvHandles& handles() noexcept { return handles_; }
  /// See UvHandles::close().
  void close(std::function<void()> drained) { handles_.close(std::move(drained)); }

 private:
  explicit UvPort(uv_loop_t* loop) : handles_(loop, fork_mark()) {}
  void on_poll(int events) override;

  /// An eventfd of our own instead of uv_async: a sender that saw the loop asleep may get round to waking it when the
  /// loop has long been closed. libuv aborts then, or writes to a stranger's descriptor; this one lives as long as the
  /// port.
  Fd bell_;
  UvHandles handles_;
  UvPoll bell_poll_;
};

}  // namespace hixl::runtime
