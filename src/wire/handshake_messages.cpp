// SPDX-License-Identifier: Apache-2.0
//
// Messages that open a connection and that end a link generation: hello, welcome, reject, fence request and answer.
#include "wire/codec.hpp"
#include "wire/messages.hpp"

namespace hixl::wire {
static bool valid_depth(std::uint32_t depth) noexcept { return depth >= 1 && depth <= k_depth_max; }

/// Frames are numbered from 1, so the bits for 0 and below are reserved and zero.
static bool valid_set(const ExecutedSet& set) noexcept {
  for (std::uint64_t word = 0; word < set.bits.size(); ++word) {
    const std::uint64_t first = word * 64;  // bits of the words before this one
    if (set.highest >= first + 64) continue;
    const std::uint64_t used = set.highest > first ? set.highest - first : 0;
    if ((set.bits[word] >> used) != 0) return false;
  }
  return true;
}

template <class Code>
void fields(Code& code, typename Code::template Field<Hello>& m) {
  code(m.peer_id, m.incarnation, m.birth, m.rank, m.world_size, m.target_peer_id, m.target_incarnation, m.session,
       m.join, m.link_id, m.kind, m.link_gen, m.features, m.lease_ms, m.tx_depth, m.rx_depth, m.executed,
       m.executed_gen, m.opened_gen);
}
template <class Code>
void fields(Code& code, typename Code::template Field<Welcome>& m) {
  code(m.peer_id, m.incarnation, m.birth, m.rank, m.session, m.link_gen, m.features, m.lease_ms, m.tx_depth, m.rx_depth,
       m.executed, m.executed_gen);
}
template <class Code>
void fields(Code& code, typename Code::template Field<Reject>& m) {
  code(m.reason, m.peer_id, m.incarnation, m.session, m.link_gen);
}
template <class Code>
void fields(Code& code, typename Code::template Field<FenceRequest>& m) {
  code(m.link_id, m.link_gen, m.reason, m.executed);
}
template <class Code>
void fields(Code& code, typename Code::template Field<FenceAnswer>& m) {
  code(m.link_id, m.link_gen, m.executed);
}

/// Whether the rank fits the world is not asked here: the acceptor answers that with RejectReason::bad_rank.
static bool valid(const Hello& m) noexcept {
  // What was executed was opened before, and the dialler opens something new.
  return m.incarnation != 0 && m.birth != 0 && m.executed_gen <= m.opened_gen && m.opened_gen < m.link_gen &&
         m.world_size >= 1 && m.world_size <= k_world_size_max && static_cast<std::size_t>(m.kind) < k_link_kinds &&
         m.link_gen != 0 && m.lease_ms <= k_lease_ms_max && m.join <= 1 && (m.join == 0 || m.session != 0) &&
         valid_depth(m.tx_depth) && valid_depth(m.rx_depth) && valid_set(m.executed);
}
static bool valid(const Welcome& m) noexcept {
  return m.incarnation != 0 && m.birth != 0 && m.rank < k_world_size_max && m.session != 0 && m.link_gen != 0 &&
         m.lease_ms <= k_lease_ms_max && valid_depth(m.tx_depth) && valid_depth(m.rx_depth) && valid_set(m.executed);
}
static bool valid(const Reject& m) noexcept {
  return m.reason >= RejectReason::wrong_peer && m.reason <= RejectReason::not_joined;
}
static bool valid(const FenceRequest& m) noexcept {
  return m.link_gen != 0 && known_error_code(m.reason) && valid_set(m.executed);
}
static bool valid(const FenceAnswer& m) noexcept { return m.link_gen != 0 && valid_set(m.executed); }

template <class Code>
void fields(Code& code, typename Code::template Field<ExecutedSet>& set) {
  code(set.highest);
  for (auto& word : set.bits) code(word);
}

HIXL_WIRE_DEFINE(Hello)
HIXL_WIRE_DEFINE(Welcome)
HIXL_WIRE_DEFINE(Reject)
HIXL_WIRE_DEFINE(FenceRequest)
HIXL_WIRE_DEFINE(FenceAnswer)

}  // namespace hixl::wire
