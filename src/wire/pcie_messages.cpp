// SPDX-License-Identifier: Apache-2.0
//
// Messages of the cross-memory link: offer, answer, and how the try went.
#include "wire/codec.hpp"
#include "wire/messages.hpp"

namespace hixl::wire {
static bool valid(const PcieOffer& m) noexcept {
  return m.regions_max >= 1 && m.regions_max <= k_regions_max && m.word_address != 0;
}
static bool valid(const PcieReady&) noexcept { return true; }
/// Numbers of the system's errors end below 4096 on Linux.
static bool valid(const PcieProof& m) noexcept { return known_error_code(m.code) && m.os_error < 4096; }

template <class Code>
void fields(Code& code, typename Code::template Field<PcieOffer>& m) {
  code(m.challenge, m.regions_max, m.word_address);
}
template <class Code>
void fields(Code& code, typename Code::template Field<PcieReady>& m) {
  code(m.challenge);
}
template <class Code>
void fields(Code& code, typename Code::template Field<PcieProof>& m) {
  code(m.code, m.os_error);
}

HIXL_WIRE_DEFINE(PcieOffer)
HIXL_WIRE_DEFINE(PcieReady)
HIXL_WIRE_DEFINE(PcieProof)

}  // namespace hixl::wire
