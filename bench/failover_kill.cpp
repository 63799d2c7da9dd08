// SPDX-License-Identifier: Apache-2.0
//
// How long a program waits for the end of its operation when its peer on the same host is killed.
#include <csignal>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "failover.hpp"
#include "measure.hpp"

namespace hixl::bench {
namespace {

constexpr std::chrono::seconds k_patience{20};
constexpr std::size_t k_bytes = 1U << 20U;

/// Rank 1 of a world of its own, in another process.
class Victim {
 public:
  explicit Victim(const std::string& store) {
    setenv("HIXL_STORE", store.c_str(), 1);
    setenv("HIXL_WORLD_SIZE", "2", 1);
    setenv("HIXL_RANK", "1", 1);
    char program[] = "/proc/self/exe";
    char word[] = "victim";
    char* const words[] = {program, word, nullptr};
    if (posix_spawn(&pid_, program, nullptr, nullptr, words, environ) != 0) give_up("cannot start another process");
  }
  ~Victim() { static_cast<void>(kill_now()); }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;
  /// When it was killed.
  std::uint64_t kill_now() {
    if (pid_ <= 0) return 0;
    const std::uint64_t at = now_ns();
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
    return at;
  }

 private:
  pid_t pid_ = -1;
};

struct Ending {
  std::atomic<std::uint64_t> failed_at{0};
  std::atomic<ErrorCode> code{ErrorCode::ok};
  std::atomic<std::uint64_t> ended{0};
};

/// One death: from the kill to the end of the operation that could not be done any more.
std::uint64_t one_death(std::uint64_t moment, const char* links) {
  const auto store = need(Store::create("tcp://127.0.0.1:0"));
  setenv("HIXL_LINKS", links, 1);
  Victim victim(store->url());
  setenv("HIXL_RANK", "0", 1);
  auto runtime = need(Runtime::create(need(RuntimeOptions::from_environment())));
  const Region region = need(runtime->allocate(k_bytes));
  const Rank one[] = {1};
  auto answers = runtime->exchange(std::span(&region, 1), one, k_patience);
  need(answers.front().result);
  const RemoteRegion remote = answers.front().regions.front();
  Ending ending;
  const auto post = [&] {
    return runtime->put(region.data, remote.at(0), k_bytes,
                        {.timeout = k_patience,
                         .callback = {[](void* context, const Completion& completion) {
                                        auto& told = *static_cast<Ending*>(context);
                                        if (!completion.result) {
                                          told.code.store(completion.result.error().code);
                                          told.failed_at.store(now_ns());
                                        }
                                        told.ended.fetch_add(1);
                                      },
                                      &ending}});
  };
  std::uint64_t killed = 0;
  for (std::uint64_t posted = 0; ending.failed_at.load() == 0; ++posted) {
    if (const auto request = post(); !request) {
      if (killed == 0) give_up(request.error().message());
      return now_ns() - killed;  // refused in the call: it is known already
    }
    if (posted == 8 + moment % 16) killed = victim.kill_now();
    while (ending.ended.load() <= posted) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (killed == 0) give_up("an operation failed before the peer was killed");
  if (ending.code.load() != ErrorCode::peer_lost) give_up("an operation to a dead peer ended with another code");
  return ending.failed_at.load() - killed;
}

}  // namespace

int victim() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto runtime = need(Runtime::create(need(RuntimeOptions::from_environment())));
  const Region region = need(runtime->allocate(k_bytes));
  const Rank zero[] = {0};
  need(runtime->exchange(std::span(&region, 1), zero, k_patience).front().result);
  for (;;) pause();
}

nlohmann::json kill_peer(const FailoverSettings& settings, const std::string& links) {
  std::mt19937_64 random(settings.seed);
  const std::size_t rounds = settings.smoke ? 2 : 50;
  Samples samples(rounds);
  for (std::size_t i = 0; i < rounds; ++i) samples.add(one_death(random(), links.c_str()));
  return {{"bench", "kill_peer"},
          {"links", links},
          {"size", k_bytes},
          {"deaths", rounds},
          {"p50_ms", samples.us(500) / 1000},
          {"p99_ms", samples.us(990) / 1000},
          {"seed", settings.seed}};
}

}  // namespace hixl::bench
