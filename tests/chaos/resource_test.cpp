// SPDX-License-Identifier: Apache-2.0
//
// Ranks whose limits close around them while they work: no descriptor left, no address space left, copies of their
// sockets in forked children. What they have goes on; what they lack is an error that names it; and when there is room
// again everything works.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include <doctest/doctest.h>

#include "bystander.hpp"
#include "shielded.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

/// A limit of another process of this user, put back when this ends.
class Squeezed {
 public:
  Squeezed(pid_t pid, decltype(RLIMIT_AS) resource, rlim_t value) : pid_(pid), resource_(resource) {
    REQUIRE(prlimit(pid, resource, nullptr, &before_) == 0);
    const rlimit now{value, before_.rlim_max};
    REQUIRE(prlimit(pid, resource, &now, nullptr) == 0);
  }
  ~Squeezed() { static_cast<void>(prlimit(pid_, resource_, &before_, nullptr)); }
  Squeezed(const Squeezed&) = delete;
  Squeezed& operator=(const Squeezed&) = delete;

 private:
  pid_t pid_;
  decltype(RLIMIT_AS) resource_;
  rlimit before_{};
};

/// A sanitizer takes address space of its own as it goes, and ends the process that gets none.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool k_sanitizer_needs_space = true;
#else
constexpr bool k_sanitizer_needs_space = false;
#endif
/// UBSan, which is built in with ASan, looks at an object by way of a pipe, and takes one that it cannot look at for
/// broken.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool k_sanitizer_needs_descriptors = true;
#else
constexpr bool k_sanitizer_needs_descriptors = false;
#endif
constexpr const char* k_no_descriptors = "skipped: a limit of descriptors: UBSan needs some to look at objects";

/// The lowest number that a new descriptor of the process could have.
rlim_t lowest_free_descriptor(pid_t pid) {
  std::vector<bool> taken(4096);
  for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    const auto number = std::stoul(entry.path().filename());
    if (number < taken.size()) taken[number] = true;
  }
  return static_cast<rlim_t>(std::find(taken.begin(), taken.end(), false) - taken.begin());
}

rlim_t address_space(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  rlim_t pages = 0;
  file >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

/// Rank 1 is the one that is squeezed; its stream to rank 0 goes on. Rank 2 is free.
struct Scene {
  Home home;
  Guest tight;
  explicit Scene(const std::string& links)
      : home(4, links, 2 * Bystander::k_room, {.lease = k_long_lease}), tight(home, 1, {}, k_long_lease) {
    require_traffic_both_ways(home, tight, 1);
  }
  pid_t pid() { return tight->pid(); }
  void require_stream() {
    Bystander stream(*home, home.region(), *tight, tight.remote(), Bystander::k_room);
    stream.require_going_on();
    CHECK(stream.finish() == "ok");
    // The next one counts from the beginning again.
    std::memset(home.data() + Bystander::k_room, 0, Stream::k_words_bytes);
    fill_pattern(home.data(), 1, 0);
    home->put_sync(home.data() + Bystander::k_room, tight.remote().at(Bystander::k_room), Stream::k_words_bytes,
                   k_patience)
        .or_else([](const Error& error) { FAIL(error.message()); });
  }
};

}  // namespace

TEST_CASE("F178 no descriptor left while it works: its streams go on; who comes waits, and meets when there is room") {
  if (k_sanitizer_needs_descriptors) {
    MESSAGE(k_no_descriptors);
    return;
  }
  for (const std::string links : {"tcp", "hccs,tcp", ""}) {
    for (const bool dials : {false, true}) {
      CAPTURE(links);
      CAPTURE(dials);
      Scene scene(links);
      Child other(settings().rank_program, {"--bytes", "8388608", "--lease-ms", "30000"}, scene.home.environment(2));
      REQUIRE(other.ask("lost") == "0");
      {
        const Squeezed squeezed(scene.pid(), RLIMIT_NOFILE, lowest_free_descriptor(scene.pid()));
        // `dials`: the one without descriptors asks first. Neither has to answer yet.
        if (dials) {
          scene.tight->tell("exchange 2");
        } else {
          other.tell("exchange 1");
          scene.require_stream();
        }
        // Its rank 0 has no need of new descriptors.
        require_ok(scene.home->put_sync(scene.home.data(), scene.tight.remote().at(0), 70'000, k_patience));
        require_ok(scene.home->get_sync(scene.home.data(), scene.tight.remote().at(0), 70'000, k_patience));
        if (dials) {
          other.tell("exchange 1");
        } else {
          scene.tight->tell("exchange 2");
        }
        require_ok(scene.home->put_sync(scene.home.data(), scene.tight.remote().at(0), 70'000, k_patience));
      }
      CHECK(other.hear() == "ok");
      CHECK(scene.tight->hear() == "ok");
      CHECK(other.ask("put 1 0 70000 5") == "ok");
      CHECK(scene.tight->ask("check 0 70000 5") == "ok");
      CHECK(scene.tight->ask("put 2 0 70000 6") == "ok");
      CHECK(other.ask("check 0 70000 6") == "ok");
      scene.require_stream();
      CHECK(scene.home->counters().failed == 0);
      CHECK(scene.home->counters().peers_lost == 0);
    }
  }
}

TEST_CASE(
    "F178 a rank whose connection breaks while it has no descriptor for another gets it back when there is room") {
  if (k_sanitizer_needs_descriptors) {
    MESSAGE(k_no_descriptors);
    return;
  }
  ShieldedHome at(2, 1U << 20U);
  ShieldedGuest guest(at, 1, 1U << 20U);
  fill_block(at.home.data(), 1U << 20U, 1);
  std::optional<Request> put;
  {
    const Squeezed squeezed(guest->pid(), RLIMIT_NOFILE, lowest_free_descriptor(guest->pid()));
    at.door.proxy->cut();
    guest.door().cut();
    auto posted = at.home->put(at.home.data(), guest.remote().at(0), 1U << 20U, {.timeout = k_patience});
    require_ok(posted);
    put = *posted;
    // The end of the old one leaves room for one descriptor; what is left of it is taken as well.
    static_cast<void>(put->wait(std::chrono::milliseconds(100)));
  }
  require_ok(put->wait(k_patience));
  require_ok(at.home->get_sync(at.home.data(), guest.remote().at(0), 1U << 20U, k_patience));
  CHECK(fault_of(at.home.data(), 1U << 20U, 1).empty());
  CHECK(at.home->counters().failed == 0);
}

TEST_CASE("F178 no address space left: allocations say so, and what stands goes on") {
  if (k_sanitizer_needs_space) {
    MESSAGE("skipped: a limit of address space: the sanitizer's own memory needs it too");
    return;
  }
  for (const std::string links : {"tcp", "hccs,tcp"}) {
    CAPTURE(links);
    Scene scene(links);
    Child other(settings().rank_program, {"--bytes", "8388608", "--lease-ms", "30000"}, scene.home.environment(2));
    REQUIRE(other.ask("lost") == "0");
    {
      const Squeezed squeezed(scene.pid(), RLIMIT_AS, address_space(scene.pid()));
      // A newcomer is met all the same, by a link that needs no mapping here.
      scene.tight->tell("meet 2 10000");
      CHECK(other.ask("meet 1 10000") == "ok");
      // Whether the tables for its regions still fit is chance; where they do not, the answer says so.
      const std::string met = scene.tight->hear();
      CHECK_MESSAGE((met == "ok" || met.starts_with("NO_MEMORY")), met);
      CHECK(other.ask("put 1 0 70000 5") == "ok");
      CHECK(scene.tight->ask("check 0 70000 5") == "ok");
      const std::string filled = scene.tight->ask("fill 67108864");
      CHECK_MESSAGE(filled == "0 NO_MEMORY", filled);
      scene.require_stream();
      require_traffic_both_ways(scene.home, scene.tight, 2);
    }
    require_traffic_both_ways(scene.home, scene.tight, 3);
    CHECK(scene.home->counters().failed == 0);
    CHECK(scene.home->counters().link_failures == 0);
  }
}

TEST_CASE("S16 P62 forked children keep copies of a rank's sockets while connections break: nobody waits for them") {
  ShieldedHome at(2, 2 * Bystander::k_room);
  ShieldedGuest guest(at, 1, 2 * Bystander::k_room);
  struct Children {
    std::vector<pid_t> ids;
    ~Children() {
      for (const pid_t id : ids) ::kill(id, SIGKILL);
    }
  } children;
  // The rank and not this process, which has the proxies: their sockets must end when they are to end.
  for (std::uint64_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    children.ids.push_back(static_cast<pid_t>(std::stol(guest->ask("fork"))));
    const Stream stream{.base = 0, .bytes = 1U << 16U, .blocks = 40, .patience = k_patience, .first = 1 + i * 40};
    guest->tell("pour 0 0 65536 40 " + std::to_string(stream.first));
    std::string received;
    std::thread receiver([&] { received = receive_stream(*at.home, at.home.region(), guest.remote(), stream); });
    at.door.proxy->cut();
    guest.door().cut();
    receiver.join();
    CHECK(received == "ok");
    CHECK(guest->hear() == "ok");
  }
  for (const pid_t child : children.ids) CHECK(process_exists(child));
  CHECK(at.home->counters().link_failures >= 4);
  CHECK(at.home->counters().failed == 0);
  CHECK(at.home->counters().peers_lost == 0);
  guest->tell("quit");
  CHECK(guest->wait() == 0);
}
