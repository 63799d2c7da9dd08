// SPDX-License-Identifier: Apache-2.0
//
// What turns a loop in production: a thread of its own, the libuv loop of a host program, or a program by hand. Only
// uv_port*.cpp know libuv.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <hixl/options.hpp>

#include "runtime/event_port.hpp"
#include "runtime/loop.hpp"

struct uv_loop_s;

namespace hixl::runtime {

struct DriverOptions {
  PollMode poll = PollMode::adaptive;
  Duration spin{50'000};
  /// Turned by hand: see HandTurn.
  Duration patience{std::chrono::seconds(30)};
};

/// An event port on libuv together with what turns it. Owner: core. The loop is given after construction, since
/// the loop needs the port.
class Driver {
 public:
  virtual ~Driver() = default;
  [[nodiscard]] virtual EventPort& port() = 0;
  /// Own thread: starts it. Host's loop: hooks into it (on its thread).
  virtual Result<void> start(Loop& loop, const DriverOptions& options) = 0;
  /// Whether spinning is allowed now (more ranks than cores on the host forbid it). Loop-bound.
  virtual void allow_spin(bool allowed) = 0;
  /// Ends the turning; the first call counts. What is left of streams, listeners and watches becomes inert: their
  /// owners may destroy them later. A name look-up that is under way delays the end by as long as the resolver takes.
  /// Own thread: asks, from any thread; join() waits, and all handles are closed when it returns. `closed` is called on
  /// that thread as its last act.
  /// Host's loop, or by hand: on its thread; `closed` is called from the host's loop when libuv has let go of the last
  /// handle, and may destroy the driver.
  virtual void stop(std::function<void()> closed) = 0;
  virtual void join() = 0;
  [[nodiscard]] virtual bool own_thread() const = 0;
};

[[nodiscard]] Result<std::unique_ptr<Driver>> make_thread_driver();
/// On the host's thread. The loop outlives the driver, or the driver has been stopped and closed.
[[nodiscard]] Result<std::unique_ptr<Driver>> make_hosted_driver(uv_loop_s* host);
/// Turned by HandTurn::poll(), which the loop's thread() knows once it is started. stop() is called inside a turn, or
/// when nobody turns; `closed` comes from a turn.
[[nodiscard]] Result<std::unique_ptr<Driver>> make_polled_driver();

}  // namespace hixl::runtime
