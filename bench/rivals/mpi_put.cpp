// SPDX-License-Identifier: Apache-2.0
//
// MPI beside the library: the questions of hixl_pair_bench by MPI_Put and MPI_Win_flush (a put has ended when it is
// there), and `gather:BYTES`, an MPI_Allgather of so many bytes a rank. Rank 0 prints a JSON line a question.
//   mpirun -n 2 mpi_put ROUNDS MEGABYTES put:8 flight:1048576:8 batch:4096:128
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <mpi.h>

namespace {

/// As the other programs that bench/compare runs (measure.hpp, which a rank of MPI does without).
constexpr int k_exit_wrong_bytes = 65;
constexpr std::uint64_t k_rounds_min = 5;
constexpr std::uint64_t k_stride = 2;

void fill(unsigned char* data, std::uint64_t size, std::uint64_t seed) {
  for (std::uint64_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = (at + 1) * 0x9e3779b97f4a7c15U + seed;
    std::memcpy(data + at, &word, std::min(sizeof(word), size - at));
  }
}

bool right(const unsigned char* data, std::uint64_t size, std::uint64_t seed) {
  std::vector<unsigned char> wanted(size);
  fill(wanted.data(), size, seed);
  return std::memcmp(data, wanted.data(), size) == 0;
}

struct Ask {
  std::string text, what;
  std::uint64_t size = 0, count = 1, rounds = k_rounds_min;
};

Ask asked(const std::string& text, std::uint64_t rounds, std::uint64_t megabytes) {
  Ask ask;
  ask.text = text;
  const std::size_t colon = std::min(text.find(':'), text.size());
  ask.what = text.substr(0, colon);
  char* end = nullptr;
  if (colon < text.size()) ask.size = std::strtoull(text.c_str() + colon + 1, &end, 10);
  if (end != nullptr && *end == ':') ask.count = std::strtoull(end + 1, &end, 10);
  const std::uint64_t bytes = std::max<std::uint64_t>(ask.size * ask.count, 1);
  ask.rounds = std::clamp((megabytes << 20U) / bytes, k_rounds_min, std::max(rounds, k_rounds_min));
  return ask;
}

class Window {
 public:
  explicit Window(std::uint64_t bytes) {
    MPI_Win_allocate(static_cast<MPI_Aint>(bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base_, &window_);
    std::memset(base_, 1, bytes);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ~Window() {
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  void put(const unsigned char* source, std::uint64_t at, std::uint64_t size) {
    MPI_Put(source, static_cast<int>(size), MPI_BYTE, 1, static_cast<MPI_Aint>(at), static_cast<int>(size), MPI_BYTE,
            window_);
  }
  void flush() { MPI_Win_flush(1, window_); }
  void sync() { MPI_Win_sync(window_); }
  [[nodiscard]] const unsigned char* data() const { return base_; }

 private:
  unsigned char* base_ = nullptr;
  MPI_Win window_ = MPI_WIN_NULL;
};

template <class F>
std::vector<double> timed(const Ask& ask, const F& round) {
  std::vector<double> times;
  for (std::uint64_t i = 0; i < ask.rounds + ask.rounds / 10 + 1; ++i) {
    const double start = MPI_Wtime();
    round();
    if (i > ask.rounds / 10) times.push_back((MPI_Wtime() - start) * 1e6);
  }
  std::sort(times.begin(), times.end());
  return times;
}

void print(const Ask& ask, const std::vector<double>& times, std::uint64_t bytes) {
  const double median = times[times.size() / 2];
  std::printf(
      "{\"question\": \"%s\", \"us\": %.4f, \"p99_us\": %.4f, \"gbps\": %.6g, \"rounds\": %zu, \"verified\": true}\n",
      ask.text.c_str(), median, times[times.size() * 99 / 100], static_cast<double>(bytes) / (median * 1000),
      times.size());
  std::fflush(stdout);
}

void end_wrong() {
  std::fprintf(stderr, "mpi_put: the bytes at the target are not the bytes that were put\n");
  MPI_Abort(MPI_COMM_WORLD, k_exit_wrong_bytes);
}

/// Rank 0 puts; rank 1 only waits in a barrier, in which its MPI may make progress.
void puts(const Ask& ask, int rank) {
  const bool batch = ask.what == "batch";
  const std::uint64_t blocks = batch ? ask.count : 1;
  const std::uint64_t step = batch ? k_stride * ask.size : ask.size;
  Window window(blocks * step);
  if (rank == 0) {
    std::vector<unsigned char> source(blocks * step);
    for (std::uint64_t i = 0; i < blocks; ++i) fill(source.data() + i * step, ask.size, ask.size + i);
    const auto times = timed(ask, [&] {
      for (std::uint64_t i = 0; i < ask.count; ++i)
        window.put(source.data() + i % blocks * step, i % blocks * step, ask.size);
      window.flush();
    });
    print(ask, times, ask.size * ask.count);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  window.sync();
  for (std::uint64_t i = 0; rank == 1 && i < blocks; ++i) {
    if (!right(window.data() + i * step, ask.size, ask.size + i)) end_wrong();
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

void gather(const Ask& ask, int rank) {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<unsigned char> mine(ask.size), all(ask.size * static_cast<std::uint64_t>(ranks));
  fill(mine.data(), ask.size, static_cast<std::uint64_t>(rank));
  const auto times = timed(ask, [&] {
    MPI_Allgather(mine.data(), static_cast<int>(ask.size), MPI_BYTE, all.data(), static_cast<int>(ask.size), MPI_BYTE,
                  MPI_COMM_WORLD);
  });
  for (int other = 0; other < ranks; ++other) {
    const auto at = static_cast<std::uint64_t>(other) * ask.size;
    if (!right(all.data() + at, ask.size, static_cast<std::uint64_t>(other))) end_wrong();
  }
  if (rank == 0) print(ask, times, ask.size);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 3; i < argc; ++i) {
    const Ask ask = asked(argv[i], std::strtoull(argv[1], nullptr, 10), std::strtoull(argv[2], nullptr, 10));
    const bool known = ask.what == "put" || ask.what == "flight" || ask.what == "batch" || ask.what == "gather";
    // MPI counts in an int.
    if (!known || ask.size == 0 || ask.size > 1U << 30U || ask.count == 0 || ask.count > 2048) {
      std::fprintf(stderr, "mpi_put: %s: not a question, as put:8, flight:65536:8, batch:4096:128, gather:4096\n",
                   argv[i]);
      MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (ask.what == "gather") {
      gather(ask, rank);
    } else {
      puts(ask, rank);
    }
  }
  MPI_Finalize();
  return 0;
}
