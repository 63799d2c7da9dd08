// SPDX-License-Identifier: Apache-2.0
//
// Core's ends: who is told that an operation has ended, and what a program may still ask while it is under way.
#include <thread>

#include "base/log.hpp"
#include "core/core.hpp"

namespace hixl::core {

void Core::on_operation_end(peer::Operation& operation, const Result<void>& result) {
  if (operation.slot == k_no_slot) {
    on_quiet_part(operation, result);
    return;
  }
  Completion completion{.result = result, .bytes = operation.executed_bytes};
  if (operation.kind == peer::Operation::Kind::atomic) completion.value = operation.atomic.before;
  if (!result && operation.kind == peer::Operation::Kind::transfer && operation.batch.empty()) {
    completion.written = operation.written.list();
  }
  const std::uint32_t slot = operation.slot;
  counters_.operations += 1;
  if (!result) counters_.failed += 1;
  std::optional<OperationInfo> failed;
  if (sweep_ && !result) failed = look_at_slot(slot, loop_->port().now());
  begun_[slot] = 0;
  operation.reset();
  QueuePlace place;
  if (queue_places_[slot].queue) place = std::exchange(queue_places_[slot], {});
  // From here on the slot may live again.
  const auto ended =
      requests_->finish(slot, result, place.queue != nullptr, {.bytes = completion.bytes, .value = completion.value});
  if (failed && ended.unseen) note_unseen(std::move(*failed), result.error());
  completion.user_data = ended.user_data;
  if (place.queue && !place.queue->deliver(place.place, completion)) counters_.completions_dropped += 1;
  if (ended.callback.function != nullptr) tell([&] { ended.callback.function(ended.callback.context, completion); });
}

Degrade Core::on_degrade(FailedPiece piece, const peer::Operation& operation) {
  Degrade answer = Degrade::fail;
  if (operation.slot != k_no_slot) {
    if (const auto info = look_at_slot(operation.slot, loop_->port().now())) piece.user_data = info->user_data;
  }
  tell([&] { answer = options_.retry.degrade.function(options_.retry.degrade.context, piece); });
  return answer;
}

void Core::callback_threw() noexcept {
  callback_errors_.fetch_add(1, std::memory_order_relaxed);
  loop_->log().error({"callbacks that threw"}, "a callback threw an exception; it was caught and the loop goes on");
}

// ---- cancel ----

Result<void> Core::cancel_later(std::uint32_t slot, std::uint32_t generation) {
  if (loop_->mailbox().post(this, k_mail_cancel, slot, generation)) return {};
  return fail(ErrorCode::busy, {.rank = options_.rank, .limit = options_.requests_max});
}

/// Another thread's question may come before the operation's own mail, whose start then finds the mark in the slot; and
/// it may come after the end, when the slot lives another life. While that very life is under way it was posted before
/// the question, so the operation may be looked at here.
void Core::cancel_operation(std::uint32_t slot, std::uint32_t generation) {
  if (stop_stage_ == StopStage::ended || !requests_->pending(slot, generation)) return;
  peer::Operation& operation = operations_[slot];
  if (begun_[slot] == 0) return;
  if (operation.rank == options_.rank) {
    self_->cancel(operation);
  } else if (peer::PeerActor* actor = directory_->peer(operation.rank); actor != nullptr) {
    actor->cancel(operation);
  }
}

// ---- a callback that came after the end ----

Result<void> Core::deliver_later(std::uint32_t slot) {
  const std::scoped_lock lock(calls_mutex_);
  if (calls_over_) return fail(ErrorCode::stopped, {.rank = options_.rank, .stage = Stage::shutdown});
  if (loop_->mailbox().post(this, k_mail_deliver, slot, 0)) return {};
  return fail(ErrorCode::busy, {.rank = options_.rank, .limit = options_.requests_max});
}

void Core::deliver(std::uint32_t slot) {
  const auto delivery = requests_->take_delivery(slot);
  tell([&] { delivery.callback.function(delivery.callback.context, delivery.completion); });
}

// ---- calls ----

Result<void> Core::call(std::unique_ptr<LoopCall> call) {
  const std::scoped_lock lock(calls_mutex_);
  if (calls_over_) return fail(ErrorCode::stopped, {.rank = options_.rank, .stage = Stage::shutdown});
  const auto number = reinterpret_cast<std::uint64_t>(call.get());
  if (!loop_->mailbox().post(this, k_mail_call, 0, number)) {
    return fail(ErrorCode::busy, {.rank = options_.rank, .limit = options_.requests_max});
  }
  static_cast<void>(call.release());
  return {};
}

bool Core::call_to_the_end(std::unique_ptr<LoopCall> call) {
  const std::scoped_lock lock(calls_mutex_);
  if (life_ == Life::stopped) return false;
  const runtime::Mail mail{
      .target = this, .kind = k_mail_call, .a = 0, .b = reinterpret_cast<std::uint64_t>(call.get())};
  while (!loop_->mailbox().post_beyond_capacity(mail)) std::this_thread::yield();  // no memory at all: until there is
  static_cast<void>(call.release());
  return true;
}

void Core::on_call(LoopCall& call) {
  const std::unique_ptr<LoopCall> mine(&call);
  stop_stage_ == StopStage::ended ? mine->refuse() : mine->run();
}

void Core::end_calls() {
  {
    const std::scoped_lock lock(calls_mutex_);
    calls_over_ = true;
  }
  while (loop_->mailbox().drain(SIZE_MAX) > 0) {
  }
}

void Core::set_stopped() {
  const std::scoped_lock lock(calls_mutex_);
  calls_over_ = true;
  life_.store(Life::stopped, std::memory_order_seq_cst);
}

}  // namespace hixl::core
