// SPDX-License-Identifier: Apache-2.0
//
// Ranks that die at awkward moments and come again: in the middle of meeting, under the hands of many threads, with
// another layout of memory, and round after round.
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include <doctest/doctest.h>

#include "home.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr Rank k_one[] = {1};

bool is_over(ErrorCode code) {
  return code == ErrorCode::peer_lost || code == ErrorCode::stale || code == ErrorCode::not_exchanged;
}

}  // namespace

TEST_CASE("S14 a rank killed at any moment of meeting: the other side gets an end, and meets the next life") {
  for (const std::string links : {"hccs", "hccs,tcp,pcie"}) {
    CAPTURE(links);
    Home home(2, links);
    constexpr int k_moments = 6;
    for (int moment = 0; moment < k_moments; ++moment) {
      CAPTURE(moment);
      // The size tells the lives apart.
      const std::size_t dead_bytes = 4U << 20U;
      const std::size_t next_bytes = 3U << 20U;
      struct Meeting {
        std::atomic<bool> over{false};
        PeerAddresses answer;
      } meeting;
      require_ok(home->exchange_async(
          std::span(&home.region(), 1), k_one, k_patience,
          [](void* context, std::vector<PeerAddresses>&& answers) {
            auto& to = *static_cast<Meeting*>(context);
            to.answer = std::move(answers.front());
            to.over.store(true);
          },
          &meeting));
      const std::size_t descriptors = open_descriptors();
      const std::size_t mappings = library_mappings();
      {
        Child dying(settings().rank_program, {"--lease-ms", "500", "--bytes", std::to_string(dead_bytes)},
                    home.environment(1));
        dying.tell("exchange 0");
        const auto reached = [&] {
          if (meeting.over.load()) return true;
          switch (moment) {
            case 0:
              return library_mappings(dying.pid()) > 0;  // it has a runtime
            case 1:
              return !home->links().empty();  // it is known here
            case 2:
              return open_descriptors() > descriptors + 2;  // it is connected, this test's own two aside
            case 3:
              return library_mappings() > mappings;  // something of it is mapped here
            default:
              return false;
          }
        };
        const auto patience = std::chrono::steady_clock::now() + k_patience;
        while (moment < k_moments - 1 && !reached()) REQUIRE(std::chrono::steady_clock::now() < patience);
        dying.kill();  // at moment 5 before it has done anything
      }
      Child next(settings().rank_program, {"--lease-ms", "500", "--bytes", std::to_string(next_bytes)},
                 home.environment(1));
      next.tell("exchange 0");
      REQUIRE(eventually([&] { return meeting.over.load(); }));
      PeerAddresses answer = std::move(meeting.answer);
      int failed = 0;
      while (!answer.result || answer.regions.front().length != next_bytes) {
        if (!answer.result) CHECK(code_of(answer.result) == ErrorCode::peer_lost);
        failed += answer.result ? 0 : 1;
        REQUIRE(failed <= 2);
        answer = home->exchange(std::span(&home.region(), 1), k_one, k_patience).front();
      }
      REQUIRE(next.hear() == "ok");
      fill_pattern(home.data(), 100'000, static_cast<std::uint64_t>(moment));
      require_ok(home->put_sync(home.data(), answer.regions.front().at(64), 100'000, k_patience));
      CHECK(next.ask("check 64 100000 " + std::to_string(moment)) == "ok");
    }
  }
}

TEST_CASE("S29 a rank is killed and comes again under eight threads that use it: each call ends, all go on") {
  constexpr std::size_t k_threads = 8;
  constexpr std::size_t k_area = 64U << 10U;
  constexpr int k_lives = 3;
  for (const std::string links : {"", "tcp"}) {
    CAPTURE(links);
    Home home(2, links);
    std::mutex mutex;
    RemoteRegion remote;
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> strange{0};
    std::atomic<ErrorCode> what{ErrorCode::ok};
    std::atomic<int> life{0};
    std::atomic<int> seen_life[k_threads] = {};  // the last one in which something succeeded
    std::vector<std::thread> threads;
    struct Join {
      std::atomic<bool>& over;
      std::vector<std::thread>& threads;
      ~Join() {
        over = true;
        for (std::thread& thread : threads) thread.join();
      }
    };
    {
      Join join{over, threads};
      std::optional<Guest> guest(std::in_place, home, 1);
      remote = guest->remote();
      life = 1;
      for (std::size_t i = 0; i < k_threads; ++i) {
        threads.emplace_back([&, i] {
          std::byte* const mine = home.data() + i * k_area;
          for (std::uint64_t step = i; !over.load(); ++step) {
            const int now = life.load();
            RemoteRegion to;
            {
              const std::scoped_lock lock(mutex);
              to = remote;
            }
            const RemoteAddress place = to.at(i * k_area);
            const BatchEntry entry{TransferVerb::put, mine, place, k_area / 2};
            Result<void> end{};
            if (step % 4 == 0) end = home->put_sync(mine, place, 64, k_patience);
            if (step % 4 == 1) end = home->get_sync(mine + k_area / 2, place, k_area / 2, k_patience);
            if (step % 4 == 2) end = home->batch_sync(std::span(&entry, 1), k_patience);
            if (step % 4 == 3) {
              auto request = home->put_with_signal(mine, place, 1000, {.word = to.at(i * k_area + 1024)});
              end = request ? request->wait(k_patience) : fail(request.error());
            }
            if (end) seen_life[i] = now;
            if (!end && !is_over(code_of(end))) {
              strange += 1;
              what = code_of(end);
            }
          }
        });
      }
      for (int i = 2; i <= k_lives; ++i) {
        for (const std::atomic<int>& seen : seen_life) REQUIRE(eventually([&] { return seen.load() >= i - 1; }));
        (*guest)->kill();
        guest.emplace(home, 1);
        const std::scoped_lock lock(mutex);
        remote = guest->remote();
        life = i;
      }
      for (const std::atomic<int>& seen : seen_life) REQUIRE(eventually([&] { return seen.load() >= k_lives; }));
    }
    CHECK_MESSAGE(strange == 0, name(what.load()));
  }
}

TEST_CASE("P55 P72 what was learned of an earlier life is STALE, also where the new one has other memory") {
  for (const std::string links : {"", "tcp"}) {
    CAPTURE(links);
    Home home(2, links);
    std::optional<Guest> guest(std::in_place, home, 1, std::vector<std::string>{"--bytes", "8388608"});
    const RemoteRegion old = guest->remote();
    (*guest)->kill();
    for (const std::size_t bytes : {std::size_t{2} << 20U, std::size_t{8} << 20U}) {
      guest.emplace(home, 1, std::vector<std::string>{"--bytes", std::to_string(bytes)});
      const RemoteRegion fresh = guest->remote();
      const BatchEntry prepared[] = {{TransferVerb::put, home.data(), old.at(0), 4096},
                                     {TransferVerb::put, home.data(), fresh.at(4096), 4096}};
      std::memset(home.data(), 0x66, 1U << 20U);
      for (const std::size_t size : {std::size_t{8}, std::size_t{1} << 20U}) {
        CHECK(code_of(home->put_sync(home.data(), old.at(0), size, k_patience)) == ErrorCode::stale);
        CHECK(code_of(home->get_sync(home.data(), old.at(0), size, k_patience)) == ErrorCode::stale);
      }
      CHECK(code_of(home->batch_sync(prepared, k_patience)) == ErrorCode::stale);
      std::memset(home.data(), 0x77, 1U << 20U);
      require_ok(home->get_sync(home.data(), fresh.at(0), fresh.length - 8, k_patience));
      CHECK(std::all_of(home.data(), home.data() + fresh.length - 8,
                        [](std::byte byte) { return byte == std::byte{0}; }));
      require_traffic_both_ways(home, *guest, bytes);
    }
  }
}

TEST_CASE("S44 S45 rank after rank crashes and starts again: what the others hold does not grow, and nothing is left") {
  const std::size_t shm = entries_of("/dev/shm");
  Home home(2);
  std::size_t descriptors = 0;
  std::size_t mappings = 0;
  std::size_t threads = 0;
  constexpr int k_rounds = 14;
  for (int round = 0; round < k_rounds; ++round) {
    CAPTURE(round);
    Guest guest(home, 1);
    require_traffic_both_ways(home, guest, static_cast<std::uint64_t>(round));
    guest->kill();
    REQUIRE(eventually([&] { return home->counters().peers_lost == static_cast<std::uint64_t>(round) + 1; }));
    if (round < 2) continue;  // what stays for good is there after that, such as the threads of the copy engines
    if (round == 2) {
      require_ok(home->quiet(k_patience));
      threads = entries_of("/proc/self/task");
      REQUIRE(eventually([&, last = std::size_t{0}, same = 0]() mutable {
        const std::size_t now = library_mappings() * 1000 + open_descriptors();
        same = now == last ? same + 1 : 0;
        last = now;
        return same == 50;
      }));
      mappings = library_mappings();
      descriptors = open_descriptors();
      continue;
    }
    const bool back = eventually([&] { return library_mappings() <= mappings && open_descriptors() <= descriptors; });
    REQUIRE_MESSAGE(back, "mappings " << mappings << " -> " << library_mappings() << ", descriptors " << descriptors
                                      << " -> " << open_descriptors());
    CHECK(entries_of("/proc/self/task") == threads);
    CHECK(entries_of("/dev/shm") == shm);
  }
}
