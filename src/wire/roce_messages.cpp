// SPDX-License-Identifier: Apache-2.0
//
// Messages of the RDMA link: set-up of two queue pairs, and the keys of regions. They are in every build, so that a
// peer without RDMA refuses by name what it does not have.
#include <algorithm>

#include "wire/codec.hpp"
#include "wire/messages.hpp"

namespace hixl::wire {
namespace {

constexpr std::uint32_t k_24_bits = 0xffffff;
/// Those below are every card's own, for the management of its network.
constexpr std::uint32_t k_queue_pair_min = 2;
constexpr std::size_t k_gid_bytes = 16;
/// Numbers of the system's errors end below 4096 on Linux, those of work completions below 64.
bool known_status(std::uint32_t os_error) noexcept { return os_error < 4096 || os_error > 0U - 64U; }

}  // namespace

static bool valid(const RoceOffer& m) noexcept {
  const bool addressed = std::all_of(m.gids.begin(), m.gids.end(), [](const RoceGid& gid) { return gid != RoceGid{}; });
  return m.queue_pair >= k_queue_pair_min && m.queue_pair <= k_24_bits && addressed && m.packet_number <= k_24_bits &&
         m.mtu >= 1 && m.mtu <= 5 && m.page_address != 0 && m.page_address % 8 == 0 && !m.gids.empty() &&
         m.gids.size() <= k_roce_gids_max && m.chosen < k_roce_gids_max;
}
static bool valid(const RoceReady& m) noexcept { return known_error_code(m.code) && known_status(m.os_error); }
static bool valid(const RoceAsk& m) noexcept { return m.key.valid(); }
static bool valid(const RoceKey& m) noexcept {
  return m.key.valid() && known_error_code(m.code) && known_status(m.os_error);
}
static bool valid(const RoceDrop& m) noexcept { return m.key.valid(); }

template <class Code>
void fields(Code& code, typename Code::template Field<RoceGid>& m) {
  code(m.high, m.low);
}
template <class Code>
void fields(Code& code, typename Code::template Field<RoceOffer>& m) {
  code(m.queue_pair, m.packet_number, m.mtu, m.reads_out, m.reads_in, m.chosen, m.page_address, m.page_key,
       m.challenge);
  code.text(m.name, k_roce_name_max);
  code.list(m.gids, k_roce_gids_max, k_gid_bytes);
}
template <class Code>
void fields(Code& code, typename Code::template Field<RoceReady>& m) {
  code(m.code, m.os_error);
}
template <class Code>
void fields(Code& code, typename Code::template Field<RoceAsk>& m) {
  code(m.key, m.token);
}
template <class Code>
void fields(Code& code, typename Code::template Field<RoceKey>& m) {
  code(m.key, m.code, m.os_error, m.limit, m.remote_key, m.address);
}
template <class Code>
void fields(Code& code, typename Code::template Field<RoceDrop>& m) {
  code(m.key);
}

HIXL_WIRE_DEFINE(RoceOffer)
HIXL_WIRE_DEFINE(RoceReady)
HIXL_WIRE_DEFINE(RoceAsk)
HIXL_WIRE_DEFINE(RoceKey)
HIXL_WIRE_DEFINE(RoceDrop)

}  // namespace hixl::wire
