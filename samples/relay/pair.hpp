// SPDX-License-Identifier: Apache-2.0
//
// One forwarded connection: the socket that dialled the relay, the one that the relay dialled, and bytes in between.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace relay {

/// What both directions of every connection of a port share.
struct Passage {
  std::uint64_t passed_bytes = 0;            ///< read, in both directions, so far
  std::uint64_t corrupt_at = UINT64_MAX;     ///< the byte that is flipped when passed_bytes comes to it
  std::uint64_t allowed_bytes = UINT64_MAX;  ///< that may be read now
};

/// Owns both sockets; both are non-blocking.
class Pair {
 public:
  Pair(int dialled_us, int dialled_target) : ends_{End{dialled_us, {}, 0}, End{dialled_target, {}, 0}} {}
  Pair(Pair&& other) noexcept;
  Pair& operator=(Pair&&) = delete;
  /// Says goodbye with FIN where that has not happened.
  ~Pair();

  [[nodiscard]] int fd(std::size_t side) const { return ends_[side].fd; }
  /// Events to poll for.
  [[nodiscard]] short wanted(std::size_t side, bool may_read) const;
  /// Moves what can be moved. False: it is over, by both sides' goodbye or an error; on an error both were reset.
  [[nodiscard]] bool turn(std::size_t side, short events, Passage& passage);
  /// Both sides see a reset instead of a goodbye.
  void reset();

 private:
  struct End {
    int fd = -1;
    std::vector<std::byte> out;  // to be written to fd
    std::size_t written = 0;     // of out
    bool input_ended = false;
    bool output_ended = false;
  };

  [[nodiscard]] bool read(std::size_t side, Passage& passage);
  [[nodiscard]] bool write(std::size_t side);

  std::array<End, 2> ends_;
};

}  // namespace relay
