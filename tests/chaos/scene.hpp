// SPDX-License-Identifier: Apache-2.0
//
// Scene: rank 0 here, an honest rank 1 whose stream never stops, and rank 2, an impostor that has met rank 0 and knows
// one region of it.
#pragma once

#include <atomic>
#include <cstring>
#include <limits>
#include <new>
#include <string>

#include "bystander.hpp"
#include "impostor.hpp"

namespace hixl::test {

inline constexpr std::uint64_t k_most = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::size_t k_target_bytes = 1U << 20U;
inline constexpr std::uint64_t k_untouched = 99;  // the transfer whose words fill the region that the impostor knows

struct Waiting {
  std::atomic<bool> here{false};
  PeerAddresses answer;
};
inline void take_answer(void* context, std::vector<PeerAddresses>&& answers) {
  auto& waiting = *static_cast<Waiting*>(context);
  waiting.answer = std::move(answers.front());
  waiting.here.store(true);
}

/// Rank 0 here, an honest rank 1 whose stream never stops, and rank 2, which is in the test's hands.
class Scene {
 public:
  Scene()
      : home_(3, "tcp", 2 * Bystander::k_room, {.lease = k_long_lease}),
        honest_(home_, 1, {}, k_long_lease),
        bystander_(*home_, home_.region(), *honest_, honest_.remote()),
        impostor_("tcp://" + home_.environment(2).at(2).substr(std::string("HIXL_STORE=tcp://").size()), 2, 3, 0),
        session_(impostor_.enter(impostor_.hello())) {
    auto target = home_->allocate(k_target_bytes);
    require_ok(target);
    target_ = *target;
    fill_block(target_.data, k_target_bytes, k_untouched);
    meet();
  }

  Home& home() { return home_; }
  Impostor& impostor() { return impostor_; }
  Session& session() { return session_; }
  Bystander& bystander() { return bystander_; }
  /// Of the target region, as rank 0 told it to the impostor.
  [[nodiscard]] const wire::RegionDescriptor& granted() const { return granted_; }
  /// What the impostor has published.
  [[nodiscard]] const RemoteRegion& published() const { return published_; }

  /// The impostor's link, the next generation of it.
  void come_back() {
    wire::Hello hello = session_.hello;
    hello.session = session_.welcome.session;
    hello.join = 1;
    hello.link_gen = session_.welcome.link_gen + 1;
    hello.opened_gen = session_.welcome.link_gen;
    replace(impostor_.enter(hello));
  }
  /// Another life of the impostor.
  void be_born_again() {
    impostor_.be_born_again();
    replace(impostor_.enter(impostor_.hello()));
  }
  [[nodiscard]] LinkInfo link() {
    for (const LinkInfo& row : home_->links()) {
      if (row.rank == 2 && row.kind == LinkKind::tcp) return row;
    }
    FAIL("no row for the impostor");
    return {};
  }
  void require_untouched() {
    const std::string fault = fault_of(target_.data, k_target_bytes, k_untouched);
    REQUIRE_MESSAGE(fault.empty(), fault);
  }
  /// Puts the words back that a cut write may have begun to overwrite.
  void restore(std::uint64_t offset, std::size_t bytes) {
    for (std::uint64_t at = offset; at < offset + bytes; at += 8) {
      const std::uint64_t word = word_of(k_untouched, at);
      std::memcpy(target_.data + at, &word, sizeof word);
    }
  }
  void require_bystander_well() {
    bystander_.require_going_on();
    require_untouched();
  }

 private:
  void replace(Session&& next) {
    session_.~Session();
    new (&session_) Session(std::move(next));
  }
  void meet() {
    const Rank rank = 2;
    Waiting waiting;
    require_ok(home_->exchange_async(std::span(&target_, 1), std::span(&rank, 1), k_patience, take_answer, &waiting));
    const auto frame = session_.wire.next(wire::FrameType::exchange);
    REQUIRE(frame.has_value());
    wire::Exchange exchange;
    REQUIRE(decode_body(ConstBytes(frame->body), exchange));
    REQUIRE(exchange.regions.size() == 1);
    granted_ = exchange.regions.front();
    wire::Exchange own{
        .number = 1, .first = 0, .total = 1, .note = wire::ExchangeNote::exchange, .group = 0, .regions = {}};
    own.regions.push_back(
        {.key = {.id = 1, .generation = 1}, .base = 0x10000, .length = std::uint64_t{1} << 40U, .rights = Rights::all});
    REQUIRE(session_.say(wire::FrameType::exchange, own));
    REQUIRE(session_.say(wire::FrameType::exchange_ack, wire::ExchangeAck{.number = exchange.number}));
    REQUIRE(session_.say(wire::FrameType::ack, wire::Ack{.upto = frame->header.link_seq}, false));
    REQUIRE(eventually([&] { return waiting.here.load(); }));
    require_ok(waiting.answer.result);
    REQUIRE(waiting.answer.regions.size() == 1);
    published_ = waiting.answer.regions.front();
  }

  Home home_;
  Guest honest_;
  Bystander bystander_;
  Region target_;
  Impostor impostor_;
  Session session_;
  wire::RegionDescriptor granted_;
  RemoteRegion published_;
};

inline wire::Access access_to(const Scene& scene, std::uint64_t offset, std::uint32_t bytes) {
  wire::Access access{
      .region = scene.granted().key, .token = scene.granted().token, .segment_count = 1, .segments = {}};
  access.segments[0] = {.offset = offset, .bytes = bytes};
  return access;
}
inline wire::AtomicBody atomic_at(const Scene& scene, std::uint64_t offset, AtomicSeq number, AtomicSeq acked) {
  wire::AtomicBody atomic;
  atomic.region = scene.granted().key;
  atomic.token = scene.granted().token;
  atomic.offset = offset;
  atomic.number = number;
  atomic.acked_upto = acked;
  atomic.value = 1;
  return atomic;
}

inline const ByteVector k_eight(8, std::byte{0xee});

}  // namespace hixl::test
