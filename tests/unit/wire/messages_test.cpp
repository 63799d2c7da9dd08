// SPDX-License-Identifier: Apache-2.0
//
// What every message promises: it comes back as it was, any shorter or longer or damaged form is refused or is a
// message of its own, and nothing refused is left behind.
#include <doctest/doctest.h>

#include <tuple>
#include <vector>

#include "sample_messages.hpp"

using namespace hixl;
using namespace hixl::wire;

namespace {

constexpr std::uint64_t k_seed = 20240611;

#define HIXL_LIST(Message) , Message
template <class First, class... Rest>
using Skip = std::tuple<Rest...>;
// The list macros put a comma before each name, so the first entry is a dummy.
using PeerMessages = Skip<void HIXL_WIRE_MESSAGES(HIXL_LIST)>;
using PcieMessages = Skip<void HIXL_WIRE_PCIE_MESSAGES(HIXL_LIST)>;
using RoceMessages = Skip<void HIXL_WIRE_ROCE_MESSAGES(HIXL_LIST)>;
using StoreMessages = Skip<void HIXL_STORE_MESSAGES(HIXL_LIST)>;
#undef HIXL_LIST

template <class Message>
void check_round_trips(Random& random) {
  for (int i = 0; i < 100; ++i) {
    Message in;
    fill(random, in);
    Message out;
    fill(random, out);  // Decoding overwrites whatever was there.
    const auto bytes = encoded(in);
    REQUIRE(!bytes.empty());
    REQUIRE(decode_body(ConstBytes(bytes), out));
    REQUIRE(same(in, out));
  }
}

template <class Message>
void check_truncations(Random& random) {
  const auto nothing = Message{};
  for (int i = 0; i < 3; ++i) {
    Message in;
    fill(random, in);
    auto bytes = encoded(in);
    // A body of its own for each length, so that the address sanitizer sees any read past the end.
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
      Message out;
      fill(random, out);
      ByteReader reader{ConstBytes(cut)};
      REQUIRE(!decode(reader, out));
      REQUIRE(same(out, nothing));
    }
    bytes.push_back(std::byte{0});
    Message out;
    REQUIRE(!decode_body(ConstBytes(bytes), out));
    REQUIRE(same(out, nothing));
  }
}

/// Whatever decodes must mean exactly the bytes that it was decoded from.
template <class Message>
void check_bytes(ConstBytes bytes) {
  Message out;
  if (!decode_body(bytes, out)) return;
  const auto again = encoded(out);
  REQUIRE(std::equal(bytes.begin(), bytes.end(), again.begin(), again.end()));
}

template <class Message>
void check_damage(Random& random) {
  for (int i = 0; i < 300; ++i) {
    Message in;
    fill(random, in);
    auto bytes = encoded(in);
    for (int flips = from_1<int>(random, 4); flips > 0; --flips) {
      bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1U << random.below(8));
    }
    check_bytes<Message>(ConstBytes(bytes));
  }
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::byte> bytes(random.below(300));
    const bool sparse = random.chance(500);  // Small numbers come past more checks.
    for (std::byte& byte : bytes) byte = sparse && random.chance(800) ? std::byte{0} : any<std::byte>(random);
    check_bytes<Message>(ConstBytes(bytes));
  }
}

template <class... Messages>
void check_all(std::tuple<Messages...>) {
  INFO("seed ", k_seed);
  Random random(k_seed);
  (check_round_trips<Messages>(random), ...);
  (check_truncations<Messages>(random), ...);
  (check_damage<Messages>(random), ...);
}

template <class... Messages>
std::uint32_t fingerprint(std::tuple<Messages...>) {
  Random random(1);
  std::uint32_t crc = 0;
  const auto add = [&](auto message) {
    fill(random, message);
    crc = crc32c(ConstBytes(encoded(message)), crc);
  };
  (add(Messages{}), ...);
  return crc;
}

}  // namespace

TEST_CASE("messages between peers: round trips, truncations, damage") { check_all(PeerMessages{}); }

TEST_CASE("messages of the cross-memory link: round trips, truncations, damage") { check_all(PcieMessages{}); }

TEST_CASE("messages of the RDMA link: round trips, truncations, damage") { check_all(RoceMessages{}); }

TEST_CASE("messages of the store: round trips, truncations, damage") { check_all(StoreMessages{}); }

TEST_CASE("the bytes of protocol version 1 do not change") {
  // Seeded messages of every type, as bytes. A difference breaks running clusters: raise k_version with it.
  CHECK(fingerprint(PeerMessages{}) == 3236437738U);
  CHECK(fingerprint(PcieMessages{}) == 1508164146U);
  CHECK(fingerprint(RoceMessages{}) == 2454020443U);
  CHECK(fingerprint(StoreMessages{}) == 1103187204U);
}

TEST_CASE("encoding into too little room is reported and writes nothing beyond") {
  Random random(k_seed);
  Hello hello;
  fill(random, hello);
  const auto whole = encoded(hello);
  std::vector<std::byte> buffer(whole.size() - 1);
  ByteWriter writer{Bytes(buffer)};
  encode(hello, writer);
  CHECK(!writer.ok());
}
