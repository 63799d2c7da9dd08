// SPDX-License-Identifier: Apache-2.0
//
// What Prefill and Decode ranks have in common: the runtime, the pipe to the launcher, the mailroom, start and end.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <hixl/runtime.hpp>

#include "event_queue.hpp"
#include "line_pipe.hpp"
#include "mailroom.hpp"
#include "plan.hpp"

namespace pd {

/// Prefill ranks come first, Decode ranks after them.
class Rank {
 public:
  Rank(std::unique_ptr<hixl::Runtime> runtime, LinePipe pipe, const Plan& plan);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// Publishes the control region and `pool` (an empty one is none), learns the counterparts' and meets all at a
  /// barrier.
  [[nodiscard]] hixl::Result<void> meet(const hixl::Region& pool);
  /// The links to all peers as they are now, for the launcher.
  [[nodiscard]] Json links_now() const;
  /// Says goodbye to the launcher, with the counters, and stops.
  void leave();

  [[nodiscard]] bool is_prefill() const { return runtime->rank() < plan.prefill; }
  /// Index of this rank, or of a counterpart, within its role.
  [[nodiscard]] std::uint32_t index_of(hixl::Rank rank) const {
    return rank < plan.prefill ? rank : rank - plan.prefill;
  }

  std::unique_ptr<hixl::Runtime> runtime;
  LinePipe pipe;
  const Plan plan;
  Mailroom mailroom;
  EventQueue events;
  std::vector<hixl::RemoteRegion> pools;  ///< of every Decode, by index; on Prefill ranks

 private:
  std::thread reader_;  // lines of the launcher become events
};

[[nodiscard]] int run_prefill(Rank& rank);
[[nodiscard]] int run_decode(Rank& rank);
/// The whole life of a rank process.
[[nodiscard]] int run_rank(int pipe_fd);

}  // namespace pd
