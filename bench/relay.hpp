// SPDX-License-Identifier: Apache-2.0
//
// Relay: a network between two ranks of this process that can be broken. Each door is a port of its own that leads to
// one listener; a thread passes bytes on, in both directions. Connections can be reset or fall silent at a given
// moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace hixl::bench {

/// Thread-safe. Destruction resets what still stands.
class Relay {
 public:
  Relay();
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// A port of loopback that leads nowhere yet. Before anybody connects to it: lead().
  [[nodiscard]] std::uint16_t open_door();
  void lead(std::uint16_t door, std::uint16_t to);
  /// Connections that stand.
  [[nodiscard]] std::size_t count();
  enum class Break : std::uint8_t {
    reset,   ///< both ends hear it at once
    silent,  ///< nothing arrives any more, not even an acknowledgement, as when a cable is out
    stuck,   ///< what arrives is acknowledged and not passed on, as by a hung box on the way
  };
  /// Breaks one connection, chosen by `choice`; the time (now_ns) at which it happened, 0 when there is none.
  std::uint64_t break_one(Break how, std::size_t choice);

 private:
  static constexpr std::size_t k_buffer_bytes = 256U << 10U;
  struct Door {
    int listener = -1;
    std::uint16_t port = 0;
    std::uint16_t to = 0;
  };
  /// What one side sent and the other has not taken.
  struct Way {
    std::unique_ptr<std::byte[]> bytes = std::make_unique<std::byte[]>(k_buffer_bytes);
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  struct Connection {
    int fds[2] = {-1, -1};
    Way ways[2];          ///< from fds[i] to the other
    bool silent = false;  ///< or stuck
  };
  void run();
  void accept_all();
  /// False: one end is gone, or both are.
  static bool pass(Connection& connection);
  static void reset(Connection& connection);
  static void drop_all(Connection& connection);

  std::mutex mutex_;
  std::vector<Door> doors_;
  std::vector<std::unique_ptr<Connection>> connections_;
  int bell_ = -1;  ///< the set of descriptors has changed, or the end has come
  bool over_ = false;
  std::thread thread_;
};

/// Ports of loopback on which this process listens.
[[nodiscard]] std::vector<std::uint16_t> listening_ports();

}  // namespace hixl::bench
