// SPDX-License-Identifier: Apache-2.0
//
// Somebody who connects to a rank and speaks the handshake byte by byte as the test wants it: a replay, a wrong peer,
// an old life, a liar.
#pragma once

#include <optional>
#include <vector>

#include "../plain_sink.hpp"
#include "peer_world.hpp"

namespace hixl::peer::test {

class Stranger final : private runtime::StreamEvents, private hixl::test::PlainSink {
 public:
  Stranger(PeerWorld& world, const std::string& name)
      : world_(world), port_(world.world.make_port(name)), loop_(port_, 1, 16) {
    world.world.add(loop_, port_);
  }
  ~Stranger() {
    hang_up();
    world_.world.remove(port_);
  }
  /// A hello that `to` would accept from a new life of `as`.
  [[nodiscard]] static wire::Hello hello_to(const Life& to, Rank as, Incarnation incarnation, Birth birth = 1) {
    wire::Hello hello;
    hello.peer_id = {.high = 7, .low = as + 1U};
    hello.incarnation = incarnation;
    hello.birth = birth;
    hello.rank = as;
    hello.world_size = to.services->world_size;
    hello.target_peer_id = to.services->peer_id;
    hello.target_incarnation = to.services->incarnation;
    hello.link_id = to.services->links.front().id;
    hello.kind = to.services->links.front().factory->caps().kind;
    hello.link_gen = 1;
    hello.lease_ms = 2000;
    hello.tx_depth = 32;
    hello.rx_depth = 32;
    return hello;
  }
  /// Connects, says it, and waits for the answer.
  void say(const Life& to, const wire::Hello& hello) {
    hang_up();
    welcome.reset();
    reject.reset();
    down = connected_ = false;
    auto stream = port_.connect(*runtime::Address::parse(to.endpoints.addresses.front()), seconds(1), *this);
    REQUIRE(stream.has_value());
    raw_ = std::move(*stream);
    REQUIRE(world_.run([&] { return connected_; }));
    stream_ = std::make_unique<links::FrameStream>(std::move(raw_), loop_);
    stream_->set_sink(this);
    wire::FrameHeader header;
    header.type = wire::FrameType::hello;
    REQUIRE(links::send_message(*stream_, header, hello));
    port_.wake();
    static_cast<void>(world_.run([&] { return welcome || reject || down; }, seconds(5)));
    hello_ = hello;
  }
  /// A frame of the link that was welcomed.
  template <class Message>
  void send(wire::FrameType type, const Message& message) {
    wire::FrameHeader header;
    header.type = type;
    header.session = welcome->session;
    header.link_id = hello_.link_id;
    header.link_gen = hello_.link_gen;
    header.link_seq = ++seq_;
    REQUIRE(links::send_message(*stream_, header, message));
    port_.wake();
  }
  /// Acknowledges all frames of the link so far, so that more may come.
  void acknowledge() {
    LinkSeq upto = 0;
    for (const wire::FrameHeader& frame : frames) upto = std::max(upto, frame.link_seq);
    wire::FrameHeader header;
    header.type = wire::FrameType::ack;
    header.session = welcome->session;
    header.link_id = hello_.link_id;
    header.link_gen = hello_.link_gen;
    REQUIRE(links::send_message(*stream_, header, wire::Ack{upto}));
    port_.wake();
  }
  void hang_up() {
    stream_.reset();
    raw_.reset();
    seq_ = 0;
  }

  std::optional<wire::Welcome> welcome;
  std::optional<wire::Reject> reject;
  bool down = false;
  std::vector<wire::FrameHeader> frames;
  std::vector<std::vector<std::byte>> bodies;

 private:
  void on_connected(const Result<void>& result) override { connected_ = result.has_value(); }
  void on_readable() override {}
  void on_writable() override {}
  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>&) override {
    if (header.type == wire::FrameType::welcome) {
      REQUIRE(wire::decode_body(body, welcome.emplace()));
    } else if (header.type == wire::FrameType::reject) {
      REQUIRE(wire::decode_body(body, reject.emplace()));
    } else {
      frames.push_back(header);
      bodies.emplace_back(body.begin(), body.end());
    }
  }
  void on_down(const Error&) override { down = true; }

  PeerWorld& world_;
  runtime::EventPort& port_;
  runtime::Loop loop_;
  wire::Hello hello_;
  std::unique_ptr<runtime::Stream> raw_;
  std::unique_ptr<links::FrameStream> stream_;
  LinkSeq seq_ = 0;
  bool connected_ = false;
};

}  // namespace hixl::peer::test
