// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are killed: what ends, what goes on, what is given back, and that they may come again.
#include <atomic>
#include <optional>
#include <thread>

#include <doctest/doctest.h>

#include "home.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

/// What a rank holds on to for the sake of others.
struct Holdings {
  std::size_t mappings = library_mappings();
  std::size_t descriptors = open_descriptors();
  friend bool operator==(const Holdings&, const Holdings&) = default;
};

void require_given_back(const Holdings& before) {
  const bool back = eventually([&] { return Holdings() == before; });
  const Holdings now;
  REQUIRE_MESSAGE(back, "mappings " << before.mappings << " -> " << now.mappings << ", descriptors "
                                    << before.descriptors << " -> " << now.descriptors);
}

/// Posting to a rank that is gone gives one of these at once; it never hangs and never works.
void require_refused(Home& home, const RemoteRegion& remote) {
  const auto refused = [](ErrorCode code) {
    return code == ErrorCode::not_exchanged || code == ErrorCode::stale || code == ErrorCode::peer_lost;
  };
  CHECK(refused(code_of(home->put_sync(home.data(), remote.at(0), 8, k_patience))));
  CHECK(refused(code_of(home->put_sync(home.data(), remote.at(0), 1U << 20U, k_patience))));
  CHECK(refused(code_of(home->get_sync(home.data(), remote.at(0), 8, k_patience))));
}

/// Many operations of several kinds to one rank.
std::vector<Request> open_many(Home& home, const RemoteRegion& remote) {
  std::vector<Request> open;
  for (int i = 0; i < 40; ++i) {
    auto put = home->put(home.data(), remote.at(0), (4U << 20U) + 1, {.timeout = std::chrono::minutes(1)});
    auto get = home->get(home.data(), remote.at(0), 100'000, {.timeout = std::chrono::minutes(1)});
    auto signal = home->put_with_signal(home.data(), remote.at(0), 8, {.word = remote.at(1024)},
                                        {.timeout = std::chrono::minutes(1)});
    for (auto* posted : {&put, &get, &signal}) {
      require_ok(*posted);
      open.push_back(**posted);
    }
  }
  auto flush = home->flush_async(remote.rank, {.timeout = std::chrono::minutes(1)});
  require_ok(flush);
  open.push_back(*flush);
  return open;
}

/// Traffic to another rank while `work` runs; none of it may fail.
template <class Work>
void while_others_go_on(Home& home, Guest& other, Work&& work) {
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> puts{0};
  std::atomic<std::uint64_t> failed{0};
  std::thread traffic([&] {
    const std::byte* source = home.data() + (6U << 20U);
    while (!over.load() || puts.load() == 0) {
      for (const std::size_t bytes : {std::size_t{8}, std::size_t{100'000}}) {
        if (!home->put_sync(source, other.remote().at(0), bytes, k_patience)) failed += 1;
        puts += 1;
      }
    }
  });
  struct Join {
    std::atomic<bool>& over;
    std::thread& thread;
    ~Join() {
      over = true;
      thread.join();
    }
  };
  {
    Join join{over, traffic};
    work();
  }
  CHECK(failed.load() == 0);
  MESSAGE(puts.load() << " operations with the other rank meanwhile");
}

}  // namespace

TEST_CASE("S13 S49 every open operation to a killed rank ends with PEER_LOST") {
  for (const std::string links : {"hccs,tcp", "tcp"}) {
    CAPTURE(links);
    Home home(3, links);
    Guest other(home, 2);
    const Holdings before;
    {
      // Memory that is no window goes by tcp here, so a stopped target keeps all of these open.
      Guest victim(home, 1, {"--registered"});
      victim->stop();
      std::vector<Request> open = open_many(home, victim.remote());
      // What one thread posts is taken in that order, so when this has ended the loop has taken them all. It might
      // else see the death first, and the flush would find nothing open before it, and rightly end well.
      require_ok(home->flush(other.rank(), k_patience));
      for (Request& request : open) CHECK(code_of(request.query()) == ErrorCode::busy);
      while_others_go_on(home, other, [&] {
        victim->kill();
        for (Request& request : open) CHECK(code_of(request.wait(k_patience)) == ErrorCode::peer_lost);
      });
      require_refused(home, victim.remote());
    }
    CHECK(home->counters().peers_lost == 1);
    require_given_back(before);
    require_traffic_both_ways(home, other, 7);
  }
}

TEST_CASE("S13 S49 a rank killed under a stream of window copies: each ends well or with PEER_LOST, none hangs") {
  Home home(3, "hccs");
  Guest other(home, 2);
  for (int round = 0; round < 5; ++round) {
    CAPTURE(round);
    const Holdings before;
    std::optional<Guest> guest(std::in_place, home, 1);
    Guest& victim = *guest;
    std::vector<Request> open = open_many(home, victim.remote());
    while_others_go_on(home, other, [&] {
      victim->kill();
      for (Request& request : open) {
        const ErrorCode code = code_of(request.wait(k_patience));
        CHECK((code == ErrorCode::ok || code == ErrorCode::peer_lost));
      }
      REQUIRE(eventually([&] { return home->counters().peers_lost == static_cast<std::uint64_t>(round) + 1; }));
    });
    require_refused(home, victim.remote());
    guest.reset();
    require_given_back(before);
  }
}

TEST_CASE("S41 P71 a killed rank's memory goes back while nobody comes in its place") {
  for (const std::string links : {"", "hccs", "tcp"}) {
    CAPTURE(links);
    const std::size_t shm_before = entries_of("/dev/shm");
    Home home(2, links);
    // The first meeting makes what stays for good, such as the threads of the copy engines.
    Guest(home, 1)->kill();
    REQUIRE(eventually([&] { return home->counters().peers_lost == 1; }));
    REQUIRE(
        eventually([&] { return code_of(home->put(home.data(), {.rank = 1, .address = 64}, 8)) != ErrorCode::ok; }));
    const bool settled = eventually([at = Holdings(), since = std::chrono::steady_clock::now()]() mutable {
      if (Holdings() == at) return std::chrono::steady_clock::now() - since > std::chrono::milliseconds(100);
      at = Holdings();
      since = std::chrono::steady_clock::now();
      return false;
    });
    REQUIRE(settled);
    const Holdings before;
    {
      Guest victim(home, 1);
      require_traffic_both_ways(home, victim, 11);
      CHECK(library_mappings() + (links == "tcp" ? 1 : 0) > before.mappings);
      CHECK(open_descriptors() > before.descriptors + 1);
      victim->kill();
      require_given_back({before.mappings, before.descriptors + 2});  // this test's own socket and log
    }
    CHECK(entries_of("/dev/shm") == shm_before);
  }
}

TEST_CASE("P6 S21 a killed rank comes again and again under its number, and everything works each time") {
  for (const std::string links : {"", "hccs", "tcp"}) {
    CAPTURE(links);
    Home home(3, links);
    Guest other(home, 2);
    RemoteRegion old{};
    for (int life = 0; life < 4; ++life) {
      CAPTURE(life);
      Guest guest(home, 1);
      require_traffic_both_ways(home, guest, 20 + static_cast<std::uint64_t>(life));
      if (old.incarnation != 0) {
        CHECK(old.incarnation != guest.remote().incarnation);
        CHECK(code_of(home->put_sync(home.data(), old.at(0), 8)) == ErrorCode::stale);
      }
      old = guest.remote();
      guest->kill();
    }
    require_traffic_both_ways(home, other, 99);
  }
}

TEST_CASE("P6 S21 a rank that leaves in order comes again") {
  Home home(2);
  for (int life = 0; life < 3; ++life) {
    CAPTURE(life);
    Guest guest(home, 1);
    require_traffic_both_ways(home, guest, 30 + static_cast<std::uint64_t>(life));
    guest->tell("quit");
    CHECK(guest->wait() == 0);
  }
}

TEST_CASE("S47 an initiator killed in the middle of its puts: the target goes on and gets its memory back") {
  for (const std::string links : {"", "tcp"}) {
    CAPTURE(links);
    Home home(3, links);
    Guest other(home, 2);
    for (int round = 0; round < 5; ++round) {
      CAPTURE(round);
      const auto target = home->allocate(4U << 20U);
      require_ok(target);
      const Holdings before;
      {
        Guest initiator(home, 1);
        initiator->tell("renew 0 4096");
        home.meet(1, *target);
        REQUIRE(initiator->hear() == "ok");
        REQUIRE(initiator->ask("hammer 0 4194304") == "hammering");
        target->data[0] = std::byte{0};
        REQUIRE(eventually([&] { return reinterpret_cast<volatile std::byte&>(target->data[0]) != std::byte{0}; }));
        initiator->kill();
      }
      require_ok(home->deregister(*target, k_patience));
      require_given_back({before.mappings - 1, before.descriptors - 1});
    }
    require_traffic_both_ways(home, other, 44);
  }
}
