// SPDX-License-Identifier: Apache-2.0
//
// The two system calls, and what their errors mean.
#include "memory/foreign_memory.hpp"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/assert.hpp"
#include "wire/frame.hpp"

namespace hixl::memory {
namespace {

/// Bytes of a device that the CPU cannot address pass through the stack, a page at a time, as in device.cpp.
constexpr std::size_t k_staged_bytes = 4096;

/// Whether one byte of a process can be read now.
bool readable(pid_t pid, void* address) noexcept {
  std::byte byte{};
  const iovec here{&byte, 1}, there{address, 1};
  return ::process_vm_readv(pid, &here, 1, &there, 1, 0) == 1;
}

/// Moves the front of a list of pieces past `bytes`. Gives the first piece that is left.
std::size_t advance(std::span<iovec> pieces, std::size_t first, std::size_t bytes) noexcept {
  while (bytes > 0) {
    iovec& piece = pieces[first];
    const std::size_t step = std::min(bytes, piece.iov_len);
    piece.iov_base = static_cast<std::byte*>(piece.iov_base) + step;
    piece.iov_len -= step;
    bytes -= step;
    if (piece.iov_len == 0) ++first;
  }
  return first;
}

}  // namespace

bool process_ended(int pidfd) noexcept {
  pollfd query{.fd = pidfd, .events = POLLIN, .revents = 0};
  return pidfd >= 0 && ::poll(&query, 1, 0) == 1 && (query.revents & POLLIN) != 0;
}

ForeignMemory::Moved ForeignMemory::move(Direction direction, Device& local,
                                         std::span<const ForeignSegment> segments) const noexcept {
  if (local.caps().cpu_addressable) return move_host(direction, segments);
  for (const ForeignSegment& segment : segments) {
    if (const Moved moved = move_bounced(direction, local, segment); moved.outcome != Outcome::done) return moved;
  }
  return {};
}

ForeignMemory::Moved ForeignMemory::move_bounced(Direction direction, Device& local,
                                                 const ForeignSegment& segment) const noexcept {
  std::array<std::byte, k_staged_bytes> bounce;
  for (std::uint32_t offset = 0; offset < segment.bytes;) {
    const auto bytes = static_cast<std::uint32_t>(std::min<std::size_t>(segment.bytes - offset, bounce.size()));
    const ForeignSegment piece{bounce.data(), segment.address + offset, bytes};
    if (direction == Direction::to_peer) local.read(bounce.data(), segment.local + offset, bytes);
    if (const Moved moved = move_host(direction, {&piece, 1}); moved.outcome != Outcome::done) return moved;
    if (direction == Direction::from_peer) local.write(segment.local + offset, bounce.data(), bytes);
    offset += bytes;
  }
  return {};
}

ForeignMemory::Moved ForeignMemory::move_host(Direction direction,
                                              std::span<const ForeignSegment> segments) const noexcept {
  HIXL_ASSERT(segments.size() <= wire::k_segments_max);
  std::array<iovec, wire::k_segments_max> here, there;
  std::size_t count = 0;
  for (const ForeignSegment& segment : segments) {
    if (segment.bytes == 0) continue;
    here[count] = {segment.local, segment.bytes};
    there[count] = {reinterpret_cast<void*>(segment.address), segment.bytes};
    ++count;
  }
  // A call may move less than all, up to a page that is not there; the next one tells why.
  for (std::size_t first = 0; first < count;) {
    if (process_ended(pidfd_)) return {.outcome = Outcome::ended};
    const std::size_t left = count - first;
    const ssize_t moved = direction == Direction::to_peer
                              ? ::process_vm_writev(pid_, &here[first], left, &there[first], left, 0)
                              : ::process_vm_readv(pid_, &here[first], left, &there[first], left, 0);
    const int os_error = moved < 0 ? errno : EFAULT;
    if (process_ended(pidfd_)) return {.outcome = Outcome::ended};
    if (moved <= 0) return failure(direction, os_error, here[first].iov_base, there[first].iov_base);
    const auto bytes = static_cast<std::size_t>(moved);
    static_cast<void>(advance(here, first, bytes));
    first = advance(there, first, bytes);
  }
  return {};
}

/// EFAULT does not say at which side: ask each for one byte, in the direction in which the copy needed it.
ForeignMemory::Moved ForeignMemory::failure(Direction direction, int os_error, void* here, void* there) const noexcept {
  if (os_error == ESRCH) return {.outcome = Outcome::ended, .os_error = os_error};
  if (os_error != EFAULT) return {.outcome = Outcome::refused, .os_error = os_error};
  const bool at_peer = direction == Direction::to_peer ? readable(::getpid(), here) : !readable(pid_, there);
  return {.outcome = at_peer ? Outcome::unmapped_there : Outcome::unmapped_here,
          .os_error = os_error,
          .address = reinterpret_cast<std::uint64_t>(at_peer ? there : here)};
}

}  // namespace hixl::memory
