// SPDX-License-Identifier: Apache-2.0
//
// A peer of an RDMA link that speaks frames by hand, and has a queue pair of its own.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "../plain_sink.hpp"
#include "links/roce/endpoint.hpp"
#include "links/sequencer.hpp"
#include "roce_world.hpp"

namespace hixl::roce_test {

struct Liar final : hixl::test::PlainSink {
  Liar(Side& owner, std::unique_ptr<runtime::Stream> stream_in)
      : stream(std::move(stream_in), owner.loop),
        sequencer(stream, {k_identity.session, k_identity.link_id, k_identity.link_gen}, 1024, owner.loop,
                  links::Sequencer::Numbers::odd),
        end(*owner.verbs, "sim0") {
    stream.set_sink(this);
    end.make({});
    std::memcpy(end.memory.data() + links::roce::k_page_challenge, &challenge, sizeof challenge);
  }
  /// What an honest peer would offer; tests spoil parts of it.
  [[nodiscard]] wire::RoceOffer honest() const {
    return {.queue_pair = end.pair->number(),
            .packet_number = end.wish.psn,
            .mtu = IBV_MTU_1024,
            .reads_out = 4,
            .reads_in = 4,
            .page_address = end.address(0),
            .page_key = end.region->remote_key(),
            .challenge = challenge,
            .name = "liar",
            .gids = {links::roce::wire_gid(end.gid())}};
  }
  /// Brings its queue pair up to the victim's, which has offered.
  void connect() {
    REQUIRE(offer.has_value());
    REQUIRE(end.pair->modify(test::VerbsEnd::init_attributes(test::k_everything), test::VerbsEnd::k_init_mask));
    ibv_qp_attr attributes = end.receive_attributes(end);
    attributes.ah_attr.grh.dgid = links::roce::verbs_gid(offer->gids[0]);
    attributes.dest_qp_num = offer->queue_pair;
    attributes.rq_psn = offer->packet_number;
    REQUIRE(end.pair->modify(attributes, test::VerbsEnd::k_receive_mask));
    REQUIRE(end.pair->modify(end.send_attributes(), test::VerbsEnd::k_send_mask));
  }
  [[nodiscard]] static std::vector<std::byte> bytes_of(const auto& message) {
    std::vector<std::byte> bytes(1024);
    ByteWriter writer(bytes);
    encode(message, writer);
    bytes.resize(writer.size());
    return bytes;
  }
  void say_bytes(wire::FrameType type, ConstBytes body) { CHECK(sequencer.send_control(type, body)); }
  void say(wire::FrameType type, const auto& message) { say_bytes(type, bytes_of(message)); }
  /// The number of the victim's newest write, as it has told.
  [[nodiscard]] std::uint64_t progress_word() const {
    std::uint64_t word = 0;
    std::memcpy(&word, end.memory.data(), sizeof word);
    return word;
  }

  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>&) override {
    seen.push_back(header);
    if (wire::RoceOffer told; header.type == wire::FrameType::roce_offer && decode_body(body, told)) offer = told;
    if (wire::RoceReady told; header.type == wire::FrameType::roce_ready && decode_body(body, told)) ready = told;
    if (wire::RoceKey told; header.type == wire::FrameType::roce_key && decode_body(body, told)) keys.push_back(told);
  }
  [[nodiscard]] bool saw(wire::FrameType type) const {
    return std::any_of(seen.begin(), seen.end(), [&](const auto& header) { return header.type == type; });
  }

  const std::uint64_t challenge = 0x1234'5678'9abc'def1;
  links::FrameStream stream;
  links::Sequencer sequencer;
  test::VerbsEnd end;
  std::optional<wire::RoceOffer> offer;  ///< the victim's
  std::optional<wire::RoceReady> ready;
  std::vector<wire::RoceKey> keys;
  std::vector<wire::FrameHeader> seen;
};

/// A link at rank 0, and what pretends to be rank 1.
struct Attack : Cards {
  explicit Attack(bool dialled_in, std::uint32_t tx_depth = 32) : dialled(dialled_in) {
    Meeting meeting(dialled ? victim : attacker, dialled ? attacker : victim);
    victim.connect(std::move(dialled ? meeting.dialled : meeting.accepted), dialled, tx_depth);
    liar.emplace(attacker, std::move(dialled ? meeting.accepted : meeting.dialled));
    if (dialled) REQUIRE(until([&] { return liar->offer.has_value(); }));
  }
  /// The other half of the set-up; what the victim thinks of it has yet to be seen.
  void answer(const wire::RoceOffer& offer) {
    if (dialled) liar->connect();
    liar->say(wire::FrameType::roce_offer, offer);
    if (dialled) return;
    if (!until([&] { return liar->offer.has_value() || victim.record.down == 1; }) || victim.record.down == 1) return;
    liar->connect();
    liar->say(wire::FrameType::roce_ready, wire::RoceReady{});
  }
  void set_up() {
    answer(liar->honest());
    REQUIRE(until([&] { return liar->ready.has_value(); }));
    if (dialled) liar->say(wire::FrameType::roce_ready, wire::RoceReady{});
    REQUIRE(until([&] { return victim.record.up == 1; }));
  }
  /// How the victim's link ends.
  [[nodiscard]] ErrorCode end() {
    REQUIRE(until([&] { return victim.record.down == 1; }));
    CHECK(victim.record.error.detail.rank == 1);
    CHECK(victim.record.error.detail.link == k_identity.link_id);
    victim.link->close();
    CHECK(victim.link->drained());
    return victim.record.error.code;
  }
  const bool dialled;
  Side victim{world, fabric, "victim", 0};
  Side attacker{world, fabric, "attacker", 1};
  std::optional<Liar> liar;
};

}  // namespace hixl::roce_test
