// SPDX-License-Identifier: Apache-2.0
//
// Two ranks over two RDMA devices: both carry, both ways, whatever names them; and two devices of different MTU.
#include "rails.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::uint64_t k_blocks = 48;  // 12 MB

/// Streams in both directions, each on every rail that is named.
void require_all_carry(Twins& twins, std::initializer_list<int> rails) {
  twins.require_rails(rails.size());
  for (std::size_t from = 0; from < 2; ++from) {
    std::vector<std::uint64_t> before;
    for (const int rail : rails) before.push_back(packets(rail));
    const std::uint64_t bytes = twins.bytes_out(from, "roce");
    twins.begin_stream(k_blocks, from);
    twins.require_stream_whole();
    CHECK(twins.bytes_out(from, "roce") - bytes >= k_blocks * k_block);
    CHECK(twins.bytes_out(from, "tcp") == 0);
    for (std::size_t i = 0; i < rails.size(); ++i) {
      // A tenth of the stream at least, in packets of 4 096 bytes at most.
      CHECK(packets(rails.begin()[i]) - before[i] > k_blocks * k_block / 4096 / 10);
    }
  }
}

}  // namespace

TEST_CASE("F15 two ranks over two devices: both rails carry, both ways, and nothing else does") {
  for (const std::string links : {"roce", "roce,tcp"}) {
    CAPTURE(links);
    Twins twins({.links = links});
    require_all_carry(twins, {0, 1});
    twins.require_traffic();
  }
}

TEST_CASE("devices may be named by their address, of IPv4 and of IPv6, and then no other is used") {
  for (const std::string device : {"10.77.1.1", "[fd77:1::1]", "rxe1", "rxe1:1"}) {
    CAPTURE(device);
    Twins twins({.environment = {"HIXL_RDMA_DEVICES=" + device}});
    const std::uint64_t before = packets(0);
    require_all_carry(twins, {1});
    CHECK(packets(0) == before);
  }
}

TEST_CASE("S60 two devices of different MTU: each rail keeps to its own") {
  devices("mtu 1 1500");
  Twins twins;
  require_all_carry(twins, {0, 1});
}

TEST_CASE("an MTU that changes under a stream costs nothing") {
  Twins twins;
  twins.require_rails(2);
  twins.begin_stream(200);
  await_packets(1, 200);
  devices("mtu 1 1500");
  await_packets(0, 200);
  devices("mtu 1 4200");
  twins.require_stream_whole();
  twins.require_rails(2);
  require_all_carry(twins, {0, 1});
}
