// SPDX-License-Identifier: Apache-2.0
#include "wire/store_messages.hpp"

#include "wire/codec.hpp"
#include "wire/messages.hpp"

namespace hixl::wire {
/// Whether the rank fits the world is not asked here: the store answers that with RANK_OUT_OF_RANGE.
static bool valid(const Endpoints& m) noexcept {
  if (m.birth > k_birth_max) return false;
  for (const std::string& address : m.addresses) {
    if (address.empty()) return false;
  }
  return true;
}
static bool valid(const StoreClaim& m) noexcept {
  return m.world_size >= 1 && m.world_size <= k_world_size_max && m.endpoints.incarnation != 0 &&
         m.start.born <= k_birth_max && m.guest <= 1 && valid(m.endpoints);
}
static bool valid(const StoreClaimed& m) noexcept {
  const bool granted = m.code == static_cast<std::uint16_t>(ErrorCode::ok);
  return known_error_code(m.code) && m.birth <= k_birth_max && granted == (m.birth != 0);
}
static bool valid(const StoreLookup&) noexcept { return true; }
static bool valid(const StoreMember& m) noexcept {
  return m.present <= 1 && (m.present == 0 || (m.endpoints.incarnation != 0 && m.endpoints.birth != 0)) &&
         valid(m.endpoints);
}
static bool valid(const StoreLeave& m) noexcept { return known_error_code(m.code); }

template <class Code>
void fields(Code& code, typename Code::template Field<Endpoints>& m) {
  code(m.peer_id, m.incarnation, m.rank, m.birth);
  code.text(m.unix_name, k_unix_name_bytes_max);
  code.texts(m.addresses, k_addresses_max, k_address_bytes_max);
}
template <class Code>
void fields(Code& code, typename Code::template Field<StoreClaim>& m) {
  code(m.world_size, m.job, m.start.born, m.start.host, m.start.since_boot, m.guest, m.endpoints);
}
template <class Code>
void fields(Code& code, typename Code::template Field<StoreClaimed>& m) {
  code(m.code, m.limit, m.birth);
}
template <class Code>
void fields(Code& code, typename Code::template Field<StoreLookup>& m) {
  code(m.rank);
}
template <class Code>
void fields(Code& code, typename Code::template Field<StoreMember>& m) {
  code(m.present, m.endpoints);
}
template <class Code>
void fields(Code& code, typename Code::template Field<StoreLeave>& m) {
  code(m.code);
}

HIXL_WIRE_DEFINE(Endpoints)
HIXL_WIRE_DEFINE(StoreClaim)
HIXL_WIRE_DEFINE(StoreClaimed)
HIXL_WIRE_DEFINE(StoreLookup)
HIXL_WIRE_DEFINE(StoreMember)
HIXL_WIRE_DEFINE(StoreLeave)

}  // namespace hixl::wire
