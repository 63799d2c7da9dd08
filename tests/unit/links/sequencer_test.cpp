// SPDX-License-Identifier: Apache-2.0
//
// Sequencer: only the next number of the right session and generation is let in, and what the peer is told is what was
// executed.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "links/sequencer.hpp"
#include "memory_pipe.hpp"

using namespace hixl;
using namespace hixl::links;
using hixl::test::PipePair;
using wire::FrameHeader;
using wire::FrameType;

namespace {

struct Collector final : FrameSink {
  void on_frame(const FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>&) override {
    headers.push_back(header);
    wire::Ack ack;
    if (header.type == FrameType::ack && decode_body(body, ack)) acks.push_back(ack.upto);
  }
  void on_payload_start(const FrameHeader&, ConstBytes) override {}
  std::size_t payload_target(std::uint64_t, std::span<iovec>) override { return 0; }
  void on_payload_bytes(std::size_t) override {}
  void on_payload_end() override {}
  void on_sendable() override {}
  void on_sent(std::uint64_t) override {}
  void on_down(const Error& error) override { down = error; }
  std::vector<FrameHeader> headers;
  std::vector<LinkSeq> acks;
  std::optional<Error> down;
};

constexpr Sequencer::Identity k_identity{.session = 7, .link_id = 3, .link_gen = 5};

struct World {
  explicit World(std::uint32_t credit = 4, std::size_t queued_max = 256U << 10U,
                 Sequencer::Numbers numbers = Sequencer::Numbers::all) {
    for (std::size_t i = 0; i < 2; ++i) {
      streams[i] = std::make_unique<FrameStream>(pair.stream(i), pair.ends[i].loop, queued_max);
      streams[i]->set_sink(&sinks[i]);
    }
    sequencer.emplace(*streams[0], k_identity, credit, pair.ends[0].loop, numbers);
  }
  /// A frame of the peer, as it would come.
  [[nodiscard]] FrameHeader incoming(FrameType type, LinkSeq seq) const {
    FrameHeader header = sequencer->header(type);
    header.link_seq = seq;
    return header;
  }
  PipePair pair;
  std::array<Collector, 2> sinks;
  std::array<std::unique_ptr<FrameStream>, 2> streams;
  std::optional<Sequencer> sequencer;
};

}  // namespace

TEST_CASE("only the next number of this generation is let in") {
  struct Row {
    const char* what;
    std::function<void(FrameHeader&)> change;
    bool good;
  };
  const std::vector<Row> rows{
      {"next", [](FrameHeader&) {}, true},
      {"session", [](FrameHeader& h) { h.session = 6; }, false},
      {"link", [](FrameHeader& h) { h.link_id = 4; }, false},
      {"older generation", [](FrameHeader& h) { h.link_gen = 4; }, false},
      {"newer generation", [](FrameHeader& h) { h.link_gen = 6; }, false},
      {"replay", [](FrameHeader& h) { h.link_seq = 2; }, false},
      {"gap", [](FrameHeader& h) { h.link_seq = 4; }, false},
      {"zero", [](FrameHeader& h) { h.link_seq = 0; }, false},
      {"far", [](FrameHeader& h) { h.link_seq = ~LinkSeq{0}; }, false},
      {"read", [](FrameHeader& h) { h.type = FrameType::read; }, true},
      {"control", [](FrameHeader& h) { h.type = FrameType::exchange; }, true},
      {"numbered ping", [](FrameHeader& h) { h.type = FrameType::ping; }, false},
      {"ping", [](FrameHeader& h) { h.type = FrameType::ping, h.link_seq = 0; }, true},
      {"pong", [](FrameHeader& h) { h.type = FrameType::pong, h.link_seq = 0; }, true},
      {"ack", [](FrameHeader& h) { h.type = FrameType::ack, h.link_seq = 0; }, true},
      {"nack", [](FrameHeader& h) { h.type = FrameType::nack, h.link_seq = 0; }, true},
      {"read_data", [](FrameHeader& h) { h.type = FrameType::read_data, h.link_seq = 0; }, true},
      {"numbered read_data", [](FrameHeader& h) { h.type = FrameType::read_data; }, false},
      {"hello", [](FrameHeader& h) { h.type = FrameType::hello; }, false},
      {"hello without number", [](FrameHeader& h) { h.type = FrameType::hello, h.link_seq = 0; }, false},
      {"store frame", [](FrameHeader& h) { h.type = FrameType::store_claim; }, false},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    World world;
    REQUIRE(world.sequencer->accept(world.incoming(FrameType::write, 1)));
    REQUIRE(world.sequencer->accept(world.incoming(FrameType::signal, 2)));
    FrameHeader header = world.incoming(FrameType::write, 3);
    row.change(header);
    const Result<void> accepted = world.sequencer->accept(header);
    CHECK(accepted.has_value() == row.good);
    if (!accepted) {
      CHECK(accepted.error().code == ErrorCode::malformed_frame);
      // A refused frame takes no number.
      CHECK(world.sequencer->accept(world.incoming(FrameType::write, 3)));
    }
  }
}

TEST_CASE("what was executed in one turn is acknowledged once, at its end, and recorded exactly") {
  World world;
  for (LinkSeq seq = 1; seq <= 5; ++seq) {
    REQUIRE(world.sequencer->accept(world.incoming(FrameType::write, seq)));
    world.sequencer->executed(seq, seq != 3);
  }
  CHECK(world.pair.ends[0].out->bytes.empty());
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].acks == std::vector<LinkSeq>{5});
  CHECK(world.sinks[1].headers.front().link_seq == 0);
  CHECK(world.sinks[1].headers.front().link_gen == 5);
  for (LinkSeq seq = 0; seq <= 6; ++seq) {
    CHECK(world.sequencer->executed_set().contains(seq) == (seq >= 1 && seq <= 5 && seq != 3));
  }
  REQUIRE(world.sequencer->accept(world.incoming(FrameType::write, 6)));
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].acks.size() == 1);  // accepted is not executed
}

TEST_CASE("an acknowledgement waits for room in the stream, and then says the newest") {
  World world(4, 200);
  world.pair.ends[0].out->capacity = 0;
  REQUIRE(world.streams[0]->send(world.sequencer->header(FrameType::ping), std::vector<std::byte>(100)));
  for (LinkSeq seq = 1; seq <= 3; ++seq) {
    REQUIRE(world.sequencer->accept(world.incoming(FrameType::write, seq)));
    world.sequencer->executed(seq, true);
    REQUIRE(world.pair.settle());
  }
  CHECK(world.sinks[1].acks.empty());
  world.pair.ends[0].out->capacity = 1U << 20U;
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].acks == std::vector<LinkSeq>{3});
}

TEST_CASE("control frames are numbered with the others and take credit until acknowledged") {
  World world(2);
  CHECK(world.sequencer->next_header(FrameType::write).link_seq == 1);
  CHECK(world.sequencer->send_control(FrameType::exchange, {}));
  CHECK(world.sequencer->send_control(FrameType::barrier, {}));
  CHECK(world.sequencer->sent() == 3);
  CHECK(!world.sequencer->send_control(FrameType::barrier, {}));
  CHECK(world.sequencer->sent() == 3);  // nothing was sent
  CHECK(world.sequencer->send_control(FrameType::ping, {}));
  CHECK(world.sequencer->sent() == 3);  // unnumbered, needs no credit
  CHECK(world.sequencer->on_ack(1));
  CHECK(!world.sequencer->take_credit_returned());
  CHECK(world.sequencer->on_ack(2));
  CHECK(world.sequencer->take_credit_returned());
  CHECK(!world.sequencer->take_credit_returned());
  CHECK(world.sequencer->send_control(FrameType::barrier, {}));
  CHECK(!world.sequencer->send_control(FrameType::barrier, {}));
  REQUIRE(world.pair.settle());
  REQUIRE(world.sinks[1].headers.size() == 4);
  CHECK(world.sinks[1].headers[0].link_seq == 2);
  CHECK(world.sinks[1].headers[1].link_seq == 3);
  CHECK(world.sinks[1].headers[2].link_seq == 0);
  CHECK(world.sinks[1].headers[3].link_seq == 4);
}

TEST_CASE("a control frame without room takes no number") {
  World world(4, 200);
  world.pair.ends[0].out->capacity = 0;
  const std::vector<std::byte> body(100);
  REQUIRE(world.sequencer->send_control(FrameType::exchange, body));
  CHECK(!world.sequencer->send_control(FrameType::exchange, body));
  CHECK(world.sequencer->sent() == 1);
  CHECK(world.sequencer->next_header(FrameType::write).link_seq == 2);
}

TEST_CASE("acknowledgements of what was never sent, or backwards, betray a broken peer") {
  World world;
  for (int i = 0; i < 5; ++i) static_cast<void>(world.sequencer->next_header(FrameType::write));
  CHECK(world.sequencer->on_ack(0));
  CHECK(world.sequencer->on_ack(4));
  CHECK(world.sequencer->on_ack(4));
  CHECK(!world.sequencer->on_ack(3));
  CHECK(!world.sequencer->on_ack(6));
  CHECK(!world.sequencer->on_ack(~LinkSeq{0}));
  CHECK(world.sequencer->acked() == 4);
  CHECK(world.sequencer->on_ack(5));
}

TEST_CASE("nothing leaves and nothing is recorded after close, and the stream may go first") {
  World world;
  REQUIRE(world.sequencer->accept(world.incoming(FrameType::write, 1)));
  world.sequencer->executed(1, true);
  REQUIRE(world.sequencer->accept(world.incoming(FrameType::write, 2)));
  world.sequencer->close();
  world.sequencer->executed(2, true);
  CHECK(!world.sequencer->send_control(FrameType::barrier, {}));
  REQUIRE(world.pair.settle());
  CHECK(world.sinks[1].headers.empty());
  CHECK(world.sequencer->executed_set().contains(1));
  CHECK(!world.sequencer->executed_set().contains(2));
  world.streams[0].reset();
  REQUIRE(world.pair.settle());
}

TEST_CASE("odd numbers: frames and what goes beside them never share one, and gaps are let in") {
  World world(8, 256U << 10U, Sequencer::Numbers::odd);
  Sequencer& sequencer = *world.sequencer;
  CHECK(sequencer.next_header(FrameType::signal).link_seq == 1);
  CHECK(sequencer.take_number() == 2);
  CHECK(sequencer.take_number() == 4);
  CHECK(sequencer.send_control(FrameType::exchange, {}));
  CHECK(sequencer.sent() == 5);
  CHECK(sequencer.next_header(FrameType::signal).link_seq == 7);
  CHECK(sequencer.take_number() == 8);
  CHECK(sequencer.on_ack(5));

  CHECK(sequencer.accept(world.incoming(FrameType::signal, 1)));
  CHECK(sequencer.accept(world.incoming(FrameType::signal, 9)));  // writes went before it
  for (const LinkSeq wrong : {LinkSeq{0}, LinkSeq{7}, LinkSeq{9}, LinkSeq{10}, LinkSeq{12}}) {
    CAPTURE(wrong);
    CHECK(!sequencer.accept(world.incoming(FrameType::signal, wrong)));
  }
  CHECK(sequencer.accept(world.incoming(FrameType::ping, 0)));
  CHECK(!sequencer.accept(world.incoming(FrameType::ping, 11)));
  sequencer.executed(9, true);
  CHECK(sequencer.executed_set().contains(9));
  CHECK(!sequencer.executed_set().contains(8));
  // The last number there is, and nothing after it: no wrap.
  CHECK(sequencer.accept(world.incoming(FrameType::signal, ~LinkSeq{0})));
  CHECK(!sequencer.accept(world.incoming(FrameType::signal, 1)));
}
