// SPDX-License-Identifier: Apache-2.0
//
// Messages of the window link: offer and proof of shared memory, windows by request.
#include "wire/codec.hpp"
#include "wire/messages.hpp"

namespace hixl::wire {
static bool valid(const HccsOffer& m) noexcept { return m.regions_max >= 1 && m.regions_max <= k_regions_max; }
static bool valid(const HccsReady&) noexcept { return true; }
static bool valid(const WindowRequest& m) noexcept { return m.window_id != 0; }
/// A window that is given has bytes.
static bool valid(const WindowBody& m) noexcept {
  return m.window_id != 0 && known_error_code(m.code) &&
         (m.code != static_cast<std::uint16_t>(ErrorCode::ok) || m.bytes != 0);
}

template <class Code>
void fields(Code& code, typename Code::template Field<HccsOffer>& m) {
  code(m.challenge, m.regions_max);
}
template <class Code>
void fields(Code& code, typename Code::template Field<HccsReady>& m) {
  code(m.challenge);
}
template <class Code>
void fields(Code& code, typename Code::template Field<WindowRequest>& m) {
  code(m.window_id);
}
template <class Code>
void fields(Code& code, typename Code::template Field<WindowBody>& m) {
  code(m.window_id, m.bytes, m.code);
}

HIXL_WIRE_DEFINE(HccsOffer)
HIXL_WIRE_DEFINE(HccsReady)
HIXL_WIRE_DEFINE(WindowRequest)
HIXL_WIRE_DEFINE(WindowBody)

}  // namespace hixl::wire
