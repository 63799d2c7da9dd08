// SPDX-License-Identifier: Apache-2.0
//
// A fault proxy for tcp: a thread between those who dial it and the socket behind it, that does to the bytes of each
// connection what the test has planned for it, at an exact byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hixl::test {

enum class Way : std::uint8_t { there, back };  ///< from the one who dialled, and to it

/// What becomes of one connection, once it has carried `after` bytes one way. Until then it is passed on as it is.
struct Fate {
  enum class Kind : std::uint8_t {
    pass,
    finish,  ///< both ends see an orderly end behind exactly these bytes
    reset,   ///< both ends see a reset; the last bytes may be lost with it
    stall,   ///< nothing more is read that way: the sender meets a window of zero
    drip,    ///< one byte a second from there on
    flip,    ///< the lowest bit of the next byte is turned over
  };
  Kind kind = Kind::pass;
  Way way = Way::there;
  std::uint64_t after = 0;
};

/// Owner: the test. Thread-safe. Close: destruction ends all connections by reset.
class Proxy {
 public:
  /// Listens at `host`, an IPv4 literal, on `port`, and dials 127.…:`port` at `target_host` for every connection it
  /// accepts. Fails the test when it cannot listen.
  Proxy(const std::string& host, const std::string& target_host, std::uint16_t port);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  /// The fates of the next connections, in their order; those behind them are passed on.
  void plan(std::vector<Fate> next);
  /// This becomes of every connection that stands and has no other fate that way, counted from its start.
  void strike(const Fate& fate);
  /// Stalled connections go on, with all that their senders have waiting.
  void heal();
  /// Ends all connections by reset.
  void cut();
  /// While closed, connections are reset as soon as they are accepted.
  void close_door(bool closed);

  [[nodiscard]] std::uint64_t accepted() const;
  /// Fates that have come over connections.
  [[nodiscard]] std::uint64_t struck() const;
  /// Bytes passed on, over all connections.
  [[nodiscard]] std::uint64_t passed(Way way) const;
  /// The first bytes that the latest connection carried that way, at most 4 KiB.
  [[nodiscard]] std::vector<std::byte> head(Way way) const;

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace hixl::test
