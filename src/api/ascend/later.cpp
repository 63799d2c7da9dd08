// SPDX-License-Identifier: Apache-2.0
//
// Hixl::State: connects and disconnects on a thread of the engine, in the order of calls.
#include <condition_variable>
#include <thread>

#include "api/ascend/engine.hpp"
#include "api/world.hpp"

namespace hixl {

using namespace api;

/// Its thread uses the engine, which ends it before it goes.
class Hixl::State::Later {
 public:
  struct Job {
    std::string remote;
    bool connecting = false;
    std::int32_t timeout_ms = 0;
  };
  static constexpr std::size_t k_jobs_max = 128;

  explicit Later(State& engine) : engine_(engine), thread_([this] { run(); }) {}
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;
  ~Later() {
    {
      const std::scoped_lock lock(mutex_);
      over_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  [[nodiscard]] bool add(const Job& job) {
    const std::scoped_lock lock(mutex_);
    if (jobs_.size() >= k_jobs_max) return false;
    jobs_.push_back(job);
    changed_.notify_all();
    return true;
  }

 private:
  void run() {
    for (;;) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return over_ || !jobs_.empty(); });
        if (over_) return;
        job = jobs_.front();
        jobs_.pop_front();
      }
      if (job.connecting) {
        engine_.set_standing(job.remote, AsyncConnectStatus::CONNECTING);
        const Status status = engine_.connect(job.remote, job.timeout_ms);
        const bool there = status == SUCCESS || status == ALREADY_CONNECTED;
        engine_.set_standing(job.remote, there ? AsyncConnectStatus::CONNECTED : AsyncConnectStatus::CONNECT_FAILED);
      } else {
        engine_.set_standing(job.remote, AsyncConnectStatus::DISCONNECTING);
        static_cast<void>(engine_.disconnect(job.remote, job.timeout_ms));
        engine_.set_standing(job.remote, AsyncConnectStatus::NOT_CONNECT);
      }
    }
  }

  State& engine_;
  std::mutex mutex_;  // guards what is below
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool over_ = false;
  std::thread thread_;  // last: it uses all of the above
};

// Here, where all that it owns is known.
Hixl::State::State() = default;
Hixl::State::~State() { finalize(); }

void Hixl::State::set_standing(const std::string& remote, AsyncConnectStatus status) {
  const std::scoped_lock lock(mutex_);
  standing_[remote] = status;
}

Status Hixl::State::later(const std::string& remote, bool connecting, std::int32_t timeout_ms) {
  if (timeout_ms <= 0) return failed(Error(ErrorCode::invalid_argument, {.stage = Stage::connect}));
  if (const auto name = engine_name(AscendString(remote)); !name) return failed(name.error());
  const std::scoped_lock lock(mutex_);
  if (const Status now = ready(); now != SUCCESS) return now;
  if (later_ == nullptr) later_ = std::make_unique<Later>(*this);
  if (!later_->add({remote, connecting, timeout_ms})) {
    return failed(Error(ErrorCode::busy, {.stage = Stage::connect, .limit = Later::k_jobs_max}));
  }
  standing_[remote] = connecting ? AsyncConnectStatus::CONNECT_PENDING : AsyncConnectStatus::DISCONNECT_PENDING;
  return SUCCESS;
}

Status Hixl::State::later_status(const std::string& remote, AsyncConnectStatus& status) {
  const std::scoped_lock lock(mutex_);
  if (const Status now = ready(); now != SUCCESS) return now;
  const auto found = standing_.find(remote);
  status = found == standing_.end() ? AsyncConnectStatus::NOT_CONNECT : found->second;
  return SUCCESS;
}

Status Hixl::State::later_statuses(std::map<AscendString, AsyncConnectStatus>& statuses) {
  const std::scoped_lock lock(mutex_);
  if (const Status now = ready(); now != SUCCESS) return now;
  for (const auto& [remote, status] : standing_) statuses[AscendString(remote)] = status;
  return SUCCESS;
}

/// Waits for the one that is under way; those that wait are not begun.
void Hixl::State::end_later() {
  std::unique_ptr<Later> over;  // goes outside the lock, which its thread may want
  const std::scoped_lock lock(mutex_);
  over.swap(later_);
}

}  // namespace hixl
