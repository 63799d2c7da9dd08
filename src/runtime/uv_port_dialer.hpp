// SPDX-License-Identifier: Apache-2.0
//
// Dialer: from an address to a connected socket: look-up, then every address in turn until one answers, all within
// one deadline. Private to uv_port*.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/uv_port_handles.hpp"
#include "runtime/uv_port_socket.hpp"

namespace hixl::runtime {

class DialerEvents {
 public:
  /// Once, never inline, and the dialer's last act: it may be destroyed in here.
  virtual void on_dialed(Result<Fd> socket) = 0;

 protected:
  ~DialerEvents() = default;
};

/// Owner: a stream that is not connected yet. Destruction gives up silently.
class Dialer final : private PollTarget, private TimerTarget, private LookupTarget {
 public:
  Dialer(UvHandles& handles, DialerEvents& events) : handles_(handles), events_(events) {}
  /// Once. An error: nothing was started, and on_dialed will not come.
  [[nodiscard]] Result<void> start(const Address& address, Duration timeout);
  /// The same without a look-up; at least one address.
  [[nodiscard]] Result<void> start(std::vector<SocketAddress> addresses, Duration timeout);

 private:
  enum class Phase : std::uint8_t {
    resolving,     // the resolver works; the timer is the deadline
    ready,         // the timer is about to begin the next attempt
    connecting,    // the kernel works; the timer ends this attempt
    backlog_full,  // a unix listener has no room; the timer tries it again
  };
  void on_looked_up(int error, const addrinfo* list) override;
  void on_timeout() override;
  void on_poll(int events) override;
  void try_next();
  /// Starts the attempt at the current address; 0: it goes on (or has ended in success), otherwise its errno.
  [[nodiscard]] int attempt();
  void wait(Phase phase, Duration delay);
  void note(int os_error);
  void finish(Result<Fd> result);

  UvHandles& handles_;
  DialerEvents& events_;
  Phase phase_ = Phase::ready;
  Instant deadline_{};
  std::uint16_t port_ = 0;  // of a name that is looked up
  std::vector<SocketAddress> addresses_;
  std::size_t index_ = 0;
  Error error_;  // what the user will hear when all addresses have failed
  Fd socket_;
  UvPoll poll_;
  UvTimer timer_;
  UvLookup lookup_;
};

}  // namespace hixl::runtime
