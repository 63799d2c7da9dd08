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
    bound.port = take_port(bound);
  }
  if (find_listener(bound) != listeners_.end()) return fail(ErrorCode::address_in_use, {.stage = Stage::bind});
  const std::uint64_t id = next_id_++;
  listeners_.emplace(id, ListenerEntry{process, bound, &events});
  return make_virtual_listener(*this, id, std::move(bound));
}

/// A fresh one; or one at which somebody else was found before, so that who looks for that one finds a stranger.
std::uint16_t VirtualNet::take_port(const Address& address) {
  Address bound = address;
  if (!left_ports_.empty() && agenda_.strikes(agenda_.plan.port_again_per_mille, "a port is used again", 0)) {
    bound.port = left_ports_[agenda_.choices.below(left_ports_.size())];
    if (find_listener(bound) == listeners_.end()) return bound.port;
  }
  do {
    bound.port = next_port_++;
  } while (bound.port == 0 || find_listener(bound) != listeners_.end());
  return bound.port;
}

void VirtualNet::close_listener(std::uint64_t id) {
  const auto found = listeners_.find(id);
  if (found == listeners_.end()) return;
  if (found->second.address.port != 0) left_ports_.push_back(found->second.address.port);
  listeners_.erase(found);
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
  if (!agenda_.strikes(agenda_.plan.connect_lost_per_mille, "nobody answers", id)) {
    agenda_.push({.kind = Kind::connect_arrive, .id = id}, agenda_.delay());
  }
  return make_virtual_stream(*this, id, 0);
}

void VirtualNet::on_connect_arrive(Connection& connection) {
  if (!connection.ends[0].open || connection.settled) return;
  const auto listener = find_listener(connection.address);
  ErrorCode code = ErrorCode::ok;
  if (listener == listeners_.end() || agenda_.strikes(agenda_.plan.refuse_per_mille, "refused", connection.id)) {
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
  const bool gone = listener == listeners_.end();
  if (gone || agenda_.strikes(agenda_.plan.fd_limit_per_mille, "no descriptor to accept with", connection.id)) {
    return close_end(connection, 1);
  }
  connection.accepted = true;
  listener->second.events->on_accept(make_virtual_stream(*this, connection.id, 1));
}

// ---- bytes ----

void VirtualNet::transmit(Connection& connection, int to, std::size_t bytes) {
  VirtualPipe& pipe = connection.to[at(to)];
  pipe.flying.push_back({bytes, bytes == 0});
  if (agenda_.strikes(agenda_.plan.clog_per_mille, "stands still", connection.id)) {
    pipe.clogged_until = agenda_.now + agenda_.up_to(agenda_.plan.clog_max);
  }
  if (agenda_.strikes(agenda_.plan.squeeze_per_mille, "becomes slow", connection.id)) {
    pipe.squeezed_until = agenda_.now + agenda_.up_to(agenda_.plan.squeeze_max);
    pipe.bytes_per_ms = agenda_.plan.squeeze_bytes_per_ms;
  }
  pipe.last_arrival = std::max(pipe.last_arrival, agenda_.now + agenda_.delay());
  if (agenda_.now < pipe.squeezed_until) {
    pipe.last_arrival += Duration(std::chrono::milliseconds(1)) * bytes / pipe.bytes_per_ms;
  }
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
  if (agenda_.editor != nullptr) {
    agenda_.editor->on_bytes(connection.id, side, std::span(pipe.bytes).last(taken));
  }
  if (agenda_.strikes(agenda_.plan.reset_per_mille, "breaks", connection.id)) {
    const std::size_t carried = choices.below(taken + 1);
    if (carried > 0) transmit(connection, 1 - side, carried);
    break_connection(connection);
    return {State::ok, taken};
  }
  if (agenda_.strikes(agenda_.plan.truncate_per_mille, "is cut off", connection.id)) {
    const std::size_t carried = choices.below(taken + 1);
    if (carried > 0) transmit(connection, 1 - side, carried);
    pipe.bytes.resize(pipe.bytes.size() - (taken - carried));
    send_end(connection, 1 - side);
    pipe.sink = true;
    return {State::ok, taken};
  }
  transmit(connection, 1 - side, taken);
  if (agenda_.strikes(agenda_.plan.half_close_per_mille, "is half closed", connection.id)) {
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
               agenda_.up_to(agenda_.choices.chance(agenda_.plan.slow_reader_per_mille) ? agenda_.plan.stall_max
                                                                                        : agenda_.plan.turn_max));
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

}  // namespace hixl::runtime
