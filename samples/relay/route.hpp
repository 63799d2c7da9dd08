// SPDX-License-Identifier: Apache-2.0
//
// One forwarded port: its listener, its connections, and the trouble that it makes them.
#pragma once

#include <netinet/in.h>
#include <poll.h>

#include <chrono>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "pair.hpp"

namespace relay {

using Clock = std::chrono::steady_clock;

class Route {
 public:
  /// Listens on `from`, on a free port of it when that has port 0. Throws std::system_error.
  Route(sockaddr_in from, sockaddr_in target);
  ~Route();
  Route(const Route&) = delete;
  Route& operator=(const Route&) = delete;

  [[nodiscard]] std::uint16_t port() const { return ntohs(from_.sin_port); }
  [[nodiscard]] std::uint16_t target_port() const { return ntohs(target_.sin_port); }

  void cut();
  void stall() { stalled_ = true; }
  void heal();
  void corrupt_after(std::uint64_t bytes) { passage_.corrupt_at = passage_.passed_bytes + bytes; }
  void slow(std::uint64_t bytes_per_s);
  [[nodiscard]] std::size_t connections() const { return pairs_.size(); }
  [[nodiscard]] std::uint64_t passed_bytes() const { return passage_.passed_bytes; }

  /// Appends what to poll for.
  void add_to(std::vector<pollfd>& fds);
  /// Takes what add_to() appended, which begins at `fds`.
  void turn(const pollfd* fds);
  /// It must be turned again by then even if nothing happens.
  [[nodiscard]] bool waits_for_budget() const { return rate_.has_value() && passage_.allowed_bytes == 0; }

 private:
  void listen();
  void accept();
  void refill();

  sockaddr_in from_;
  const sockaddr_in target_;
  int listener_ = -1;
  bool cut_ = false;
  bool stalled_ = false;
  std::optional<std::uint64_t> rate_;
  Clock::time_point refilled_{};
  Passage passage_;
  std::list<Pair> pairs_;
  std::vector<Pair*> polled_;  // those that add_to() saw, in order
};

}  // namespace relay
