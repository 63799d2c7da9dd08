// SPDX-License-Identifier: Apache-2.0
//
// Core's death: drains and closes in order, ends what is open, and answers what comes after.
#include <algorithm>
#include <system_error>
#include <thread>

#include "base/log.hpp"
#include "core/core.hpp"

namespace hixl::core {

namespace {

/// How often the steps of stopping look again; a copy in a lane takes less.
constexpr std::chrono::milliseconds k_step{1};

}  // namespace

void Core::on_timer() {
  release_step();
  stop_step();
}

void Core::stop_step() {
  switch (stop_stage_) {
    case StopStage::none:
    case StopStage::ended:
      return;
    case StopStage::draining: {
      bool open = !self_->idle();
      for (const auto& actor : directory_->peers()) open = open || actor->has_open_operations();
      if (open && loop_->now() < stop_deadline_) break;
      stop_stage_ = StopStage::closing;
      if (open) stop_result_ = fail(ErrorCode::deadline_exceeded, {.rank = options_.rank, .stage = Stage::shutdown});
      if (membership_) membership_->leave();
      finish_joined(fail(ErrorCode::stopped, {.rank = options_.rank, .stage = Stage::shutdown}));
      self_->stop();
      formation_->stop();
      barrier_->stop();
      signals_->close();
      directory_->stop(stop_deadline_);
      if (!directory_->peers().empty()) break;  // the goodbyes leave at the end of this turn
    }
      [[fallthrough]];
    case StopStage::closing:
      if (!directory_->stopped()) break;
      last_counters_ = counters_;
      count_links(last_counters_);
      last_counters_.failed_unseen = requests_->failed_unseen();
      count_memory(last_counters_);
      teardown();
      stop_stage_ = StopStage::ended;
      end_calls();
      if (parts_.driver->own_thread()) {
        tell_stopped();
      } else {
        driver_stopped_ = true;
        parts_.driver->stop([this] { finish_hosted(); });
      }
      return;
  }
  loop_->start_after(*this, k_step);
}

/// On a host's loop, a waiter may destroy this.
void Core::tell_stopped() {
  const Result<void> result = stop_result_;
  const bool stays = parts_.driver->own_thread();
  for (const StopWaiter& waiter : std::exchange(stop_waiters_, {})) {
    try {
      waiter.done(waiter.context, result);
    } catch (...) {
      if (stays) callback_threw();
    }
  }
}

/// From the host's loop, when libuv has let go of the last handle: nothing will turn our loop any more.
void Core::finish_hosted() {
  set_stopped();
  drain_after_end();
  tell_stopped();
}

/// A host that destroys the runtime without stop_async: everything ends here and now, unfenced.
void Core::close_hosted() {
  life_.store(Life::stopping, std::memory_order_seq_cst);
  stop_stage_ = StopStage::closing;
  if (membership_) membership_->leave();
  finish_joined(fail(ErrorCode::stopped, {.rank = options_.rank, .stage = Stage::shutdown}));
  self_->stop();
  formation_->stop();
  barrier_->stop();
  signals_->close();
  directory_->abort();
  teardown();
  stop_stage_ = StopStage::ended;
  end_calls();
  driver_stopped_ = true;
  parts_.driver->stop({});
  finish_hosted();
}

Result<void> Core::stop(Timeout timeout, void (*done)(void*, const Result<void>&), void* context) {
  if (forked()) return admit();
  struct Stop final : LoopCall {
    void run() override {
      if (core.stop_stage_ == StopStage::none) {
        core.stop_stage_ = StopStage::draining;
        core.stop_deadline_ = deadline;
      }
      core.stop_waiters_.push_back(waiter);
      core.loop_->start_after(core, Duration{});
    }
    void refuse() override {
      core.stop_waiters_.push_back(waiter);
      // On a host's loop the last handles are closing; that is told then.
      if (core.parts_.driver->own_thread()) core.tell_stopped();
    }
    Stop(Core& c, Instant d, const StopWaiter& w) : core(c), deadline(d), waiter(w) {}
    Core& core;
    Instant deadline;
    StopWaiter waiter;
  };
  if (done == nullptr) return fail(ErrorCode::invalid_argument, {.stage = Stage::shutdown});
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  auto running = Life::running;
  life_.compare_exchange_strong(running, Life::stopping);
  if (call_to_the_end(std::make_unique<Stop>(*this, *deadline, StopWaiter{done, context}))) return {};
  return fail(ErrorCode::stopped, {.rank = options_.rank, .stage = Stage::shutdown});
}

Result<void> Core::stop_and_join(Timeout timeout) {
  if (forked()) return admit();
  if (on_loop_thread() && life_ != Life::stopped) {
    return fail(ErrorCode::would_deadlock, {.rank = options_.rank, .stage = Stage::shutdown});
  }
  Waiting<Result<void>> waiting;
  const auto asked = stop(
      timeout,
      [](void* context, const Result<void>& result) { static_cast<Waiting<Result<void>>*>(context)->give(result); },
      &waiting);
  if (!asked) return asked.error().code == ErrorCode::stopped ? stop_result_ : asked;
  const Result<void> result = waiting.wait(*loop_->thread());
  const std::scoped_lock lock(end_mutex_);
  if (!driver_stopped_ && parts_.driver->own_thread()) {
    driver_stopped_ = true;
    parts_.driver->stop({});
    parts_.driver->join();
    loop_->thread()->unbind();  // a thread of the program may get that identity next
    set_stopped();
    loop_->mailbox().wakeup().barrier();  // whoever posts and is not seen here sees that it came too late
    while (loop_->mailbox().drain(SIZE_MAX) > 0) {
    }
  }
  return result;
}

void Core::let_go(std::unique_ptr<Core> core) {
  core->door_->store(nullptr);
  if (!core->on_loop_thread() || core->life_ == Life::stopped) return;
  if (core->parts_.driver->own_thread()) {
    // This thread is in a callback of the core, and cannot wait for its own end.
    Core* self = core.release();
    try {
      std::thread([self] { delete self; }).detach();
    } catch (const std::system_error&) {
      log::error("no thread to end a runtime that was destroyed in its own callback; it is stopped and stays");
      static_cast<void>(self->stop(
          Timeout{}, [](void*, const Result<void>&) {}, nullptr));
    }
    return;
  }
  if (core->telling_ == 0) return;
  Core* self = core.release();
  if (self->hand() != nullptr) {
    // Nobody will turn it any more.
    self->hand()->after_turn([](void* context) { delete static_cast<Core*>(context); }, self);
    return;
  }
  static_cast<void>(self->stop(
      Timeout{}, [](void* context, const Result<void>&) { delete static_cast<Core*>(context); }, self));
}

/// Mail that came after the loop's last look, but before its end was told.
void Core::drain_after_end() {
  const std::scoped_lock lock(end_mutex_);
  while (loop_->mailbox().drain(SIZE_MAX) > 0) {
  }
}

/// Mail that came after even that, while its sender is still in the call that sent it: nothing of it ever began.
void Core::drain_late() {
  const std::scoped_lock lock(end_mutex_);
  late_ = true;
  while (loop_->mailbox().drain(SIZE_MAX) > 0) {
  }
  late_ = false;
}

bool Core::came_too_late(peer::Operation& operation) {
  drain_late();
  const std::scoped_lock lock(end_mutex_);  // somebody else may have taken it out
  return operation.refused;
}

}  // namespace hixl::core
