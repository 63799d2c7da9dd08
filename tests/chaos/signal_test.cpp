// SPDX-License-Identifier: Apache-2.0
//
// A rank is killed, or stopped and continued, at each step of what ranks do together. What was open ends with the code
// of that step and no other; nobody else notices; no byte moves after the loss was told; descriptors and mappings go
// back; the next life works.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include <doctest/doctest.h>

#include "bystander.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_large = 64U << 20U;
using Codes = std::vector<ErrorCode>;

/// Rank 0 here; 1 is the victim, 2 the bystander. Places in rank 0's region: the bystander's, then `k_large` bytes.
struct Scene {
  Home home;
  Guest watcher;
  Bystander bystander;
  std::unique_ptr<Guest> victim;
  const std::string bytes = std::to_string(k_large);
  const std::chrono::milliseconds lease;

  /// `judged_by`: the victim's lease. The others have a long one: a crowded machine is no part of this.
  Scene(const std::string& links, std::chrono::milliseconds judged_by)
      : home(3, links, Bystander::k_room + k_large, {.lease = k_long_lease}),
        watcher(home, 2, {}, k_long_lease),
        bystander(*home, home.region(), *watcher, watcher.remote()),
        lease(judged_by) {}
  /// The first meeting makes what stays for good, such as the threads of the copy engines.
  void warm_up() {
    meet();
    (*victim)->kill();
    victim.reset();
    REQUIRE(eventually([&] { return home->counters().peers_lost == 1; }));
  }
  void meet() { victim = std::make_unique<Guest>(home, 1, std::vector<std::string>{"--bytes", bytes}, lease); }
  std::byte* data() { return home.data() + Bystander::k_room; }
  std::uint64_t moved() {
    const Counters counters = home->counters();
    std::uint64_t sum = 0;
    for (std::size_t kind = 0; kind < k_link_kinds; ++kind) sum += counters.bytes_out[kind] + counters.bytes_in[kind];
    return sum;
  }
  /// Words of the block that stand still while somebody's writes might go on.
  void require_still(std::uint64_t transfer) {
    const std::string fault = fault_of(data(), k_large, transfer);
    REQUIRE_MESSAGE(fault.empty(), "a byte moved after the loss had been told; " << fault);
  }
};

/// What is open when the signal comes.
struct Open {
  std::vector<Request> requests;
  std::shared_ptr<Group> group;
};

struct Step {
  const char* name;
  std::function<Open(Scene&)> begin;
  Codes killed;  ///< how what is open may end when the victim is killed …
  bool over_tcp_only = false;
};

template <class Post>
Open in_the_middle(Scene& scene, Post&& post) {
  const std::uint64_t before = scene.moved();
  auto request = post();
  require_ok(request);
  REQUIRE(eventually([&] { return scene.moved() > before || request->done(); }));
  return {.requests = {*request}, .group = {}};
}

/// Of bytes that are on their way, at which no program may look: so no sanitizer looks on.
__attribute__((no_sanitize("thread"))) std::uint64_t first_word(const std::byte* block) {
  return *reinterpret_cast<const volatile std::uint64_t*>(block);
}

std::vector<Step> steps() {
  const Timeout minute = std::chrono::minutes(1);
  return {
      {"nothing is open", [](Scene&) { return Open{}; }, {}},
      {"its first chunk has landed",
       [minute](Scene& scene) {
         fill_block(scene.data(), k_large, 1);
         return in_the_middle(scene, [&] {
           return scene.home->put(scene.data(), scene.victim->remote().at(0), k_large, {.timeout = minute});
         });
       },
       {ErrorCode::ok, ErrorCode::peer_lost}},
      {"its memory is being read",
       [minute](Scene& scene) {
         return in_the_middle(scene, [&] {
           return scene.home->get(scene.data(), scene.victim->remote().at(0), k_large, {.timeout = minute});
         });
       },
       {ErrorCode::ok, ErrorCode::peer_lost}},
      {"it stands still with an atomic unanswered",
       [minute](Scene& scene) {
         (*scene.victim)->stop();
         auto atomic = scene.home->fetch_add(scene.victim->remote().at(0), 1, {.timeout = minute});
         require_ok(atomic);
         return Open{.requests = {*atomic}, .group = {}};
       },
       {ErrorCode::outcome_unknown},
       true},
      {"it stands still with a put, its signal and a flush behind it",
       [minute](Scene& scene) {
         (*scene.victim)->stop();
         const RemoteRegion& there = scene.victim->remote();
         auto put = scene.home->put_with_signal(scene.data(), there.at(64), 100'000, {.word = there.at(0)},
                                                {.timeout = minute});
         auto flush = scene.home->flush_async(1, {.timeout = minute});
         require_ok(put);
         require_ok(flush);
         return Open{.requests = {*put, *flush}, .group = {}};
       },
       {ErrorCode::peer_lost},
       true},
      {"it writes here",
       [](Scene& scene) {
         fill_block(scene.data(), k_large, 2);
         const std::uint64_t before = first_word(scene.data());
         static_cast<void>(scene.home->counters());  // what was filled is the loop's to write from now on
         const std::string place = std::to_string(Bystander::k_room);
         (*scene.victim)->tell("put 0 " + place + " " + scene.bytes + " 7");
         // The pattern of a whole region takes it longer than the copy; the first word that changes says: now.
         REQUIRE(eventually([&] { return first_word(scene.data()) != before; }));
         return Open{};
       },
       {}},
      {"it is in a barrier",
       [](Scene& scene) {
         (*scene.victim)->tell("make 0 2");
         const Rank ranks[] = {0, 1};
         auto group = scene.home->create_group(ranks, {}, k_patience);
         require_ok(group);
         REQUIRE((*scene.victim)->hear() == "ok");
         (*scene.victim)->tell("barrier");
         return Open{.requests = {}, .group = std::make_shared<Group>(std::move(*group))};
       },
       {ErrorCode::ok, ErrorCode::peer_lost}},  // ok: it had entered before it died
      {"it leaves",
       [minute](Scene& scene) {
         Open open = in_the_middle(scene, [&] {
           return scene.home->put(scene.data(), scene.victim->remote().at(0), k_large, {.timeout = minute});
         });
         (*scene.victim)->tell("quit");
         return open;
       },
       {ErrorCode::ok, ErrorCode::peer_lost, ErrorCode::peer_gone}},
  };
}

bool among(ErrorCode code, const Codes& codes) { return std::find(codes.begin(), codes.end(), code) != codes.end(); }

/// What this process holds; less of it is always well, since something of before may just be going.
struct Holdings {
  std::size_t mappings = library_mappings();
  std::size_t descriptors = open_descriptors();
  [[nodiscard]] bool within(const Holdings& other) const {
    return mappings <= other.mappings && descriptors <= other.descriptors;
  }
};

void require_next_life_works(Scene& scene, std::uint64_t seed) {
  scene.meet();
  fill_pattern(scene.data(), 70'000, seed);
  require_ok(scene.home->put_sync(scene.data(), scene.victim->remote().at(64), 70'000, k_patience));
  REQUIRE((*scene.victim)->ask("check 64 70000 " + std::to_string(seed)) == "ok");
}

void kill_at_every_step(const std::string& links) {
  Scene scene(links, k_lease);
  scene.warm_up();
  Holdings before;
  std::uint64_t seed = 100;
  for (const Step& step : steps()) {
    if (step.over_tcp_only && links != "tcp") continue;
    CAPTURE(std::string(step.name));
    require_next_life_works(scene, ++seed);
    const std::uint64_t lost = scene.home->counters().peers_lost;
    Open open = step.begin(scene);
    (*scene.victim)->kill();
    for (Request& request : open.requests) {
      const auto ended = request.wait(k_patience);
      CHECK_MESSAGE(among(code_of(ended), step.killed), name(code_of(ended)));
      if (!ended) CHECK(ended.error().detail.rank == 1);
    }
    if (open.group) {
      const auto ended = open.group->barrier(k_patience);
      CHECK(among(code_of(ended), step.killed));
      if (!ended) CHECK(ended.error().detail.rank == 1);
      open.group.reset();
    }
    // One that left in order before it was killed is not lost.
    const bool leaves = among(ErrorCode::peer_gone, step.killed);
    REQUIRE((leaves || eventually([&] { return scene.home->counters().peers_lost == lost + 1; })));
    fill_block(scene.data(), k_large, 3);
    scene.bystander.require_going_on();
    scene.require_still(3);
    scene.victim.reset();
    const bool back = eventually([&] { return Holdings().within(before); });
    const Holdings now;
    CHECK_MESSAGE(back, "mappings " << before.mappings << " -> " << now.mappings << ", descriptors "
                                    << before.descriptors << " -> " << now.descriptors);
    if (now.within(before)) before = now;
    scene.require_still(3);
  }
  CHECK(scene.bystander.finish() == "ok");
}

/// Stopped and continued with time for it: nothing notices but the clock.
void pause_at_every_step(const std::string& links) {
  Scene scene(links, k_long_lease);
  std::uint64_t seed = 200;
  require_next_life_works(scene, ++seed);
  const Counters before = scene.home->counters();
  for (const Step& step : steps()) {
    if (step.over_tcp_only && links != "tcp") continue;
    CAPTURE(std::string(step.name));
    const bool writes = std::string(step.name) == "it writes here";
    const bool leaves = among(ErrorCode::peer_gone, step.killed);
    if (leaves) continue;
    Open open = step.begin(scene);
    if (!among(ErrorCode::outcome_unknown, step.killed) && !step.over_tcp_only) (*scene.victim)->stop();
    scene.bystander.require_going_on();
    (*scene.victim)->resume();
    for (Request& request : open.requests) {
      const auto ended = request.wait(k_patience);
      CHECK_MESSAGE(ended.has_value(), (ended ? "" : ended.error().message()));
    }
    if (open.group) {
      CHECK(open.group->barrier(k_patience).has_value());
      REQUIRE((*scene.victim)->hear() == "ok");
      REQUIRE((*scene.victim)->ask("close") == "ok");
    }
    if (writes) {
      REQUIRE((*scene.victim)->hear() == "ok");
      static_cast<void>(scene.home->counters());
      CHECK(holds_pattern(scene.data(), k_large, 7));
    }
  }
  CHECK(scene.home->counters().failed == before.failed);
  CHECK(scene.home->counters().peers_lost == before.peers_lost);
  CHECK(scene.home->counters().link_failures == before.link_failures);
  CHECK(scene.bystander.finish() == "ok");
}

/// Stopped for longer than its lease: over tcp what needs it ends with PEER_LOST, and it comes back when it runs.
void stop_beyond_the_lease_at_every_step() {
  Scene scene("tcp", k_lease);
  std::uint64_t seed = 300;
  for (const Step& step : steps()) {
    CAPTURE(std::string(step.name));
    if (among(ErrorCode::peer_gone, step.killed)) continue;
    require_next_life_works(scene, ++seed);
    Guest& victim = *scene.victim;
    const std::uint64_t lost = scene.home->counters().peers_lost;
    Open open = step.begin(scene);
    if (!step.over_tcp_only) victim->stop();
    REQUIRE(eventually([&] { return scene.home->counters().peers_lost > lost; }));
    for (Request& request : open.requests) CHECK(among(code_of(request.wait(k_patience)), step.killed));
    if (open.group) {
      CHECK(code_of(open.group->barrier(k_patience)) == ErrorCode::peer_lost);
      open.group.reset();
    }
    fill_block(scene.data(), k_large, 4);
    scene.bystander.require_going_on();
    victim->resume();
    // Its session is over, whatever it was about to say or write: that is not applied any more.
    REQUIRE(eventually(
        [&] { return scene.home->put_sync(scene.data(), victim.remote().at(0), 8, k_patience).has_value(); }));
    scene.bystander.require_going_on();
    scene.require_still(4);
    victim->kill();
    scene.victim.reset();
  }
  CHECK(scene.bystander.finish() == "ok");
}

}  // namespace

TEST_CASE("S13 S49 a rank is killed at every step, over tcp") { kill_at_every_step("tcp"); }
TEST_CASE("S13 S41 S49 a rank is killed at every step, with windows") { kill_at_every_step("hccs,tcp"); }
TEST_CASE("a rank is stopped and continued at every step, over tcp") { pause_at_every_step("tcp"); }
TEST_CASE("a rank is stopped and continued at every step, with windows") { pause_at_every_step("hccs,tcp"); }
TEST_CASE("P3 a rank is stopped for longer than its lease at every step, over tcp") {
  stop_beyond_the_lease_at_every_step();
}

TEST_CASE("S14 a rank is killed before it has joined, and before it has met anybody: the next life meets") {
  for (const std::string links : {"tcp", "hccs,tcp"}) {
    CAPTURE(links);
    Home home(3, links, Bystander::k_room + k_large, {.lease = k_long_lease});
    Guest watcher(home, 2, {}, k_long_lease);
    Bystander bystander(*home, home.region(), *watcher, watcher.remote());
    for (const bool joined : {false, true, false, true}) {
      struct Answer {
        std::atomic<bool> here{false};
        ErrorCode code = ErrorCode::ok;
        RemoteRegion region;
      } answer;
      const Rank rank = 1;
      const Region& mine = home.region();
      require_ok(home->exchange_async(
          std::span(&mine, 1), std::span(&rank, 1), k_patience,
          [](void* context, std::vector<PeerAddresses>&& answers) {
            auto& to = *static_cast<Answer*>(context);
            to.code = code_of(answers.front().result);
            if (to.code == ErrorCode::ok) to.region = answers.front().regions.front();
            to.here.store(true);
          },
          &answer));
      Child first(settings().rank_program, {"--lease-ms", "500"}, home.environment(1));
      if (joined) REQUIRE(first.ask("lost") == "0");
      first.kill();
      bystander.require_going_on();
      Child next(settings().rank_program, {"--lease-ms", "500"}, home.environment(1));
      next.tell("exchange 0");
      REQUIRE(eventually([&] { return answer.here.load(); }));
      // Served by the next life, or told of the end of the first.
      CHECK((answer.code == ErrorCode::ok || answer.code == ErrorCode::peer_lost));
      const RemoteRegion there = answer.code == ErrorCode::ok ? answer.region : home.meet(1);
      REQUIRE(next.hear() == "ok");
      fill_pattern(home.data() + Bystander::k_room, 4096, 3);
      require_ok(home->put_sync(home.data() + Bystander::k_room, there.at(64), 4096, k_patience));
      CHECK(next.ask("check 64 4096 3") == "ok");
      next.tell("quit");
      CHECK(next.wait() == 0);
    }
    CHECK(bystander.finish() == "ok");
  }
}
