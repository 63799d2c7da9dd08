// SPDX-License-Identifier: Apache-2.0
#include "pair.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace relay {

namespace {

/// Read at a time, and kept at most for a direction: the relay adds little to what the sockets hold themselves.
constexpr std::size_t k_read_bytes = std::size_t{256} << 10U;

bool not_now() { return errno == EAGAIN || errno == EINTR || errno == EINPROGRESS; }

}  // namespace

Pair::Pair(Pair&& other) noexcept : ends_(std::move(other.ends_)) {
  for (End& end : other.ends_) end.fd = -1;
}

Pair::~Pair() {
  for (const End& end : ends_) {
    if (end.fd >= 0) ::close(end.fd);
  }
}

short Pair::wanted(std::size_t side, bool may_read) const {
  const End& end = ends_[side];
  const bool room = ends_[1 - side].out.empty();
  return static_cast<short>((may_read && room && !end.input_ended ? POLLIN : 0) | (end.out.empty() ? 0 : POLLOUT));
}

bool Pair::turn(std::size_t side, short events, Passage& passage) {
  bool well = (events & POLLNVAL) == 0;
  if (well && (events & (POLLOUT | POLLERR | POLLHUP)) != 0) well = write(side);
  if (well && (events & (POLLIN | POLLERR | POLLHUP)) != 0) well = read(side, passage);
  if (!well) reset();
  return well && !(ends_[0].output_ended && ends_[1].output_ended);
}

void Pair::reset() {
  for (End& end : ends_) {
    if (end.fd < 0) continue;
    // Closing with this set drops what is queued and sends RST.
    const linger drop{.l_onoff = 1, .l_linger = 0};
    static_cast<void>(::setsockopt(end.fd, SOL_SOCKET, SO_LINGER, &drop, sizeof drop));
    ::close(std::exchange(end.fd, -1));
  }
}

bool Pair::read(std::size_t side, Passage& passage) {
  End& from = ends_[side];
  End& to = ends_[1 - side];
  const std::size_t most = std::min<std::uint64_t>(k_read_bytes, passage.allowed_bytes);
  if (from.input_ended || !to.out.empty() || most == 0) return true;
  to.out.resize(most);
  const ssize_t count = ::recv(from.fd, to.out.data(), most, 0);
  if (count < 0) {
    to.out.clear();
    return not_now();
  }
  const auto bytes = static_cast<std::size_t>(count);
  to.out.resize(bytes);
  if (passage.corrupt_at >= passage.passed_bytes && passage.corrupt_at - passage.passed_bytes < bytes) {
    to.out[passage.corrupt_at - passage.passed_bytes] ^= std::byte{1};
    passage.corrupt_at = UINT64_MAX;
  }
  passage.passed_bytes += bytes;
  if (passage.allowed_bytes != UINT64_MAX) passage.allowed_bytes -= bytes;
  from.input_ended = bytes == 0;
  return write(1 - side);
}

bool Pair::write(std::size_t side) {
  End& end = ends_[side];
  while (end.written < end.out.size()) {
    const ssize_t count = ::send(end.fd, end.out.data() + end.written, end.out.size() - end.written, MSG_NOSIGNAL);
    if (count < 0) return not_now();
    end.written += static_cast<std::size_t>(count);
  }
  end.out.clear();
  end.written = 0;
  if (ends_[1 - side].input_ended && !end.output_ended) {
    end.output_ended = true;
    if (::shutdown(end.fd, SHUT_WR) != 0 && errno != ENOTCONN) return false;
  }
  return true;
}

}  // namespace relay
