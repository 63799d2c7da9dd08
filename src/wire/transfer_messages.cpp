// SPDX-License-Identifier: Apache-2.0
//
// Messages that move bytes and say that they have been moved: access (write, read), read_data, signal, atomic and its
// result, ack, nack.
#include "wire/codec.hpp"
#include "wire/messages.hpp"

namespace hixl::wire {

std::uint64_t Access::total_bytes() const noexcept {
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < segment_count; ++i) total += segments[i].bytes;
  return total;
}

template <class Code>
void fields(Code& code, typename Code::template Field<WireSegment>& segment) {
  code(segment.offset, segment.bytes);
}
template <class Code>
void fields(Code& code, typename Code::template Field<Access>& m) {
  code(m.region, m.token);
  const std::uint32_t count = code.count(m.segment_count, k_segments_max);
  for (std::uint32_t i = 0; i < count; ++i) code(m.segments[i]);
}
template <class Code>
void fields(Code& code, typename Code::template Field<ReadData>& m) {
  code(m.read_seq);
}
template <class Code>
void fields(Code& code, typename Code::template Field<SignalBody>& m) {
  code(m.region, m.token, m.offset, m.value, m.add);
}
template <class Code>
void fields(Code& code, typename Code::template Field<AtomicBody>& m) {
  code(m.region, m.token, m.offset, m.number, m.acked_upto, m.op, m.value, m.expected, m.ask);
}
template <class Code>
void fields(Code& code, typename Code::template Field<AtomicResult>& m) {
  code(m.seq, m.value);
}
template <class Code>
void fields(Code& code, typename Code::template Field<Ack>& m) {
  code(m.upto);
}
template <class Code>
void fields(Code& code, typename Code::template Field<Nack>& m) {
  code(m.seq, m.code, m.address, m.length, m.nearest_base, m.nearest_length, m.limit);
}

/// The sum is bounded because one frame carries all the bytes: as payload of the write, or of the read's answer.
static bool valid(const Access& m) noexcept {
  if (!m.region.valid() || m.segment_count == 0) return false;
  for (std::uint32_t i = 0; i < m.segment_count; ++i) {
    if (m.segments[i].offset + m.segments[i].bytes < m.segments[i].offset) return false;
  }
  return m.total_bytes() <= k_payload_bytes_max;
}
static bool valid(const ReadData& m) noexcept { return m.read_seq != 0; }
static bool valid(const SignalBody& m) noexcept { return m.region.valid() && m.add <= 1; }
static bool valid(const AtomicBody& m) noexcept {
  return m.region.valid() && m.acked_upto < m.number && m.op <= AtomicOp::compare_swap && m.ask <= 1 &&
         (m.op == AtomicOp::compare_swap || m.expected == 0);
}
static bool valid(const AtomicResult& m) noexcept { return m.seq != 0; }
static bool valid(const Ack&) noexcept { return true; }
static bool valid(const Nack& m) noexcept {
  return m.seq != 0 && known_error_code(m.code) && m.code != static_cast<std::uint16_t>(ErrorCode::ok);
}

HIXL_WIRE_DEFINE(Access)
HIXL_WIRE_DEFINE(ReadData)
HIXL_WIRE_DEFINE(SignalBody)
HIXL_WIRE_DEFINE(AtomicBody)
HIXL_WIRE_DEFINE(AtomicResult)
HIXL_WIRE_DEFINE(Ack)
HIXL_WIRE_DEFINE(Nack)

}  // namespace hixl::wire
