// SPDX-License-Identifier: Apache-2.0
//
// hixl_bench: two ranks in this process, one question a command, one JSON line an answer. Bytes are verified.
//   hixl_bench put_sync --link hccs --size 8
//   hixl_bench barrier --ranks 12 --mpi build/bench/mpi_barrier
//   hixl_bench fetch_add | put_async | put_large --link tcp | idle --seconds 10 | lookup --regions 100000 | all
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <hixl/runtime.hpp>
#include <hixl/store.hpp>

#include "barrier.hpp"
#include "measure.hpp"

namespace {

using namespace hixl;
using namespace hixl::bench;
using nlohmann::json;

/// What Meson takes for a skipped test.
constexpr int k_exit_skipped = 77;

struct Settings {
  std::string link = "hccs";
  std::uint64_t size = 8;
  std::size_t rounds = 100'000;
  double seconds = 10;
  std::uint32_t regions = 100'000;
  std::string json_file;
  std::uint32_t ranks = 12;
  std::string mpi;
  PollMode poll = PollMode::adaptive;
  bool smoke = false;
};

template <class T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  std::cerr << "hixl_bench: " << result.error().message() << "\n";
  std::exit(1);
}
void need(Result<void> result) {
  if (result) return;
  std::cerr << "hixl_bench: " << result.error().message() << "\n";
  std::exit(1);
}
void need_bytes(bool equal) {
  if (equal) return;
  std::cerr << "hixl_bench: the bytes at the target are not the bytes that were put\n";
  std::exit(1);
}

constexpr std::size_t k_lookup_bytes = 128;  // above max_inline, so that the source is looked up as well

/// Rank 0 puts, rank 1 is put to. Windows of `size` bytes on both; for pcie, memory that is no window.
class Pair {
 public:
  Pair(const std::string& link, std::size_t size, PollMode initiator, PollMode target) {
    store_ = need(Store::create("tcp://127.0.0.1:0"));
    for (Rank rank = 0; rank < 2; ++rank) {
      RuntimeOptions options;
      options.rank = rank;
      options.world_size = 2;
      options.store = store_->url();
      options.links = {kind_of(link)};
      options.poll = rank == 0 ? initiator : target;
      options.regions_max = 1U << 20U;  // slots cost nothing until they are used
      ranks_[rank] = need(Runtime::create(options));
      if (link == "pcie") {
        plain_[rank].resize(size);
        regions_[rank] = need(ranks_[rank]->register_memory(plain_[rank].data(), size));
      } else {
        regions_[rank] = need(ranks_[rank]->allocate(size));
      }
    }
    std::thread other([this] {
      const Rank zero[] = {0};
      need(ranks_[1]->exchange(std::span(&regions_[1], 1), zero).front().result);
    });
    const Rank one[] = {1};
    auto answers = ranks_[0]->exchange(std::span(&regions_[0], 1), one);
    need(answers.front().result);
    remote_ = answers.front().regions.front();
    other.join();
  }
  Runtime& initiator() { return *ranks_[0]; }
  std::byte* local() { return regions_[0].data; }
  std::byte* target() { return regions_[1].data; }
  [[nodiscard]] const RemoteRegion& remote() const { return remote_; }

 private:
  static LinkKind kind_of(const std::string& link) {
    if (link == "tcp" || link == "roce") return link == "tcp" ? LinkKind::tcp : LinkKind::roce;
    return link == "pcie" ? LinkKind::pcie : LinkKind::hccs;
  }
  std::unique_ptr<Store> store_;
  std::vector<std::byte> plain_[2];
  std::unique_ptr<Runtime> ranks_[2];
  Region regions_[2];
  RemoteRegion remote_;
};

json latency(Samples& samples) {
  return {{"p50_us", samples.us(500)},
          {"p90_us", samples.us(900)},
          {"p99_us", samples.us(990)},
          {"p999_us", samples.us(999)}};
}

json put_sync(const Settings& settings) {
  Pair pair(settings.link, std::max<std::size_t>(settings.size, 4096), PollMode::adaptive, PollMode::adaptive);
  Samples samples(settings.rounds);
  for (std::size_t i = 0; i < settings.rounds + settings.rounds / 10; ++i) {
    if (i % 1024 == 0) fill(pair.local(), settings.size, i);
    const std::uint64_t start = now_ns();
    const auto done = pair.initiator().put_sync(pair.local(), pair.remote().at(0), settings.size);
    const std::uint64_t time = now_ns() - start;
    if (!done) need(done);
    if (i >= settings.rounds / 10) samples.add(time);
    if (i % 1024 == 0) need_bytes(verify(pair.target(), settings.size, i));
  }
  json row = latency(samples);
  row.update({{"bench", "put_sync"}, {"link", settings.link}, {"size", settings.size}, {"verified", true}});
  return row;
}

json fetch_add(const Settings& settings) {
  Pair pair(settings.link, 4096, PollMode::adaptive, PollMode::adaptive);
  const std::size_t warm_up = settings.rounds / 10;
  Samples samples(settings.rounds);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < settings.rounds + warm_up; ++i) {
    const std::uint64_t start = now_ns();
    const auto before = pair.initiator().fetch_add_sync(pair.remote().at(64), i);
    const std::uint64_t time = now_ns() - start;
    if (need(before) != sum) need_bytes(false);
    sum += i;
    if (i >= warm_up) samples.add(time);
  }
  need(pair.initiator().get_sync(pair.local(), pair.remote().at(64), sizeof(sum)));
  need_bytes(std::memcmp(pair.local(), &sum, sizeof(sum)) == 0);
  json row = latency(samples);
  row.update({{"bench", "fetch_add"}, {"link", settings.link}, {"size", sizeof(sum)}, {"verified", true}});
  return row;
}

json put_async(const Settings& settings) {
  const double line_us = cache_line_round_trip_us(settings.rounds);
  Pair pair(settings.link, 1U << 20U, PollMode::busy, PollMode::event);
  constexpr std::size_t k_burst = 64;
  fill(pair.local(), 4096, 3);
  std::vector<Request> requests(k_burst);
  for (Request& request : requests)
    request = need(pair.initiator().put(pair.local(), pair.remote().at(0), settings.size));
  need(wait_all(requests));
  Samples one(settings.rounds);
  Samples burst(settings.rounds / k_burst + 1);
  const std::uint64_t allocated = allocations();
  for (std::size_t i = 0; i < settings.rounds; ++i) {
    const std::uint64_t start = now_ns();
    auto request = pair.initiator().put(pair.local(), pair.remote().at(0), settings.size);
    one.add(now_ns() - start);
    if (!request) need(std::move(request));
    need(request->wait());
  }
  for (std::size_t i = 0; i < settings.rounds / k_burst; ++i) {
    const std::uint64_t start = now_ns();
    for (Request& request : requests)
      request = need(pair.initiator().put(pair.local(), pair.remote().at(0), settings.size));
    burst.add((now_ns() - start) / k_burst);
    need(wait_all(requests));
  }
  const std::uint64_t allocations_made = allocations() - allocated;
  need_bytes(verify(pair.target(), settings.size, 3));
  json row = latency(one);
  row.update({{"bench", "put_async"},
              {"link", settings.link},
              {"size", settings.size},
              {"burst_p50_us", burst.us(500)},
              {"cache_line_round_trip_us", line_us},
              {"ratio_one", one.us(500) / line_us},
              {"ratio_burst", burst.us(500) / line_us},
              {"allocations", allocations_made},
              {"verified", true}});
  return row;
}

/// What this machine gives without the library, over the same bytes.
double limit_of(const std::string& link, Pair& pair, std::size_t size) {
  if (link == "tcp") return raw_socket_gbps(size, 9);
  if (link == "pcie") return attach_gbps(pair.target(), pair.local(), size, 1);
  return memcpy_gbps(pair.target(), pair.local(), size, 1);
}

const char* limit_name(const std::string& link) {
  if (link == "tcp") return "raw socket";
  return link == "pcie" ? "process_vm_writev" : "memcpy";
}

json put_large(const Settings& settings) {
  const std::size_t size = settings.size;
  const std::size_t rounds = std::max<std::size_t>(3, settings.rounds / 2000);
  Pair pair(settings.link, size, settings.poll, settings.poll);
  fill(pair.local(), size, 1);
  need(pair.initiator().put_sync(pair.local(), pair.remote().at(0), size));
  Samples ratios(rounds), gbps(rounds), limits(rounds);
  for (std::size_t i = 0; i < rounds; ++i) {
    // Ours and the limit in turns, so that both meet the same machine.
    fill(pair.local(), size, i);
    const std::uint64_t start = now_ns();
    double ours = 0;
    if (settings.link == "tcp") {
      constexpr std::size_t k_flight = 8;
      std::vector<Request> requests;
      for (std::size_t n = 0; n < k_flight; ++n) {
        requests.push_back(need(pair.initiator().put(pair.local(), pair.remote().at(0), size)));
      }
      need(wait_all(requests));
      ours = static_cast<double>(size * k_flight) / static_cast<double>(now_ns() - start);
    } else {
      need(pair.initiator().put_sync(pair.local(), pair.remote().at(0), size));
      ours = static_cast<double>(size) / static_cast<double>(now_ns() - start);
    }
    need_bytes(verify(pair.target(), size, i));
    fill(pair.local(), size, i);  // so that both begin with a source that was just written
    const double limit = limit_of(settings.link, pair, size);
    gbps.add(static_cast<std::uint64_t>(ours * 1e6));
    limits.add(static_cast<std::uint64_t>(limit * 1e6));
    ratios.add(static_cast<std::uint64_t>(ours / limit * 1e6));
  }
  return {{"bench", "put_large"},
          {"link", settings.link},
          {"size", size},
          {"rounds", rounds},
          {"gbps", gbps.us(500) / 1000},
          {"limit_gbps", limits.us(500) / 1000},
          {"limit", limit_name(settings.link)},
          {"ratio", ratios.us(500) / 1000},
          {"verified", true}};
}

/// What it costs that a source is found among many regions: puts of random pieces of one window to one place, with the
/// window registered whole and then also as that many regions. Both halves touch the same bytes, so that the difference
/// of their medians is the look-up.
json lookup(const Settings& settings) {
  const std::size_t bytes = std::size_t{settings.regions} * k_lookup_bytes;
  Pair pair("hccs", std::max<std::size_t>(bytes, 4096), PollMode::event, PollMode::event);
  fill(pair.local(), bytes, 11);
  const auto measure = [&] {
    Samples samples(settings.rounds);
    std::uint64_t choice = 1;
    for (std::size_t i = 0; i < settings.rounds; ++i) {
      choice = choice * 6364136223846793005U + 1442695040888963407U;
      std::byte* const source = pair.local() + (choice >> 33U) % settings.regions * k_lookup_bytes;
      const std::uint64_t start = now_ns();
      const auto done = pair.initiator().put_sync(source, pair.remote().at(0), k_lookup_bytes);
      samples.add(now_ns() - start);
      if (!done) need(done);
      if (i % 1024 == 0) need_bytes(std::equal(source, source + k_lookup_bytes, pair.target()));
    }
    return samples.us(500) * 1000;
  };
  static_cast<void>(measure());  // warms caches and clocks
  const double one_ns = measure();
  const std::uint64_t start = now_ns();
  for (std::uint32_t i = 0; i < settings.regions; ++i) {
    static_cast<void>(
        need(pair.initiator().register_memory(pair.local() + i * k_lookup_bytes, k_lookup_bytes, {.tag = 1})));
  }
  const double register_us = static_cast<double>(now_ns() - start) / 1000 / settings.regions;
  const double many_ns = measure();
  return {{"bench", "lookup"},
          {"link", "hccs"},
          {"size", k_lookup_bytes},
          {"regions", settings.regions},
          {"one_region_p50_ns", one_ns},
          {"many_regions_p50_ns", many_ns},
          {"added_p50_ns", many_ns - one_ns},
          {"register_us", register_us},
          {"verified", true}};
}

json idle(const Settings& settings) {
  Pair pair(settings.link, 4096, PollMode::adaptive, PollMode::adaptive);
  need(pair.initiator().put_sync(pair.local(), pair.remote().at(0), 8));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the loops fall asleep
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(settings.seconds));
  const double used = cpu_seconds() - before;
  return {{"bench", "idle"},
          {"link", settings.link},
          {"seconds", settings.seconds},
          {"loops", 2},
          {"cpu_percent_a_loop", used / settings.seconds * 100 / 2}};
}

json barrier_of(const Settings& settings) {
  return barrier({.ranks = settings.ranks,
                  .rounds = std::min<std::size_t>(settings.rounds, 5'000),
                  .program = "/proc/self/exe",
                  .mpi = settings.mpi});
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  std::string what = "all";
  CLI::App app{"Benchmarks of the library on this machine; one JSON line a row."};
  app.add_option("bench", what, "put_sync, fetch_add, put_async, put_large, barrier, idle, lookup or all")
      ->check(CLI::IsMember(
          {"put_sync", "fetch_add", "put_async", "put_large", "barrier", "barrier_rank", "idle", "lookup", "all"}));
  app.add_option("--ranks", settings.ranks, "processes of the barrier bench")->check(CLI::Range(1, 128));
  app.add_option("--mpi", settings.mpi, "the program of MPI's barrier, to compare with");
  app.add_option("--link", settings.link, "hccs, pcie, roce or tcp")
      ->check(CLI::IsMember({"hccs", "pcie", "roce", "tcp"}));
  const std::map<std::string, PollMode> polls{{"adaptive", PollMode::adaptive}, {"event", PollMode::event}};
  app.add_option("--poll", settings.poll, "of put_large's loops")->transform(CLI::CheckedTransformer(polls));
  auto* size = app.add_option("--size", settings.size, "bytes");
  app.add_option("--rounds", settings.rounds, "samples")->check(CLI::Range(100, 100'000'000));
  app.add_option("--regions", settings.regions, "of the lookup bench")->check(CLI::Range(1, 1'000'000));
  app.add_option("--seconds", settings.seconds, "of idle");
  app.add_option("--json", settings.json_file, "also write all rows there");
  app.add_flag("--smoke", settings.smoke, "few rounds: shows that it works");
  CLI11_PARSE(app, argc, argv);
  if (settings.smoke) {
    settings.rounds = 2000;
    settings.seconds = 0.5;
    settings.regions = std::min(settings.regions, 2000U);
  }
  if (what == "barrier_rank") return barrier_rank(settings.rounds);
  utsname kernel{};
  uname(&kernel);
  json rows = json::array();
  const auto run = [&](json (*bench)(const Settings&), Settings with) {
    json row = bench(with);
    row["kernel"] = kernel.release;
    row["compiler"] = __VERSION__;
    row["commit"] = HIXL_COMMIT;
    std::cout << row.dump() << std::endl;
    rows.push_back(std::move(row));
  };
  const auto with = [&](const char* link, std::uint64_t bytes) {
    Settings copy = settings;
    copy.link = link;
    copy.size = bytes;
    return copy;
  };
  if (what == "all") {
    run(put_sync, with("hccs", 8));
    run(put_sync, with("hccs", 4096));
    run(fetch_add, with("hccs", 8));
    run(put_async, with("hccs", 8));
    run(put_large, with("hccs", 16U << 20U));
    run(put_large, with("pcie", 16U << 20U));
    run(put_large, with("tcp", 16U << 20U));
    run(barrier_of, settings);
    run(idle, with("hccs", 8));
    run(lookup, settings);
  } else if (what == "barrier") {
    run(barrier_of, settings);
  } else if (what == "put_sync") {
    run(put_sync, settings);
  } else if (what == "fetch_add") {
    run(fetch_add, settings);
  } else if (what == "put_async") {
    run(put_async, settings);
  } else if (what == "put_large") {
    if (size->count() == 0) settings.size = 16U << 20U;
    run(put_large, settings);
  } else if (what == "lookup") {
    run(lookup, settings);
  } else {
    run(idle, settings);
  }
  if (!settings.json_file.empty()) {
    std::ofstream out(settings.json_file);
    out << rows.dump(2) << "\n";
    if (!out) {
      std::cerr << "hixl_bench: cannot write " << settings.json_file << "\n";
      return 1;
    }
  }
  const auto skipped = [](const json& row) { return row.contains("skipped"); };
  return std::any_of(rows.begin(), rows.end(), skipped) ? k_exit_skipped : 0;
}
