// SPDX-License-Identifier: Apache-2.0
//
// The RDMA cards of a cluster, and the library's own roce links on them. A build without verbs has none: its clusters
// draw the same shapes, and run without.
#pragma once

#include <cstdint>
#include <memory>

#include "base/choices.hpp"
#include "links/link.hpp"
#include "links/sim/rdma_plan.hpp"
#include "runtime/virtual_port.hpp"

namespace hixl::sim {

/// What a process holds of cards.
struct CardHoldings {
  std::size_t regions = 0, queue_pairs = 0, queues = 0, devices = 0;
};

class RdmaCards {
 public:
  /// Whether this build has verbs.
  [[nodiscard]] static bool supported() noexcept;
  /// Null: it has not.
  [[nodiscard]] static std::unique_ptr<RdmaCards> make(runtime::VirtualWorld& world, std::uint32_t rails,
                                                       const links::RdmaPlan& plan);
  virtual ~RdmaCards() = default;
  /// For one process. Null: it can have none now.
  [[nodiscard]] virtual std::unique_ptr<links::LinkFactory> make_factory(runtime::EventPort& port, Rank host,
                                                                         runtime::Loop& loop, Choices& choices) = 0;
  virtual void kill(runtime::EventPort& port, Duration held) = 0;
  virtual void flap(Rank host, std::uint32_t rail, Duration down) = 0;
  virtual void pull(Rank host, std::uint32_t rail, Duration away) = 0;
  /// Nothing fails any more, and what is down comes up.
  virtual void heal() = 0;
  virtual void halt() = 0;
  [[nodiscard]] virtual CardHoldings holdings(runtime::EventPort& port) const = 0;
  [[nodiscard]] virtual const links::RdmaCounts& counts() const = 0;
};

}  // namespace hixl::sim
