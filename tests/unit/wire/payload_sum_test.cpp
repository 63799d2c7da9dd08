// SPDX-License-Identifier: Apache-2.0
//
// The checksum of a payload and the marks in it.
#include <doctest/doctest.h>

#include <vector>

#include "base/random.hpp"
#include "wire/payload_sum.hpp"

using namespace hixl;
using namespace hixl::wire;

namespace {

std::vector<std::byte> random_bytes(Random& random, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

}  // namespace

TEST_CASE("payload sum: the whole and the marks are the standard checksums, however the bytes come") {
  Random random(7);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, k_mark_piece_bytes, k_mark_piece_bytes + 1,
                                 3 * k_mark_piece_bytes, std::size_t{k_payload_bytes_max}}) {
    CAPTURE(size);
    const auto bytes = random_bytes(random, size);
    PayloadSum sum;
    for (int round = 0; round < 2; ++round) {
      sum.clear();
      for (std::size_t at = 0; at < size;) {
        const std::size_t part = std::min(size - at, round == 0 ? size : 1 + random.below(100'000));
        sum.add(ConstBytes(bytes).subspan(at, part));
        at += part;
      }
      CHECK(sum.whole() == crc32c(ConstBytes(bytes)));
      const std::size_t marks = marks_of(k_flag_payload_crc, size);
      CHECK(marks <= k_marks_max);
      CHECK((marks + 1) * k_mark_piece_bytes >= size);
      for (std::size_t i = 0; i < marks; ++i) {
        REQUIRE(sum.marks()[i] == crc32c(ConstBytes(bytes).first((i + 1) * k_mark_piece_bytes)));
      }
      CHECK(!sum.first_wrong(std::span(sum.marks()).first(marks), sum.whole()));
    }
    CHECK(marks_of(0, size) == 0);
  }
}

TEST_CASE("payload sum: the first wrong piece is named, wherever bytes changed") {
  Random random(8);
  const std::size_t size = 3 * k_mark_piece_bytes + 100;
  auto bytes = random_bytes(random, size);
  PayloadSum sent;
  sent.add(ConstBytes(bytes));
  const auto wrong = [&] {
    PayloadSum got;
    got.add(ConstBytes(bytes));
    return got.first_wrong(std::span(sent.marks()).first(marks_of(k_flag_payload_crc, size)), sent.whole());
  };
  for (const std::size_t at : {std::size_t{0}, k_mark_piece_bytes - 1, k_mark_piece_bytes, 2 * k_mark_piece_bytes + 5,
                               3 * k_mark_piece_bytes, size - 1}) {
    CAPTURE(at);
    const std::size_t piece = at / k_mark_piece_bytes;
    bytes[at] ^= std::byte{0x10};
    bytes[size - 1] ^= std::byte{1};  // damage behind it changes nothing about the first
    const auto found = wrong();
    REQUIRE(found);
    CHECK(found->offset == piece * k_mark_piece_bytes);
    CHECK(found->bytes == (piece == 3 ? 100 : k_mark_piece_bytes));
    bytes[at] ^= std::byte{0x10};
    bytes[size - 1] ^= std::byte{1};
  }
  CHECK(!wrong());
}
