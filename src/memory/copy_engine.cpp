// SPDX-License-Identifier: Apache-2.0
//
// The engine's thread: takes a job, copies it piece by piece, gives it back, sleeps when there is none.
#include "memory/copy_engine.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <system_error>

#include "base/assert.hpp"

namespace hixl::memory {
namespace {

/// Looks into the ring between two readings of the clock, with a pause each: about as long as one reading.
constexpr int k_looks_per_clock_reading = 8;
/// Slots of the lane are held by threads of this process for one bounded copy each. If all stay taken for this many
/// turns of the scheduler something stands still, and the job goes back.
constexpr int k_crowded_yields_max = 10'000;

CopyJob::Outcome outcome_of(Lane::Outcome outcome) noexcept {
  switch (outcome) {
    case Lane::Outcome::done:
      return CopyJob::Outcome::done;
    case Lane::Outcome::closed:
      return CopyJob::Outcome::closed;
    case Lane::Outcome::stale:
      return CopyJob::Outcome::stale;
    case Lane::Outcome::crowded:
      return CopyJob::Outcome::crowded;
  }
  return CopyJob::Outcome::closed;
}

/// A thread inherits the mask of its maker; signals are the program's business, so an engine takes none.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// The next pieces of a foreign job, for one call.
struct Gathered {
  std::array<ForeignSegment, wire::k_segments_max> segments;
  std::size_t count = 0;
  std::uint64_t bytes = 0;
};

/// Takes up to k_foreign_bytes_max bytes from (index, offset) on, and moves both past them.
Gathered gather(const CopyJob& job, std::size_t& index, std::uint32_t& offset) noexcept {
  Gathered taken;
  while (index < job.segment_count && taken.bytes < k_foreign_bytes_max) {
    const CopySegment& segment = job.segments[index];
    const auto bytes =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(segment.bytes - offset, k_foreign_bytes_max - taken.bytes));
    taken.segments[taken.count++] = {segment.local + offset, reinterpret_cast<std::uint64_t>(segment.mapped) + offset,
                                     bytes};
    taken.bytes += bytes;
    offset += bytes;
    if (offset < segment.bytes) break;
    offset = 0;
    ++index;
  }
  return taken;
}

}  // namespace

CopyEngine::CopyEngine(const Notify& notify, const Options& options)
    : notify_(notify), options_(options), submitted_(options.jobs_max), completed_(options.jobs_max) {
  HIXL_ASSERT(options.piece_bytes > 0 && options.jobs_max > 0);
}

Result<std::unique_ptr<CopyEngine>> CopyEngine::create(const Notify& notify, const Options& options) {
  std::unique_ptr<CopyEngine> engine(new CopyEngine(notify, options));
  try {
    const SignalsBlocked blocked;
    engine->thread_ = std::thread([raw = engine.get()] { raw->work(); });
  } catch (const std::system_error& error) {
    return fail(ErrorCode::os_error, {.stage = Stage::memory, .os_error = error.code().value()});
  }
  return engine;
}

CopyEngine::~CopyEngine() {
  stopping_.store(true, std::memory_order_seq_cst);
  wake();
  if (thread_.joinable()) thread_.join();
}

bool CopyEngine::submit(CopyJob& job) noexcept {
  // The completion ring is as large: what was let in here always finds room there.
  if (outstanding_ == submitted_.capacity() || !submitted_.push(&job)) return false;
  ++outstanding_;
  wake();
  return true;
}

CopyJob* CopyEngine::take() noexcept {
  CopyJob* job = completed_.pop();
  if (job != nullptr) --outstanding_;
  return job;
}

void CopyEngine::wake() noexcept {
  if (asleep_.exchange(0, std::memory_order_seq_cst) == 1) asleep_.notify_one();
}

void CopyEngine::work() noexcept {
  pthread_setname_np(pthread_self(), "hixl-copy");
  for (;;) {
    CopyJob* job = submitted_.pop();
    if (job == nullptr) {
      if (stopping_.load(std::memory_order_seq_cst) && submitted_.empty()) return;
      wait_for_work();
      continue;
    }
    execute(*job);
    const bool pushed = completed_.push(job);
    HIXL_ASSERT(pushed);
    if (notify_.function != nullptr) notify_.function(notify_.context);
  }
}

void CopyEngine::wait_for_work() noexcept {
  using Clock = std::chrono::steady_clock;  // measures the engine's own patience; nothing else depends on it
  const auto work_waits = [this] { return !submitted_.empty() || stopping_.load(std::memory_order_seq_cst); };
  for (const auto start = Clock::now(); Clock::now() - start < options_.spin;) {
    for (int look = 0; look < k_looks_per_clock_reading; ++look) {
      if (work_waits()) return;
      __builtin_ia32_pause();
    }
  }
  asleep_.exchange(1, std::memory_order_seq_cst);
  if (!work_waits()) asleep_.wait(1, std::memory_order_seq_cst);
  asleep_.exchange(0, std::memory_order_seq_cst);
}

void CopyEngine::execute(CopyJob& job) noexcept {
  job.outcome = CopyJob::Outcome::done;
  job.bytes = 0;
  if (job.foreign != nullptr) return execute_foreign(job);
  for (std::size_t index = 0; index < job.segment_count; ++index) {
    const CopySegment& segment = job.segments[index];
    for (std::size_t offset = 0; offset < segment.bytes;) {
      if (job.cancelled_.load(std::memory_order_relaxed)) {
        job.outcome = CopyJob::Outcome::cancelled;
        return;
      }
      const std::size_t bytes = std::min<std::size_t>(options_.piece_bytes, segment.bytes - offset);
      const Lane::Outcome outcome = copy_piece(job, segment, offset, bytes);
      if (outcome != Lane::Outcome::done) {
        job.outcome = outcome_of(outcome);
        return;
      }
      offset += bytes;
      job.bytes += bytes;
    }
  }
}

Lane::Outcome CopyEngine::copy_piece(CopyJob& job, const CopySegment& segment, std::size_t offset,
                                     std::size_t bytes) noexcept {
  Device& mapped = host_device();  // a mapped window is ordinary memory here, whatever the peer calls it
  std::byte* const there = segment.mapped + offset;
  std::byte* const here = segment.local + offset;
  return run_in_lane(job, [&] {
    if (job.direction == CopyJob::Direction::to_peer) {
      copy(mapped, there, *job.local_device, here, bytes);
    } else {
      copy(*job.local_device, here, mapped, there, bytes);
    }
  });
}

template <class Access>
Lane::Outcome CopyEngine::run_in_lane(CopyJob& job, Access&& access) noexcept {
  Lane::Outcome outcome = Lane::Outcome::crowded;
  for (int yields = 0; outcome == Lane::Outcome::crowded && yields < k_crowded_yields_max; ++yields) {
    if (yields > 0) std::this_thread::yield();
    outcome = job.lane->run(job.region, access);
  }
  return outcome;
}

void CopyEngine::execute_foreign(CopyJob& job) noexcept {
  using Direction = ForeignMemory::Direction;
  const Direction direction = job.direction == CopyJob::Direction::to_peer ? Direction::to_peer : Direction::from_peer;
  job.moved = {};
  std::size_t index = 0;
  for (std::uint32_t offset = 0; index < job.segment_count;) {
    if (job.cancelled_.load(std::memory_order_relaxed)) {
      job.outcome = CopyJob::Outcome::cancelled;
      return;
    }
    const Gathered piece = gather(job, index, offset);
    const auto pieces = std::span(piece.segments).first(piece.count);
    const Lane::Outcome outcome =
        run_in_lane(job, [&] { job.moved = job.foreign->move(direction, *job.local_device, pieces); });
    job.outcome = outcome_of(outcome);
    if (outcome == Lane::Outcome::done && job.moved.outcome != ForeignMemory::Outcome::done) {
      job.outcome = CopyJob::Outcome::foreign;
    }
    if (job.outcome != CopyJob::Outcome::done) return;
    job.bytes += piece.bytes;
  }
}

}  // namespace hixl::memory
