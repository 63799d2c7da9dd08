// SPDX-License-Identifier: Apache-2.0
//
// The directory as bytes: what was written is read, and whatever else a peer shows is refused and never believed.
#include <random>

#include <doctest/doctest.h>

#include "byte_plan.hpp"
#include "directory.hpp"

using namespace hixl;
using namespace hixl::kv;

namespace {

CacheRecord record() {
  CacheRecord made;
  made.version = 42;
  made.desc = {.key = {.model = 7, .name = 9},
               .layout = {.form = Form::separate, .layers = 20, .kv_heads = 2, .head_dim = 64, .block_tokens = 16},
               .blocks = 100,
               .shard = {.layers_first = 20, .layers_total = 80, .heads_first = 4, .heads_total = 8}};
  made.tensors_sum = 0x1234'5678'9abc'def0;
  return made;
}

}  // namespace

TEST_CASE("what is encoded is decoded") {
  const DirectoryCounts counts{.ranks = 12, .caches = 3, .tensors = 160, .links = 5, .leases = 7, .arrivals = 2};
  CHECK(decode_counts(encode(counts)) == counts);
  CacheRecord seen;
  REQUIRE(decode(encode(record()), seen) == Decoded::valid);
  CHECK(seen.version == 42);
  CHECK(seen.desc.key == record().desc.key);
  CHECK(seen.desc.layout == record().desc.layout);
  CHECK(seen.desc.shard == record().desc.shard);
  CHECK(seen.desc.blocks == 100);
  CHECK(seen.tensors_sum == record().tensors_sum);
  CHECK(decode(Bytes(k_record_bytes), seen) == Decoded::empty);
  const std::vector<TensorAddress> tensors{{.address = 1, .region = {.id = 2, .generation = 3}},
                                           {.address = ~std::uint64_t{0}, .region = {.id = 4, .generation = 5}}};
  CHECK(decode_tensors(encode(tensors)) == tensors);
  for (const LinkSays says : {LinkSays::nothing, LinkSays::linked, LinkSays::unlinked}) {
    const LinkWord word = unpack_link_word(pack({.says = says, .link = 4'095, .life = 0xabcd'1234'5678}));
    CHECK(word.says == says);
    CHECK(word.link == 4'095);
    CHECK(word.life == 0xabcd'1234'5678);
  }
  CHECK(unpack_link_word(~std::uint64_t{0}).says == LinkSays::nothing);
}

TEST_CASE("every changed bit shows") {
  const Bytes good = encode(record());
  const Bytes header = encode(DirectoryCounts{1, 1, 1, 1, 1, 1});
  for (std::size_t bit = 0; bit < k_record_bytes * 8; ++bit) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    CacheRecord seen;
    CHECK(decode(bad, seen) == Decoded::torn);
  }
  for (std::size_t bit = 0; bit < std::size_t{40} * 8; ++bit) {
    Bytes bad = header;
    bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    CHECK_FALSE(decode_counts(bad));
  }
}

TEST_CASE("a checksum that fits does not make numbers true: counts and layouts are judged besides") {
  CHECK_FALSE(decode_counts(encode(DirectoryCounts{0, 1, 1, 1, 1, 1})));
  CHECK_FALSE(decode_counts(encode(DirectoryCounts{1, 4'097, 1, 1, 1, 1})));
  CHECK_FALSE(decode_counts(encode(DirectoryCounts{1, 1, 0xffffffff, 1, 1, 1})));
  CHECK_FALSE(decode_counts(encode(DirectoryCounts{1, 1, 1, 1, 1, 0xffffffff})));
  CacheRecord seen;
  for (const int what : {0, 1, 2, 3}) {
    CacheRecord lie = record();
    if (what == 0) lie.desc.blocks = 0;
    if (what == 1) lie.desc.shard.heads_first = 7;
    if (what == 2) lie.desc.shard.layers_first = 61;
    if (what == 3) lie.desc.layout.form = Form::latent;
    CAPTURE(what);
    CHECK(decode(encode(lie), seen) == Decoded::torn);
  }
}

TEST_CASE("any bytes at all: an answer, and no more than they are read") {
  std::mt19937_64 random(20'260'801);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes(random() % 100);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    CacheRecord seen;
    const Decoded decoded = decode(bytes, seen);
    if (decoded == Decoded::valid) CHECK(validate(seen.desc));
    static_cast<void>(decode_counts(bytes));
    CHECK(decode_tensors(std::span(bytes).first(bytes.size() / k_tensor_bytes * k_tensor_bytes)).size() ==
          bytes.size() / k_tensor_bytes);
  }
}

TEST_CASE("parts of a directory do not overlap, and words are aligned") {
  for (const DirectoryCounts& counts : {DirectoryCounts{1, 1, 1, 1, 1, 0}, DirectoryCounts{12, 32, 512, 64, 256, 64},
                                        DirectoryCounts{65'536, 3, 7, 5, 9, 1}}) {
    const Directory at(counts);
    CHECK(at.link_word(0) >= at.bell() + 8);
    CHECK(at.records() >= at.link_word(counts.ranks - 1) + 8);
    CHECK(at.tensors(0) >= at.record(counts.caches - 1) + k_record_bytes);
    CHECK(at.gate(0, 0) >= at.tensors(counts.caches - 1) + counts.tensors * k_tensor_bytes);
    CHECK(at.release(0, 0) >= at.gate(counts.links - 1, at.gates_a_link() - 1) + 8);
    CHECK(at.arrival(0, 0) >= at.release(counts.links - 1, counts.leases - 1) + 8);
    CHECK(at.scratch() >= at.arrival(counts.arrivals, 0));
    CHECK(at.bytes() == at.scratch() + k_record_bytes + counts.tensors * k_tensor_bytes);
    for (const std::uint64_t word : {at.bell(), at.link_word(0), at.gate(0, 0), at.release(0, 0), at.arrival(0, 0)}) {
      CHECK(word % 8 == 0);
    }
  }
}
