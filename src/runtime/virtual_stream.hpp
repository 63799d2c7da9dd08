// SPDX-License-Identifier: Apache-2.0
//
// One connection of the virtual network: two ends, a pipe in each direction, and the streams that hold the ends. Used
// by virtual_*.cpp only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "runtime/virtual_net.hpp"

namespace hixl::runtime {

/// One direction: what was written and not yet read, in order. The first `arrived` bytes can be read.
struct VirtualPipe {
  struct Segment {
    std::size_t bytes = 0;
    bool end = false;  ///< the writer's orderly end, after all bytes
  };
  std::vector<std::byte> bytes;
  std::size_t head = 0;     ///< what was read already
  std::size_t arrived = 0;  ///< readable, from `head`
  std::uint64_t taken = 0;  ///< in all
  std::deque<Segment> flying;
  Instant last_arrival{};  ///< a segment never overtakes the one before
  Instant clogged_until{};
  Instant squeezed_until{};
  std::uint64_t bytes_per_ms = 0;             ///< until then
  bool sink = false;                          ///< nobody will read: bytes vanish
  IoResult::State end = IoResult::State::ok;  ///< what the reader finds behind the arrived bytes, once that has come

  /// What the reader's kernel has got.
  [[nodiscard]] std::uint64_t delivered() const noexcept { return taken - (held() - arrived); }
  [[nodiscard]] std::size_t held() const noexcept { return bytes.size() - head; }
  void drop_flying() {
    bytes.resize(head + arrived);
    flying.clear();
  }
  void consume(std::size_t count) {
    head += count;
    arrived -= count;
    if (head * 2 >= bytes.size()) {
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(head));
      head = 0;
    }
  }
};

struct VirtualEnd {
  ProcessId process = k_no_process;
  StreamEvents* events = nullptr;
  bool open = false;
  bool want_read = true;
  bool want_write = false;  ///< the last write took less than offered
  bool readable_queued = false;
  bool writable_queued = false;
  bool end_read = false;  ///< the reader has been told of the end
};

struct VirtualNet::Connection {
  std::uint64_t id = 0;
  Address address;                 ///< the listener's
  std::array<VirtualEnd, 2> ends;  ///< 0 dialled, 1 accepted
  std::array<VirtualPipe, 2> to;   ///< bytes on their way to that end
  bool connected = false;
  bool settled = false;   ///< the dialler has been told
  bool accepted = false;  ///< the listener's process holds its end; until then only its kernel does
  std::uint64_t listener = 0;
};

/// Of an end, as an index.
[[nodiscard]] inline std::size_t at(int side) noexcept { return static_cast<std::size_t>(side); }

/// Both ends of a connection have the same remote_text(), and no others: how things that are no part of it (a
/// simulated card) find out what belongs together.
[[nodiscard]] std::unique_ptr<Stream> make_virtual_stream(VirtualNet& net, std::uint64_t id, int side);
[[nodiscard]] std::unique_ptr<Listener> make_virtual_listener(VirtualNet& net, std::uint64_t id, Address address);

}  // namespace hixl::runtime
