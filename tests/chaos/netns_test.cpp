// SPDX-License-Identifier: Apache-2.0
//
// Networks that fail under ranks: an interface that goes down in the middle of a stream, a route that swallows, a port
// that is blocked while all others work, a cable that is slow. In network namespaces, one a host; needs root.
#include <doctest/doctest.h>

#include "../process/home.hpp"
#include "../process/hosts.hpp"
#include "cable.hpp"
#include "stream.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::uint64_t k_block = 64U << 10U;
constexpr std::size_t k_region = 16U << 20U;
/// Blocks of a stream that lasts: 20 MB at 25 MB/s.
constexpr std::uint64_t k_blocks = 320;

/// Two hosts and a cable that carries 25 MB/s, so that what happens in the middle of a stream really does.
class Cabled {
 public:
  Cabled() {
    left.connect(right, "v0");
    left.run("ip address add 10.77.1.1/24 dev v0");
    right.run("ip address add 10.77.1.2/24 dev v0");
  }
  void slow_down(const char* rate) {
    for (const Host* host : {&left, &right}) {
      host->run(std::string("tc qdisc replace dev v0 root tbf rate ") + rate + " burst 64k latency 50ms");
    }
  }
  void start_ranks(long lease_ms, int connect_timeout_ms = 10'000) {
    const auto place = [&](Rank rank, const char* address) {
      return Place{.rank = rank,
                   .store_host = "10.77.1.1",
                   .bind = address,
                   .advertise = "",
                   .world = 2,
                   .lease_ms = lease_ms,
                   .bytes = k_region};
    };
    a = start(left, place(0, "10.77.1.1"), connect_timeout_ms);
    b = start(right, place(1, "10.77.1.2"), connect_timeout_ms);
  }

  const Host left;
  const Host right;
  std::unique_ptr<Child> a;
  std::unique_ptr<Child> b;
};

/// A stream from `a` to `b` begins, and is well under way.
void begin_stream(Cabled& net, std::uint64_t first) {
  const std::uint64_t before = sent_by(*net.a, "v0");
  net.b->tell(stream_words("drain", 0, {.bytes = k_block, .first = first, .count = k_blocks}));
  net.a->tell(stream_words("pour", 1, {.bytes = k_block, .first = first, .count = k_blocks}));
  REQUIRE(eventually([&] { return sent_by(*net.a, "v0") > before + 3'000'000; }));
}

}  // namespace

TEST_CASE("an interface that is down for a moment in the middle of a stream: every block comes, nothing fails") {
  if (!cables_can_be_slow()) return;
  Cabled net;
  net.slow_down("200mbit");
  net.start_ranks(30'000);
  require_meeting(*net.a, 0, *net.b, 1);
  for (std::uint64_t round = 0; round < 2; ++round) {
    begin_stream(net, 1 + round * k_blocks);
    const Host& end = round == 0 ? net.left : net.right;
    end.run("ip link set v0 down; ip link set v0 up");
    CHECK(net.a->hear() == "ok");
    CHECK(net.b->hear() == "ok");
  }
  CHECK(net.a->ask("lost") == "0");
  CHECK(net.b->ask("lost") == "0");
}

TEST_CASE(
    "S20 P3 a network that is silent for longer than the lease: PEER_LOST at both ends, and all is well again after "
    "it") {
  if (!cables_can_be_slow()) return;
  // How it goes silent, and how it comes back, at the left host.
  const std::pair<const char*, const char*> ways[] = {
      {"ip link set v0 down", "ip link set v0 up"},
      {"ip route add blackhole 10.77.1.2/32", "ip route del blackhole 10.77.1.2/32"},
  };
  for (const auto& [silence, speak] : ways) {
    for (const bool idle : {false, true}) {
      CAPTURE(std::string(silence));
      CAPTURE(idle);
      Cabled net;
      net.slow_down("200mbit");
      net.start_ranks(500);
      require_meeting(*net.a, 0, *net.b, 1);
      const std::uint64_t before = sent_by(*net.a, "v0");
      if (!idle) {
        net.a->tell("put 1 0 " + std::to_string(k_region) + " 3");
        REQUIRE(eventually([&] { return sent_by(*net.a, "v0") > before + 3'000'000; }));
      }
      net.left.run(silence);
      if (!idle) CHECK(net.a->hear() == "PEER_LOST");
      REQUIRE(eventually([&] { return net.a->ask("lost") == "1" && net.b->ask("lost") == "1"; }));
      net.left.run(speak);
      // Neither program does anything for it but to ask again; nor is anything of before applied.
      REQUIRE(eventually([&] { return net.a->ask("put 1 " + std::to_string(k_region / 2) + " 4096 9") == "ok"; }));
      CHECK(net.b->ask("check " + std::to_string(k_region / 2) + " 4096 9") == "ok");
      require_traffic(*net.b, *net.a, 0, 4);
    }
  }
}

TEST_CASE("a route that swallows for a while, with time for it: the operation waits and ends well") {
  if (!cables_can_be_slow()) return;
  Cabled net;
  net.slow_down("200mbit");
  net.start_ranks(30'000);
  require_meeting(*net.a, 0, *net.b, 1);
  begin_stream(net, 1);
  net.right.run("ip route add blackhole 10.77.1.1/32");
  const std::uint64_t before = sent_by(*net.b, "v0");
  // `a` still sends, and hears nothing: it tries again until it does.
  const std::uint64_t tried = sent_by(*net.a, "v0");
  REQUIRE(eventually([&] { return sent_by(*net.a, "v0") > tried; }));
  net.right.run("ip route del blackhole 10.77.1.1/32");
  CHECK(net.a->hear() == "ok");
  CHECK(net.b->hear() == "ok");
  CHECK(sent_by(*net.b, "v0") > before);
  CHECK(net.a->ask("lost") == "0");
}

TEST_CASE(
    "S27 S68 the store is reached and the data port is blocked: the error names address and port; unblocked, they "
    "meet") {
  if (!cables_can_be_slow()) return;
  Cabled net;
  net.start_ranks(30'000, 300);
  REQUIRE(net.a->ask("lost") == "0");
  REQUIRE(net.b->ask("lost") == "0");
  const std::uint16_t of_b = listening_port(net.b->pid());
  REQUIRE(of_b != 0);
  // It cannot be dialled: its answers find no way out. (It knows nothing of an exchange, so it does not dial itself.)
  const auto block = [](std::uint16_t port, const char* verb) {
    return std::string("ip rule ") + verb + " ipproto tcp sport " + std::to_string(port) + " blackhole";
  };
  net.right.run(block(of_b, "add"));
  const std::string answer = net.a->ask("meet 1 700");
  CHECK_MESSAGE(answer.starts_with("CONNECT_TIMEOUT:"), answer);
  CHECK(has(answer, "rank 1"));
  CHECK(has(answer, "stage connect"));
  CHECK(has(answer, "at 10.77.1.2:" + std::to_string(of_b)));
  net.right.run(block(of_b, "del"));
  require_meeting(*net.a, 0, *net.b, 1);
  require_traffic(*net.a, *net.b, 1, 1);
}

TEST_CASE("P42 a cable that is slow: a put that takes several leases ends well, since it goes on all the time") {
  if (!cables_can_be_slow()) return;
  Cabled net;
  net.start_ranks(1'000);
  require_meeting(*net.a, 0, *net.b, 1);
  net.slow_down("8mbit");
  CHECK(net.a->ask("put 1 64 3000000 3") == "ok");
  CHECK(net.b->ask("check 64 3000000 3") == "ok");
  CHECK(net.a->ask("lost") == "0");
  CHECK(net.b->ask("lost") == "0");
}

TEST_CASE("S51 a hundred meetings at once over 10 Mbit/s: nobody is taken for dead") {
  if (!cables_can_be_slow()) return;
  constexpr Rank k_side = 10;
  Cabled net;
  net.slow_down("10mbit");
  std::vector<std::unique_ptr<Child>> ranks;
  for (Rank rank = 0; rank < 2 * k_side; ++rank) {
    const bool left = rank < k_side;
    ranks.push_back(start(left ? net.left : net.right, {.rank = rank,
                                                        .store_host = "10.77.1.1",
                                                        .bind = left ? "10.77.1.1" : "10.77.1.2",
                                                        .advertise = "",
                                                        .world = 2 * k_side,
                                                        .lease_ms = 2'000,
                                                        .bytes = 1U << 16U}));
  }
  for (auto& rank : ranks) REQUIRE(rank->ask("lost") == "0");
  for (Rank step = 0; step < k_side; ++step) {
    for (Rank i = 0; i < k_side; ++i) {
      const Rank partner = k_side + (i + step) % k_side;
      ranks[i]->tell("exchange " + std::to_string(partner));
      ranks[partner]->tell("exchange " + std::to_string(i));
    }
  }
  for (Rank step = 0; step < k_side; ++step) {
    for (auto& rank : ranks) CHECK_MESSAGE(rank->hear() == "ok", rank->log());
  }
  for (Rank i = 0; i < k_side; ++i) {
    CHECK(ranks[i]->ask("put " + std::to_string(k_side + i) + " 0 20000 " + std::to_string(i)) == "ok");
    CHECK(ranks[k_side + i]->ask("check 0 20000 " + std::to_string(i)) == "ok");
  }
  for (auto& rank : ranks) CHECK(rank->ask("lost") == "0");
}
