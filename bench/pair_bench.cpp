// SPDX-License-Identifier: Apache-2.0
//
// hixl_pair_bench: two ranks in two processes, on one host or on two, so that a card and what perftest says of it can
// be compared with what the library makes of it. Rank 0 measures and prints one JSON line a question; rank 1 checks the
// bytes with its own CPU. Rank, store and links come from the environment, as launchers set them.
//   HIXL_LINKS=roce hixl_run -n 2 hixl_pair_bench put_lat:8 get_lat:8 put_bw:65536 put_bw:1048576 register:16777216
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <hixl/runtime.hpp>

#include "measure.hpp"
#include "pair.hpp"
#include "pair_flow.hpp"

namespace {

using namespace hixl;
using namespace hixl::bench;
using nlohmann::json;

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

Flow asked(const std::string& text) {
  Flow flow;
  flow.text = text;
  const std::size_t colon = std::min(text.find(':'), text.size());
  flow.what = text.substr(0, colon);
  char* end = nullptr;
  if (colon < text.size()) flow.size = std::strtoull(text.c_str() + colon + 1, &end, 10);
  if (end != nullptr && *end == ':') flow.count = std::strtoull(end + 1, &end, 10);
  const auto old = {"put_lat", "get_lat", "put_bw", "register"};
  const bool is_old = std::find(old.begin(), old.end(), flow.what) != old.end() && flow.count == 1;
  const bool sized = end != nullptr && *end == 0 && flow.size > 0 && flow.size <= 1U << 30U;
  if (!sized || !(is_old || flow.known())) {
    give_up(text + ": not a question and bytes up to 1 GiB in all, as put_bw:65536 or batch:4096:128");
  }
  return flow;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app{"Two ranks in two processes: latency and bandwidth of one pair; one JSON line a question, from rank 0."};
  app.add_option("questions", settings.questions,
                 "put_lat:BYTES, get_lat:BYTES, put_bw:BYTES, register:BYTES, put:BYTES, flight:BYTES:PUTS, "
                 "batch:BYTES:BLOCKS, streams:BYTES:FLOWS")
      ->required();
  app.add_option("--rounds", settings.rounds, "of a latency; for put, flight, batch and streams the most")
      ->check(CLI::Range(10, 10'000'000));
  app.add_option("--megabytes", settings.megabytes,
                 "moved for a bandwidth; for put, flight, batch and streams the most")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--window", settings.window, "puts under way for a bandwidth")->check(CLI::Range(1, 2048));
  app.add_option("--regions", settings.regions, "that are registered under pings")->check(CLI::Range(1, 10'000));
  app.add_flag("--polled", settings.polled,
               "rank 0 turns its runtime itself, without sleep, instead of having a loop thread");
  CLI11_PARSE(app, argc, argv);
  std::vector<Flow> questions;
  std::uint64_t room = 8U << 20U;
  for (const std::string& text : settings.questions) {
    const Flow question = asked(text);
    if (question.what != "register") room = std::max(room, question.room());
    questions.push_back(question);
  }
  Pair pair(settings, room);
  if (pair.runtime().rank() != 0) return pair.serve(), 0;
  for (const Flow& question : questions) {
    json row;
    if (question.what == "put_bw") {
      row = bandwidth(pair, question.size);
    } else if (question.what == "register") {
      row = registration(pair, question.size);
    } else if (question.known()) {
      row = answer(pair, question);
    } else {
      row = latency(pair, question.what == "get_lat", question.size);
    }
    row["commit"] = HIXL_COMMIT;
    std::cout << row.dump() << std::endl;
  }
  pair.finish();
  return 0;
}
