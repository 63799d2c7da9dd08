// SPDX-License-Identifier: Apache-2.0
#include "runtime/virtual_net.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "runtime/virtual_stream.hpp"

namespace hixl::runtime {

using Kind = VirtualEvent::Kind;
using State = IoResult::State;

namespace {

[[nodiscard]] std::size_t at(int side) { return static_cast<std::size_t>(side); }

[[nodiscard]] bool matches(const Address& bound, const Address& asked) {
  const bool any = bound.family == Address::Family::tcp && (bound.host == "0.0.0.0" || bound.host == "::");
  return bound.family == asked.family && bound.port == asked.port && (any || bound.host == asked.host);
}

}  // namespace

VirtualNet::VirtualNet(VirtualAgenda& agenda) : agenda_(agenda) {}
VirtualNet::~VirtualNet() = default;

VirtualNet::Connection* VirtualNet::find(std::uint64_t id) {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : found->second.get();
}

std::map<std::uint64_t, VirtualNet::ListenerEntry>::iterator VirtualNet::find_listener(const Address& address) {
  return std::find_if(listeners_.begin(), listeners_.end(),
                      [&](const auto& entry) { return matches(entry.second.address, address); });
}

// ---- listening and connecting ----

Result<std::unique_ptr<Listener>> VirtualNet::listen(ProcessId process, const Address& address,
                                                     ListenerEvents& events) {
  Address bound = address;
  if (bound.family == Address::Family::tcp && bound.port == 0) {
    do {
      bound.port = next_port_++;
    } while (bound.port == 0 || find_listener(bound) != listeners_.end());
  }
  if (find_listener(bound) != listeners_.end()) return fail(ErrorCode::address_in_use, {.stage = Stage::bind});
  const std::uint64_t id = next_id_++;
  listeners_.emplace(id, ListenerEntry{process, bound, &events});
  return make_virtual_listener(*this, id, std::move(bound));
}

std::unique_ptr<Stream> VirtualNet::connect(ProcessId process, const Address& address, Duration timeout,
                                            StreamEvents& events) {
  auto connection = std::make_unique<Connection>();
  const std::uint64_t id = connection->id = next_id_++;
  connection->address = address;
  connection->ends[0].process = process;
  connection->ends[0].events = &events;
  connection->ends[0].open = true;
  connections_.emplace(id, std::move(connection));
  const auto limit = static_cast<std::uint64_t>(ErrorCode::connect_timeout);
  agenda_.push({.kind = Kind::connect_done, .id = id, .token = limit}, timeout);
  if (!agenda_.choices.chance(agenda_.plan.connect_lost_per_mille)) {
    agenda_.push({.kind = Kind::connect_arrive, .id = id}, agenda_.delay());
  }
  return make_virtual_stream(*this, id, 0);
}

void VirtualNet::on_connect_arrive(Connection& connection) {
  if (!connection.ends[0].open || connection.settled) return;
  const auto listener = find_listener(connection.address);
  ErrorCode code = ErrorCode::ok;
  if (listener == listeners_.end() || agenda_.choices.chance(agenda_.plan.refuse_per_mille)) {
    code = ErrorCode::connect_refused;
  } else {
    // The kernel of the listener's host answers; the process itself may be stopped and accept much later.
    connection.listener = listener->first;
    connection.ends[1].process = listener->second.process;
    connection.ends[1].open = true;
    agenda_.push({.kind = Kind::accept, .side = 1, .id = connection.id}, agenda_.delay());
  }
  agenda_.push({.kind = Kind::connect_done, .id = connection.id, .token = static_cast<std::uint64_t>(code)},
               agenda_.delay());
}

void VirtualNet::on_connect_done(Connection& connection, ErrorCode code) {
  VirtualEnd& end = connection.ends[0];
  if (connection.settled || !end.open) return;
  connection.settled = true;
  if (code == ErrorCode::ok) {
    connection.connected = true;
    want_writable(connection, 0);
    want_readable(connection, 0);
    if (end.events != nullptr) end.events->on_connected({});
    return;
  }
  connection.to[0].end = State::failed;
  connection.to[1].sink = true;
  if (connection.ends[1].open) send_end(connection, 1);
  const int os_error = code == ErrorCode::connect_refused ? ECONNREFUSED : ETIMEDOUT;
  if (end.events != nullptr) end.events->on_connected(fail(code, {.stage = Stage::connect, .os_error = os_error}));
}

void VirtualNet::on_accept(Connection& connection) {
  const auto listener = listeners_.find(connection.listener);
  if (listener == listeners_.end()) return close_end(connection, 1);
  connection.accepted = true;
  listener->second.events->on_accept(make_virtual_stream(*this, connection.id, 1));
}

// ---- bytes ----

void VirtualNet::transmit(Connection& connection, int to, std::size_t bytes) {
  VirtualPipe& pipe = connection.to[at(to)];
  pipe.flying.push_back({bytes, bytes == 0});
  if (agenda_.choices.chance(agenda_.plan.clog_per_mille)) {
    pipe.clogged_until = agenda_.now + agenda_.up_to(agenda_.plan.clog_max);
  }
  pipe.last_arrival = std::max(pipe.last_arrival, agenda_.now + agenda_.delay());
  agenda_.push({.kind = Kind::arrive, .side = static_cast<std::uint8_t>(to), .id = connection.id},
               pipe.last_arrival - agenda_.now);
}

void VirtualNet::send_end(Connection& connection, int to) { transmit(connection, to, 0); }

IoResult VirtualNet::write(Connection& connection, int side, std::span<const iovec> pieces) {
  VirtualEnd& end = connection.ends[at(side)];
  VirtualPipe& pipe = connection.to[at(1 - side)];
  const VirtualPipe& back = connection.to[at(side)];
  std::size_t offered = 0;
  for (const iovec& piece : pieces) offered += piece.iov_len;
  if (offered == 0) return {};
  // A writer learns that the other end is gone from what came back, not from the other end itself.
  if (back.end == State::failed || (back.end == State::closed && !connection.ends[at(1 - side)].open)) {
    return {State::failed, 0, EPIPE};
  }
  if (side == 0 && !connection.connected) {
    end.want_write = true;
    return {State::would_block};
  }
  if (pipe.sink) return {State::ok, offered};
  const std::size_t room = agenda_.plan.pipe_bytes - std::min(agenda_.plan.pipe_bytes, pipe.held());
  std::size_t taken = std::min(room, offered);
  Choices& choices = agenda_.choices;
  if (taken > 0 && choices.chance(agenda_.plan.no_room_per_mille)) taken = 0;
  if (taken > 0 && choices.chance(agenda_.plan.short_write_per_mille)) taken = choices.between(1, taken);
  if (taken < offered) {
    end.want_write = true;
    if (taken < room) want_writable(connection, side);
  }
  if (taken == 0) return {State::would_block};
  pipe.taken += taken;

  std::size_t left = taken;
  for (const iovec& piece : pieces) {
    const std::size_t count = std::min(left, piece.iov_len);
    const auto* bytes = static_cast<const std::byte*>(piece.iov_base);
    pipe.bytes.insert(pipe.bytes.end(), bytes, bytes + count);
    left -= count;
  }
  if (choices.chance(agenda_.plan.reset_per_mille)) {
    const std::size_t carried = choices.below(taken + 1);
    if (carried > 0) transmit(connection, 1 - side, carried);
    break_connection(connection);
    return {State::ok, taken};
  }
  transmit(connection, 1 - side, taken);
  if (choices.chance(agenda_.plan.half_close_per_mille)) {
    send_end(connection, 1 - side);
    pipe.sink = true;
  }
  return {State::ok, taken};
}

IoResult VirtualNet::read(Connection& connection, int side, std::span<const iovec> pieces) {
  VirtualEnd& end = connection.ends[at(side)];
  VirtualPipe& pipe = connection.to[at(side)];
  if (pipe.arrived == 0) {
    if (pipe.end == State::ok) return {State::would_block};
    end.end_read = true;
    return {pipe.end, 0, pipe.end == State::failed ? ECONNRESET : 0};
  }
  std::size_t limit = pipe.arrived;
  if (agenda_.choices.chance(agenda_.plan.short_read_per_mille)) limit = agenda_.choices.between(1, limit);
  std::size_t done = 0;
  for (const iovec& piece : pieces) {
    const std::size_t count = std::min(limit - done, piece.iov_len);
    const auto from = pipe.bytes.begin() + static_cast<std::ptrdiff_t>(pipe.head + done);
    std::copy(from, from + static_cast<std::ptrdiff_t>(count), static_cast<std::byte*>(piece.iov_base));
    done += count;
  }
  pipe.consume(done);
  agenda_.mix(done);
  if (connection.ends[at(1 - side)].want_write) want_writable(connection, 1 - side);
  return {State::ok, done};
}

void VirtualNet::on_arrive(Connection& connection, const VirtualEvent& event) {
  VirtualPipe& pipe = connection.to[event.side];
  if (pipe.flying.empty()) return;  // thrown away by a reset meanwhile
  if (agenda_.now < pipe.clogged_until) return agenda_.push(event, pipe.clogged_until - agenda_.now);
  const VirtualPipe::Segment segment = pipe.flying.front();
  pipe.flying.pop_front();
  pipe.arrived += segment.bytes;
  if (segment.end && pipe.end == State::ok) pipe.end = State::closed;
  agenda_.mix(segment.bytes);
  want_readable(connection, event.side);
}

// ---- events for processes ----

void VirtualNet::want_readable(Connection& connection, int side) {
  VirtualEnd& end = connection.ends[at(side)];
  const VirtualPipe& pipe = connection.to[at(side)];
  const bool something = pipe.arrived > 0 || (pipe.end != State::ok && !end.end_read);
  const bool told = side == 1 || connection.connected;  // bytes never come before on_connected
  if (!end.open || !end.want_read || end.events == nullptr || end.readable_queued || !something || !told) return;
  end.readable_queued = true;
  agenda_.push({.kind = Kind::readable, .side = static_cast<std::uint8_t>(side), .id = connection.id},
               agenda_.up_to(agenda_.plan.turn_max));
}

void VirtualNet::want_writable(Connection& connection, int side) {
  VirtualEnd& end = connection.ends[at(side)];
  if (!end.open || !end.want_write || end.writable_queued) return;
  end.writable_queued = true;
  agenda_.push({.kind = Kind::writable, .side = static_cast<std::uint8_t>(side), .id = connection.id}, agenda_.delay());
}

std::optional<ProcessId> VirtualNet::process_of(const VirtualEvent& event) const {
  const auto found = connections_.find(event.id);
  if (found == connections_.end()) return std::nullopt;
  const VirtualEnd& end = found->second->ends[event.side];
  return end.open ? std::optional(end.process) : std::nullopt;
}

void VirtualNet::handle_network(const VirtualEvent& event) {
  Connection* connection = find(event.id);
  if (connection == nullptr) return;
  if (event.kind == Kind::connect_arrive) return on_connect_arrive(*connection);
  if (event.kind == Kind::arrive) return on_arrive(*connection, event);
  HIXL_ASSERT(event.kind == Kind::cut);
  VirtualPipe& pipe = connection->to[event.side];
  pipe.drop_flying();
  if (pipe.end == State::ok) pipe.end = State::failed;
  want_readable(*connection, event.side);
  want_writable(*connection, event.side);
}

void VirtualNet::handle_process(const VirtualEvent& event) {
  Connection* connection = find(event.id);
  if (connection == nullptr) return;
  if (event.kind == Kind::connect_done) return on_connect_done(*connection, static_cast<ErrorCode>(event.token));
  if (event.kind == Kind::accept) return on_accept(*connection);
  const std::uint64_t id = event.id;
  const int side = event.side;
  VirtualEnd& end = connection->ends[event.side];
  if (event.kind == Kind::writable) {
    end.writable_queued = false;
    end.want_write = false;
    if (end.events != nullptr) end.events->on_writable();
    return;
  }
  HIXL_ASSERT(event.kind == Kind::readable);
  end.readable_queued = false;
  if (end.events == nullptr || !end.want_read) return;
  end.events->on_readable();
  // Level: what was left comes again. The receiver may have closed the stream by now.
  if (Connection* again = find(id)) want_readable(*again, side);
}

// ---- ends ----

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
  if (connection != nullptr && !connection->ends[0].open && !connection->ends[1].open) connections_.erase(id);
}

void VirtualNet::kill(ProcessId process) {
  std::erase_if(listeners_, [&](const auto& entry) { return entry.second.process == process; });
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
