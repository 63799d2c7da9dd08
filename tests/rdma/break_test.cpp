// SPDX-License-Identifier: Apache-2.0
//
// One of two RDMA devices, or both, fail in the middle of a stream: ports go down, addresses change, devices are
// removed. Every block comes whole and in order, nothing fails, and what came back takes its share again.
#include "rails.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

/// Some 50 MB: seconds under emulation, more than any command of `devices` takes.
constexpr std::uint64_t k_blocks = 200;

/// In the middle of a stream that both rails carry, `strike` happens, and the stream still goes on by then.
template <class Strike>
void strike_in_the_middle(Twins& twins, Strike&& strike) {
  twins.require_rails(2);
  twins.begin_stream(k_blocks);
  await_packets(0, 200);
  await_packets(1, 200);
  strike();
}

/// What a rail that came back carries is little at first: streams until it takes a quarter of one.
void require_share(Twins& twins, int rail) {
  twins.require_rails(2);
  bool shares = false;
  for (int i = 0; i < 10 && !shares; ++i) {
    const std::uint64_t before = packets(rail);
    twins.begin_stream(k_blocks / 4);
    twins.require_stream_whole();
    shares = packets(rail) - before > k_blocks / 4 * k_block / 4096 / 4;
  }
  CHECK(shares);
}

std::uint64_t failures(Twins& twins) {
  std::uint64_t sum = 0;
  for (const Row& row : twins.table(0, "roce")) sum += row.failures;
  return sum;
}

}  // namespace

TEST_CASE("P38 a port goes down in the middle of a stream, and takes its share again when it is up") {
  Twins twins;
  strike_in_the_middle(twins, [] { devices("down 1"); });
  await_packets(0, 200);  // it was the middle: the other one goes on
  twins.require_stream_whole();
  twins.require_rails(1);
  CHECK(failures(twins) > 0);
  devices("up 1");
  require_share(twins, 1);
}

TEST_CASE("P37 a port flaps under a stream: no block is lost") {
  Twins twins;
  strike_in_the_middle(twins, [] {
    for (int i = 0; i < 3; ++i) devices("down 1; $HIXL_TEST_DEVICES up 1");
  });
  twins.require_stream_whole();
  twins.require_rails(2);
}

TEST_CASE("both ports go down in the middle: tcp goes on, and gives back") {
  Twins twins({.links = "roce,tcp"});
  strike_in_the_middle(twins, [] {
    devices("down 0");
    devices("down 1");
  });
  twins.require_stream_whole();
  CHECK(twins.bytes_out(0, "tcp") > 0);
  devices("up 0");
  devices("up 1");
  require_share(twins, 0);
}

TEST_CASE("H9 both ports go down in the middle and there is no tcp: it goes on when they are up") {
  Twins twins;
  strike_in_the_middle(twins, [] {
    devices("down 0; $HIXL_TEST_DEVICES down 1");
    devices("up 0; $HIXL_TEST_DEVICES up 1");
  });
  twins.require_stream_whole();
  twins.require_rails(2);
}

TEST_CASE("a device is unplugged in the middle of a stream") {
  Twins twins;
  strike_in_the_middle(twins, [] { devices("unplug 1"); });
  await_packets(0, 200);
  twins.require_stream_whole();
  twins.require_rails(1);
}

TEST_CASE("a device is removed in the middle of a stream: both ranks let go of it, for which the command waits") {
  Twins twins;
  strike_in_the_middle(twins, [] { devices("remove 1"); });
  twins.require_stream_whole();
  twins.require_rails(1);
}

TEST_CASE("S54 the address behind a GID goes and comes again in the middle of a stream") {
  Twins twins;
  strike_in_the_middle(twins, [] {
    devices("forget 1");
    await_packets(0, 200);
    devices("address 1 10.77.1.9/24");
  });
  twins.require_stream_whole();
  require_share(twins, 1);
}
