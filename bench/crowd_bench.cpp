// SPDX-License-Identifier: Apache-2.0
//
// hixl_crowd_bench: what peers at rest cost one rank. This process is rank 0; all others live in a second process, so
// that memory and processor time of this one are rank 0's alone. One JSON line: private and shared memory of a peer
// that was connected, put to, and left alone; and the processor time of the idle loop with all of them.
//   hixl_crowd_bench --peers 1000 --link tcp --seconds 10
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <hixl/runtime.hpp>
#include <hixl/store.hpp>

#include "measure.hpp"

namespace {

using namespace hixl;
using namespace hixl::bench;

constexpr Timeout k_patience = std::chrono::seconds(120);
constexpr std::size_t k_region_bytes = 4096;

template <class T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  std::cerr << "hixl_crowd_bench: " << result.error().message() << "\n";
  std::exit(1);
}
void need(const Result<void>& result) {
  if (result) return;
  std::cerr << "hixl_crowd_bench: " << result.error().message() << "\n";
  std::exit(1);
}

RuntimeOptions options_of(Rank rank, std::uint32_t peers, const std::string& store, LinkKind link) {
  RuntimeOptions options;
  options.rank = rank;
  options.world_size = peers + 1;
  options.store = store;
  options.links = {link};
  // A crowd begins at once, on few processors.
  options.connect_timeout = std::chrono::seconds(60);
  return options;
}

/// All other ranks. The exit code.
int others(std::uint32_t peers, LinkKind link, int from, int to) {
  char text[256] = {};
  if (read(from, text, sizeof text - 1) <= 0) return 1;
  const std::string store = text;
  std::mutex mutex;
  std::condition_variable over;
  bool is_over = false;
  std::uint32_t ready = 0, wrong = 0;
  std::vector<std::thread> threads;
  for (Rank rank = 1; rank <= peers; ++rank) {
    threads.emplace_back([&, rank] {
      RuntimeOptions options = options_of(rank, peers, store, link);
      options.requests_max = 16;  // they post nothing
      options.poll = PollMode::event;
      const auto runtime = need(Runtime::create(options));
      const Region region = need(runtime->allocate(k_region_bytes));
      const Rank hub[] = {0};
      need(runtime->exchange(std::span(&region, 1), hub, k_patience).front().result);
      std::unique_lock lock(mutex);
      if (++ready == peers && write(to, "r", 1) != 1) std::exit(1);
      over.wait(lock, [&] { return is_over; });
      std::uint64_t word = 0;
      std::memcpy(&word, region.data, sizeof word);
      wrong += word == rank ? 0 : 1;
      lock.unlock();
      static_cast<void>(runtime->stop(k_patience));
    });
  }
  const ssize_t heard = read(from, text, 1);
  {
    const std::scoped_lock lock(mutex);
    is_over = true;
  }
  over.notify_all();
  for (std::thread& thread : threads) thread.join();
  return heard == 1 && wrong == 0 ? 0 : k_exit_wrong_bytes;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint32_t peers = 64;
  double seconds = 2;
  std::string link = "tcp";
  CLI::App app{"What peers at rest cost a rank; one JSON line."};
  app.add_option("--peers", peers, "other ranks, all in one other process")->check(CLI::Range(1, 1000));
  app.add_option("--link", link, "tcp or hccs")->check(CLI::IsMember({"tcp", "hccs"}));
  app.add_option("--seconds", seconds, "for which nobody does anything")->check(CLI::Range(0.1, 600.0));
  CLI11_PARSE(app, argc, argv);
  const LinkKind kind = link == "tcp" ? LinkKind::tcp : LinkKind::hccs;
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) return std::perror("pipe"), 1;
  const pid_t child = fork();
  if (child < 0) return std::perror("fork"), 1;
  if (child == 0) {
    close(down[1]);
    _exit(others(peers, kind, down[0], up[1]));
  }
  close(up[1]);
  const auto store = need(Store::create("tcp://127.0.0.1:0"));
  const auto hub = need(Runtime::create(options_of(0, peers, store->url(), kind)));
  const Region region = need(hub->allocate(k_region_bytes));
  std::vector<Rank> ranks(peers);
  std::iota(ranks.begin(), ranks.end(), 1);
  const MemoryUse before;
  const std::string url = store->url();
  if (write(down[1], url.data(), url.size()) < 0) return std::perror("write"), 1;
  const auto answers = hub->exchange(std::span(&region, 1), ranks, k_patience);
  for (const auto& answer : answers) need(answer.result);
  need(hub->prewarm(ranks, k_patience));
  for (std::uint32_t i = 0; i < peers; ++i) {
    const std::uint64_t word = ranks[i];
    std::memcpy(region.data, &word, sizeof word);
    need(hub->put_sync(region.data, answers[i].regions.front().at(0), sizeof word, k_patience));
  }
  char ready = 0;
  if (read(up[0], &ready, 1) != 1) return std::cerr << "hixl_crowd_bench: the other ranks are gone\n", 1;
  const MemoryUse after;
  const double cpu = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double used = cpu_seconds() - cpu;
  if (write(down[1], "o", 1) != 1) return std::perror("write"), 1;
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == k_exit_wrong_bytes) {
    std::cerr << "hixl_crowd_bench: the bytes at a target are not the bytes that were put\n";
    return k_exit_wrong_bytes;
  }
  const double each = static_cast<double>(peers);
  std::cout << nlohmann::json{{"bench", "crowd"},
                              {"link", link},
                              {"peers", peers},
                              {"private_bytes_a_peer", (after.private_bytes - before.private_bytes) / each},
                              {"shared_bytes_a_peer", (after.shared_bytes - before.shared_bytes) / each},
                              {"idle_seconds", seconds},
                              {"idle_cpu_percent", used / seconds * 100},
                              {"commit", HIXL_COMMIT},
                              {"verified", status == 0}}
                   .dump()
            << std::endl;
  static_cast<void>(hub->stop());
  return status == 0 ? 0 : 1;
}
