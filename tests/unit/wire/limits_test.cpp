// SPDX-License-Identifier: Apache-2.0
//
// The limits of each message, exact: the last value inside is taken, the first outside is refused.
#include <doctest/doctest.h>

#include "sample_messages.hpp"

using namespace hixl;
using namespace hixl::wire;

namespace {

/// A random valid message with one thing changed: is it still one?
template <class Message, class Change>
bool accepts(Change change) {
  Random random(7);
  Message message;
  fill(random, message);
  change(message);
  Message out;
  return decode_body(ConstBytes(encoded(message)), out);
}

template <class Message>
bool accepts_code(std::uint16_t Message::*field, std::uint16_t code) {
  return accepts<Message>([&](Message& m) { m.*field = code; });
}

/// The bytes of an exchange, written by hand: encode() refuses to make the bad ones.
std::vector<std::byte> exchange_bytes(std::uint32_t total, std::uint32_t count, std::size_t descriptors) {
  std::vector<std::byte> buffer(1U << 20U);
  ByteWriter out{Bytes(buffer)};
  out.put(std::uint64_t{1});
  out.put(std::uint32_t{0});
  out.put(total);
  out.put(std::uint8_t{0});   // again
  out.put(std::uint64_t{0});  // group
  out.put(count);
  for (std::size_t i = 0; i < descriptors; ++i) {
    out.put(std::uint32_t{1});
    out.put(std::uint32_t{1});
    for (int zero = 0; zero < 4; ++zero) out.put(std::uint64_t{0});
    out.put(std::uint8_t{7});
    out.put(std::uint32_t{0});
    out.put(std::uint32_t{0});
    out.put(std::uint64_t{0});
    out.put(std::uint8_t{0});  // kind
  }
  buffer.resize(out.size());
  return buffer;
}

template <class Message>
void check_handshake_limits() {
  CHECK(!accepts<Message>([](Message& m) { m.incarnation = 0; }));
  CHECK(!accepts<Message>([](Message& m) { m.birth = 0; }));
  CHECK(!accepts<Message>([](Message& m) { m.link_gen = 0; }));
  CHECK(accepts<Message>([](Message& m) { m.lease_ms = k_lease_ms_max; }));
  CHECK(!accepts<Message>([](Message& m) { m.lease_ms = k_lease_ms_max + 1; }));
  for (std::uint32_t Message::*depth : {&Message::tx_depth, &Message::rx_depth}) {
    CHECK(accepts<Message>([&](Message& m) { m.*depth = 1; }));
    CHECK(accepts<Message>([&](Message& m) { m.*depth = k_depth_max; }));
    CHECK(!accepts<Message>([&](Message& m) { m.*depth = 0; }));
    CHECK(!accepts<Message>([&](Message& m) { m.*depth = k_depth_max + 1; }));
  }
  // Bits below frame 1 are reserved.
  for (std::uint64_t highest : {0U, 1U, 63U, 64U, 65U, 1023U}) {
    const auto set_bit = [&](Message& m, std::uint64_t bit) {
      m.executed = {.highest = highest, .bits = {}};
      m.executed.bits[bit / 64] |= std::uint64_t{1} << (bit % 64);
    };
    CHECK(!accepts<Message>([&](Message& m) { set_bit(m, highest); }));
    CHECK(!accepts<Message>([&](Message& m) { set_bit(m, 1023); }));
    if (highest > 0) CHECK(accepts<Message>([&](Message& m) { set_bit(m, highest - 1); }));
  }
  CHECK(accepts<Message>([](Message& m) { m.executed.highest = 1024, m.executed.bits.fill(~std::uint64_t{0}); }));
}

}  // namespace

TEST_CASE("handshake") {
  check_handshake_limits<Hello>();
  check_handshake_limits<Welcome>();
  CHECK(accepts<Hello>([](Hello& m) { m.world_size = k_world_size_max; }));
  CHECK(!accepts<Hello>([](Hello& m) { m.world_size = k_world_size_max + 1; }));
  CHECK(!accepts<Hello>([](Hello& m) { m.world_size = 0; }));
  CHECK(accepts<Hello>([](Hello& m) { m.kind = LinkKind::sim; }));
  CHECK(!accepts<Hello>([](Hello& m) { m.kind = static_cast<LinkKind>(k_link_kinds); }));
  CHECK(!accepts<Hello>([](Hello& m) { m.join = 2; }));
  CHECK(accepts<Hello>([](Hello& m) { m.link_gen = 8, m.opened_gen = m.executed_gen = 7; }));
  CHECK(!accepts<Hello>([](Hello& m) { m.link_gen = m.opened_gen = 8, m.executed_gen = 7; }));
  CHECK(!accepts<Hello>([](Hello& m) { m.link_gen = 8, m.opened_gen = 6, m.executed_gen = 7; }));
  CHECK(!accepts<Hello>([](Hello& m) { m.join = 1, m.session = 0; }));
  CHECK(accepts<Hello>([](Hello& m) { m.join = 0, m.session = 0; }));
  // The acceptor refuses a wrong rank with a reason, so it must get to see it.
  CHECK(accepts<Hello>([](Hello& m) { m.rank = m.world_size; }));
  CHECK(!accepts<Welcome>([](Welcome& m) { m.rank = k_world_size_max; }));
  CHECK(!accepts<Welcome>([](Welcome& m) { m.session = 0; }));
  CHECK(accepts<Reject>([](Reject& m) { m.reason = RejectReason::not_joined; }));
  CHECK(!accepts<Reject>([](Reject& m) { m.reason = static_cast<RejectReason>(0); }));
  CHECK(!accepts<Reject>([](Reject& m) { m.reason = static_cast<RejectReason>(12); }));
  CHECK(!accepts<FenceRequest>([](FenceRequest& m) { m.link_gen = 0; }));
  CHECK(!accepts<FenceAnswer>([](FenceAnswer& m) { m.link_gen = 0; }));
}

TEST_CASE("access") {
  CHECK(!accepts<Access>([](Access& m) { m.region.generation = 0; }));
  CHECK(!accepts<Access>([](Access& m) { m.segment_count = 0; }));
  CHECK(accepts<Access>([](Access& m) { m.segment_count = k_segments_max, m.segments = {}; }));
  const auto one = [](std::uint64_t offset, std::uint32_t bytes) {
    return accepts<Access>([&](Access& m) { m.segment_count = 1, m.segments[0] = {offset, bytes}; });
  };
  CHECK(one(0, k_payload_bytes_max));
  CHECK(!one(0, k_payload_bytes_max + 1));
  CHECK(one(~std::uint64_t{0} - 8, 8));
  CHECK(!one(~std::uint64_t{0} - 8, 9 + 1));
  // The sum does not wrap at 32 bits.
  CHECK(!accepts<Access>([](Access& m) {
    m.segment_count = 2;
    m.segments[0] = m.segments[1] = {0, 0x80000000U};
  }));

  // 33 segments cannot be encoded; as bytes they are refused before a 33rd is stored.
  std::vector<std::byte> buffer(1U << 12U);
  ByteWriter out{Bytes(buffer)};
  for (int field = 0; field < 2; ++field) out.put(std::uint32_t{1});
  for (int field = 0; field < 2; ++field) out.put(std::uint64_t{0});
  out.put(static_cast<std::uint32_t>(k_segments_max + 1));
  for (std::size_t i = 0; i < k_segments_max + 1; ++i) {
    out.put(std::uint64_t{0});
    out.put(std::uint32_t{0});
  }
  Access access;
  CHECK(!decode_body(out.written(), access));
}

TEST_CASE("transfer messages") {
  CHECK(!accepts<ReadData>([](ReadData& m) { m.read_seq = 0; }));
  CHECK(!accepts<SignalBody>([](SignalBody& m) { m.add = 2; }));
  CHECK(!accepts<SignalBody>([](SignalBody& m) { m.region.generation = 0; }));
  CHECK(!accepts<Nack>([](Nack& m) { m.seq = 0; }));
  CHECK(!accepts_code(&Nack::code, 0));
  CHECK(accepts_code(&Nack::code, static_cast<std::uint16_t>(ErrorCode::stale)));
  for (const std::uint16_t unknown : {2, 9, 91, 0x100, 0xffff}) {
    CHECK(!accepts_code(&Nack::code, unknown));
    CHECK(!accepts_code(&FenceRequest::reason, unknown));
    CHECK(!accepts_code(&Bye::code, unknown));
    CHECK(!accepts_code(&WindowBody::code, unknown));
    CHECK(!accepts_code(&PcieProof::code, unknown));
    CHECK(!accepts_code(&RoceReady::code, unknown));
    CHECK(!accepts_code(&RoceKey::code, unknown));
    CHECK(!accepts_code(&StoreClaimed::code, unknown));
    CHECK(!accepts_code(&StoreLeave::code, unknown));
  }
}

TEST_CASE("atomics") {
  CHECK(!accepts<AtomicBody>([](AtomicBody& m) { m.region.generation = 0; }));
  CHECK(!accepts<AtomicBody>([](AtomicBody& m) { m.number = m.acked_upto = 0; }));
  CHECK(accepts<AtomicBody>([](AtomicBody& m) { m.number = 1, m.acked_upto = 0; }));
  CHECK(accepts<AtomicBody>([](AtomicBody& m) { m.number = ~AtomicSeq{0}, m.acked_upto = m.number - 1; }));
  CHECK(!accepts<AtomicBody>([](AtomicBody& m) { m.acked_upto = m.number; }));
  CHECK(accepts<AtomicBody>([](AtomicBody& m) { m.op = AtomicOp::compare_swap; }));
  CHECK(!accepts<AtomicBody>([](AtomicBody& m) { m.op = static_cast<AtomicOp>(3); }));
  CHECK(accepts<AtomicBody>([](AtomicBody& m) { m.op = AtomicOp::compare_swap, m.expected = 5; }));
  CHECK(!accepts<AtomicBody>([](AtomicBody& m) { m.op = AtomicOp::swap, m.expected = 5; }));
  CHECK(!accepts<AtomicBody>([](AtomicBody& m) { m.ask = 2; }));
  CHECK(!accepts<AtomicResult>([](AtomicResult& m) { m.seq = 0; }));
}

TEST_CASE("exchange") {
  Exchange out;
  CHECK(decode_body(ConstBytes(exchange_bytes(0, 0, 0)), out));
  CHECK(decode_body(ConstBytes(exchange_bytes(k_descriptors_max, k_descriptors_max, k_descriptors_max)), out));
  CHECK(out.regions.size() == k_descriptors_max);
  CHECK(encoded(out).size() <= k_body_bytes_max);
  CHECK(!decode_body(ConstBytes(exchange_bytes(2000, k_descriptors_max + 1, k_descriptors_max + 1)), out));
  CHECK(out.regions.empty());
  // Counts that the bytes at hand cannot fill.
  CHECK(!decode_body(ConstBytes(exchange_bytes(1000, 1000, 999)), out));
  CHECK(!decode_body(ConstBytes(exchange_bytes(0xffffffff, 0xffffffff, 1)), out));
  CHECK(!decode_body(ConstBytes(exchange_bytes(1, 2, 2)), out));
  CHECK(!decode_body(ConstBytes(exchange_bytes(1, 0, 0)), out));
  CHECK(decode_body(ConstBytes(exchange_bytes(k_regions_max, 1, 1)), out));
  CHECK(!decode_body(ConstBytes(exchange_bytes(k_regions_max + 1, 1, 1)), out));
  CHECK(!accepts<Exchange>([](Exchange& m) { m.number = 0; }));
  CHECK(!accepts<Exchange>([](Exchange& m) { m.first = 0xffffffffU; }));
  CHECK(!accepts<Exchange>([](Exchange& m) { m.note = static_cast<ExchangeNote>(4); }));
  const auto without = [](Exchange& m, ExchangeNote note, std::uint64_t tag) {
    m.note = note;
    m.group = tag;
    m.first = m.total = 0;
    m.regions.clear();
  };
  CHECK(accepts<Exchange>([&](Exchange& m) { without(m, ExchangeNote::question, 0xffffffffU); }));
  CHECK(accepts<Exchange>([&](Exchange& m) { without(m, ExchangeNote::answer, 7); }));
  CHECK(!accepts<Exchange>([&](Exchange& m) { without(m, ExchangeNote::question, 0x100000000U); }));
  CHECK(!accepts<Exchange>([&](Exchange& m) { without(m, ExchangeNote::answer, 0x100000000U); }));
  CHECK(!accepts<Exchange>([](Exchange& m) {  // a question tells nothing
    m.note = ExchangeNote::question;
    m.group = 7;
  }));
  CHECK(!accepts<Exchange>([](Exchange& m) { m.regions[0].key.generation = 0; }));
  CHECK(!accepts<Exchange>([](Exchange& m) { m.regions[0].rights = static_cast<Rights>(8); }));
  CHECK(!accepts<Exchange>([](Exchange& m) { m.regions[0].base = m.regions[0].length = ~std::uint64_t{0}; }));
  CHECK(!accepts<Exchange>([](Exchange& m) { m.regions[0].window_id = 0, m.regions[0].window_offset = 1; }));
  CHECK(!accepts<Exchange>([](Exchange& m) { m.regions[0].kind = static_cast<MemoryKind>(2); }));
  CHECK(!accepts<Exchange>([](Exchange& m) { m.regions[0].kind = MemoryKind::hbm, m.regions[0].window_id = 1; }));
}

TEST_CASE("group and window messages") {
  CHECK(!accepts<ExchangeAck>([](ExchangeAck& m) { m.number = 0; }));
  CHECK(!accepts<Barrier>([](Barrier& m) { m.note = static_cast<BarrierNote>(8); }));
  CHECK(!accepts<Barrier>([](Barrier& m) { m.code = 9999; }));
  CHECK(!accepts<Barrier>([](Barrier& m) { m.page = 2; }));
  CHECK(!accepts<GroupJoin>([](GroupJoin& m) { m.note = static_cast<JoinNote>(3); }));
  CHECK(!accepts<GroupAnswer>([](GroupAnswer& m) { m.code = 9999; }));
  CHECK(!accepts<GroupAnswer>([](GroupAnswer& m) {
    m.code = 0;
    m.group = 1;
    m.incarnations.clear();
  }));
  CHECK(!accepts<GroupAnswer>([](GroupAnswer& m) {
    m.code = static_cast<std::uint16_t>(ErrorCode::busy);
    m.group = 1;
  }));
  CHECK(!accepts<HccsOffer>([](HccsOffer& m) { m.regions_max = 0; }));
  CHECK(!accepts<HccsOffer>([](HccsOffer& m) { m.regions_max = k_regions_max + 1; }));
  CHECK(!accepts<WindowRequest>([](WindowRequest& m) { m.window_id = 0; }));
  CHECK(!accepts<PcieOffer>([](PcieOffer& m) { m.regions_max = 0; }));
  CHECK(!accepts<PcieOffer>([](PcieOffer& m) { m.regions_max = k_regions_max + 1; }));
  CHECK(!accepts<PcieOffer>([](PcieOffer& m) { m.word_address = 0; }));
  CHECK(!accepts<PcieProof>([](PcieProof& m) { m.os_error = 4096; }));
  CHECK(!accepts<WindowBody>([](WindowBody& m) { m.window_id = 0; }));
  CHECK(!accepts<RoceOffer>([](RoceOffer& m) { m.queue_pair = 1U << 24U; }));
  CHECK(!accepts<RoceOffer>([](RoceOffer& m) { m.queue_pair = 0; }));
  CHECK(!accepts<RoceOffer>([](RoceOffer& m) { m.queue_pair = 1; }));
  CHECK(!accepts<RoceOffer>([](RoceOffer& m) { m.gids.back() = {}; }));
  CHECK(!accepts<RoceOffer>([](RoceOffer& m) { m.packet_number = 1U << 24U; }));
  CHECK(!accepts<RoceOffer>([](RoceOffer& m) { m.mtu = 0; }));
  CHECK(!accepts<RoceOffer>([](RoceOffer& m) { m.mtu = 6; }));
  CHECK(!accepts<RoceOffer>([](RoceOffer& m) { m.chosen = k_roce_gids_max; }));
  CHECK(!accepts<RoceOffer>([](RoceOffer& m) { m.page_address = 0; }));
  CHECK(!accepts<RoceOffer>([](RoceOffer& m) { m.page_address = 12; }));
  CHECK(!accepts<RoceOffer>([](RoceOffer& m) { m.gids.clear(); }));
  CHECK(!accepts<RoceReady>([](RoceReady& m) { m.os_error = 4096; }));
  CHECK(accepts<RoceReady>([](RoceReady& m) { m.os_error = 0U - 12U; }));
  CHECK(!accepts<RoceAsk>([](RoceAsk& m) { m.key.generation = 0; }));
  CHECK(!accepts<RoceKey>([](RoceKey& m) { m.key.generation = 0; }));
  CHECK(!accepts<RoceDrop>([](RoceDrop& m) { m.key.generation = 0; }));
  CHECK(!accepts<WindowBody>([](WindowBody& m) { m.code = 0, m.bytes = 0; }));
  CHECK(accepts<WindowBody>([](WindowBody& m) { m.code = 12, m.bytes = 0; }));
}

TEST_CASE("store messages") {
  const auto bytes_of = [](std::size_t name_bytes, std::size_t addresses, std::size_t address_bytes) {
    std::vector<std::byte> buffer(1U << 16U);
    ByteWriter out{Bytes(buffer)};
    for (int field = 0; field < 3; ++field) out.put(std::uint64_t{1});
    out.put(std::uint32_t{0});
    out.put(Birth{1});
    out.put_string(std::string(name_bytes, 'n'));
    out.put(static_cast<std::uint32_t>(addresses));
    for (std::size_t i = 0; i < addresses; ++i) out.put_string(std::string(address_bytes, 'a'));
    buffer.resize(out.size());
    return buffer;
  };
  Endpoints out;
  CHECK(decode_body(ConstBytes(bytes_of(k_unix_name_bytes_max, k_addresses_max, k_address_bytes_max)), out));
  CHECK(!decode_body(ConstBytes(bytes_of(k_unix_name_bytes_max + 1, 1, 1)), out));
  CHECK(!decode_body(ConstBytes(bytes_of(0, k_addresses_max + 1, 1)), out));
  CHECK(!decode_body(ConstBytes(bytes_of(0, 1, k_address_bytes_max + 1)), out));
  CHECK(!decode_body(ConstBytes(bytes_of(0, 1, 0)), out));
  CHECK(out.addresses.empty());
  CHECK(!accepts<StoreClaim>([](StoreClaim& m) { m.world_size = 0; }));
  CHECK(!accepts<StoreClaim>([](StoreClaim& m) { m.world_size = k_world_size_max + 1; }));
  CHECK(!accepts<StoreClaim>([](StoreClaim& m) { m.endpoints.incarnation = 0; }));
  CHECK(!accepts<StoreMember>([](StoreMember& m) { m.present = 2; }));
  CHECK(!accepts<StoreMember>([](StoreMember& m) { m.present = 1, m.endpoints.incarnation = 0; }));
  CHECK(accepts<StoreMember>([](StoreMember& m) { m.present = 0, m.endpoints = {}; }));
  CHECK(!accepts<StoreMember>([](StoreMember& m) { m.present = 1, m.endpoints.birth = 0; }));
  CHECK(accepts<StoreClaim>([](StoreClaim& m) { m.endpoints.birth = m.start.born = 0; }));
  CHECK(accepts<StoreClaim>([](StoreClaim& m) { m.endpoints.birth = m.start.born = k_birth_max; }));
  CHECK(!accepts<StoreClaim>([](StoreClaim& m) { m.start.born = k_birth_max + 1; }));
  CHECK(!accepts<StoreClaim>([](StoreClaim& m) { m.guest = 2; }));
  CHECK(!accepts<StoreClaim>([](StoreClaim& m) { m.endpoints.birth = k_birth_max + 1; }));
  CHECK(accepts<StoreClaimed>([](StoreClaimed& m) { m.code = 0, m.birth = 1; }));
  CHECK(!accepts<StoreClaimed>([](StoreClaimed& m) { m.code = 0, m.birth = 0; }));
  CHECK(!accepts<StoreClaimed>([](StoreClaimed& m) { m.code = 12, m.birth = 1; }));
}
