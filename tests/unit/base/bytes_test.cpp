// SPDX-License-Identifier: Apache-2.0
//
// Bounded reading and writing, the intrusive list, seeded random numbers.
#include <doctest/doctest.h>

#include <array>
#include <set>

#include "base/bytes.hpp"
#include "base/list.hpp"
#include "base/random.hpp"

using namespace hixl;

TEST_CASE("bytes: little-endian, and the first overrun sticks") {
  std::array<std::byte, 7> buffer{};
  ByteWriter out{Bytes(buffer)};
  out.put(std::uint32_t{0x04030201});
  out.put(std::uint16_t{0x0605});
  REQUIRE(out.ok());
  for (std::size_t i = 0; i < 6; ++i) CHECK(std::to_integer<std::size_t>(buffer[i]) == i + 1);
  out.put(std::uint16_t{0xffff});
  CHECK(!out.ok());
  CHECK(buffer[6] == std::byte{0});
  out.put(std::uint8_t{0xff});  // would fit, but a message with a hole is no message
  CHECK(!out.ok());
  CHECK(out.size() == 6);

  ByteReader in(out.written());
  CHECK(in.get<std::uint32_t>() == 0x04030201);
  CHECK(!in.complete());
  CHECK(in.get<std::uint16_t>() == 0x0605);
  CHECK(in.complete());
  CHECK(in.get<std::uint8_t>() == 0);
  CHECK(!in.ok());
}

TEST_CASE("bytes: strings have a length and a limit") {
  std::array<std::byte, 64> buffer{};
  ByteWriter out{Bytes(buffer)};
  out.put_string("twelve bytes");
  out.put_string("");
  REQUIRE(out.size() == 2 + 12 + 2);
  ByteReader in(out.written());
  CHECK(in.get_string(12) == "twelve bytes");
  CHECK(in.get_string(0).empty());
  CHECK(in.complete());
  ByteReader strict(out.written());
  CHECK(strict.get_string(11).empty());
  CHECK(!strict.ok());
  ByteReader cut(out.written().first(13));
  CHECK(cut.get_string(12).empty());
  CHECK(!cut.ok());
  ByteWriter full{Bytes(buffer)};
  full.put_string(std::string(65'536, 'x'));
  CHECK(!full.ok());
}

namespace {
struct ByTime;
struct ByName;
struct Item : ListNode<ByTime>, ListNode<ByName> {
  explicit Item(int n) : number(n) {}
  int number;
};
}  // namespace

TEST_CASE("list: order, membership in two lists, leaving on destruction") {
  List<Item, ByTime> times;
  List<Item, ByName> names;
  Item one(1), two(2), three(3);
  times.push_back(two);
  times.push_back(three);
  times.push_front(one);
  names.push_back(two);
  CHECK(times.front()->number == 1);
  CHECK(times.next(one) == &two);
  CHECK(times.next(three) == nullptr);
  {
    Item four(4);
    times.push_back(four);
    CHECK(times.next(three) == &four);
  }
  CHECK(times.next(three) == nullptr);
  static_cast<ListNode<ByTime>&>(two).unlink();
  CHECK(names.front() == &two);
  CHECK(times.pop_front() == &one);
  CHECK(times.pop_front() == &three);
  CHECK(times.pop_front() == nullptr);
  CHECK(times.empty());
}

TEST_CASE("random: the same for the same seed, inside its bounds") {
  Random first(1), again(1), other(2);
  const std::uint64_t value = first.next();
  CHECK(value == again.next());
  CHECK(value != other.next());
  CHECK(value == 0x910a2dec89025cc1U);  // SplitMix64 of seed 1
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t n = first.between(5, 8);
    CHECK(n >= 5);
    CHECK(n <= 8);
    seen.insert(n);
  }
  CHECK(seen.size() == 4);
  CHECK(!first.chance(0));
  CHECK(first.chance(1000));
}
