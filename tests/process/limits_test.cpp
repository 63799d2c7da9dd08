// SPDX-License-Identifier: Apache-2.0
//
// Ranks that live within small limits of their process: each meets its limit as an error that names it, and nobody
// else notices.
#include <algorithm>

#include <doctest/doctest.h>

#include "home.hpp"

using namespace hixl;
using namespace hixl::test;

TEST_CASE("F178 a rank without the descriptors that it needs says FD_LIMIT and does not start") {
  Home home(3);
  Guest other(home, 2);
  int refused = 0;
  for (int descriptors = 6; descriptors <= 18; descriptors += 2) {
    CAPTURE(descriptors);
    Child rank(settings().rank_program, {"--descriptors-max", std::to_string(descriptors), "--bytes", "4096"},
               home.environment(1));
    static_cast<void>(rank.try_tell("quit"));  // one that does not start may have ended already
    const int code = rank.wait();
    const std::string log = rank.log();
    CAPTURE(log);
    if (code == 0) break;  // from here on they suffice
    CHECK(code == 3);
    CHECK(log.find("FD_LIMIT") != std::string::npos);
    refused += 1;
  }
  CHECK(refused > 0);
  require_traffic_both_ways(home, other, 5);
}

TEST_CASE("F178 a rank that runs out of descriptors keeps what it has; allocations say FD_LIMIT") {
  for (const std::string links : {"", "tcp"}) {
    CAPTURE(links);
    Home home(3, links);
    Guest other(home, 2);
    Guest tight(home, 1, {"--descriptors-max", "48"});
    const std::string filled = tight->ask("fill 4096");
    CAPTURE(filled);
    CHECK(filled.find("FD_LIMIT") != std::string::npos);
    CHECK(tight->log().find("ulimit -n") != std::string::npos);
    require_traffic_both_ways(home, tight, 1);
    require_traffic_both_ways(home, other, 2);
    CHECK(home->counters().link_failures == 0);
  }
}

TEST_CASE("F178 a rank with too few descriptors for another peer tells that peer's exchange, and no other") {
  Home home(4, "tcp");
  Guest other(home, 2);
  Guest tight(home, 1, {"--descriptors-max", "48"});
  CHECK(tight->ask("fill 4096").find("FD_LIMIT") != std::string::npos);
  // A third rank that wants to meet the one without room: it waits, because room may come; nothing else suffers.
  Guest third(home, 3);
  require_traffic_both_ways(home, tight, 1);
  require_traffic_both_ways(home, other, 2);
  require_traffic_both_ways(home, third, 3);
}

TEST_CASE("P23 S69 a rank that may lock next to no memory works, since no link here needs locked memory") {
  for (const std::string links : {"", "hccs", "tcp"}) {
    CAPTURE(links);
    Home home(2, links);
    Guest guest(home, 1, {"--memlock-kib", "64"});
    require_traffic_both_ways(home, guest, 3);
    CHECK(guest->log().find("MEMLOCK") == std::string::npos);
  }
}

TEST_CASE("S38 P70 a full /dev/shm of 1 MiB is nothing to a rank: it uses none") {
  Child probe(settings().rank_program, {"--tiny-shm", "--exit-at-rank", "1"}, {"HIXL_RANK=1"});
  if (probe.wait() == 77) {
    MESSAGE("skipped: this system does not let us mount");
    return;
  }
  Home home(2, "hccs");
  Guest guest(home, 1, {"--tiny-shm", "--bytes", std::to_string(64U << 20U)});
  require_traffic_both_ways(home, guest, 4);
}
