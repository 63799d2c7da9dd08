// SPDX-License-Identifier: Apache-2.0
//
// A store and its clients as processes of the virtual world.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "group/membership.hpp"
#include "group/store_server.hpp"
#include "links/frame_stream.hpp"
#include "runtime/virtual_port.hpp"

namespace hixl::group::test {

/// One simulated process with a loop. kill() is kill -9; destruction closes everything in order.
class Process {
 public:
  Process(runtime::VirtualWorld& in, std::string name)
      : world(in), port(in.make_port(std::move(name))), loop(port, in.draw_seed(), 64) {
    world.add(loop, port);
  }
  ~Process() {
    if (world.alive(port)) world.remove(port);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  void kill() { world.kill(port); }

  runtime::VirtualWorld& world;
  runtime::EventPort& port;
  runtime::Loop loop;
};

inline runtime::Address store_address() { return {runtime::Address::Family::tcp, "127.0.0.1", 4711}; }

struct StoreProcess final : Process {
  explicit StoreProcess(runtime::VirtualWorld& in) : Process(in, "store") {
    auto made = StoreServer::listen(loop, store_address());
    REQUIRE(made.has_value());
    server = std::move(*made);
  }
  [[nodiscard]] StoreCounters counters() const { return server->counters(); }
  std::unique_ptr<StoreServer> server;
};

struct Notice {
  Rank rank = 0;
  Incarnation incarnation = 0;
  bool present = false;
  friend bool operator==(const Notice&, const Notice&) = default;
};

/// A rank's side: joins, and writes down what it is told.
struct MemberProcess final : Process, MembershipEvents, peer::AddressWatcher {
  MemberProcess(runtime::VirtualWorld& in, Rank own, std::uint32_t world_size = 8,
                Duration time = std::chrono::seconds(5))
      : Process(in, "rank " + std::to_string(own)), rank(own), membership(std::in_place, loop, store_address(), *this) {
    mine.peer_id = {1, own};
    mine.incarnation = in.draw_seed() | 1U;
    mine.rank = own;
    mine.unix_name = "hixl-" + std::to_string(own);
    mine.addresses = {"127.0.0.1:" + std::to_string(20'000 + own)};
    size = world_size;
    deadline = in.now() + time;
  }
  void join() {
    membership->join({.world_size = size, .job = 0, .start = start, .guest = guest, .endpoints = mine}, deadline);
  }
  void watch(Rank other) { membership->watch(other, *this); }

  void on_joined(const Result<void>& result) override {
    CHECK_FALSE(joined.has_value());  // once
    joined = result;
    joined_at = world.now();
  }
  void on_address(const wire::Endpoints& endpoints) override {
    notices.push_back({endpoints.rank, endpoints.incarnation, true});
    last = endpoints;
  }
  void on_address_gone(Rank other, Incarnation incarnation) override { notices.push_back({other, incarnation, false}); }
  [[nodiscard]] bool is_joined() const { return joined.has_value() && joined->has_value(); }
  [[nodiscard]] ErrorCode code() const { return is_joined() || !joined ? ErrorCode::ok : joined->error().code; }
  [[nodiscard]] bool knows(const MemberProcess& other) const {
    bool known = false;
    for (const Notice& notice : notices) {
      if (notice.rank == other.rank) known = notice.present && notice.incarnation == other.mine.incarnation;
    }
    return known;
  }

  Rank rank;
  std::uint32_t size = 0;
  wire::LifeStart start;
  std::uint8_t guest = 0;
  Instant deadline{};
  wire::Endpoints mine;
  std::optional<Result<void>> joined;
  Instant joined_at{};
  std::vector<Notice> notices;
  wire::Endpoints last;
  std::optional<Membership> membership;
};

/// Somebody who speaks bytes: a scanner, a broken or a hostile program. Reads only when asked to.
struct Stranger final : Process, runtime::StreamEvents {
  explicit Stranger(runtime::VirtualWorld& in) : Process(in, "stranger") {
    auto made = port.connect(store_address(), std::chrono::seconds(1), *this);
    REQUIRE(made.has_value());
    stream = std::move(*made);
    stream->want_read(false);
  }
  void on_connected(const Result<void>& result) override { connected = result.has_value(); }
  void on_readable() override {
    std::array<std::byte, 4096> buffer;
    const iovec piece{buffer.data(), buffer.size()};
    const auto got = stream->read(std::span(&piece, 1));
    if (got.state == runtime::IoResult::State::ok)
      heard.insert(heard.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(got.bytes));
    if (got.state == runtime::IoResult::State::closed || got.state == runtime::IoResult::State::failed) {
      closed = true;
      stream->set_events(nullptr);
    }
  }
  void on_writable() override {}
  void say(ConstBytes bytes) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    const auto put = stream->write(std::span(&piece, 1));
    REQUIRE(put.bytes == bytes.size());
  }
  void listen() { stream->want_read(true); }
  std::unique_ptr<runtime::Stream> stream;
  bool connected = false;
  bool closed = false;
  std::vector<std::byte> heard;
};

/// The bytes of one frame.
template <class Message>
std::vector<std::byte> frame_of(wire::FrameType type, const Message& message) {
  std::array<std::byte, wire::k_body_bytes_max> body;
  ByteWriter writer(body);
  encode(message, writer);
  REQUIRE(writer.ok());
  wire::FrameHeader header;
  header.type = type;
  header.body_bytes = static_cast<std::uint32_t>(writer.size());
  header.body_crc = wire::crc32c(writer.written());
  std::vector<std::byte> bytes(wire::k_header_bytes);
  wire::encode(header, std::span<std::byte, wire::k_header_bytes>(bytes));
  bytes.insert(bytes.end(), writer.written().begin(), writer.written().end());
  return bytes;
}

/// Accepts connections in the store's place; answers with given bytes, or never.
struct FalseStore final : Process, runtime::ListenerEvents {
  FalseStore(runtime::VirtualWorld& in, std::vector<std::byte> says = {})
      : Process(in, "false store"), answer(std::move(says)) {
    auto made = port.listen(store_address(), *this);
    REQUIRE(made.has_value());
    listener = std::move(*made);
  }
  void on_accept(std::unique_ptr<runtime::Stream> stream) override {
    ++dials;
    if (hangs_up) return;
    const iovec piece{answer.data(), answer.size()};
    if (!answer.empty()) stream->write(std::span(&piece, 1));
    streams.push_back(std::move(stream));
  }
  std::vector<std::byte> answer;
  bool hangs_up = false;
  std::size_t dials = 0;
  std::unique_ptr<runtime::Listener> listener;
  std::vector<std::unique_ptr<runtime::Stream>> streams;
};

}  // namespace hixl::group::test
