// SPDX-License-Identifier: Apache-2.0
//
// UvListener: accepts in bounded steps, and steps back when the process is out of descriptors. Private to uv_port*.cpp.
#pragma once

#include <memory>
#include <utility>

#include "runtime/event_port.hpp"
#include "base/log_quota.hpp"
#include "runtime/uv_port_handles.hpp"

namespace hixl::runtime {

class UvListener final : public Listener, private PollTarget, private TimerTarget {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Listener>> open(UvHandles& handles, const Address& address,
                                                              ListenerEvents& events);
  [[nodiscard]] const Address& address() const override { return address_; }

 private:
  UvListener(UvHandles& handles, ListenerEvents& events) : handles_(handles), events_(events) {}
  void on_poll(int events) override;
  void on_timeout() override;
  /// What is left to do after an attempt to take one connection in.
  enum class Step : std::uint8_t { more, nothing_waits, out_of_resources };
  [[nodiscard]] Step accept_one();
  void step_back();
  void say_exhausted();

  UvHandles& handles_;
  ListenerEvents& events_;
  Address address_;
  bool exhausted_ = false;  // said so in the log
  log::Quota quota_;
  Fd socket_;
  UvPoll poll_;
  UvTimer timer_;
};

}  // namespace hixl::runtime
