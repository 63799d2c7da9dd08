// SPDX-License-Identifier: Apache-2.0
//
// The frame: one fixed header, a body of known type (control), then bulk payload. Every frame of every stream of
// this library has this form. Pure functions, no I/O; any byte string gives a frame or an error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <hixl/result.hpp>

#include "base/bytes.hpp"
#include "base/ids.hpp"

namespace hixl::wire {

inline constexpr std::uint32_t k_magic = 0x4c584948U;  // "HIXL"
inline constexpr std::uint8_t k_version = 1;
inline constexpr std::size_t k_header_bytes = 64;
/// Limit of a control body: enough for 1 000 region descriptors, small enough to be buffered for every peer.
inline constexpr std::uint32_t k_body_bytes_max = 64U << 10U;
/// Limit of the payload of one frame: the largest chunk.
inline constexpr std::uint32_t k_payload_bytes_max = 4U << 20U;
/// Segments of one write or read frame. 32 keep the initiator's attempt record below 1 KiB.
inline constexpr std::size_t k_segments_max = 32;

/// Numbers are stable. Unknown types with flag `optional` are skipped by length, others are an error.
enum class FrameType : std::uint8_t {
  hello = 1, welcome = 2, reject = 3,
  write = 10, read = 11, read_data = 12, signal = 13, ack = 14, nack = 15,
  atomic = 16, atomic_result = 17,
  fence_request = 20, fence_answer = 21,
  ping = 30, pong = 31,
  exchange = 40, exchange_ack = 41, barrier = 42, bye = 43, group_join = 44, group_answer = 45,
  hccs_offer = 50, hccs_ready = 51, window_request = 52, window = 53,
  window_drop = 54,  ///< body: WindowRequest
  pcie_offer = 60, pcie_ready = 61, pcie_proof = 62,
  roce_offer = 70, roce_ready = 71, roce_ask = 72, roce_key = 73,
  roce_drop = 74, roce_dropped = 75,  ///< bodies: RoceDrop
  store_claim = 100, store_claimed = 101, store_lookup = 102, store_member = 103, store_leave = 104,
};

/// False for a number that is no type of this version.
[[nodiscard]] bool known(FrameType type) noexcept;

enum FrameFlags : std::uint16_t {
  k_flag_optional = 1,     ///< may be skipped by a receiver that does not know the type
  k_flag_payload_crc = 2,  ///< payload_crc is set and must match, and marks follow the body (payload_sum.hpp). On a
                           ///< read, which has no payload: the data shall come with them
};

struct FrameHeader {
  std::uint8_t version = k_version;
  FrameType type = FrameType::ping;
  std::uint16_t flags = 0;
  std::uint32_t body_bytes = 0;
  std::uint32_t payload_bytes = 0;
  SessionId session = 0;
  LinkId link_id = 0;
  std::uint8_t attempt = 0;
  LinkGen link_gen = 0;
  std::uint32_t chunk = 0;
  LinkSeq link_seq = 0;  ///< 0: not sequenced
  OpId op_id = 0;
  std::uint32_t body_crc = 0;  ///< CRC32C of the body, always
  std::uint32_t payload_crc = 0;
};

/// Offsets: 0 magic, 4 version, 5 type, 6 flags, 8 body, 12 payload, 16 session, 20 link_id, 22 attempt, 23 zero,
/// 24 link_gen, 28 chunk, 32 link_seq, 40 op_id, 48 body_crc, 52 payload_crc, 56 zero, 60 CRC32C of bytes 0 … 59.
void encode(const FrameHeader& header, std::span<std::byte, k_header_bytes> out) noexcept;

/// MALFORMED_FRAME: wrong magic, checksum, zero fields, unknown flags, a payload checksum without its flag, an unknown
/// type without k_flag_optional, or lengths over the limits (detail.length, detail.limit).
/// VERSION_MISMATCH: checked before anything that depends on the version (detail.length = found, limit = ours).
[[nodiscard]] Result<FrameHeader> decode_header(std::span<const std::byte, k_header_bytes> in) noexcept;

/// CRC32C (Castagnoli). `seed` is the checksum of the bytes before these: crc32c(b, crc32c(a)) == crc32c(a + b).
[[nodiscard]] std::uint32_t crc32c(ConstBytes bytes, std::uint32_t seed = 0) noexcept;

}  // namespace hixl::wire
