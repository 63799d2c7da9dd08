// SPDX-License-Identifier: Apache-2.0
//
// Worker threads. Jobs are few and long (a registration takes from 50 µs to seconds), so that a lock a job costs
// nothing.
#include "runtime/worker.hpp"

#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/log.hpp"

namespace hixl::runtime {
namespace {

/// done() of this many jobs in one turn: each may send frames and post what waited.
constexpr std::size_t k_done_a_turn = 16;

class WorkerThreads final : public Worker, private Poller {
 public:
  WorkerThreads(Loop& loop, std::uint32_t threads) : loop_(loop), threads_max_(threads) {}
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;
  ~WorkerThreads() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wanted_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    while (poll()) {  // whose done() may bring more, to be worked on here
    }
  }

  void run(Job& job) override {
    outstanding_ += 1;
    loop_.attach(*this);
    bool start = false;
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(&job);
      start = !stopping_ && waiting_.size() > idle_ && threads_.size() < threads_max_;
    }
    if (start) start_thread();
    if (threads_.empty()) {  // no thread can be had: late is better than never
      work_one();
      loop_.mailbox().wakeup().notify();
      return;
    }
    wanted_.notify_one();
  }

 private:
  bool poll() override {
    std::deque<Job*> ended;
    {
      const std::lock_guard lock(mutex_);
      while (!ended_.empty() && ended.size() < k_done_a_turn) {
        ended.push_back(ended_.front());
        ended_.pop_front();
      }
    }
    outstanding_ -= ended.size();
    if (outstanding_ == 0) unlink();
    for (Job* job : ended) job->done();
    return !ended.empty();
  }
  /// A job that ends after this look wakes the loop.
  [[nodiscard]] bool can_sleep() override {
    const std::lock_guard lock(mutex_);
    return ended_.empty();
  }

  void start_thread() {
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    try {
      threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error& error) {
      log::warn("no thread can be started for long work: {}; {} go on", error.what(), threads_.size());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      idle_ += 1;
      wanted_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      idle_ -= 1;
      if (waiting_.empty()) return;
      Job& job = *waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      job.work();
      lock.lock();
      ended_.push_back(&job);
      lock.unlock();
      loop_.mailbox().wakeup().notify();
      lock.lock();
    }
  }
  void work_one() {
    Job& job = *waiting_.front();
    waiting_.pop_front();
    job.work();
    ended_.push_back(&job);
  }

  Loop& loop_;
  const std::size_t threads_max_;
  std::size_t outstanding_ = 0;  // the loop's: run and not done
  std::mutex mutex_;
  std::condition_variable wanted_;
  std::deque<Job*> waiting_;
  std::deque<Job*> ended_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Worker> make_worker_threads(Loop& loop, std::uint32_t threads) {
  return std::make_unique<WorkerThreads>(loop, threads);
}

}  // namespace hixl::runtime
