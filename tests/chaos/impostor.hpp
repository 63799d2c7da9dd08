// SPDX-License-Identifier: Apache-2.0
//
// A peer that speaks the protocol byte by byte, as the test tells it: it claims a rank at the store, dials another one
// and says whatever it likes. What it hears is taken apart by the library's own decoders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "wire/messages.hpp"
#include "wire/store_messages.hpp"

namespace hixl::test {

/// The number of the first tcp link, as every runtime counts them: the kind above, its index below.
inline constexpr LinkId k_tcp_link = static_cast<LinkId>(static_cast<unsigned>(LinkKind::tcp) << 8U);

using ByteVector = std::vector<std::byte>;

template <class Message>
[[nodiscard]] ByteVector body_of(const Message& message) {
  ByteVector body(wire::k_body_bytes_max);
  ByteWriter writer{std::span<std::byte>(body)};
  encode(message, writer);
  body.resize(writer.written().size());
  return body;
}
/// Header (lengths and checksum of the body set), body, payload.
[[nodiscard]] ByteVector frame_of(wire::FrameHeader header, ConstBytes body, ConstBytes payload = {});

struct Frame {
  wire::FrameHeader header;
  ByteVector body;
  ByteVector payload;
};

/// Owner: the test. One connection; a failure to connect fails the test.
class Wire {
 public:
  /// "127.0.0.1:port".
  explicit Wire(const std::string& address);
  ~Wire();
  Wire(Wire&& other) noexcept;
  Wire& operator=(Wire&&) = delete;

  /// False: the other side has ended it.
  bool send(ConstBytes bytes);
  /// The next frame; nothing: the connection has ended, or k_patience is over.
  [[nodiscard]] std::optional<Frame> next();
  /// The next frame of that type, those before it dropped.
  [[nodiscard]] std::optional<Frame> next(wire::FrameType type);
  /// Reads on until the other side ends the connection; false: it does not, within k_patience.
  [[nodiscard]] bool ends();
  /// Whether it has ended already. Keeps what it reads.
  [[nodiscard]] bool ended();

 private:
  [[nodiscard]] bool fill(std::size_t bytes);
  [[nodiscard]] std::optional<ByteVector> take(std::size_t bytes);
  int fd_;
  bool over_ = false;
  ByteVector read_;
};

/// One life of the impostor's rank, on a connection to its target.
struct Session {
  Wire wire;
  wire::Hello hello;
  ByteVector hello_bytes;
  wire::Welcome welcome;
  LinkSeq sent = 0;

  /// With everything as it should be, and the next number if the type is numbered.
  [[nodiscard]] wire::FrameHeader header(wire::FrameType type, bool numbered);
  template <class Message>
  bool say(wire::FrameType type, const Message& message, bool numbered = true, ConstBytes payload = {}) {
    return wire.send(frame_of(header(type, numbered), body_of(message), payload));
  }
};

class Impostor {
 public:
  /// Claims `rank` at the store ("tcp://…"), without an address, so that nobody dials it, and looks up `target`.
  Impostor(std::string store, Rank rank, std::uint32_t world_size, Rank target);

  /// Ends this life at the store, and claims the rank for the next one.
  void be_born_again();
  /// A hello as this life would say it first.
  [[nodiscard]] wire::Hello hello() const;
  [[nodiscard]] static ByteVector bytes_of(const wire::Hello& hello);
  /// Says it; the answer, welcome or reject.
  [[nodiscard]] std::optional<Frame> ask(Wire& wire, ConstBytes hello) const;
  /// Is welcomed, at the second try if the link's count of generations is ahead; anything else fails the test.
  [[nodiscard]] Session enter(wire::Hello hello) const;
  /// "127.0.0.1:port" of the target.
  [[nodiscard]] const std::string& target() const noexcept { return target_.addresses.front(); }

 private:
  void claim();

  std::string url_;
  std::optional<Wire> store_;
  Rank looked_up_;
  wire::Endpoints own_;
  wire::Endpoints target_;
  std::uint32_t world_size_;
};

}  // namespace hixl::test
