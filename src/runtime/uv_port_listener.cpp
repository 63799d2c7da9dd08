// SPDX-License-Identifier: Apache-2.0
//
// UvListener.
#include "runtime/uv_port_listener.hpp"

#include <cerrno>
#include <new>
#include <string>

#include "base/log.hpp"
#include "runtime/uv_port_socket.hpp"
#include "runtime/uv_port_stream.hpp"

namespace hixl::runtime {
namespace {

/// Connections taken in at a time. A storm of them must not hold up the links that stand; the rest waits in the
/// kernel's backlog, and readiness is level-triggered.
constexpr int k_accepts_max = 16;
/// Rest after the process ran out of descriptors. The waiting connection keeps the listener readable, so that without
/// a rest the loop would spin; a tenth of a second is short against every timeout of a peer.
constexpr Duration k_rest{100'000'000};

std::string remote_name(const SocketAddress& from, int fd) {
  if (from.any.sa_family != AF_UNIX) return from.address().text();
  ucred peer{};  // the connecting side of a unix stream has no name
  socklen_t size = sizeof(peer);
  const bool known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  return known ? "unix:pid " + std::to_string(peer.pid) : "unix:";
}

}  // namespace

Result<std::unique_ptr<Listener>> UvListener::open(UvHandles& handles, const Address& address, ListenerEvents& events) {
  auto candidates = literal_addresses(address, Stage::bind);
  if (candidates && candidates->empty()) candidates = look_up_blocking(address, Stage::bind);
  if (!candidates) return fail(candidates.error());

  std::unique_ptr<UvListener> listener(new UvListener(handles, events));
  int error = 0;
  for (const SocketAddress& candidate : *candidates) {
    auto socket = open_listener(candidate);
    if (socket) {
      listener->socket_ = std::move(*socket);
      break;
    }
    // The first candidate's reason is the one worth telling: later ones are often of a family this host has not.
    if (error == 0) error = socket.error();
  }
  if (!listener->socket_) {
    Error told = socket_error(error, Stage::bind);
    (candidates->empty() ? address : candidates->front().address()).name_in(told.detail);
    return fail(told);
  }

  listener->address_ = local_address(listener->socket_.get()).address();
  error = listener->timer_.open(handles, *listener);
  if (error == 0) error = listener->poll_.open(handles, listener->socket_.get(), *listener);
  if (error != 0) return fail(socket_error(-error, Stage::bind));
  listener->poll_.arm(UV_READABLE);
  return listener;
}

void UvListener::on_poll(int) {
  const UvOwner::Witness witness(poll_);
  for (int i = 0; i < k_accepts_max; ++i) {
    const Step step = accept_one();
    if (!witness.alive()) return;
    if (step == Step::out_of_resources) return step_back();
    if (step == Step::nothing_waits) break;
  }
  poll_.arm(UV_READABLE);
}

UvListener::Step UvListener::accept_one() {
  SocketAddress from;
  from.length = sizeof(from.local);
  Fd fd(::accept4(socket_.get(), &from.any, &from.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Step::nothing_waits;
    const bool exhausted = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    // Anything else is the failure of one connection before it was taken in (accept(2) lists them): on to the next.
    return exhausted ? Step::out_of_resources : Step::more;
  }
  exhausted_ = false;
  if (from.any.sa_family != AF_UNIX) set_no_delay(fd.get());
  try {
    const std::string name = remote_name(from, fd.get());
    auto stream = UvStream::adopt(handles_, std::move(fd), name);
    if (!stream) return Step::out_of_resources;  // libuv or epoll had no memory for it; the connection is closed
    events_.on_accept(std::move(*stream));
  } catch (const std::bad_alloc&) {
    return Step::out_of_resources;
  }
  return Step::more;
}

void UvListener::step_back() {
  if (!exhausted_) say_exhausted();
  exhausted_ = true;
  poll_.arm(0);
  timer_.start(k_rest);
}

/// A listener has no loop whose log it could use; what was left out of an earlier period is told with the next line.
void UvListener::say_exhausted() {
  constexpr log::Topic k_topic{"cannot accept"};
  const Instant now = boot_time();
  quota_.flush(now, [](log::Level level, const log::Topic& topic, std::uint64_t count) {
    log::emit(level, "{}: {} more suppressed", topic.kind, count);
  });
  if (!quota_.admit(log::Level::warn, k_topic, now)) return;
  log::warn("{}: cannot accept, no descriptors or memory; trying again", address_.text());
}

void UvListener::on_timeout() { poll_.arm(UV_READABLE); }

}  // namespace hixl::runtime
