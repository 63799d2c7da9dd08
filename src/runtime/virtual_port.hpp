// SPDX-License-Identifier: Apache-2.0
//
// VirtualWorld: a whole cluster in one thread. One clock, one seeded source of choices, one heap of things to happen;
// an event port for each simulated process; a network between them whose faults are drawn from a plan.
//
// The same seed gives the same run, event by event (trace_hash). Loops are turned only from step(). The world outlives
// every loop, stream, listener and watch made with its ports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/choices.hpp"
#include "base/time.hpp"
#include "runtime/event_port.hpp"
#include "runtime/loop.hpp"

namespace hixl::runtime {

/// What may go wrong, and how often. As constructed: a perfect network. `_per_mille` counts per segment (one write)
/// for streams, per attempt for connects, per turn for loops.
struct FaultPlan {
  Duration delay_min{10'000};  ///< of a segment and of a notice of the kernel; 10 µs: a good network
  Duration delay_max{10'000};
  std::uint32_t long_delay_per_mille = 0;  ///< a delay up to long_delay_max instead
  Duration long_delay_max{200'000'000};    ///< 200 ms: a lost packet that TCP sends again
  std::uint32_t short_read_per_mille = 0;  ///< a read gives 1 … n of the n bytes that wait
  std::uint32_t short_write_per_mille = 0;
  std::uint32_t no_room_per_mille = 0;      ///< would_block although there is room
  std::uint32_t reset_per_mille = 0;        ///< the connection breaks within the segment
  std::uint32_t one_sided_per_mille = 0;    ///< of those: one end learns of it only after one_sided_max at most
  Duration one_sided_max{3'000'000'000};    ///< 3 s: beyond the lease of a host
  std::uint32_t half_close_per_mille = 0;   ///< the reader sees an orderly end, the writer nothing
  std::uint32_t truncate_per_mille = 0;     ///< the same, at any byte of the segment
  std::uint32_t squeeze_per_mille = 0;      ///< a direction carries but squeeze_bytes_per_ms, up to squeeze_max
  std::uint64_t squeeze_bytes_per_ms = 64;  ///< 64 KB/s: a chunk takes as long as some leases
  Duration squeeze_max{1'000'000'000};
  std::uint32_t clog_per_mille = 0;  ///< a direction stands still up to clog_max, then goes on
  Duration clog_max{2'000'000'000};
  std::uint32_t abort_per_mille = 0;  ///< closing an end throws away what the network still carries for the other
  std::uint32_t refuse_per_mille = 0;
  std::uint32_t connect_lost_per_mille = 0;  ///< no answer until the time limit
  std::uint32_t fd_limit_per_mille = 0;      ///< of connects and accepts: no descriptor left
  std::uint32_t port_again_per_mille = 0;    ///< of listeners on port 0: they get a port that another one had before
  std::size_t pipe_bytes = 256U << 10U;      ///< one direction: in flight and unread
  Duration turn_max{1'000};                  ///< a woken loop turns within this; at least k_turn_min passes
  std::uint32_t stall_per_mille = 0;         ///< a loop is held up to stall_max before its turn
  Duration stall_max{100'000'000};
  std::uint32_t late_timer_per_mille = 0;   ///< of timers: their loop wakes up to stall_max after they are due
  std::uint32_t slow_reader_per_mille = 0;  ///< of notices that bytes wait: they come up to stall_max late

  /// A swarm member: each kind of fault is switched on or off first, then gets a rate.
  [[nodiscard]] static FaultPlan draw(Choices& choices);
};

/// What a process holds of the world. Loop objects that forgot to let go of something show here.
struct VirtualHoldings {
  std::size_t listeners = 0;
  std::size_t streams = 0;          ///< ends of connections that it has not closed
  std::size_t streams_to_dead = 0;  ///< of these: the process at the other end is dead
  std::size_t death_watches = 0;
  std::size_t card_watches = 0;  ///< of descriptors that make_descriptor() gave
};

/// Sees, and may change, what a stream carries, as it is written. Bytes of one direction come in order.
class WireEditor {
 public:
  virtual void on_bytes(std::uint64_t connection, int direction, std::span<std::byte> bytes) = 0;
  virtual void on_gone(std::uint64_t connection) = 0;

 protected:
  ~WireEditor() = default;
};

/// Hears of every fault that the plan brings: "connection 7 breaks".
class FaultWitness {
 public:
  virtual void on_fault(std::string_view what, std::uint64_t connection) = 0;

 protected:
  ~FaultWitness() = default;
};

/// Work that happens in the world and in no process (a simulated network card).
class WorldEvents {
 public:
  virtual void on_world_event(std::uint64_t token) = 0;

 protected:
  ~WorldEvents() = default;
};

class VirtualWorld final {
 public:
  explicit VirtualWorld(std::uint64_t seed, const FaultPlan& plan = {}) : VirtualWorld(Choices(seed), plan) {}
  explicit VirtualWorld(const Choices& choices, const FaultPlan& plan = {});
  ~VirtualWorld();
  VirtualWorld(const VirtualWorld&) = delete;
  VirtualWorld& operator=(const VirtualWorld&) = delete;

  /// A new process. A name may come again after kill(): the next life. The port lives as long as the world.
  [[nodiscard]] EventPort& make_port(std::string name);
  /// The loop is turned from now on, until remove() or kill(). One loop a port.
  void add(Loop& loop, EventPort& port);
  /// Before a loop of a living process is destroyed.
  void remove(EventPort& port);
  /// Seeds for loops and everything else that wants one.
  [[nodiscard]] std::uint64_t draw_seed();
  [[nodiscard]] Choices& choices() noexcept;

  /// Lets the next thing happen. False: nothing can happen any more.
  bool step();
  /// Steps until `until()`; false when `steps_max` were not enough or nothing can happen any more.
  template <class Predicate>
  [[nodiscard]] bool run_until(Predicate&& until, std::uint64_t steps_max) {
    for (std::uint64_t i = 0; !until(); ++i) {
      if (i == steps_max || !step()) return until();
    }
    return true;
  }
  /// Steps until the clock has advanced by `time`. The clock itself is set there when nothing happens in between.
  void run_for(Duration time);
  [[nodiscard]] Instant now() const noexcept;
  [[nodiscard]] std::uint64_t steps() const noexcept;
  /// A running hash of every event and its time.
  [[nodiscard]] std::uint64_t trace_hash() const noexcept;

  /// Changes the faults of everything that happens from now on; FaultPlan{} heals.
  void set_plan(const FaultPlan& plan);
  [[nodiscard]] const FaultPlan& plan() const noexcept;
  /// Both outlive the world, or are taken away with null.
  void set_editor(WireEditor* editor) noexcept;
  void set_witness(FaultWitness* witness) noexcept;
  /// Death of a process: its loop is never turned again, its listeners vanish, its streams end at the peers after what
  /// the network already carries. Every call into its port fails from now on.
  void kill(EventPort& port) { kill(port, Duration{}); }
  /// The same, but a child that it has forked holds its descriptors for that long: nobody reads, and no end is seen.
  void kill(EventPort& port, Duration held);
  [[nodiscard]] bool alive(EventPort& port) const;
  [[nodiscard]] VirtualHoldings holdings(EventPort& port) const;
  /// SIGSTOP for that long: the loop is not turned, the network fills its buffers.
  void pause(EventPort& port, Duration time);
  enum class Which : std::uint8_t { all, one };
  /// Nothing passes from one process to another for that long, on all of their connections or on one drawn.
  void clog(EventPort& from, EventPort& to, Duration time, Which which = Which::all);
  /// So many bytes a millisecond pass for that long.
  void squeeze(EventPort& from, EventPort& to, Duration time, std::uint64_t bytes_per_ms, Which which = Which::all);
  /// Breaks connections between two processes, as a reset drawn from the plan does.
  void reset(EventPort& a, EventPort& b, Which which = Which::all);
  /// Stands for a pidfd of the newest life of that name, in watch() of every port. No real descriptor; -1: no such
  /// name.
  [[nodiscard]] int death_fd(std::string_view name) const;

  /// Stands for a descriptor that something outside of every process makes readable (a card's event channel), in
  /// watch() of every port, a level; one watch at a time. No real descriptor either. Not ready at first.
  [[nodiscard]] int make_descriptor();
  void set_ready(int descriptor, bool ready);
  void close_descriptor(int descriptor);

  /// `target` hears of `token` after `delay`. It must live as long as the world is stepped.
  void schedule(Duration delay, WorldEvents& target, std::uint64_t token);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hixl::runtime
