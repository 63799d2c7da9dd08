// SPDX-License-Identifier: Apache-2.0
//
// What a library must leave alone: the state that belongs to the process as a whole. And what it must give back:
// descriptors and memory, round after round.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <uv.h>

#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>

#include "home.hpp"

extern char** environ;

using namespace hixl;
using namespace hixl::test;

namespace {

using State = std::map<std::string, std::string>;

std::string hex(const void* data, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) {
    text += std::to_string(std::to_integer<unsigned>(static_cast<const std::byte*>(data)[i])) + " ";
  }
  return text;
}

std::string number(const void* function) { return std::to_string(reinterpret_cast<std::uintptr_t>(function)); }

State state_of_this_process() {
  State state;
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0) continue;
    state["signal " + std::to_string(signal)] =
        number(reinterpret_cast<const void*>(action.sa_handler)) + "/" + std::to_string(action.sa_flags);
  }
  sigset_t mask;
  sigemptyset(&mask);
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    state["mask"] += sigismember(&mask, signal) == 1 ? '1' : '0';
  }
  const mode_t umask_now = umask(0);
  umask(umask_now);
  state["umask"] = std::to_string(umask_now);
  for (char** variable = environ; *variable != nullptr; ++variable)
    state["environment"] += std::string(*variable) + "\n";
  state["locale"] = std::setlocale(LC_ALL, nullptr);
  for (int limit = 0; limit < RLIM_NLIMITS; ++limit) {
    rlimit value{};
    getrlimit(static_cast<__rlimit_resource>(limit), &value);
    state["limit " + std::to_string(limit)] = std::to_string(value.rlim_cur) + "/" + std::to_string(value.rlim_max);
  }
  state["directory"] = std::filesystem::current_path();
  state["terminate"] = number(reinterpret_cast<const void*>(std::get_terminate()));
  state["new"] = number(reinterpret_cast<const void*>(std::get_new_handler()));
  for (const int option : {PR_GET_DUMPABLE, PR_GET_KEEPCAPS, PR_GET_NO_NEW_PRIVS, PR_GET_SECCOMP}) {
    state["prctl " + std::to_string(option)] = std::to_string(prctl(option, 0, 0, 0, 0));
  }
  for (const int option : {PR_GET_CHILD_SUBREAPER, PR_GET_PDEATHSIG}) {
    int value = 0;
    prctl(option, &value, 0, 0, 0);
    state["prctl " + std::to_string(option)] = std::to_string(value);
  }
  char thread_name[16]{};
  prctl(PR_GET_NAME, thread_name, 0, 0, 0);
  state["thread name"] = thread_name;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof cores, &cores);
  state["cores"] = hex(&cores, sizeof cores);
  state["scheduling"] = std::to_string(sched_getscheduler(0)) + "/" + std::to_string(getpriority(PRIO_PROCESS, 0));
  state["rounding"] = std::to_string(std::fegetround());
  for (const int fd : {0, 1, 2}) {
    state["standard descriptor " + std::to_string(fd)] =
        std::to_string(fcntl(fd, F_GETFL)) + "/" + std::to_string(fcntl(fd, F_GETFD));
  }
  itimerval timer{};
  getitimer(ITIMER_REAL, &timer);
  state["timer"] = std::to_string(timer.it_value.tv_sec) + "/" + std::to_string(timer.it_interval.tv_sec);
  return state;
}

void require_same(const State& before, const char* when) {
  CAPTURE(when);
  const State after = state_of_this_process();
  for (const auto& [what, value] : before) CHECK_MESSAGE(after.at(what) == value, what);
  CHECK(before.size() == after.size());
}

std::size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::stoul(line.substr(6));
  }
  return 0;
}

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += 1;
  return count;
}

int scaled(int full) {
  const char* scale = std::getenv("HIXL_TEST_SCALE");
  const double factor = scale == nullptr ? 1.0 : std::min(1.0, std::strtod(scale, nullptr));
  return std::max(20, static_cast<int>(full * factor));
}

/// One rank, made, used and stopped.
void one_round(int kind) {
  uv_loop_t loop;
  RuntimeOptions options = options_for(0, 1, "");
  if (kind == 0) {
    const auto runtime = Runtime::create(options);
    require_ok(runtime);
    const auto region = (*runtime)->allocate(4096);
    require_ok((*runtime)->put_sync(region->data, {0, region->address() + 64, {}, 0}, 64));
    require_ok((*runtime)->stop());
  } else if (kind == 1) {
    const auto runtime = Runtime::create_polled(options);
    require_ok(runtime);
    const auto region = (*runtime)->allocate(4096);
    require_ok((*runtime)->put_sync(region->data, {0, region->address() + 64, {}, 0}, 64));
    require_ok((*runtime)->stop());
  } else {
    uv_loop_init(&loop);
    auto runtime = Runtime::create_on(&loop, options);
    require_ok(runtime);
    require_ok((*runtime)->allocate(4096));
    bool stopped = false;
    require_ok((*runtime)->stop_async(
        k_patience, [](void* context, const Result<void>&) { *static_cast<bool*>(context) = true; }, &stopped));
    uv_run(&loop, UV_RUN_DEFAULT);
    REQUIRE(stopped);
    runtime->reset();
    REQUIRE(uv_loop_close(&loop) == 0);
  }
}

}  // namespace

TEST_CASE("S63 P63 making, using and stopping a runtime changes nothing of the process as a whole") {
  struct sigaction plain {};
  REQUIRE(sigaction(SIGPIPE, nullptr, &plain) == 0);
  REQUIRE((plain.sa_handler == SIG_DFL));  // a SIGPIPE would end this test
  static_cast<void>(resident_kib());
  const State before = state_of_this_process();
  for (const std::string links : {"", "tcp", "hccs"}) {
    CAPTURE(links);
    {
      Home home(2, links);
      require_same(before, "after the start");
      Guest guest(home, 1);
      require_traffic_both_ways(home, guest, 1);
      require_same(before, "after traffic");
      std::vector<Request> open;
      for (int i = 0; i < 20; ++i) {
        auto request = home->put(home.data(), guest.remote().at(0), 8U << 20U);
        if (request) open.push_back(*request);
      }
      guest->kill();  // sockets break under writers
      for (Request& request : open) static_cast<void>(request.wait(k_patience));
      require_same(before, "after a peer's death");
    }
    require_same(before, "after the stop");
  }
  for (int kind = 0; kind < 3; ++kind) {
    one_round(kind);
    require_same(before, "after a round of each kind");
  }
}

TEST_CASE("F7 ten thousand rounds of making and stopping leave no descriptor, mapping or memory behind") {
  const int rounds = scaled(10'000);
  // The first rounds fill caches: the allocator's arenas, and libuv's and the C library's own.
  for (int round = 0; round < std::max(20, rounds / 20); ++round) one_round(round % 3);
  const std::size_t descriptors = open_descriptors();
  const std::size_t maps = mappings();
  const std::size_t memory_kib = resident_kib();
  const auto begun = std::chrono::steady_clock::now();
  for (int round = 0; round < rounds; ++round) {
    one_round(round % 3);
    if (round % 100 == 0) REQUIRE(open_descriptors() == descriptors);
  }
  const std::chrono::duration<double, std::micro> each = (std::chrono::steady_clock::now() - begun) / rounds;
  const std::size_t memory_after_kib = resident_kib();
  MESSAGE(rounds << " rounds, " << each.count() << " us each; descriptors " << descriptors << ", mappings " << maps
                 << " -> " << mappings() << ", resident " << memory_kib << " -> " << memory_after_kib << " KiB");
  CHECK(open_descriptors() == descriptors);
  // A leak of one page a round would be 40 MB; the allocators of sanitizers hold back what was freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t k_growth_kib = 512U << 10U;
#else
  constexpr std::size_t k_growth_kib = 4096;
  CHECK(mappings() <= maps + 16);
#endif
  CHECK(memory_after_kib <= memory_kib + k_growth_kib);
}

TEST_CASE("F7 P45 ranks that meet and part, round after round, leave nothing behind") {
  const auto store = std::move(*Store::create("tcp://127.0.0.1:0"));
  const int rounds = std::max(10, scaled(10'000) / 50);
  std::size_t descriptors = 0;
  std::size_t memory_kib = 0;
  const auto begun = std::chrono::steady_clock::now();
  for (int round = 0; round < rounds; ++round) {
    std::unique_ptr<Runtime> ranks[2];
    for (Rank rank = 0; rank < 2; ++rank) {
      auto runtime = Runtime::create(options_for(rank, 2, store->url(), {LinkKind::tcp}));
      require_ok(runtime);
      ranks[rank] = std::move(*runtime);
    }
    Region regions[2] = {*ranks[0]->allocate(4096), *ranks[1]->allocate(4096)};
    std::atomic<bool> learned{false};
    const Rank zero[] = {0}, one[] = {1};
    require_ok(ranks[1]->exchange_async(
        std::span(&regions[1], 1), zero, k_patience,
        [](void* context, std::vector<PeerAddresses>&&) { static_cast<std::atomic<bool>*>(context)->store(true); },
        &learned));
    const auto answers = ranks[0]->exchange(std::span(&regions[0], 1), one, k_patience);
    require_ok(answers.front().result);
    require_ok(ranks[0]->put_sync(regions[0].data, answers.front().regions.front().at(0), 4096));
    REQUIRE(eventually([&] { return learned.load(); }));
    ranks[round % 2].reset();
    ranks[1 - round % 2].reset();
    if (round != rounds / 10) continue;
    descriptors = open_descriptors();
    memory_kib = resident_kib();
  }
  const std::chrono::duration<double, std::micro> each = (std::chrono::steady_clock::now() - begun) / rounds;
  MESSAGE(rounds << " rounds of two ranks, " << each.count() << " us each; resident " << memory_kib << " -> "
                 << resident_kib() << " KiB");
  CHECK(eventually([&] { return open_descriptors() <= descriptors; }));
}
