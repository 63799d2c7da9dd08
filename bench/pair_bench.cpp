// SPDX-License-Identifier: Apache-2.0
//
// hixl_pair_bench: two ranks in two processes, on one host or on two, so that a card and what perftest says of it can
// be compared with what the library makes of it. Rank 0 measures and prints one JSON line a question; rank 1 checks the
// bytes with its own CPU. Rank, store and links come from the environment, as launchers set them.
//   HIXL_LINKS=roce hixl_run -n 2 hixl_pair_bench put_lat:8 get_lat:8 put_bw:65536 put_bw:1048576 register:16777216
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <hixl/runtime.hpp>

#include "measure.hpp"

namespace {

using namespace hixl;
using namespace hixl::bench;
using nlohmann::json;

constexpr Timeout k_patience = std::chrono::seconds(60);

[[noreturn]] void give_up(const std::string& why) {
  std::cerr << "hixl_pair_bench: " << why << "\n";
  std::exit(1);
}
template <class T>
T need(Result<T> result) {
  if (!result) give_up(result.error().message());
  return std::move(*result);
}
void need(const Result<void>& result) {
  if (!result) give_up(result.error().message());
}

struct Settings {
  std::vector<std::string> questions;
  std::size_t rounds = 1000;   ///< of a latency
  std::size_t megabytes = 32;  ///< moved for a bandwidth
  std::size_t window = 64;     ///< puts under way for a bandwidth
  std::size_t regions = 64;    ///< registered under pings
  bool polled = false;
};

/// Both ranks have the same region: words of control, then room for the bytes.
constexpr std::uint64_t k_control_bytes = 4096;

/// What rank 0 asks of rank 1: to look at `slots` blocks of `bytes`, the i-th filled from seed + i.
struct Order {
  std::uint64_t number = 0;  ///< the signal, written last
  std::uint64_t bytes = 0;
  std::uint64_t slots = 0;  ///< 0: it is over
  std::uint64_t seed = 0;
};
constexpr std::uint64_t k_answer_offset = 64;  ///< at rank 0: twice the order's number, and one more if all was well

class Pair {
 public:
  Pair(const Settings& settings, std::size_t room) : settings_(settings) {
    RuntimeOptions options = need(RuntimeOptions::from_environment());
    if (options.world_size != 2) give_up("needs two ranks: hixl_run -n 2, or HIXL_RANK and HIXL_WORLD_SIZE=2");
    // The rank that measures may turn its runtime itself and never sleep, as perftest does.
    const bool polled = settings.polled && options.rank == 0;
    if (polled) options.poll = PollMode::busy;
    runtime_ = need(polled ? Runtime::create_polled(options) : Runtime::create(options));
    need(runtime_->joined().wait(k_patience));
    region_ = need(runtime_->allocate(k_control_bytes + room));
    const Rank other[] = {1 - options.rank};
    auto answers = runtime_->exchange(std::span(&region_, 1), other, k_patience);
    need(answers.front().result);
    remote_ = answers.front().regions.front();
    need(runtime_->prewarm(other, k_patience));
  }
  Runtime& runtime() { return *runtime_; }
  std::byte* data() { return region_.data + k_control_bytes; }
  [[nodiscard]] RemoteAddress there(std::uint64_t offset) const { return remote_.at(k_control_bytes + offset); }
  const Settings& settings() const { return settings_; }

  /// Rank 0: has rank 1 look at the bytes with its own eyes.
  void need_bytes(std::uint64_t bytes, std::uint64_t slots, std::uint64_t seed) {
    if (!said(send({.number = ++orders_, .bytes = bytes, .slots = slots, .seed = seed}))) {
      give_up("the bytes at the target are not the bytes that were put");
    }
  }
  void finish() {
    static_cast<void>(said(send({.number = ++orders_})));
    need(runtime_->stop());
  }
  /// Rank 1.
  void serve() {
    for (std::uint64_t number = 1;; ++number) {
      need(runtime_->wait_signal(region_.data, Compare::equal, number, std::chrono::hours(1)));
      Order order;
      std::memcpy(&order, region_.data, sizeof order);
      bool well = true;
      for (std::uint64_t slot = 0; slot < order.slots; ++slot) {
        well = verify(data() + slot * order.bytes, order.bytes, order.seed + slot) && well;
      }
      need(need(runtime_->put_with_signal(region_.data, remote_.at(0), 0,
                                          {.word = remote_.at(k_answer_offset), .value = 2 * number + (well ? 1 : 0)}))
               .wait(k_patience));
      if (order.slots == 0) break;
    }
    need(runtime_->stop());
  }

 private:
  std::uint64_t send(Order order) {
    // Staged beside the answer; the order's first word is the signal.
    std::byte* const staged = region_.data + 2 * k_answer_offset;
    std::memcpy(staged, &order, sizeof order);
    need(need(runtime_->put_with_signal(staged + 8, remote_.at(8), sizeof order - 8,
                                        {.word = remote_.at(0), .value = order.number}))
             .wait(k_patience));
    return order.number;
  }
  bool said(std::uint64_t number) {
    return need(runtime_->wait_signal(region_.data + k_answer_offset, Compare::greater_equal, 2 * number,
                                      k_patience)) == 2 * number + 1;
  }

  const Settings settings_;
  std::unique_ptr<Runtime> runtime_;
  Region region_;
  RemoteRegion remote_;
  std::uint64_t orders_ = 0;
};

/// Names of the kinds of links that carried payload since then.
class Carriers {
 public:
  explicit Carriers(Pair& pair) : pair_(pair), before_(pair.runtime().counters()) {}
  [[nodiscard]] std::string names() const {
    const Counters now = pair_.runtime().counters();
    std::string list;
    for (std::size_t kind = 0; kind < k_link_kinds; ++kind) {
      if (now.bytes_out[kind] + now.bytes_in[kind] == before_.bytes_out[kind] + before_.bytes_in[kind]) continue;
      list += (list.empty() ? "" : "+") + std::string(name(static_cast<LinkKind>(kind)));
    }
    return list;
  }

 private:
  Pair& pair_;
  const Counters before_;
};

json latency(Pair& pair, bool get, std::uint64_t size) {
  const std::size_t rounds = pair.settings().rounds;
  Runtime& runtime = pair.runtime();
  Samples samples(rounds);
  fill(pair.data(), size, size);
  const Carriers carriers(pair);
  for (std::size_t i = 0; i < rounds + rounds / 10; ++i) {
    const std::uint64_t start = now_ns();
    const auto done =
        get ? runtime.get_sync(pair.data(), pair.there(0), size) : runtime.put_sync(pair.data(), pair.there(0), size);
    const std::uint64_t time = now_ns() - start;
    need(done);
    if (i >= rounds / 10) samples.add(time);
    // Before a get can bring anything back, a put must have taken it there.
    if (get && i == 0) {
      fill(pair.data(), size, size);
      need(runtime.put_sync(pair.data(), pair.there(0), size));
    }
  }
  pair.need_bytes(size, 1, size);
  if (get && !verify(pair.data(), size, size)) give_up("a get brought other bytes");
  return {{"bench", get ? "get_lat" : "put_lat"},
          {"size", size},
          {"p50_us", samples.us(500)},
          {"p99_us", samples.us(990)},
          {"links", carriers.names()}};
}

json bandwidth(Pair& pair, std::uint64_t size) {
  const std::size_t count = std::max<std::size_t>((pair.settings().megabytes << 20U) / size, 2);
  const std::size_t window = std::min(pair.settings().window, count);
  // Slots enough that the window fits the room; several puts may go to one.
  const std::size_t slots = std::min<std::size_t>(window, std::max<std::size_t>((8U << 20U) / size, 1));
  const std::uint64_t seed = size + 1;
  for (std::size_t slot = 0; slot < slots; ++slot) fill(pair.data() + slot * size, size, seed + slot);
  std::vector<Request> open(window);
  const auto run = [&](std::size_t puts) {
    for (std::size_t i = 0; i < puts + window; ++i) {
      Request& request = open[i % window];
      if (!request.empty()) need(request.wait(k_patience));
      request = {};
      const std::uint64_t at = i % slots * size;
      if (i < puts) request = need(pair.runtime().put(pair.data() + at, pair.there(at), size, {.timeout = k_patience}));
    }
  };
  run(window);  // warms up
  const Carriers carriers(pair);
  const std::uint64_t start = now_ns();
  run(count);
  const auto time_ns = static_cast<double>(now_ns() - start);
  pair.need_bytes(size, slots, seed);
  return {{"bench", "put_bw"},
          {"size", size},
          {"count", count},
          {"mib_per_s", static_cast<double>(count * size) / time_ns * 1e9 / (1U << 20U)},
          {"links", carriers.names()}};
}

/// Pings while regions are registered by another thread, and as long without.
json registration(Pair& pair, std::uint64_t size) {
  const std::size_t regions = pair.settings().regions;
  Samples quiet(1U << 16U), loaded(1U << 16U);
  fill(pair.data(), 8, 5);
  const auto ping = [&pair](Samples& samples) {
    const std::uint64_t start = now_ns();
    need(pair.runtime().put_sync(pair.data(), pair.there(0), 8));
    samples.add(now_ns() - start);
  };
  ping(quiet);
  std::atomic<std::uint64_t> registered{0};
  const std::uint64_t begun = now_ns();
  std::thread other([&] {
    for (std::size_t i = 0; i < regions; ++i) {
      void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) give_up("no memory for the regions");
      static_cast<void>(need(pair.runtime().register_memory(memory, size)));
    }
    registered.store(now_ns());
  });
  while (registered.load() == 0) ping(loaded);
  other.join();
  const std::uint64_t time = registered.load() - begun;
  for (const std::uint64_t until = now_ns() + time; now_ns() < until;) ping(quiet);
  pair.need_bytes(8, 1, 5);
  return {{"bench", "register"},
          {"size", size},
          {"regions", regions},
          {"ms", static_cast<double>(time) / 1e6},
          {"ping_p50_us", loaded.us(500)},
          {"ping_max_us", loaded.us(999)},
          {"quiet_p50_us", quiet.us(500)},
          {"quiet_max_us", quiet.us(999)}};
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{"Two ranks in two processes: latency and bandwidth of one pair; one JSON line a question, from rank 0."};
  app.add_option("questions", settings.questions, "put_lat:BYTES, get_lat:BYTES, put_bw:BYTES, register:BYTES")
      ->required();
  app.add_option("--rounds", settings.rounds, "of a latency")->check(CLI::Range(10, 10'000'000));
  app.add_option("--megabytes", settings.megabytes, "moved for a bandwidth")->check(CLI::Range(1, 1'000'000));
  app.add_option("--window", settings.window, "puts under way for a bandwidth")->check(CLI::Range(1, 2048));
  app.add_option("--regions", settings.regions, "that are registered under pings")->check(CLI::Range(1, 10'000));
  app.add_flag("--polled", settings.polled,
               "rank 0 turns its runtime itself, without sleep, instead of having a loop thread");
  CLI11_PARSE(app, argc, argv);
  struct Question {
    std::string what;
    std::uint64_t size = 0;
  };
  std::vector<Question> questions;
  std::uint64_t room = 8U << 20U;
  for (const std::string& text : settings.questions) {
    const std::size_t colon = text.find(':');
    const std::string what = text.substr(0, colon);
    const std::uint64_t size = colon == std::string::npos ? 0 : std::strtoull(text.c_str() + colon + 1, nullptr, 10);
    const auto known = {"put_lat", "get_lat", "put_bw", "register"};
    if (std::find(known.begin(), known.end(), what) == known.end() || size == 0 || size > (1U << 30U)) {
      give_up(text + ": not a question and a size up to 1 GiB, as put_bw:65536");
    }
    if (what != "register") room = std::max(room, size);
    questions.push_back({what, size});
  }
  Pair pair(settings, room);
  if (pair.runtime().rank() != 0) return pair.serve(), 0;
  for (const Question& question : questions) {
    json row;
    if (question.what == "put_bw") {
      row = bandwidth(pair, question.size);
    } else if (question.what == "register") {
      row = registration(pair, question.size);
    } else {
      row = latency(pair, question.what == "get_lat", question.size);
    }
    row["commit"] = HIXL_COMMIT;
    std::cout << row.dump() << std::endl;
  }
  pair.finish();
  return 0;
}
