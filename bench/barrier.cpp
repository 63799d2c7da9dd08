// SPDX-License-Identifier: Apache-2.0
#include "barrier.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <vector>

#include <hixl/runtime.hpp>
#include <hixl/store.hpp>

#include "measure.hpp"

namespace hixl::bench {

namespace {

constexpr std::chrono::seconds k_patience{60};

template <class T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  std::cerr << "hixl_bench: " << result.error().message() << "\n";
  std::exit(1);
}

std::vector<Rank> all(std::uint32_t ranks) {
  std::vector<Rank> list(ranks);
  std::iota(list.begin(), list.end(), 0U);
  return list;
}

/// A tenth of the rounds to warm up, then the time of each.
Samples run(Runtime& runtime, std::size_t rounds) {
  Group group = need(runtime.create_group(all(runtime.world_size()), {}, k_patience));
  Samples samples(rounds);
  for (std::size_t i = 0; i < rounds + rounds / 10; ++i) {
    const std::uint64_t start = now_ns();
    const auto done = group.barrier(k_patience);
    const std::uint64_t time = now_ns() - start;
    if (!done) {
      std::cerr << "hixl_bench: " << done.error().message() << "\n";
      std::exit(1);
    }
    if (i >= rounds / 10) samples.add(time);
  }
  return samples;
}

pid_t start(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  pid_t pid = -1;
  if (posix_spawn(&pid, program.c_str(), nullptr, nullptr, words.data(), environ) != 0) {
    std::cerr << "hixl_bench: cannot start " << program << "\n";
    std::exit(1);
  }
  return pid;
}

/// Median of MPI_Barrier over as many processes; 0 when there is no such program or no MPI.
double mpi_p50_us(const BarrierSettings& settings) {
  if (access(settings.mpi.c_str(), X_OK) != 0) return 0;
  const std::string command = "mpirun --oversubscribe --allow-run-as-root -n " + std::to_string(settings.ranks) + " " +
                              settings.mpi + " " + std::to_string(settings.rounds) + " 2>/dev/null";
  FILE* output = popen(command.c_str(), "r");
  if (output == nullptr) return 0;
  double p50_us = 0;
  if (std::fscanf(output, "%lf", &p50_us) != 1) p50_us = 0;
  return pclose(output) == 0 ? p50_us : 0;
}

}  // namespace

int barrier_rank(std::size_t rounds) {
  auto runtime = need(Runtime::create(need(RuntimeOptions::from_environment())));
  static_cast<void>(run(*runtime, rounds));
  return runtime->stop() ? 0 : 1;
}

nlohmann::json barrier(const BarrierSettings& settings) {
  const auto store = need(Store::create("tcp://127.0.0.1:0"));
  setenv("HIXL_STORE", store->url().c_str(), 1);
  setenv("HIXL_WORLD_SIZE", std::to_string(settings.ranks).c_str(), 1);
  std::vector<pid_t> others;
  for (std::uint32_t rank = 1; rank < settings.ranks; ++rank) {
    setenv("HIXL_RANK", std::to_string(rank).c_str(), 1);
    others.push_back(start(settings.program, {"barrier_rank", "--rounds", std::to_string(settings.rounds)}));
  }
  setenv("HIXL_RANK", "0", 1);
  auto runtime = need(Runtime::create(need(RuntimeOptions::from_environment())));
  Samples samples = run(*runtime, settings.rounds);
  bool all_well = runtime->stop().has_value();
  for (const pid_t pid : others) {
    int status = 0;
    all_well = waitpid(pid, &status, 0) == pid && status == 0 && all_well;
  }
  if (!all_well) {
    std::cerr << "hixl_bench: a rank of the barrier failed\n";
    std::exit(1);
  }
  nlohmann::json row{{"bench", "barrier"},        {"ranks", settings.ranks},   {"rounds", settings.rounds},
                     {"p50_us", samples.us(500)}, {"p90_us", samples.us(900)}, {"p99_us", samples.us(990)},
                     {"p999_us", samples.us(999)}};
  if (settings.mpi.empty()) return row;
  if (const double mpi = mpi_p50_us(settings); mpi > 0) {
    row["limit"] = "MPI_Barrier";
    row["limit_p50_us"] = mpi;
    row["ratio"] = samples.us(500) / mpi;
  } else {
    row["skipped"] = "MPI_Barrier";
  }
  return row;
}

}  // namespace hixl::bench
