// SPDX-License-Identifier: Apache-2.0
//
// The inside of the virtual world: the heap of events, and the network of streams and listeners. Used by
// virtual_*.cpp only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/event_port.hpp"
#include "runtime/virtual_port.hpp"

namespace hixl::runtime {

using ProcessId = std::uint32_t;  ///< index of a life of a process
inline constexpr ProcessId k_no_process = 0xffffffffU;

struct VirtualEvent {
  enum class Kind : std::uint8_t {
    // in the network
    arrive,          ///< the next segment reaches the inbox of `side`
    cut,             ///< a reset reaches `side`
    connect_arrive,  ///< a connection request reaches the listener's host
    // in a process
    connect_done,  ///< token: an ErrorCode
    accept,
    readable,
    writable,
    watch,
    // elsewhere
    release,  ///< id: a dead process, whose descriptors nobody holds any more
    world,
  };
  Instant at{};
  std::uint64_t tie = 0;  ///< drawn: the order of events of one time
  Kind kind = Kind::world;
  std::uint8_t side = 0;
  std::uint64_t id = 0;  ///< connection or watch
  std::uint64_t token = 0;
  WorldEvents* target = nullptr;
};

/// The clock, the choices and what is to happen.
class VirtualAgenda {
 public:
  VirtualAgenda(const Choices& source, const FaultPlan& faults) : plan(faults), choices(source) {}

  void push(VirtualEvent event, Duration delay) {
    event.at = now + delay;
    event.tie = choices.next();
    heap_.push(event);
  }
  [[nodiscard]] Instant next_at() const { return heap_.empty() ? k_never : heap_.top().at; }
  [[nodiscard]] VirtualEvent pop() {
    const VirtualEvent event = heap_.top();
    heap_.pop();
    return event;
  }
  /// How long a segment or a notice takes.
  [[nodiscard]] Duration delay() {
    if (choices.chance(plan.long_delay_per_mille)) return up_to(plan.long_delay_max);
    const auto low = static_cast<std::uint64_t>(plan.delay_min.count());
    return Duration(choices.between(low, static_cast<std::uint64_t>(plan.delay_max.count())));
  }
  [[nodiscard]] Duration up_to(Duration most) {
    return Duration(choices.between(1, static_cast<std::uint64_t>(most.count())));
  }
  /// A chance that is a fault, told if it comes true.
  [[nodiscard]] bool strikes(std::uint32_t per_mille, std::string_view what, std::uint64_t connection) {
    if (per_mille == 0 || !choices.chance(per_mille)) return false;
    if (witness != nullptr) witness->on_fault(what, connection);
    return true;
  }
  void mix(std::uint64_t value) noexcept {
    // One round of SplitMix64's finisher over the state and the value: order matters, every bit spreads.
    hash = Random(hash ^ (value + 0x632be59bd9b4e019U)).next();
  }

  Instant now{std::chrono::seconds(1)};  ///< not 0, so that "never happened" and "at the start" differ
  FaultPlan plan;
  Choices choices;
  std::uint64_t hash = 0;
  WireEditor* editor = nullptr;
  FaultWitness* witness = nullptr;

 private:
  struct Later {
    bool operator()(const VirtualEvent& a, const VirtualEvent& b) const {
      return a.at != b.at ? a.at > b.at : a.tie > b.tie;
    }
  };
  std::priority_queue<VirtualEvent, std::vector<VirtualEvent>, Later> heap_;
};

class VirtualNet {
 public:
  explicit VirtualNet(VirtualAgenda& agenda);
  ~VirtualNet();

  // ---- for ports ----
  [[nodiscard]] Result<std::unique_ptr<Listener>> listen(ProcessId process, const Address& address,
                                                         ListenerEvents& events);
  [[nodiscard]] std::unique_ptr<Stream> connect(ProcessId process, const Address& address, Duration timeout,
                                                StreamEvents& events);

  // ---- for the world ----
  /// In which process the event happens; nothing when it concerns nobody any more.
  [[nodiscard]] std::optional<ProcessId> process_of(const VirtualEvent& event) const;
  void handle_network(const VirtualEvent& event);
  void handle_process(const VirtualEvent& event);
  void kill(ProcessId process);
  void clog(ProcessId from, ProcessId to, Duration time, VirtualWorld::Which which);
  void squeeze(ProcessId from, ProcessId to, Duration time, std::uint64_t bytes_per_ms, VirtualWorld::Which which);
  /// Nobody turns the process any more, but its descriptors stay open.
  void orphan(ProcessId process);
  void reset(ProcessId a, ProcessId b, VirtualWorld::Which which);
  /// The other ends of the streams that a process has open; k_no_process: nobody has accepted yet.
  [[nodiscard]] std::vector<ProcessId> peers_of(ProcessId process) const;
  [[nodiscard]] std::size_t listeners_of(ProcessId process) const;

  // ---- for streams and listeners ----
  struct Connection;
  [[nodiscard]] Connection* find(std::uint64_t id);
  IoResult write(Connection& connection, int side, std::span<const iovec> pieces);
  IoResult read(Connection& connection, int side, std::span<const iovec> pieces);
  void want_readable(Connection& connection, int side);
  void close_end(Connection& connection, int side);
  void close_listener(std::uint64_t id);

 private:
  struct ListenerEntry {
    ProcessId process = k_no_process;
    Address address;
    ListenerEvents* events = nullptr;
  };
  [[nodiscard]] std::map<std::uint64_t, ListenerEntry>::iterator find_listener(const Address& address);
  /// The connections between two processes, or one of them.
  [[nodiscard]] std::vector<Connection*> between(ProcessId a, ProcessId b, VirtualWorld::Which which);
  [[nodiscard]] std::uint16_t take_port(const Address& address);
  void transmit(Connection& connection, int to, std::size_t bytes);
  void send_end(Connection& connection, int to);
  void break_connection(Connection& connection);
  void want_writable(Connection& connection, int side);
  void on_arrive(Connection& connection, const VirtualEvent& event);
  void on_connect_arrive(Connection& connection);
  void on_connect_done(Connection& connection, ErrorCode code);
  void on_accept(Connection& connection);
  void reap(std::uint64_t id);

  VirtualAgenda& agenda_;
  std::uint64_t next_id_ = 1;
  std::uint16_t next_port_ = 20'000;  ///< port 0 gives the next from here; far from the numbers that tests write down
  // Ordered by id: walking them must not depend on addresses.
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::map<std::uint64_t, ListenerEntry> listeners_;
  std::vector<std::uint16_t> left_ports_;  // of listeners that are gone
};

}  // namespace hixl::runtime
