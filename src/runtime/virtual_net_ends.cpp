// SPDX-License-Identifier: Apache-2.0
//
// How connections of the virtual network end, and what a test does to them from outside.
#include <algorithm>
#include <utility>

#include "runtime/virtual_net.hpp"
#include "runtime/virtual_stream.hpp"

namespace hixl::runtime {

using Kind = VirtualEvent::Kind;

void VirtualNet::break_connection(Connection& connection) {
  connection.to[0].sink = connection.to[1].sink = true;
  const bool one_sided = agenda_.choices.chance(agenda_.plan.one_sided_per_mille);
  const auto late = static_cast<std::uint8_t>(agenda_.choices.below(2));
  for (std::uint8_t side = 0; side < 2; ++side) {
    const Duration delay = one_sided && side == late ? agenda_.up_to(agenda_.plan.one_sided_max) : agenda_.delay();
    agenda_.push({.kind = Kind::cut, .side = side, .id = connection.id}, delay);
  }
}

void VirtualNet::close_end(Connection& connection, int side) {
  VirtualEnd& end = connection.ends[at(side)];
  if (!end.open) return;
  end.open = false;
  end.events = nullptr;
  VirtualPipe& in = connection.to[at(side)];
  in.drop_flying();
  in.consume(in.arrived);
  in.sink = true;
  const int other = 1 - side;
  if (connection.ends[at(other)].open) {
    if (agenda_.choices.chance(agenda_.plan.abort_per_mille)) {
      agenda_.push({.kind = Kind::cut, .side = static_cast<std::uint8_t>(other), .id = connection.id}, agenda_.delay());
    } else {
      send_end(connection, other);
    }
    want_writable(connection, other);
  }
  reap(connection.id);
}

void VirtualNet::reap(std::uint64_t id) {
  const Connection* connection = find(id);
  if (connection == nullptr || connection->ends[0].open || connection->ends[1].open) return;
  if (agenda_.editor != nullptr) agenda_.editor->on_gone(id);
  connections_.erase(id);
}

void VirtualNet::kill(ProcessId process) {
  for (auto place = listeners_.begin(); place != listeners_.end();) {
    const auto [id, entry] = *place++;
    if (entry.process == process) close_listener(id);
  }
  std::vector<std::pair<std::uint64_t, int>> ends;
  for (const auto& [id, connection] : connections_) {
    for (int side = 0; side < 2; ++side) {
      if (connection->ends[at(side)].process == process) ends.emplace_back(id, side);
    }
  }
  for (const auto& [id, side] : ends) {
    if (Connection* connection = find(id)) close_end(*connection, side);
  }
}

std::vector<VirtualNet::Connection*> VirtualNet::between(ProcessId a, ProcessId b, VirtualWorld::Which which) {
  std::vector<Connection*> found;
  for (const auto& [id, connection] : connections_) {
    const ProcessId left = connection->ends[0].process;
    const ProcessId right = connection->ends[1].process;
    if ((left == a && right == b) || (left == b && right == a)) found.push_back(connection.get());
  }
  if (which == VirtualWorld::Which::one && !found.empty()) found = {found[agenda_.choices.below(found.size())]};
  return found;
}

void VirtualNet::clog(ProcessId from, ProcessId to, Duration time, VirtualWorld::Which which) {
  for (Connection* connection : between(from, to, which)) {
    VirtualPipe& pipe = connection->to[connection->ends[0].process == to ? 0 : 1];
    pipe.clogged_until = std::max(pipe.clogged_until, agenda_.now + time);
  }
}

void VirtualNet::squeeze(ProcessId from, ProcessId to, Duration time, std::uint64_t bytes_per_ms,
                         VirtualWorld::Which which) {
  for (Connection* connection : between(from, to, which)) {
    VirtualPipe& pipe = connection->to[connection->ends[0].process == to ? 0 : 1];
    pipe.squeezed_until = agenda_.now + time;
    pipe.bytes_per_ms = bytes_per_ms;
  }
}

void VirtualNet::orphan(ProcessId process) {
  for (const auto& [id, connection] : connections_) {
    for (VirtualEnd& end : connection->ends) {
      if (end.process == process) end.events = nullptr;
    }
  }
}

std::vector<ProcessId> VirtualNet::peers_of(ProcessId process) const {
  std::vector<ProcessId> peers;
  for (const auto& [id, connection] : connections_) {
    for (const std::size_t side : {0U, 1U}) {
      const VirtualEnd& end = connection->ends[side];
      const bool held = end.open && (side == 0 || connection->accepted);
      if (held && end.process == process) peers.push_back(connection->ends[1 - side].process);
    }
  }
  return peers;
}

std::size_t VirtualNet::listeners_of(ProcessId process) const {
  return static_cast<std::size_t>(std::count_if(listeners_.begin(), listeners_.end(),
                                                [&](const auto& entry) { return entry.second.process == process; }));
}

void VirtualNet::reset(ProcessId a, ProcessId b, VirtualWorld::Which which) {
  for (Connection* connection : between(a, b, which)) break_connection(*connection);
}

}  // namespace hixl::runtime
