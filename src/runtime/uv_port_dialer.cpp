// SPDX-License-Identifier: Apache-2.0
//
// Dialer.
#include "runtime/uv_port_dialer.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "runtime/interfaces.hpp"

namespace hixl::runtime {
namespace {

/// A unix listener with a full backlog answers EAGAIN and no event tells when it has room. Its process accepts within
/// microseconds when it runs at all, so this is for one that is stopped or busy, and 100 tries a second cost nothing.
constexpr Duration k_backlog_retry{10'000'000};

}  // namespace

Result<void> Dialer::start(const Address& address, Duration timeout) {
  auto literals = literal_addresses(address, Stage::connect);
  if (!literals) return fail(literals.error());
  if (!literals->empty()) return start(std::move(*literals), timeout);

  deadline_ = boot_time() + timeout;
  port_ = address.port;
  if (const int error = timer_.open(handles_, *this); error != 0) return fail(socket_error(-error, Stage::resolve));
  if (const int error = lookup_.start(handles_, address.host, address.port, *this); error != 0) {
    return fail(error == UV_ENOMEM ? ErrorCode::no_memory : ErrorCode::host_unresolved,
                {.stage = Stage::resolve, .os_error = -error});
  }
  wait(Phase::resolving, timeout);
  return {};
}

Result<void> Dialer::start(std::vector<SocketAddress> addresses, Duration timeout) {
  addresses_ = std::move(addresses);
  deadline_ = boot_time() + timeout;
  if (const int error = timer_.open(handles_, *this); error != 0) return fail(socket_error(-error, Stage::connect));
  wait(Phase::ready, Duration(0));  // not here and now: no event comes out of a call into the port
  return {};
}

void Dialer::on_looked_up(int error, const addrinfo* list) {
  if (error == 0) addresses_ = listed_addresses(list);
  if (addresses_.empty()) {
    // A failed look-up has numbers of libuv's own (UV_EAI_…); they are no errno and stay negative to show it.
    return finish(fail(ErrorCode::host_unresolved, {.stage = Stage::resolve, .os_error = error, .port = port_}));
  }
  try_next();
}

void Dialer::on_timeout() {
  switch (phase_) {
    case Phase::resolving:
      return finish(fail(ErrorCode::connect_timeout, {.stage = Stage::resolve, .os_error = ETIMEDOUT, .port = port_}));
    case Phase::connecting:
    case Phase::backlog_full:
      if (phase_ == Phase::connecting || boot_time() >= deadline_) {
        note(ETIMEDOUT);
        ++index_;
      }
      return try_next();
    case Phase::ready:
      return try_next();
  }
}

void Dialer::on_poll(int) {
  const int error = connect_outcome(socket_.get());
  if (error == 0) return finish(std::move(socket_));
  note(error);
  ++index_;
  try_next();
}

void Dialer::try_next() {
  for (; index_ < addresses_.size(); ++index_) {
    const int error = attempt();
    if (error == 0) return;
    note(error);
  }
  finish(fail(error_));
}

int Dialer::attempt() {
  const SocketAddress& to = addresses_[index_];
  poll_.close();
  auto socket = open_socket(to.any.sa_family);
  if (!socket) return socket.error();
  socket_ = std::move(*socket);
  if (::connect(socket_.get(), &to.any, to.length) == 0) {
    finish(std::move(socket_));
    return 0;
  }
  if (errno == EAGAIN && to.any.sa_family == AF_UNIX) {
    wait(Phase::backlog_full, k_backlog_retry);
    return 0;
  }
  if (errno != EINPROGRESS) return errno;
  if (const int error = poll_.open(handles_, socket_.get(), *this); error != 0) return -error;
  poll_.arm(UV_WRITABLE);
  // One address that swallows packets must not use up the time of those behind it.
  const auto left = static_cast<std::int64_t>(addresses_.size() - index_);
  wait(Phase::connecting, (deadline_ - boot_time()) / left);
  return 0;
}

void Dialer::wait(Phase phase, Duration delay) {
  phase_ = phase;
  timer_.start(std::max(delay, Duration(0)));
}

void Dialer::note(int os_error) {
  // Of several failures the one that may pass is told: a host without v6 has no route to the first address of a name,
  // and what matters is that the second refused.
  if (kind(error_.code) == ErrorKind::retry_later) return;
  error_ = socket_error(os_error, Stage::connect);
  const SocketAddress& to = addresses_[index_];
  const Address there = to.address();
  there.name_in(error_.detail);
  const bool unreachable =
      os_error == ENETUNREACH || os_error == EHOSTUNREACH || os_error == EADDRNOTAVAIL || os_error == EAFNOSUPPORT;
  if (!unreachable || there.loopback() || !only_other_family(to.any.sa_family)) return;
  error_.code = ErrorCode::family_mismatch;
  const int mine = to.any.sa_family == AF_INET ? AF_INET6 : AF_INET;
  const auto near = address_towards({Address::Family::tcp, mine == AF_INET ? "192.0.2.1" : "2001:db8::1", 1});
  log::debug("cannot call {}: this host has only {} ({})", there.text(), mine == AF_INET ? "IPv4" : "IPv6",
             near ? near->host : "no default route");
}

void Dialer::finish(Result<Fd> result) {
  poll_.close();
  timer_.close();
  lookup_.close();
  events_.on_dialed(std::move(result));
}

}  // namespace hixl::runtime
