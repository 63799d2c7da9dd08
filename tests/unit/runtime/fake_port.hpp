// SPDX-License-Identifier: Apache-2.0
//
// The smallest event port: a clock that tests set, and wake-ups that are counted. No sockets.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "runtime/event_port.hpp"

namespace hixl::test {

class FakePort final : public runtime::EventPort {
 public:
  [[nodiscard]] Instant now() override { return now_; }
  /// Called within every wake(), if set before any thread may call that.
  std::function<void()> on_wake;
  void pass(Duration time) { now_ += time; }

  void wake() noexcept override {
    if (on_wake) on_wake();
    wakes_.fetch_add(1);
    wakes_.notify_all();
  }
  [[nodiscard]] int wakes() const { return wakes_.load(); }
  void wait_for_wake(int seen) const { wakes_.wait(seen); }

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

 private:
  Instant now_{std::chrono::seconds(100)};
  std::atomic<int> wakes_{0};
};

}  // namespace hixl::test
