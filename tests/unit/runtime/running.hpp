// SPDX-License-Identifier: Apache-2.0
//
// A loop on a thread of its own, for tests of the thread driver.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

#include "runtime/drivers.hpp"
#include "uv_world.hpp"

namespace hixl::runtime::test {

/// Waits for what the loop's thread reports; false: it never did.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  [[nodiscard]] bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, k_hang, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

/// A loop on a thread of its own; stopped at the end of the test, before what it uses goes.
struct Running {
  explicit Running(const DriverOptions& options = {}) : driver(std::move(*make_thread_driver())) {
    loop.emplace(driver->port(), 1, 4096);
    REQUIRE(driver->start(*loop, options).has_value());
  }
  ~Running() { stop(); }
  void stop() {
    driver->stop({});
    driver->join();
  }
  /// Runs `what` on the loop's thread and waits for it.
  void run(const std::function<void()>& what) {
    struct Call final : MailTarget {
      const std::function<void()>* what;
      Gate done;
      void on_mail(const Mail&) override {
        (*what)();
        done.open();
      }
    } call;
    call.what = &what;
    REQUIRE(loop->mailbox().post({&call, 0, 0, 0}));
    REQUIRE(call.done.wait());
  }
  std::unique_ptr<Driver> driver;
  std::optional<Loop> loop;
};

inline constexpr DriverOptions k_event{PollMode::event, Duration(0)};
inline constexpr DriverOptions k_busy{PollMode::busy, Duration(0)};

}  // namespace hixl::runtime::test
