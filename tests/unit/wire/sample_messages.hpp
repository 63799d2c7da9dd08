// SPDX-License-Identifier: Apache-2.0
//
// Seeded random messages for the tests of the wire, and equality of every field, written down apart from the codec so
// that a field which the codec forgets is noticed.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "base/random.hpp"
#include "wire/messages.hpp"
#include "wire/store_messages.hpp"

namespace hixl::wire {

template <class T>
T any(Random& random) {
  return static_cast<T>(random.next());
}
template <class T>
T up_to(Random& random, std::uint64_t max) {
  return static_cast<T>(random.between(0, max));
}
template <class T>
T from_1(Random& random, std::uint64_t max) {
  return static_cast<T>(random.between(1, max));
}
inline PeerId any_peer(Random& random) { return {random.next(), random.next()}; }
inline RegionKey any_key(Random& random) {
  return {any<std::uint32_t>(random), from_1<std::uint32_t>(random, 1U << 31U)};
}
inline Token any_token(Random& random) { return {random.next(), random.next()}; }
inline std::uint16_t any_code(Random& random) {
  static constexpr std::array codes{ErrorCode::ok, ErrorCode::stale, ErrorCode::peer_lost, ErrorCode::internal};
  return static_cast<std::uint16_t>(codes[random.below(codes.size())]);
}
inline std::string any_text(Random& random, std::size_t size_min, std::size_t size_max) {
  std::string text(random.between(size_min, size_max), ' ');
  for (char& c : text) c = any<char>(random);
  return text;
}
inline ExecutedSet any_set(Random& random) {
  ExecutedSet set;
  for (std::uint64_t i = random.below(1500); i > 0; --i) {
    const LinkSeq seq = set.highest + from_1<LinkSeq>(random, 2);
    set.record(seq, random.chance(700));
  }
  return set;
}

inline void fill(Random& r, Hello& m) {
  m = {any_peer(r),
       r.identity(),
       r.identity(),
       any<Rank>(r),
       from_1<std::uint32_t>(r, k_world_size_max),
       any_peer(r),
       r.next(),
       from_1<SessionId>(r, 1U << 31U),
       up_to<std::uint8_t>(r, 1),
       any<LinkId>(r),
       up_to<LinkKind>(r, k_link_kinds - 1),
       from_1<LinkGen>(r, 1U << 31U),
       r.next(),
       up_to<std::uint32_t>(r, k_lease_ms_max),
       from_1<std::uint32_t>(r, k_depth_max),
       from_1<std::uint32_t>(r, k_depth_max),
       any_set(r),
       0,
       0};
  m.opened_gen = up_to<LinkGen>(r, m.link_gen - 1);
  m.executed_gen = up_to<LinkGen>(r, m.opened_gen);
}
inline void fill(Random& r, Welcome& m) {
  m = {any_peer(r),
       r.identity(),
       r.identity(),
       up_to<Rank>(r, k_world_size_max - 1),
       from_1<SessionId>(r, 1U << 31U),
       from_1<LinkGen>(r, 1U << 31U),
       r.next(),
       up_to<std::uint32_t>(r, k_lease_ms_max),
       from_1<std::uint32_t>(r, k_depth_max),
       from_1<std::uint32_t>(r, k_depth_max),
       any_set(r),
       any<LinkGen>(r)};
}
inline void fill(Random& r, Reject& m) {
  m = {from_1<RejectReason>(r, 11), any_peer(r), r.next(), any<SessionId>(r), any<LinkGen>(r)};
}
inline void fill(Random& r, Access& m) {
  m.region = any_key(r);
  m.token = any_token(r);
  m.segment_count = from_1<std::uint32_t>(r, k_segments_max);
  for (std::uint32_t i = 0; i < m.segment_count; ++i) {
    m.segments[i] = {r.next() >> 1U, up_to<std::uint32_t>(r, k_payload_bytes_max / k_segments_max)};
  }
}
inline void fill(Random& r, ReadData& m) { m = {r.identity()}; }
inline void fill(Random& r, SignalBody& m) {
  m = {any_key(r), any_token(r), r.next(), r.next(), up_to<std::uint8_t>(r, 1)};
}
inline void fill(Random& r, AtomicBody& m) {
  m = {any_key(r),
       any_token(r),
       r.next(),
       r.identity(),
       0,
       up_to<AtomicOp>(r, 2),
       r.next(),
       0,
       up_to<std::uint8_t>(r, 1)};
  m.acked_upto = r.below(m.number);
  if (m.op == AtomicOp::compare_swap) m.expected = r.next();
}
inline void fill(Random& r, AtomicResult& m) { m = {r.identity(), r.next()}; }
inline void fill(Random& r, Ack& m) { m = {r.next()}; }
inline void fill(Random& r, Nack& m) {
  const auto code = static_cast<std::uint16_t>(r.chance(500) ? ErrorCode::out_of_range : ErrorCode::stale);
  m = {r.identity(), code, r.next(), r.next(), r.next(), r.next(), r.next()};
}
inline void fill(Random& r, FenceRequest& m) {
  m = {any<LinkId>(r), from_1<LinkGen>(r, 1U << 31U), any_code(r), any_set(r)};
}
inline void fill(Random& r, FenceAnswer& m) { m = {any<LinkId>(r), from_1<LinkGen>(r, 1U << 31U), any_set(r)}; }
inline void fill(Random& r, RegionDescriptor& d) {
  d = {any_key(r), any_token(r), r.next() >> 1U, r.next() >> 1U, up_to<Rights>(r, 7), any<std::uint32_t>(r), 0, 0};
  if (r.chance(500)) {
    d.window_id = from_1<std::uint32_t>(r, 1000);
    d.window_offset = r.next();
    if (d.key.id % 2 == 1) {
      d.kind = MemoryKind::hbm;
      d.window_id = 0;
      d.window_offset = 0;
    }
  }
}
inline void fill(Random& r, Exchange& m) {
  m.number = r.identity();
  m.first = up_to<std::uint32_t>(r, 1000);
  m.regions.resize(from_1<std::size_t>(r, r.chance(100) ? k_descriptors_max : 20));
  m.total = m.first + static_cast<std::uint32_t>(m.regions.size()) + up_to<std::uint32_t>(r, 1000);
  // Questions and answers have rules of their own; limits_test.cpp.
  m.note = static_cast<ExchangeNote>(up_to<std::uint8_t>(r, 1));
  m.group = r.next();
  for (RegionDescriptor& region : m.regions) fill(r, region);
}
inline void fill(Random& r, ExchangeAck& m) { m = {r.identity()}; }
inline std::vector<std::uint64_t> any_words(Random& r, std::uint64_t max) {
  std::vector<std::uint64_t> words(r.below(max + 1));
  for (std::uint64_t& word : words) word = r.next();
  return words;
}
inline void fill(Random& r, Barrier& m) {
  m = {r.next(),        r.next(), r.next(),    up_to<BarrierNote>(r, static_cast<std::uint64_t>(BarrierNote::gone)),
       any<Rank>(r),    r.next(), any_code(r), up_to<std::uint8_t>(r, 1),
       any_words(r, 20)};
}
inline void fill(Random& r, GroupJoin& m) {
  m = {up_to<JoinNote>(r, static_cast<std::uint64_t>(JoinNote::probe)), any<std::uint32_t>(r), r.next(), r.next(),
       r.next()};
}
inline void fill(Random& r, GroupAnswer& m) {
  m = {any<std::uint32_t>(r), r.next(), 0,        any_code(r),           any<Rank>(r),
       any_words(r, 20),      {},       r.next(), any<std::uint32_t>(r), r.next()};
  if (m.code != 0) return;
  m.group = r.identity();
  m.incarnations = any_words(r, 20);
  m.incarnations.push_back(r.identity());
}
inline void fill(Random& r, Bye& m) { m = {any_code(r)}; }
inline void fill(Random& r, HccsOffer& m) { m = {r.next(), from_1<std::uint32_t>(r, k_regions_max)}; }
inline void fill(Random& r, HccsReady& m) { m = {r.next()}; }
inline void fill(Random& r, WindowRequest& m) { m = {from_1<std::uint32_t>(r, 1000)}; }
inline void fill(Random& r, PcieOffer& m) { m = {r.next(), from_1<std::uint32_t>(r, k_regions_max), r.identity()}; }
inline void fill(Random& r, PcieReady& m) { m = {r.next()}; }
inline void fill(Random& r, PcieProof& m) { m = {any_code(r), static_cast<std::uint32_t>(r.below(4096))}; }
inline std::uint32_t any_status(Random& r) {
  return static_cast<std::uint32_t>(r.chance(500) ? r.below(4096) : 0U - r.below(64));
}
inline void fill(Random& r, RoceOffer& m) {
  m = {.queue_pair = std::max(2U, static_cast<std::uint32_t>(r.below(1U << 24U))),
       .packet_number = static_cast<std::uint32_t>(r.below(1U << 24U)),
       .mtu = from_1<std::uint8_t>(r, 5),
       .reads_out = any<std::uint8_t>(r),
       .reads_in = any<std::uint8_t>(r),
       .chosen = up_to<std::uint8_t>(r, k_roce_gids_max - 1),
       .page_address = from_1<std::uint64_t>(r, 1U << 30U) * 8,
       .page_key = any<std::uint32_t>(r),
       .challenge = r.next(),
       .name = any_text(r, 0, k_roce_name_max),
       .gids = std::vector<RoceGid>(r.between(1, k_roce_gids_max))};
  for (RoceGid& gid : m.gids) gid = {r.next(), r.next()};
}
inline void fill(Random& r, RoceReady& m) { m = {any_code(r), any_status(r)}; }
inline void fill(Random& r, RoceAsk& m) { m = {any_key(r), any_token(r)}; }
inline void fill(Random& r, RoceKey& m) {
  m = {any_key(r), any_code(r), any_status(r), r.next(), any<std::uint32_t>(r), r.next()};
}
inline void fill(Random& r, RoceDrop& m) { m = {any_key(r)}; }
inline void fill(Random& r, WindowBody& m) { m = {from_1<std::uint32_t>(r, 1000), r.identity(), any_code(r)}; }
inline void fill(Random& r, Endpoints& m) {
  m.peer_id = any_peer(r);
  m.incarnation = r.identity();
  m.rank = any<Rank>(r);
  m.birth = from_1<Birth>(r, k_birth_max);
  m.unix_name = any_text(r, 0, k_unix_name_bytes_max);
  m.addresses.resize(r.between(0, k_addresses_max));
  for (std::string& address : m.addresses) address = any_text(r, 1, k_address_bytes_max);
}
inline void fill(Random& r, StoreClaim& m) {
  m.world_size = from_1<std::uint32_t>(r, k_world_size_max);
  m.job = r.next();
  m.start = {.born = up_to<Birth>(r, k_birth_max), .host = r.next(), .since_boot = r.next()};
  m.guest = up_to<std::uint8_t>(r, 1);
  fill(r, m.endpoints);
}
inline void fill(Random& r, StoreClaimed& m) {
  m = {any_code(r), r.next(), 0};
  if (m.code == 0) m.birth = from_1<Birth>(r, k_birth_max);
}
inline void fill(Random& r, StoreLookup& m) { m = {any<Rank>(r)}; }
inline void fill(Random& r, StoreMember& m) {
  m.present = up_to<std::uint8_t>(r, 1);
  fill(r, m.endpoints);
}
inline void fill(Random& r, StoreLeave& m) { m = {any_code(r)}; }

inline auto tied(const Hello& m) {
  return std::tie(m.peer_id, m.incarnation, m.birth, m.rank, m.world_size, m.target_peer_id, m.target_incarnation,
                  m.session, m.join, m.link_id, m.kind, m.link_gen, m.features, m.lease_ms, m.tx_depth, m.rx_depth,
                  m.executed, m.executed_gen, m.opened_gen);
}
inline auto tied(const Welcome& m) {
  return std::tie(m.peer_id, m.incarnation, m.birth, m.rank, m.session, m.link_gen, m.features, m.lease_ms, m.tx_depth,
                  m.rx_depth, m.executed, m.executed_gen);
}
inline auto tied(const Reject& m) { return std::tie(m.reason, m.peer_id, m.incarnation, m.session, m.link_gen); }
inline auto tied(const WireSegment& s) { return std::tie(s.offset, s.bytes); }
inline auto tied(const ReadData& m) { return std::tie(m.read_seq); }
inline auto tied(const SignalBody& m) { return std::tie(m.region, m.token, m.offset, m.value, m.add); }
inline auto tied(const AtomicBody& m) {
  return std::tie(m.region, m.token, m.offset, m.number, m.acked_upto, m.op, m.value, m.expected, m.ask);
}
inline auto tied(const AtomicResult& m) { return std::tie(m.seq, m.value); }
inline auto tied(const Ack& m) { return std::tie(m.upto); }
inline auto tied(const Nack& m) {
  return std::tie(m.seq, m.code, m.address, m.length, m.nearest_base, m.nearest_length, m.limit);
}
inline auto tied(const FenceRequest& m) { return std::tie(m.link_id, m.link_gen, m.reason, m.executed); }
inline auto tied(const FenceAnswer& m) { return std::tie(m.link_id, m.link_gen, m.executed); }
inline auto tied(const RegionDescriptor& d) {
  return std::tie(d.key, d.token, d.base, d.length, d.rights, d.tag, d.window_id, d.window_offset, d.kind);
}
inline auto tied(const ExchangeAck& m) { return std::tie(m.number); }
inline auto tied(const Barrier& m) {
  return std::tie(m.group, m.number, m.call, m.note, m.rank, m.incarnation, m.code, m.page, m.ranks);
}
inline auto tied(const GroupJoin& m) { return std::tie(m.note, m.tag, m.call, m.list, m.options); }
inline auto tied(const GroupAnswer& m) {
  return std::tie(m.tag, m.call, m.group, m.code, m.rank, m.ranks, m.incarnations, m.page_process, m.page_descriptor,
                  m.page_challenge);
}
inline auto tied(const Bye& m) { return std::tie(m.code); }
inline auto tied(const HccsOffer& m) { return std::tie(m.challenge, m.regions_max); }
inline auto tied(const HccsReady& m) { return std::tie(m.challenge); }
inline auto tied(const WindowRequest& m) { return std::tie(m.window_id); }
inline auto tied(const PcieOffer& m) { return std::tie(m.challenge, m.regions_max, m.word_address); }
inline auto tied(const PcieReady& m) { return std::tie(m.challenge); }
inline auto tied(const PcieProof& m) { return std::tie(m.code, m.os_error); }
inline auto tied(const RoceOffer& m) {
  return std::tie(m.queue_pair, m.packet_number, m.mtu, m.reads_out, m.reads_in, m.chosen, m.page_address, m.page_key,
                  m.challenge, m.name, m.gids);
}
inline auto tied(const RoceReady& m) { return std::tie(m.code, m.os_error); }
inline auto tied(const RoceAsk& m) { return std::tie(m.key, m.token); }
inline auto tied(const RoceKey& m) { return std::tie(m.key, m.code, m.os_error, m.limit, m.remote_key, m.address); }
inline auto tied(const RoceDrop& m) { return std::tie(m.key); }
inline auto tied(const WindowBody& m) { return std::tie(m.window_id, m.bytes, m.code); }
inline auto tied(const Endpoints& m) {
  return std::tie(m.peer_id, m.incarnation, m.rank, m.birth, m.unix_name, m.addresses);
}
inline auto tied(const StoreClaimed& m) { return std::tie(m.code, m.limit, m.birth); }
inline auto tied(const StoreLookup& m) { return std::tie(m.rank); }
inline auto tied(const StoreLeave& m) { return std::tie(m.code); }

template <class Message>
bool same(const Message& a, const Message& b) {
  return tied(a) == tied(b);
}
inline bool same(const StoreClaim& a, const StoreClaim& b) {
  return a.world_size == b.world_size && a.job == b.job && a.start.born == b.start.born &&
         a.start.host == b.start.host && a.start.since_boot == b.start.since_boot && a.guest == b.guest &&
         same(a.endpoints, b.endpoints);
}
inline bool same(const StoreMember& a, const StoreMember& b) {
  return a.present == b.present && same(a.endpoints, b.endpoints);
}
inline bool same(const Access& a, const Access& b) {
  return a.region == b.region && a.token == b.token && a.segment_count == b.segment_count &&
         std::equal(a.segments.begin(), a.segments.begin() + a.segment_count, b.segments.begin(),
                    [](const WireSegment& x, const WireSegment& y) { return tied(x) == tied(y); });
}
inline bool same(const Exchange& a, const Exchange& b) {
  return a.number == b.number && a.first == b.first && a.total == b.total && a.note == b.note &&
         std::equal(a.regions.begin(), a.regions.end(), b.regions.begin(), b.regions.end(),
                    [](const RegionDescriptor& x, const RegionDescriptor& y) { return tied(x) == tied(y); });
}

/// The bytes of a message; `encode` stands for all overloads of hixl::wire.
template <class Message>
std::vector<std::byte> encoded(const Message& message) {
  std::vector<std::byte> buffer(k_body_bytes_max);
  ByteWriter writer(buffer);
  encode(message, writer);
  if (!writer.ok()) return {};
  buffer.resize(writer.size());
  return buffer;
}

}  // namespace hixl::wire
