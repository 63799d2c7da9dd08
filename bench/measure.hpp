// SPDX-License-Identifier: Apache-2.0
//
// How benchmarks measure: a clock, percentiles, position-dependent bytes, and the machine's own limits as baselines.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hixl::bench {

[[nodiscard]] inline std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

/// Exit code of a benchmark that found other bytes than were sent: bench/compare then gives up the whole run, whatever
/// else it measured. The BSD name for bad data, which nothing else here ends with.
inline constexpr int k_exit_wrong_bytes = 65;

/// Least rounds that a median is taken of.
inline constexpr std::size_t k_rounds_min = 5;

/// Sorted samples in nanoseconds.
class Samples {
 public:
  explicit Samples(std::size_t expected) { values_.reserve(expected); }
  void add(std::uint64_t value) { values_.push_back(value); }
  /// per_mille 500: the median.
  [[nodiscard]] double us(std::size_t per_mille);
  [[nodiscard]] std::size_t size() const { return values_.size(); }

 private:
  std::vector<std::uint64_t> values_;
  bool sorted_ = false;
};

void fill(std::byte* data, std::size_t size, std::uint64_t seed);
[[nodiscard]] bool verify(const std::byte* data, std::size_t size, std::uint64_t seed);

/// User and system time of this process so far.
[[nodiscard]] double cpu_seconds();
/// The same of another process of this host and user; 0 if it is gone.
[[nodiscard]] double process_seconds(pid_t process);

/// Private memory that a process takes beyond what it had when this was made, at its peak: what lies between source and
/// target. Files and shared memory are not counted. Resets the kernel's mark of that process.
class PeakMemory {
 public:
  explicit PeakMemory(pid_t process);
  [[nodiscard]] double grown_bytes() const;

 private:
  pid_t process_;
  double before_bytes_;
};

/// Memory of this process when it was made: its own, and pages that it shares with others and has touched.
struct MemoryUse {
  MemoryUse();
  double private_bytes, shared_bytes;
};

/// Calls of operator new in this process so far.
[[nodiscard]] std::uint64_t allocations();

// ---- the machine's limits ----
/// Median round trip of one cache line between two spinning threads, µs.
[[nodiscard]] double cache_line_round_trip_us(std::size_t rounds);
/// Median GB/s of memcpy from `source` to `target`.
[[nodiscard]] double memcpy_gbps(std::byte* target, const std::byte* source, std::size_t size, std::size_t rounds);
/// Median GB/s of bare cross-memory attach from `source` to `target`, in calls of 1 MiB, inside this process.
[[nodiscard]] double attach_gbps(std::byte* target, const std::byte* source, std::size_t size, std::size_t rounds);
/// A stream socket on loopback, Nagle off: GB/s of `count` messages of `size` bytes, one answer at the end.
[[nodiscard]] double raw_socket_gbps(std::size_t size, std::size_t count);

}  // namespace hixl::bench
