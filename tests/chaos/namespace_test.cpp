// SPDX-License-Identifier: Apache-2.0
//
// Ranks of one host that see it differently: mounts, process numbers, users of their own, as containers have them. They
// meet over what works between them, and say once why something does not.
#include <unistd.h>

#include <algorithm>

#include <doctest/doctest.h>

#include "../process/home.hpp"
#include "oracle.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_bytes = 1U << 20U;

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("S61 P69 a rank in namespaces of its own meets its peer, moves bytes both ways, and says little about it") {
  const std::vector<std::vector<std::string>> views = {
      {"--mount"},
      {"--ipc"},
      {"--pid", "--fork", "--kill-child"},
      {"--mount", "--pid", "--fork", "--kill-child", "--mount-proc"},
      {"--user"},
      {"--user", "--pid", "--fork", "--kill-child", "--mount-proc"},
  };
  for (const auto& view : views) {
    CAPTURE(view.back());
    CAPTURE(view.front());
    std::vector<std::string> probed = view;
    probed.push_back("/bin/true");
    if (Child probe("/usr/bin/unshare", probed); probe.wait() != 0) {
      MESSAGE("skipped: " << view.front() << " … " << view.back() << " is not permitted here: " << probe.log());
      continue;
    }
    for (const std::string links : {"", "hccs,tcp"}) {
      CAPTURE(links);
      Home home(2, links, 8U << 20U, {.lease = k_long_lease});
      std::vector<std::string> words = view;
      words.insert(words.end(), {settings().rank_program, "--lease-ms", "30000"});
      Child rank("/usr/bin/unshare", words, home.environment(1));
      rank.tell("exchange 0");
      const RemoteRegion remote = home.meet(1);
      REQUIRE_MESSAGE(rank.hear() == "ok", rank.log());
      fill_pattern(home.data(), k_bytes, 3);
      require_ok(home->put_sync(home.data(), remote.at(64), k_bytes, k_patience));
      CHECK(rank.ask("check 64 1048576 3") == "ok");
      std::memset(home.data(), 0, k_bytes);
      require_ok(home->get_sync(home.data(), remote.at(64), k_bytes, k_patience));
      CHECK(holds_pattern(home.data(), k_bytes, 3));
      CHECK(rank.ask("put 0 64 1048576 4") == "ok");
      static_cast<void>(home->counters());
      CHECK(holds_pattern(home.data() + 64, k_bytes, 4));
      const auto word = home->fetch_add_sync(remote.at(0), 5, k_patience);
      require_ok(word);
      CHECK(rank.ask("word 0") == std::to_string(*word + 5));
      CHECK_MESSAGE(lines_of(rank.log()) <= 4, rank.log());
      std::string taken;
      for (const LinkInfo& link : home->links()) {
        if (link.rank == 1 && link.chosen) taken += std::string(name(link.kind)) + " ";
      }
      MESSAGE(view.front() << " … " << view.back() << ", links \"" << links << "\": takes " << taken);
      CHECK(home->counters().failed == 0);
      if (links.empty()) {
        rank.tell("quit");
        CHECK(rank.wait() == 0);
      } else {
        // Its death is seen from outside its namespaces as well; the lease is longer than anybody waits here.
        rank.kill();
        CHECK(eventually([&] { return home->counters().peers_lost == 1; }));
      }
    }
  }
}
