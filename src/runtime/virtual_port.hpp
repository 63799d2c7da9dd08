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
  std::uint32_t no_room_per_mille = 0;     ///< would_block although there is room
  std::uint32_t reset_per_mille = 0;       ///< the connection breaks within the segment
  std::uint32_t one_sided_per_mille = 0;   ///< of those: one end learns of it only after one_sided_max at most
  Duration one_sided_max{3'000'000'000};   ///< 3 s: beyond the lease of a host
  std::uint32_t half_close_per_mille = 0;  ///< the reader sees an orderly end, the writer nothing
  std::uint32_t clog_per_mille = 0;        ///< a direction stands still up to clog_max, then goes on
  Duration clog_max{2'000'000'000};
  std::uint32_t abort_per_mille = 0;  ///< closing an end throws away what the network still carries for the other
  std::uint32_t refuse_per_mille = 0;
  std::uint32_t connect_lost_per_mille = 0;  ///< no answer until the time limit
  std::size_t pipe_bytes = 256U << 10U;      ///< one direction: in flight and unread
  Duration turn_max{1'000};                  ///< a woken loop turns within this; at least k_turn_min passes
  std::uint32_t stall_per_mille = 0;         ///< a loop is held up to stall_max before its turn
  Duration stall_max{100'000'000};

  /// A swarm member: each kind of fault is switched on or off first, then gets a rate.
  [[nodiscard]] static FaultPlan draw(Choices& choices);
};

/// What a process holds of the world. Loop objects that forgot to let go of something show here.
struct VirtualHoldings {
  std::size_t listeners = 0;
  std::size_t streams = 0;          ///< ends of connections that it has not closed
  std::size_t streams_to_dead = 0;  ///< of these: the process at the other end is dead
  std::size_t death_watches = 0;
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
  /// Death of a process: its loop is never turned again, its listeners vanish, its streams end at the peers after what
  /// the network already carries. Every call into its port fails from now on.
  void kill(EventPort& port);
  [[nodiscard]] bool alive(EventPort& port) const;
  [[nodiscard]] VirtualHoldings holdings(EventPort& port) const;
  /// SIGSTOP for that long: the loop is not turned, the network fills its buffers.
  void pause(EventPort& port, Duration time);
  enum class Which : std::uint8_t { all, one };
  /// Nothing passes from one process to another for that long, on all of their connections or on one drawn.
  void clog(EventPort& from, EventPort& to, Duration time, Which which = Which::all);
  /// Breaks connections between two processes, as a reset drawn from the plan does.
  void reset(EventPort& a, EventPort& b, Which which = Which::all);
  /// Stands for a pidfd of the newest life of that name, in watch() of every port. No real descriptor; -1: no such
  /// name.
  [[nodiscard]] int death_fd(std::string_view name) const;

  /// `target` hears of `token` after `delay`. It must live as long as the world is stepped.
  void schedule(Duration delay, WorldEvents& target, std::uint64_t token);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hixl::runtime
