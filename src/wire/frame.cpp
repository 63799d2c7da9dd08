// SPDX-License-Identifier: Apache-2.0
#include "wire/frame.hpp"

#include "base/assert.hpp"

namespace hixl::wire {
namespace {

constexpr std::size_t k_checksum_offset = 60;
constexpr std::uint16_t k_flags_known = k_flag_optional | k_flag_payload_crc;

tl::unexpected<Error> malformed(std::uint64_t found = 0, std::uint64_t limit = 0) {
  return fail(ErrorCode::malformed_frame, {.length = found, .limit = limit});
}

}  // namespace

bool known(FrameType type) noexcept {
  switch (type) {
    case FrameType::hello:
    case FrameType::welcome:
    case FrameType::reject:
    case FrameType::write:
    case FrameType::read:
    case FrameType::read_data:
    case FrameType::signal:
    case FrameType::ack:
    case FrameType::nack:
    case FrameType::atomic:
    case FrameType::atomic_result:
    case FrameType::fence_request:
    case FrameType::fence_answer:
    case FrameType::ping:
    case FrameType::pong:
    case FrameType::exchange:
    case FrameType::exchange_ack:
    case FrameType::barrier:
    case FrameType::bye:
    case FrameType::group_join:
    case FrameType::group_answer:
    case FrameType::hccs_offer:
    case FrameType::hccs_ready:
    case FrameType::window_request:
    case FrameType::window:
    case FrameType::window_drop:
    case FrameType::pcie_offer:
    case FrameType::pcie_ready:
    case FrameType::pcie_proof:
    case FrameType::roce_offer:
    case FrameType::roce_ready:
    case FrameType::roce_ask:
    case FrameType::roce_key:
    case FrameType::roce_drop:
    case FrameType::roce_dropped:
    case FrameType::store_claim:
    case FrameType::store_claimed:
    case FrameType::store_lookup:
    case FrameType::store_member:
    case FrameType::store_leave:
      return true;
  }
  return false;
}

void encode(const FrameHeader& header, std::span<std::byte, k_header_bytes> out) noexcept {
  ByteWriter writer(out);
  writer.put(k_magic);
  writer.put(header.version);
  writer.put(header.type);
  writer.put(header.flags);
  writer.put(header.body_bytes);
  writer.put(header.payload_bytes);
  writer.put(header.session);
  writer.put(header.link_id);
  writer.put(header.attempt);
  writer.put(std::uint8_t{0});
  writer.put(header.link_gen);
  writer.put(header.chunk);
  writer.put(header.link_seq);
  writer.put(header.op_id);
  writer.put(header.body_crc);
  writer.put(header.payload_crc);
  writer.put(std::uint32_t{0});
  HIXL_ASSERT(writer.size() == k_checksum_offset);
  writer.put(crc32c(out.first<k_checksum_offset>()));
  HIXL_ASSERT(writer.ok() && writer.size() == k_header_bytes);
}

Result<FrameHeader> decode_header(std::span<const std::byte, k_header_bytes> in) noexcept {
  ByteReader reader(in);
  if (reader.get<std::uint32_t>() != k_magic) return malformed();
  FrameHeader header;
  header.version = reader.get<std::uint8_t>();
  // Before the checksum: another version may keep its checksum elsewhere, and its user should hear "version".
  if (header.version != k_version) {
    return fail(ErrorCode::version_mismatch, {.length = header.version, .limit = k_version});
  }
  ByteReader checksum(in.subspan<k_checksum_offset>());
  if (checksum.get<std::uint32_t>() != crc32c(in.first<k_checksum_offset>())) return malformed();

  header.type = static_cast<FrameType>(reader.get<std::uint8_t>());
  header.flags = reader.get<std::uint16_t>();
  header.body_bytes = reader.get<std::uint32_t>();
  header.payload_bytes = reader.get<std::uint32_t>();
  header.session = reader.get<std::uint32_t>();
  header.link_id = reader.get<std::uint16_t>();
  header.attempt = reader.get<std::uint8_t>();
  const auto zero_8 = reader.get<std::uint8_t>();
  header.link_gen = reader.get<std::uint32_t>();
  header.chunk = reader.get<std::uint32_t>();
  header.link_seq = reader.get<std::uint64_t>();
  header.op_id = reader.get<std::uint64_t>();
  header.body_crc = reader.get<std::uint32_t>();
  header.payload_crc = reader.get<std::uint32_t>();
  const auto zero_32 = reader.get<std::uint32_t>();

  if (zero_8 != 0 || zero_32 != 0) return malformed();
  if ((header.flags & ~k_flags_known) != 0) return malformed();
  if ((header.flags & k_flag_payload_crc) == 0 && header.payload_crc != 0) return malformed();
  if (!known(header.type) && (header.flags & k_flag_optional) == 0) return malformed();
  if (header.body_bytes > k_body_bytes_max) return malformed(header.body_bytes, k_body_bytes_max);
  if (header.payload_bytes > k_payload_bytes_max) return malformed(header.payload_bytes, k_payload_bytes_max);
  return header;
}

}  // namespace hixl::wire
