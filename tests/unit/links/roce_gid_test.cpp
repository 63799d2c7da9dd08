// SPDX-License-Identifier: Apache-2.0
//
// Which addresses of a port are used, which pair two hosts agree on, and how rails are named.
#include <arpa/inet.h>

#include <doctest/doctest.h>

#include "links/roce/gid_choice.hpp"

using namespace hixl;
using namespace hixl::links::roce;

namespace {

Gid gid(const char* text, std::uint32_t index, std::uint32_t prefix_bits = 0, bool v2 = true) {
  Gid made{.index = index, .v2 = v2, .prefix_bits = prefix_bits};
  const std::string as_v6 = std::string(text).find(':') == std::string::npos ? std::string("::ffff:") + text : text;
  REQUIRE(inet_pton(AF_INET6, as_v6.c_str(), made.value.raw) == 1);
  return made;
}
wire::RoceGid theirs(const char* text) { return wire_gid(gid(text, 0).value); }

}  // namespace

TEST_CASE("only addresses of RoCE v2 are used, the routable ones first") {
  const std::vector<Gid> all{gid("fe80::1", 0), gid("10.0.0.1", 1, 0, false), gid("fd00::1", 2), gid("10.0.0.1", 3),
                             gid("::", 4),      gid("10.0.0.2", 256)};
  const auto used = usable_gids(all);
  REQUIRE(used.size() == 3);
  CHECK(used[0].index == 3);
  CHECK(used[1].index == 2);
  CHECK(used[2].index == 0);
  CHECK(text_of(used[0].value) == "10.0.0.1");
  CHECK(text_of(used[1].value) == "fd00::1");
  const std::vector<Gid> many(40, gid("10.0.0.1", 3));
  CHECK(usable_gids(many).size() == wire::k_roce_gids_max);
}

TEST_CASE("an address travels as it stands") {
  const Gid one = gid("fd00::1:2", 0);
  const ibv_gid back = verbs_gid(wire_gid(one.value));
  CHECK(std::equal(std::begin(back.raw), std::end(back.raw), std::begin(one.value.raw)));
}

TEST_CASE("nearness goes by the network's own mask, and never across families") {
  CHECK(nearness(gid("10.0.0.1", 0, 96 + 24), theirs("10.0.0.9")) == Nearness::subnet);
  CHECK(nearness(gid("10.0.0.1", 0, 96 + 24), theirs("10.0.1.9")) == Nearness::family);
  CHECK(nearness(gid("10.0.0.1", 0, 96 + 16), theirs("10.0.1.9")) == Nearness::subnet);
  CHECK(nearness(gid("10.0.0.1", 0), theirs("10.0.1.9")) == Nearness::family);  // unknown: 24 bits are usual
  CHECK(nearness(gid("10.0.0.1", 0), theirs("10.0.0.1")) == Nearness::same);
  CHECK(nearness(gid("fd00::1", 0), theirs("fd00::2")) == Nearness::subnet);
  CHECK(nearness(gid("fd00::1", 0), theirs("fd01::2")) == Nearness::family);
  CHECK(nearness(gid("fd00::1", 0), theirs("10.0.0.1")) == Nearness::none);
  CHECK(nearness(gid("fd00::1", 0), theirs("fe80::1")) == Nearness::none);
}

TEST_CASE("two hosts agree on the nearest pair, and take link-local addresses only when there is nothing else") {
  const std::vector<Gid> ours{gid("10.0.0.1", 1, 96 + 24), gid("fd00::1", 2, 64), gid("fe80::1", 0, 64)};
  const std::vector<wire::RoceGid> both{theirs("10.0.9.1"), theirs("fd00::2"), theirs("fe80::2")};
  const auto pair = choose_pair(ours, both);
  REQUIRE(pair);
  CHECK(pair->ours.index == 2);
  CHECK(pair->theirs == 1);
  const std::vector<wire::RoceGid> far{theirs("10.0.9.1"), theirs("fe80::2")};
  const auto routed = choose_pair(ours, far);
  REQUIRE(routed);
  CHECK(routed->ours.index == 1);
  CHECK(routed->theirs == 0);
  const std::vector<wire::RoceGid> local{theirs("fe80::2")};
  REQUIRE(choose_pair(ours, local));
  CHECK(choose_pair(ours, local)->ours.index == 0);
  const std::vector<Gid> v4{gid("10.0.0.1", 1)};
  const std::vector<wire::RoceGid> v6{theirs("fd00::2"), theirs("fe80::2")};
  CHECK(!choose_pair(v4, v6));
}

TEST_CASE("rails are named by device, port or address, and nothing else") {
  const auto rails = parse_rails("mlx5_0,mlx5_1:2,10.0.0.1,[fd00::1]");
  REQUIRE(rails);
  REQUIRE(rails->size() == 4);
  CHECK((*rails)[0].device == "mlx5_0");
  CHECK((*rails)[0].port == 0);
  CHECK((*rails)[1].device == "mlx5_1");
  CHECK((*rails)[1].port == 2);
  REQUIRE((*rails)[2].address);
  CHECK(text_of(*(*rails)[2].address) == "10.0.0.1");
  REQUIRE((*rails)[3].address);
  CHECK(text_of(*(*rails)[3].address) == "fd00::1");
  REQUIRE(parse_rails(""));
  CHECK(parse_rails("")->empty());
  for (const char* bad : {",", "a,", "a,,b", "mlx5_0:", "mlx5_0:0", "mlx5_0:256", "mlx5_0:1x", "ml x", "[fd00::1",
                          "fd00::1", "../x", "[10.0.0.1]"}) {
    CAPTURE(bad);
    const auto refused = parse_rails(bad);
    REQUIRE(!refused);
    CHECK(refused.error().code == ErrorCode::invalid_argument);
  }
  CHECK(parse_rails("a,b,c,d,e,f,g,h,i").error().code == ErrorCode::limit_reached);
}
