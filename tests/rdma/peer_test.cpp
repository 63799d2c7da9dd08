// SPDX-License-Identifier: Apache-2.0
//
// A peer over RDMA is killed, or stands still. Its card goes on answering while it stands still.
#include <sstream>
#include <utility>

#include "rails.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

/// Everything that a card counts when a receiver was not ready.
std::uint64_t not_ready() {
  std::uint64_t sum = 0;
  for (int rail = 0; rail < 2; ++rail) {
    for (const char* what : {"rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err"}) sum += counted(rail, what);
  }
  return sum;
}

/// The values that "count" answered; empty when it failed.
std::vector<std::uint64_t> values_of(const std::string& answer) {
  std::istringstream words(answer);
  std::string first;
  words >> first;
  std::vector<std::uint64_t> values;
  if (first != "ok") return values;
  for (std::uint64_t value = 0; words >> value;) values.push_back(value);
  return values;
}

}  // namespace

TEST_CASE("S13 a peer is killed in the middle of a put: it ends with PEER_LOST, and the next life works") {
  Twins twins({.lease_ms = 5'000, .bytes = 64U << 20U});
  twins.require_rails(2);
  twins[0].tell("put 1 64 50331648 7");
  await_packets(0, 200);
  await_packets(1, 200);
  twins[1].kill();
  const std::string end = twins[0].hear();
  CHECK_MESSAGE(end == "PEER_LOST", end);
  CHECK(twins[0].ask("lost") == "1");
  twins.restart();
  twins.require_rails(2);
  twins.require_traffic();
}

TEST_CASE("S45 peers that come and go leave nothing behind in the cards") {
  Twins twins;
  twins.require_rails(2);
  const auto queue_pairs = [] {
    Child list("/bin/bash", {"-c", "rdma resource show qp | grep -c 'pid [0-9]'"});
    const std::string count = list.hear();
    static_cast<void>(list.wait());
    return count;
  };
  const std::string before = queue_pairs();
  for (int i = 0; i < 4; ++i) {
    twins[1].kill();
    twins.restart();
    twins.require_rails(2);
    CHECK(eventually([&] { return queue_pairs() == before; }));
  }
  twins.require_traffic();
}

TEST_CASE("H10 a target that stands still: puts to it end well, no receiver is not ready, and its bytes are there") {
  Twins twins;
  twins.require_rails(2);
  // Until both rails have reached its region: the first time they ask for the card's key to it.
  twins.begin_stream(16);
  twins.require_stream_whole();
  const std::uint64_t before = not_ready();
  twins[1].stop();
  for (int i = 0; i < 40; ++i) {
    const std::string what = std::to_string(64 + i * 4096) + (i % 2 == 0 ? " 4096 " : " 16 ") + std::to_string(i + 1);
    REQUIRE_MESSAGE(twins[0].ask("put 1 " + what) == "ok", twins[0].log());
  }
  REQUIRE_MESSAGE(twins[0].ask("put 1 1048576 2097152 77") == "ok", twins[0].log());
  twins[1].resume();
  for (int i = 0; i < 40; ++i) {
    const std::string what = std::to_string(64 + i * 4096) + (i % 2 == 0 ? " 4096 " : " 16 ") + std::to_string(i + 1);
    CHECK(twins[1].ask("check " + what) == "ok");
  }
  CHECK(twins[1].ask("check 1048576 2097152 77") == "ok");
  CHECK(not_ready() == before);
  CHECK(twins[0].ask("lost") == "0");
  twins.require_rails(2);
  for (const Row& row : twins.table(0, "roce")) CHECK(row.failures == 0);
}

TEST_CASE("P3 a target that stands still for a while in the middle of a stream") {
  Twins twins;
  twins.require_rails(2);
  twins.begin_stream(100);
  await_packets(0, 200);
  twins[1].stop();
  // What needs its program waits; then nothing moves any more.
  std::uint64_t last = 0;
  REQUIRE(eventually([&] { return last == std::exchange(last, packets(0) + packets(1)); }));
  twins[1].resume();
  twins.require_stream_whole();
  CHECK(not_ready() == 0);
}

TEST_CASE("F21 S5 atomics both ways while a port flaps: each is executed once") {
  Twins twins;
  twins.require_rails(2);
  constexpr std::size_t k_times = 150;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    twins[rank].tell("count " + std::to_string(1 - rank) + " 8 " + std::to_string(k_times));
  }
  for (int i = 0; i < 3; ++i) devices("down 1; $HIXL_TEST_DEVICES up 1");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string answer = twins[rank].hear();
    const auto values = values_of(answer);
    CHECK_MESSAGE(values.size() == k_times, answer);
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == i);
  }
  for (std::size_t rank = 0; rank < 2; ++rank) CHECK(twins[rank].ask("word 8") == std::to_string(k_times));
}
