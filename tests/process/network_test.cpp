// SPDX-License-Identifier: Apache-2.0
//
// Ranks on "hosts" with networks of their own: namespaces that this test makes, joins by virtual cables, and that
// vanish with the processes in them. Needs root; skipped with the reason where the kernel does not permit it.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "home.hpp"
#include "hosts.hpp"

using namespace hixl;
using namespace hixl::test;

TEST_CASE("P28 a host with IPv6 only: store, links and a wildcard") {
  if (!permitted()) return;
  const Host left;
  const Host right;
  left.connect(right, "v0");
  for (const Host* host : {&left, &right}) host->run("ip address delete 127.0.0.1/8 dev lo");
  left.run("ip address add fd77::1/64 dev v0 nodad");
  right.run("ip address add fd77::2/64 dev v0 nodad");
  const auto a = start(left, {.rank = 0, .store_host = "fd77::1", .bind = "fd77::1", .advertise = ""});
  const auto b = start(right, {.rank = 1, .store_host = "fd77::1", .bind = "::", .advertise = ""});
  require_meeting(*a, 0, *b, 1);
  require_traffic(*a, *b, 1, 1);
  require_traffic(*b, *a, 0, 2);
}

TEST_CASE("P27 link-local addresses with their interface") {
  if (!permitted()) return;
  const Host left;
  const Host right;
  left.connect(right, "v0");
  left.run("ip address flush dev v0; ip address add fe80::1/64 dev v0 nodad");
  right.run("ip address flush dev v0; ip address add fe80::2/64 dev v0 nodad");
  const auto a = start(left, {.rank = 0, .store_host = "fe80::1%v0", .bind = "fe80::1%v0", .advertise = ""});
  const auto b = start(right, {.rank = 1, .store_host = "fe80::1%v0", .bind = "fe80::2%v0", .advertise = ""});
  require_meeting(*a, 0, *b, 1);
  require_traffic(*a, *b, 1, 1);
  require_traffic(*b, *a, 0, 2);
}

TEST_CASE("P30 P32 two networks: what bind and advertise say is used; the store's host by a name of /etc/hosts") {
  if (!permitted()) return;
  const Host left;
  const Host right;
  left.connect(right, "control");
  left.connect(right, "data");
  left.run("ip address add 10.77.1.1/24 dev control; ip address add 10.77.2.1/24 dev data");
  right.run("ip address add 10.77.1.2/24 dev control; ip address add 10.77.2.2/24 dev data");
  std::string folder = (std::filesystem::temp_directory_path() / "hixl-hosts-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  std::ofstream(folder + "/hosts") << "127.0.0.1 localhost\n10.77.1.1 prefill-7\n";
  for (const Host* host : {&left, &right}) host->run("mount --bind " + folder + "/hosts /etc/hosts");
  std::filesystem::remove_all(folder);
  const auto a = start(left, {.rank = 0, .store_host = "prefill-7", .bind = "10.77.2.1", .advertise = ""});
  const auto b = start(right, {.rank = 1, .store_host = "prefill-7", .bind = "0.0.0.0", .advertise = "10.77.2.2"});
  const auto c = start(right, {.rank = 2, .store_host = "prefill-7", .bind = "0.0.0.0", .advertise = ""});
  require_meeting(*a, 0, *b, 1);
  require_meeting(*a, 0, *c, 2);  // told by the address that faces the store
  require_traffic(*a, *c, 2, 1);
  // Nothing of these two goes by the control network: it may as well not be there.
  left.run("ip link set control down");
  require_traffic(*a, *b, 1, 2);
  require_traffic(*b, *a, 0, 3);
}

TEST_CASE("P1 S27 an address that swallows packets: CONNECT_TIMEOUT within the budget, others are served meanwhile") {
  if (!permitted()) return;
  const Host left;
  const Host right;
  left.connect(right, "v0");
  left.run(
      "ip address add 10.77.1.1/24 dev v0; ip neighbour add 10.77.1.99 lladdr 02:00:00:00:00:99 dev v0 nud permanent");
  right.run("ip address add 10.77.1.2/24 dev v0");
  const auto place = [](Rank rank, const char* bind, const char* advertise) {
    return Place{.rank = rank, .store_host = "10.77.1.1", .bind = bind, .advertise = advertise};
  };
  const auto a = start(left, place(0, "10.77.1.1", ""), 200);
  const auto lost = start(right, place(1, "10.77.1.2", "10.77.1.99"));
  const auto b = start(right, place(2, "10.77.1.2", ""));
  require_meeting(*a, 0, *b, 2);
  b->tell("hammer 0 65536");
  REQUIRE(b->hear() == "hammering");
  // 300 ms: the budget of one connection, 200 ms, and a half more.
  const std::string answer = a->ask("meet 1 300");
  CHECK(answer.starts_with("CONNECT_TIMEOUT:"));
  CHECK(has(answer, "rank 1"));
  CHECK(has(answer, "stage connect"));
  CHECK(has(answer, "at 10.77.1.99:"));
  CHECK(has(answer, "errno 110"));
  const std::string served = b->ask("enough");
  CHECK(served.ends_with("failed 0"));
  CHECK_FALSE(served.starts_with("puts 0 "));
}

TEST_CASE("S55 a host with a hundred ports for outgoing connections: no number of transfers uses them up") {
  if (!permitted()) return;
  const Host host;
  host.run("echo 40000 40099 > /proc/sys/net/ipv4/ip_local_port_range");
  const auto place = [](Rank rank) {
    return Place{.rank = rank, .store_host = "127.0.0.1", .bind = "127.0.0.1", .advertise = "", .world = 2};
  };
  const auto a = start(host, place(0));
  const auto b = start(host, place(1));
  require_meeting(*a, 0, *b, 1);
  b->tell("hammer 0 100");
  REQUIRE(b->hear() == "hammering");
  for (int i = 0; i < 200; ++i) REQUIRE(a->ask("put 1 4096 100 " + std::to_string(i)) == "ok");
  const std::string served = b->ask("enough");
  CHECK(served.ends_with("failed 0"));
  CHECK(std::stoi(served.substr(5)) > 100);  // "puts N failed M"
  // Three listen; two connections with the store, and between the ranks the one that stands and those of a first
  // meeting that gave way to it. Each end is a line, for a while after its end too.
  host.run("test $(tail -n +2 /proc/net/tcp | wc -l) -le 25");
}

TEST_CASE("F182 F187 S68 no route, unreachable, and a host of the other family: each says so") {
  if (!permitted()) return;
  const Host left;
  const Host right;
  left.connect(right, "v0");
  left.run("ip address flush dev v0; ip address add 10.77.1.1/24 dev v0; ip route add unreachable 10.98.0.0/16");
  right.run("ip address add 10.77.1.2/24 dev v0; ip address add fd77::2/64 dev v0 nodad");
  const auto a = start(left, {.rank = 0, .store_host = "10.77.1.1", .bind = "10.77.1.1", .advertise = ""});
  const auto try_at = [&](Rank rank, const char* bind, const char* advertise) {
    const auto peer = start(right, {.rank = rank, .store_host = "10.77.1.1", .bind = bind, .advertise = advertise});
    REQUIRE(peer->ask("lost") == "0");  // it has joined
    return a->ask("meet " + std::to_string(rank) + " 300");
  };
  const std::string no_route = try_at(1, "10.77.1.2", "10.99.0.7");
  CHECK(no_route.starts_with("NO_ROUTE:"));
  CHECK(has(no_route, "stage connect"));
  CHECK(has(no_route, "at 10.99.0.7:"));
  CHECK(has(no_route, "errno 101"));
  const std::string unreachable = try_at(2, "10.77.1.2", "10.98.0.7");
  CHECK(unreachable.starts_with("NO_ROUTE:"));
  CHECK(has(unreachable, "errno 113"));
  const std::string family = try_at(3, "::", "fd77::2");
  CHECK(family.starts_with("FAMILY_MISMATCH:"));
  CHECK(has(family, "at [fd77::2]:"));
}
