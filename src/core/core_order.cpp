// SPDX-License-Identifier: Apache-2.0
//
// Core's fences, flushes and quiet.
#include <deque>
#include <limits>

#include "base/assert.hpp"
#include "core/core.hpp"

namespace hixl::core {

namespace {

/// Open quiets: each is one flush a peer. A program waits for them one after another.
constexpr std::size_t k_quiets_max = 64;

}  // namespace

/// One call, until its last flush has ended. Its flushes have no slots: nobody holds a request for them.
struct Core::Quiet {
  void (*done)(void*, const Result<void>&) = nullptr;
  void* context = nullptr;
  std::deque<peer::Operation> flushes{};
  std::size_t open = 0;
  Result<void> result{};  // the first failure
};

/// Nothing while nothing was ever done with that rank.
memory::PostingOrder* Core::posting_order(Rank rank) noexcept {
  if (rank == options_.rank) return &self_order_;
  memory::PeerMemory* memory = directory_->memory(rank);
  return memory == nullptr ? nullptr : &memory->order;
}

Result<Request> Core::post_order(peer::Operation::Kind kind, Rank rank, const OpOptions& options) {
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  if (const auto valid = check_rank(rank); !valid) return fail(valid.error());
  const auto deadline = deadline_of(options.timeout);
  if (!deadline) return fail(deadline.error());
  const auto acquired = requests_->acquire();
  if (!acquired) return fail(acquired.error());
  // One look: whether the lane is closed and whether the operation has a place must agree.
  memory::PeerMemory* memory = rank == options_.rank ? nullptr : directory_->memory(rank);
  memory::PostingOrder* order = rank == options_.rank ? &self_order_ : memory == nullptr ? nullptr : &memory->order;
  // Fences whose requests have ended may still hold others back, so they are not bounded by the slots.
  if (memory != nullptr && !memory->gate.begin_order(options_.requests_max)) {
    requests_->abandon(acquired->slot);
    return fail(ErrorCode::busy, {.rank = rank, .limit = options_.requests_max});
  }
  peer::Operation& operation = operations_[acquired->slot];
  operation.kind = kind;
  operation.rank = rank;
  operation.deadline = *deadline;
  operation.place = order == nullptr ? 0 : order->begin();
  auto request = submit(operation, *acquired, options,
                        {kind == peer::Operation::Kind::flush ? OperationVerb::flush : OperationVerb::fence, false, 0});
  if (order != nullptr) order->sent();
  if (!request && memory != nullptr) memory->gate.end_order();
  return request;
}

// ---- quiet: a flush of every rank that anything was done with ----

Result<void> Core::quiet(Timeout timeout, void (*done)(void*, const Result<void>&), void* context) {
  if (const auto admitted = admit(); !admitted) return admitted;
  if (done == nullptr) return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
  auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  if (timeout == Timeout{}) *deadline = Instant::min();  // over when its mail is read
  class Start final : public LoopCall {
   public:
    Start(Core& core, Instant deadline, void (*done)(void*, const Result<void>&), void* context)
        : core_(core), deadline_(deadline), done_(done), context_(context) {}
    void run() override { core_.start_quiet(deadline_, done_, context_); }
    void refuse() override {
      core_.tell(
          [&] { done_(context_, fail(ErrorCode::stopped, {.rank = core_.options_.rank, .stage = Stage::shutdown})); });
    }

   private:
    Core& core_;
    const Instant deadline_;
    void (*const done_)(void*, const Result<void>&);
    void* const context_;
  };
  return call(std::make_unique<Start>(*this, *deadline, done, context));
}

void Core::start_quiet(Instant deadline, void (*done)(void*, const Result<void>&), void* context) {
  const ErrorCode refused = stop_stage_ >= StopStage::closing ? ErrorCode::stopped
                            : deadline <= loop_->now()        ? ErrorCode::deadline_exceeded
                            : quiets_ == k_quiets_max         ? ErrorCode::busy
                                                              : ErrorCode::ok;
  if (refused != ErrorCode::ok) {
    const Result<void> result = fail(refused, {.rank = options_.rank,
                                               .stage = Stage::fence,
                                               .limit = refused == ErrorCode::busy ? std::uint64_t{k_quiets_max} : 0});
    tell([&] { done(context, result); });
    return;
  }
  quiets_ += 1;
  auto* quiet = new Quiet{.done = done, .context = context};
  const auto flush = [&](Rank rank, memory::PostingOrder& order) -> peer::Operation& {
    peer::Operation& operation = quiet->flushes.emplace_back();
    operation.kind = peer::Operation::Kind::flush;
    operation.slot = k_no_slot;
    operation.part_of = quiet;
    operation.rank = rank;
    operation.deadline = deadline;
    operation.place = order.begin();
    order.sent();
    quiet->open += 1;
    return operation;
  };
  self_->post(flush(options_.rank, self_order_));
  for (const auto& actor : directory_->peers()) {
    memory::PeerMemory* memory = directory_->memory(actor->rank());
    HIXL_ASSERT(memory != nullptr);
    const bool begun = memory->gate.begin_order(std::numeric_limits<std::uint64_t>::max());
    HIXL_ASSERT(begun);
    actor->post(flush(actor->rank(), memory->order));
  }
}

void Core::on_quiet_part(peer::Operation& operation, const Result<void>& result) {
  auto* quiet = static_cast<Quiet*>(operation.part_of);
  if (quiet->result && !result) quiet->result = result;
  if (--quiet->open > 0) return;
  quiets_ -= 1;
  const Result<void> told = quiet->result;
  const auto done = quiet->done;
  void* const context = quiet->context;
  delete quiet;
  tell([&] { done(context, told); });
}

}  // namespace hixl::core
