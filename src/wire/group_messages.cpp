// SPDX-License-Identifier: Apache-2.0
//
// Messages among members: exchange of region descriptors and its acknowledgement, barrier,
// making of groups, bye.
#include "wire/codec.hpp"
#include "wire/messages.hpp"

namespace hixl::wire {
constexpr std::uint64_t k_region_tag_max = 0xffffffffU;
/// Bytes of one descriptor on the wire.
constexpr std::size_t k_descriptor_bytes = 8 + 16 + 8 + 8 + 1 + 4 + 4 + 8 + 1;
static_assert(29 + k_descriptors_max * k_descriptor_bytes <= k_body_bytes_max, "a full exchange fits a body");

static bool valid(const RegionDescriptor& d) noexcept {
  return d.key.valid() && d.base + d.length >= d.base && d.rights <= Rights::all &&
         (d.window_id != 0 || d.window_offset == 0) && d.kind <= MemoryKind::hbm &&
         (d.kind == MemoryKind::host || d.window_id == 0);
}
/// Frames of an exchange make progress: only an exchange of nothing has a frame of nothing.
static bool valid(const Exchange& m) noexcept {
  const std::uint64_t count = m.regions.size();
  if (m.number == 0 || m.total > k_regions_max || m.first + count > m.total) return false;
  if (count == 0 && m.total != 0) return false;
  const bool tagged = m.note == ExchangeNote::question || m.note == ExchangeNote::answer;
  if (m.note > ExchangeNote::answer || (tagged && m.group > k_region_tag_max)) return false;
  if (m.note == ExchangeNote::question && m.total != 0) return false;
  for (const RegionDescriptor& region : m.regions) {
    if (!valid(region)) return false;
  }
  return true;
}
static bool valid(const ExchangeAck& m) noexcept { return m.number != 0; }
static bool valid(const Barrier& m) noexcept {
  return m.note <= BarrierNote::gone && known_error_code(m.code) && m.page <= 1;
}
static bool valid(const GroupJoin& m) noexcept { return m.note <= JoinNote::probe; }
/// Made groups have a name and members; what was not made has neither.
static bool valid(const GroupAnswer& m) noexcept {
  return known_error_code(m.code) && (m.group != 0) == (m.code == 0) && (m.group != 0) == !m.incarnations.empty();
}
static bool valid(const Bye& m) noexcept { return known_error_code(m.code); }

template <class Code>
void fields(Code& code, typename Code::template Field<RegionDescriptor>& d) {
  code(d.key, d.token, d.base, d.length, d.rights, d.tag, d.window_id, d.window_offset, d.kind);
}
template <class Code>
void fields(Code& code, typename Code::template Field<Exchange>& m) {
  code(m.number, m.first, m.total, m.note, m.group);
  code.list(m.regions, k_descriptors_max, k_descriptor_bytes);
}
template <class Code>
void fields(Code& code, typename Code::template Field<ExchangeAck>& m) {
  code(m.number);
}
template <class Code>
void fields(Code& code, typename Code::template Field<Barrier>& m) {
  code(m.group, m.number, m.call, m.note, m.rank, m.incarnation, m.code, m.page);
  code.list(m.ranks, k_rank_words_max, sizeof(std::uint64_t));
}
template <class Code>
void fields(Code& code, typename Code::template Field<GroupJoin>& m) {
  code(m.note, m.tag, m.call, m.list, m.options);
}
template <class Code>
void fields(Code& code, typename Code::template Field<GroupAnswer>& m) {
  code(m.tag, m.call, m.group, m.code, m.rank);
  code.list(m.ranks, k_rank_words_max, sizeof(std::uint64_t));
  code.list(m.incarnations, k_group_size_max, sizeof(std::uint64_t));
  code(m.page_process, m.page_descriptor, m.page_challenge);
}
template <class Code>
void fields(Code& code, typename Code::template Field<Bye>& m) {
  code(m.code);
}

HIXL_WIRE_DEFINE(Exchange)
HIXL_WIRE_DEFINE(ExchangeAck)
HIXL_WIRE_DEFINE(Barrier)
HIXL_WIRE_DEFINE(GroupJoin)
HIXL_WIRE_DEFINE(GroupAnswer)
HIXL_WIRE_DEFINE(Bye)

}  // namespace hixl::wire
