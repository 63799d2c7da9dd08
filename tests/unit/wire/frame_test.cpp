// SPDX-License-Identifier: Apache-2.0
//
// The frame header and its checksum.
#include <doctest/doctest.h>

#include <string_view>
#include <vector>

#include "sample_messages.hpp"

using namespace hixl;
using namespace hixl::wire;

namespace {

using HeaderBytes = std::array<std::byte, k_header_bytes>;

FrameHeader any_header(Random& r) {
  static constexpr std::array types{FrameType::hello, FrameType::write, FrameType::window_drop, FrameType::store_leave};
  FrameHeader header;
  header.type = types[r.below(types.size())];
  header.flags = up_to<std::uint16_t>(r, 3);
  header.body_bytes = up_to<std::uint32_t>(r, k_body_bytes_max);
  header.payload_bytes = up_to<std::uint32_t>(r, k_payload_bytes_max);
  header.session = any<SessionId>(r);
  header.link_id = any<LinkId>(r);
  header.attempt = any<std::uint8_t>(r);
  header.link_gen = any<LinkGen>(r);
  header.chunk = any<std::uint32_t>(r);
  header.link_seq = r.next();
  header.op_id = r.next();
  header.body_crc = any<std::uint32_t>(r);
  header.payload_crc = (header.flags & k_flag_payload_crc) != 0 ? any<std::uint32_t>(r) : 0;
  return header;
}

HeaderBytes encoded_header(const FrameHeader& header) {
  HeaderBytes bytes;
  encode(header, bytes);
  return bytes;
}

auto tied(const FrameHeader& h) {
  return std::tie(h.version, h.type, h.flags, h.body_bytes, h.payload_bytes, h.session, h.link_id, h.attempt,
                  h.link_gen, h.chunk, h.link_seq, h.op_id, h.body_crc, h.payload_crc);
}

void put_at(HeaderBytes& bytes, std::size_t offset, std::uint8_t value) {
  bytes[offset] = static_cast<std::byte>(value);
  ByteWriter(Bytes(bytes).subspan(60)).put(crc32c(ConstBytes(bytes).first(60)));
}

ErrorCode code_of(const HeaderBytes& bytes) {
  const auto header = decode_header(bytes);
  return header ? ErrorCode::ok : header.error().code;
}

ConstBytes as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

}  // namespace

TEST_CASE("CRC32C is the standard one, in one piece or several") {
  CHECK(crc32c(as_bytes("123456789")) == 0xe3069283U);
  CHECK(crc32c({}) == 0);
  const std::vector<std::byte> zeros(32);  // RFC 3720, B.4
  CHECK(crc32c(ConstBytes(zeros)) == 0x8a9136aaU);
  for (std::size_t cut = 0; cut <= 9; ++cut) {
    const std::string_view text = "123456789";
    CHECK(crc32c(as_bytes(text.substr(cut)), crc32c(as_bytes(text.substr(0, cut)))) == 0xe3069283U);
  }
}

TEST_CASE("header: fields lie where the format says") {
  FrameHeader header;
  header.type = FrameType::write;
  header.flags = k_flag_payload_crc;
  header.body_bytes = 0x0807;
  header.payload_bytes = 0x0c0b;
  header.session = 0x11121314;
  header.link_id = 0x2122;
  header.attempt = 0x31;
  header.link_gen = 0x41424344;
  header.chunk = 0x51525354;
  header.link_seq = 0x6162636465666768;
  header.op_id = 0x7172737475767778;
  header.body_crc = 0x81828384;
  header.payload_crc = 0x91929394;
  const HeaderBytes bytes = encoded_header(header);
  const auto at = [&](std::size_t offset) { return std::to_integer<unsigned>(bytes[offset]); };
  CHECK(as_bytes("HIXL")[0] == bytes[0]);
  CHECK(as_bytes("HIXL")[3] == bytes[3]);
  CHECK(at(4) == k_version);
  CHECK(at(5) == 10);
  CHECK(at(6) == 2);
  CHECK(at(8) == 0x07);
  CHECK(at(12) == 0x0b);
  CHECK(at(16) == 0x14);
  CHECK(at(20) == 0x22);
  CHECK(at(22) == 0x31);
  CHECK(at(23) == 0);
  CHECK(at(24) == 0x44);
  CHECK(at(28) == 0x54);
  CHECK(at(32) == 0x68);
  CHECK(at(40) == 0x78);
  CHECK(at(48) == 0x84);
  CHECK(at(52) == 0x94);
  CHECK(at(56) == 0);
}

TEST_CASE("header: round trips, and every flipped bit is an error") {
  constexpr std::uint64_t k_seed = 4711;
  INFO("seed ", k_seed);
  Random random(k_seed);
  for (int i = 0; i < 200; ++i) {
    const FrameHeader in = any_header(random);
    HeaderBytes bytes = encoded_header(in);
    const auto out = decode_header(bytes);
    REQUIRE(out.has_value());
    REQUIRE(tied(in) == tied(*out));
    for (std::size_t bit = 0; bit < 8 * k_header_bytes; ++bit) {
      const auto mask = static_cast<std::byte>(1U << (bit % 8));
      bytes[bit / 8] ^= mask;
      REQUIRE(!decode_header(bytes).has_value());
      bytes[bit / 8] ^= mask;
    }
  }
}

TEST_CASE("header: any bytes give an error or a header that means exactly these bytes") {
  constexpr std::uint64_t k_seed = 815;
  INFO("seed ", k_seed);
  Random random(k_seed);
  int decoded = 0;
  for (int i = 0; i < 20'000; ++i) {
    HeaderBytes bytes = encoded_header(any_header(random));
    // Damage with a right checksum reaches the checks behind it.
    for (int n = from_1<int>(random, 3); n > 0; --n) put_at(bytes, random.below(60), any<std::uint8_t>(random));
    const auto header = decode_header(bytes);
    if (!header) continue;
    ++decoded;
    REQUIRE(encoded_header(*header) == bytes);
  }
  CHECK(decoded > 1000);
}

TEST_CASE("header: what is refused, and how") {
  const FrameHeader plain;
  HeaderBytes bytes = encoded_header(plain);
  CHECK(code_of(bytes) == ErrorCode::ok);

  put_at(bytes, 0, 'h');
  CHECK(code_of(bytes) == ErrorCode::malformed_frame);

  // Another version is named even when its checksum lies elsewhere.
  bytes = encoded_header(plain);
  bytes[4] = std::byte{2};
  const auto version = decode_header(bytes);
  REQUIRE(!version);
  CHECK(version.error().code == ErrorCode::version_mismatch);
  CHECK(version.error().detail.length == 2);
  CHECK(version.error().detail.limit == k_version);

  for (const std::size_t zero : {23, 56, 57, 58, 59}) {
    bytes = encoded_header(plain);
    put_at(bytes, zero, 1);
    CHECK(code_of(bytes) == ErrorCode::malformed_frame);
  }
  bytes = encoded_header(plain);
  put_at(bytes, 6, 4);  // a flag that this version does not know
  CHECK(code_of(bytes) == ErrorCode::malformed_frame);
  bytes = encoded_header(plain);
  put_at(bytes, 52, 1);  // a payload checksum without its flag
  CHECK(code_of(bytes) == ErrorCode::malformed_frame);
}

TEST_CASE("header: limits are exact and named") {
  FrameHeader header;
  header.body_bytes = k_body_bytes_max;
  header.payload_bytes = k_payload_bytes_max;
  CHECK(decode_header(encoded_header(header)).has_value());
  header.body_bytes = k_body_bytes_max + 1;
  const auto body = decode_header(encoded_header(header));
  REQUIRE(!body);
  CHECK(body.error().code == ErrorCode::malformed_frame);
  CHECK(body.error().detail.length == k_body_bytes_max + 1);
  CHECK(body.error().detail.limit == k_body_bytes_max);
  header.body_bytes = 0;
  header.payload_bytes = k_payload_bytes_max + 1;
  const auto payload = decode_header(encoded_header(header));
  REQUIRE(!payload);
  CHECK(payload.error().detail.limit == k_payload_bytes_max);
}

TEST_CASE("header: unknown types pass only when they may be skipped") {
  int types = 0;
  for (int number = 0; number < 256; ++number) {
    FrameHeader header;
    header.type = static_cast<FrameType>(number);
    types += known(header.type) ? 1 : 0;
    CHECK(decode_header(encoded_header(header)).has_value() == known(header.type));
    header.flags = k_flag_optional;
    CHECK(decode_header(encoded_header(header)).has_value());
  }
  CHECK(types == 40);
}
