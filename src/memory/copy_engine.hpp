// SPDX-License-Identifier: Apache-2.0
//
// CopyEngine: a thread that makes long copies between local memory and a peer's windows, or any memory of a process on
// this host, so that the loop does not.
// Plays the part of a DMA engine: a submission ring, a completion ring, and a bell when something has completed.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include <hixl/result.hpp>
#include <hixl/types.hpp>

#include "memory/device.hpp"
#include "memory/foreign_memory.hpp"
#include "memory/lane.hpp"
#include "memory/spsc_ring.hpp"
#include "wire/frame.hpp"

namespace hixl::memory {

struct CopySegment {
  std::byte* local = nullptr;
  std::byte* mapped = nullptr;  ///< in the peer's window, as mapped here; of a foreign job: as the peer sees it
  std::uint32_t bytes = 0;
};

/// One order to an engine. Owner: whoever submits; must stay, unchanged, until take() gives it back.
class CopyJob {
 public:
  enum class Direction : std::uint8_t { to_peer, from_peer };
  enum class Outcome : std::uint8_t {
    done,
    stale,      ///< the region no longer stands
    closed,     ///< the peer fenced the link
    crowded,    ///< no slot in the lane for a long while
    cancelled,  ///< cancel() came first
    foreign,    ///< the other process' memory could not be used: see `moved`
  };

  Direction direction = Direction::to_peer;
  Lane* lane = nullptr;
  RegionKey region{};
  Device* local_device = nullptr;
  const ForeignMemory* foreign = nullptr;  ///< set: segments lie in that process and are mapped nowhere here
  std::array<CopySegment, wire::k_segments_max> segments{};
  std::size_t segment_count = 0;
  void* owner = nullptr;     ///< the submitter's
  std::uint64_t cookie = 0;  ///< the submitter's

  Outcome outcome = Outcome::done;  ///< valid once it has come back; parts may have been copied whatever it says
  std::uint64_t bytes = 0;          ///< copied
  ForeignMemory::Moved moved{};     ///< of a foreign job: how its last piece went

  /// Before submitting anew.
  void reset() noexcept { cancelled_.store(false, std::memory_order_relaxed); }
  /// Thread-safe: the engine stops after the piece that it is at. Relaxed: carries nothing but itself.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }

 private:
  friend class CopyEngine;
  std::atomic<bool> cancelled_{false};
};

/// Owner and threads: submit(), take() and destruction belong to one thread (the loop). Completion: each submitted job
/// comes back once through take(), announced by `notify` on the engine's thread. Close: destruction executes what was
/// submitted and joins.
class CopyEngine {
 public:
  struct Options {
    /// How long an idle engine looks for work before it sleeps: the next chunk of a stream comes within a few µs, a
    /// wake-up costs about 12 µs. 0: sleeps at once.
    std::chrono::nanoseconds spin{20'000};
    /// Bytes copied under one announcement: a revocation waits for one piece, some 30 µs.
    std::size_t piece_bytes = 256U << 10U;
    std::size_t jobs_max = 256;  ///< submitted and not taken back
  };
  struct Notify {
    void (*function)(void* context) noexcept = nullptr;
    void* context = nullptr;
  };
  /// OS_ERROR when no thread can be made.
  [[nodiscard]] static Result<std::unique_ptr<CopyEngine>> create(const Notify& notify, const Options& options);
  ~CopyEngine();

  /// False: full, nothing happened.
  [[nodiscard]] bool submit(CopyJob& job) noexcept;
  /// A job that has ended, or null.
  [[nodiscard]] CopyJob* take() noexcept;
  /// Whether take() would give a job. Can be the last look before sleeping: a job that is not seen here is announced.
  [[nodiscard]] bool has_ended_jobs() const noexcept { return !completed_.empty(); }
  [[nodiscard]] std::size_t outstanding() const noexcept { return outstanding_; }

 private:
  CopyEngine(const Notify& notify, const Options& options);
  void work() noexcept;
  void execute(CopyJob& job) noexcept;
  void execute_foreign(CopyJob& job) noexcept;
  template <class Access>
  [[nodiscard]] static Lane::Outcome run_in_lane(CopyJob& job, Access&& access) noexcept;
  [[nodiscard]] Lane::Outcome copy_piece(CopyJob& job, const CopySegment& segment, std::size_t offset,
                                         std::size_t bytes) noexcept;
  void wait_for_work() noexcept;
  void wake() noexcept;

  Notify notify_;
  Options options_;
  SpscRing<CopyJob> submitted_;
  SpscRing<CopyJob> completed_;
  std::size_t outstanding_ = 0;  // submitter's
  // Touched by seq_cst read-modify-writes only: the submitter's comes after its push, the engine's before its last
  // look into the ring, so one of them sees the other.
  alignas(64) std::atomic<int> asleep_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace hixl::memory
