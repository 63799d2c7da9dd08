// SPDX-License-Identifier: Apache-2.0
//
// A program that forks while a runtime lives in it: the child ends or becomes another program, and the parent does not
// notice.
#include <doctest/doctest.h>

#include <sys/wait.h>

#include "home.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

enum class Fate { ends, becomes_another };

int forked(Fate fate) {
  char path[] = "/bin/true";
  char* arguments[] = {path, nullptr};
  const pid_t pid = fork();
  if (pid == 0) {
    if (fate == Fate::becomes_another) execv(path, arguments);
    _exit(fate == Fate::ends ? 0 : 1);
  }
  REQUIRE(pid > 0);
  int status = -1;
  REQUIRE(eventually([&] { return waitpid(pid, &status, WNOHANG) == pid; }));
  return status;
}

}  // namespace

TEST_CASE("S16 P62 forking beside a runtime leaves the parent as it was") {
  for (const std::string links : {"", "tcp"}) {
    CAPTURE(links);
    Home home(2, links);
    Guest guest(home, 1);
    require_traffic_both_ways(home, guest, 1);
    const std::size_t descriptors = open_descriptors();
    for (int round = 0; round < 10; ++round) {
      CAPTURE(round);
      // Puts are under way while the process is copied.
      std::vector<Request> open;
      for (int i = 0; i < 20; ++i) {
        auto request = home->put(home.data(), guest.remote().at(0), 1U << 20U);
        require_ok(request);
        open.push_back(*request);
      }
      CHECK(forked(round % 2 == 0 ? Fate::ends : Fate::becomes_another) == 0);
      require_ok(wait_all(open));
    }
    require_traffic_both_ways(home, guest, 2);
    CHECK(open_descriptors() == descriptors);
    CHECK(home->counters().failed == 0);
    CHECK(home->counters().link_failures == 0);
    // A death is seen at once, although children had copies of every socket.
    guest->kill();
    REQUIRE(eventually([&] { return home->counters().peers_lost == 1 || links == "tcp"; }));
  }
}
