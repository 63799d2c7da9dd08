// SPDX-License-Identifier: Apache-2.0
//
// Core's posting side: checks and hands over. Every check is made before a byte moves or a slot is taken.
#include <algorithm>

#include <hixl/completion_queue.hpp>

#include "base/assert.hpp"
#include "core/checks.hpp"
#include "core/core.hpp"

namespace hixl::core {

namespace {

/// Longer deadlines than this are as good as none and would overflow the clock.
constexpr Duration k_timeout_max = std::chrono::hours(24 * 365);

}  // namespace

Result<void> Core::admit() const noexcept {
  if (mark_->forked()) return fail(ErrorCode::forked, {.rank = options_.rank});
  if (life_.load(std::memory_order_acquire) == Life::running) return {};
  return fail(ErrorCode::stopped, {.rank = options_.rank, .stage = Stage::shutdown});
}

Result<Instant> Core::deadline_of(Timeout timeout) const {
  const Duration time = allowed(timeout);
  if (time < Duration{}) return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
  return loop_->port().now() + time;
}

Duration Core::allowed(Timeout timeout) const noexcept {
  return std::min<Duration>(timeout == k_default_timeout ? options_.default_timeout : timeout, k_timeout_max);
}

Result<void> Core::check_rank(Rank rank) const noexcept {
  if (rank < options_.world_size) return {};
  return fail(ErrorCode::rank_out_of_range, {.rank = rank, .stage = Stage::remote_check, .limit = options_.world_size});
}

Result<memory::RemoteView> Core::resolve(const RemoteAddress& remote, std::uint64_t size, Rights need) const {
  if (const auto valid = check_rank(remote.rank); !valid) return fail(valid.error());
  if (remote.rank != options_.rank) {
    const memory::PeerMemory* memory = directory_->memory(remote.rank);
    if (memory == nullptr) {
      return fail(ErrorCode::not_exchanged,
                  {.rank = remote.rank, .stage = Stage::remote_check, .address = remote.address, .length = size});
    }
    auto view = memory->remotes.resolve(remote, size, need);
    if (view) return view;
    // A stop forgets the peers; who came just before it hears of the stop.
    if (const auto admitted = admit(); !admitted) return fail(admitted.error());
    if (view.error().code == ErrorCode::not_exchanged && remote.incarnation != 0) {
      // It was known once: that life, or our session with it, is over.
      return fail(ErrorCode::stale, view.error().detail);
    }
    return view;
  }
  // This rank itself: its own table knows everything.
  const auto info = remote.region.valid() ? regions_->info(remote.region)
                                          : regions_->find(reinterpret_cast<const void*>(remote.address), size);
  if (!info) {
    Error error = info.error();
    error.detail.rank = remote.rank;
    error.detail.stage = Stage::remote_check;
    return fail(error);
  }
  const auto base = reinterpret_cast<std::uint64_t>(info->data);
  ErrorDetail detail{.rank = remote.rank,
                     .stage = Stage::remote_check,
                     .address = remote.address,
                     .length = size,
                     .nearest_base = base,
                     .nearest_length = info->size};
  if (remote.incarnation != 0 && remote.incarnation != services_->incarnation) return fail(ErrorCode::stale, detail);
  if (remote.address < base || remote.address - base > info->size || size > info->size - (remote.address - base)) {
    return fail(ErrorCode::out_of_range, detail);
  }
  if (!includes(info->rights, need)) return fail(ErrorCode::access_denied, detail);
  return memory::RemoteView{.key = info->key, .token = info->token, .offset = remote.address - base, .mapped = nullptr};
}

/// A stop closes every region; who came just before it hears of the stop.
Result<memory::Pin> Core::pin_local(const void* local, std::uint64_t size, Rights need) {
  auto pin = regions_->pin(local, size, need);
  if (pin) return pin;
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  return pin;
}

/// Device memory is not for the CPU of the calling thread.
bool Core::inlines(TransferVerb verb, const void* local, std::uint64_t size) const {
  return verb == TransferVerb::put && size <= options_.max_inline && !regions_->on_device(local, size);
}

Result<void> Core::fill_entry(peer::Entry& entry, TransferVerb verb, const void* local, const RemoteAddress& remote,
                              std::uint64_t size) {
  const auto view = resolve(remote, size, remote_need(verb));
  if (!view) return fail(view.error());
  entry.verb = verb;
  entry.local = static_cast<std::byte*>(const_cast<void*>(local));
  entry.device = &memory::host_device();
  entry.region = view->key;
  entry.token = view->token;
  entry.offset = view->offset;
  entry.size = size;
  return {};
}

/// The word must not be part of what the put, or a put of the batch, changes.
Result<void> check_apart(const Signal& signal, const RemoteAddress& data, std::uint64_t size) {
  if (size == 0 || signal.word.address >= data.address + size ||
      data.address >= signal.word.address + sizeof(std::uint64_t)) {
    return {};
  }
  return fail(ErrorCode::overlap, {.rank = signal.word.rank,
                                   .stage = Stage::remote_check,
                                   .address = signal.word.address,
                                   .length = sizeof(std::uint64_t),
                                   .nearest_base = data.address,
                                   .nearest_length = size});
}

Result<void> Core::fill_signal(peer::SignalEntry& entry, const Signal& signal, Rank rank) {
  const ErrorDetail detail{.rank = signal.word.rank,
                           .stage = Stage::remote_check,
                           .address = signal.word.address,
                           .length = sizeof(std::uint64_t)};
  if (signal.word.rank != rank) return fail(ErrorCode::invalid_argument, detail);
  if (signal.word.address % sizeof(std::uint64_t) != 0) return fail(ErrorCode::unaligned, detail);
  const auto view = resolve(signal.word, sizeof(std::uint64_t), Rights::write);
  if (!view) return fail(view.error());
  if (rank == options_.rank) {
    const auto own = regions_->info(view->key);
    if (own && !own->device->caps().atomic_capable) return fail(ErrorCode::unsupported, detail);
  }
  entry = {.wanted = true,
           .verb = signal.op == SignalOp::add ? links::Verb::signal_add : links::Verb::signal_set,
           .region = view->key,
           .token = view->token,
           .offset = view->offset,
           .value = signal.value};
  return {};
}

/// What a post writes of its slot was last written by the loop: asked for now, it is here when the checks are done.
void Core::fetch_slot(std::uint32_t slot) noexcept {
  const auto* posted = reinterpret_cast<const std::byte*>(&operations_[slot].slot);
  for (std::size_t line = 0; line < peer::k_posted_lines; ++line) {
    runtime::prefetch_for_write(posted + line * peer::k_cache_line_bytes);
  }
  runtime::prefetch_for_write(&notes_[slot]);
  runtime::prefetch_for_write(inline_bytes_.data() + std::size_t{slot} * options_.max_inline);
}

Result<Request> Core::post(TransferVerb verb, const void* local, const RemoteAddress& remote, std::uint64_t size,
                           const Signal* signal, const OpOptions& options) {
  if (const auto admitted = admit(); !admitted) return fail(admitted.error());
  if (const auto usable = check_links(options.links, remote.rank); !usable) return fail(usable.error());
  const auto acquired = requests_->acquire();
  if (!acquired) return fail(acquired.error());
  fetch_slot(acquired->slot);
  if (const auto filled = fill_transfer(acquired->slot, verb, local, remote, size, signal, options); !filled) {
    operations_[acquired->slot].reset();
    requests_->abandon(acquired->slot);
    return fail(filled.error());
  }
  const auto what = verb == TransferVerb::put ? OperationVerb::put : OperationVerb::get;
  return submit(operations_[acquired->slot], *acquired, options, {what, signal != nullptr, size});
}

/// Writes the operation in place: a copy on the stack that is read back in wider pieces than it was written in would
/// have to wait until all earlier stores, to lines that the loop held, are through.
Result<void> Core::fill_transfer(std::uint32_t slot, TransferVerb verb, const void* local, const RemoteAddress& remote,
                                 std::uint64_t size, const Signal* signal, const OpOptions& options) {
  peer::Operation& operation = operations_[slot];
  const auto deadline = deadline_of(options.timeout);
  if (!deadline) return fail(deadline.error());
  if (const auto filled = fill_entry(operation.single, verb, local, remote, size); !filled) return filled;
  if (signal != nullptr) {
    if (const auto filled = fill_signal(operation.signal, *signal, remote.rank); !filled) return filled;
    if (const auto apart = check_apart(*signal, remote, size); !apart) return apart;
  }
  if (!inlines(verb, local, size)) {
    auto pinned = pin_local(local, size, local_need(verb));
    if (!pinned) return fail(pinned.error());
    if (*pinned) operation.single.device = &pinned->device();
    operation.pin = std::move(*pinned);
  } else if (size > 0) {
    if (!has_source(local, size)) return no_source(size);
    std::byte* bytes = inline_bytes_.data() + std::size_t{slot} * options_.max_inline;
    memory::copy(memory::host_device(), bytes, memory::host_device(), static_cast<const std::byte*>(local), size);
    operation.single.local = bytes;
  }
  operation.kind = peer::Operation::Kind::transfer;
  operation.rank = remote.rank;
  operation.links = options.links;
  operation.deadline = *deadline;
  return {};
}

/// Takes the queue's place and mails the operation. An error: nobody will look at it, and the place is free again.
Result<void> Core::hand_over(peer::Operation& operation, const OpOptions& options) {
  const std::uint32_t slot = operation.slot;
  QueuePlace& place = queue_places_[slot];
  if (options.queue != nullptr) {
    const auto reserved = options.queue->state_->reserve(loop_->thread());
    if (!reserved) return fail(reserved.error());
    place = {options.queue->state_, *reserved};
  }
  requests_->prepare(slot, options.callback, options.user_data);
  const auto refuse = [&place](ErrorCode code, const ErrorDetail& detail) -> Result<void> {
    if (auto taken = std::exchange(place, {}); taken.queue) taken.queue->give_back(taken.place);
    return fail(code, detail);
  };
  // No result is kept and handed on: its copy would be read in wider pieces than it was written in, and so wait for all
  // that the post has stored.
  if (!loop_->mailbox().post(this, k_mail_operation, slot, 0)) {
    return refuse(ErrorCode::busy, {.rank = operation.rank, .limit = options_.requests_max});
  }
  if (life_.load(std::memory_order_seq_cst) == Life::stopped && came_too_late(operation)) {
    return refuse(ErrorCode::stopped, {.rank = options_.rank, .stage = Stage::shutdown});
  }
  return {};
}

Result<Request> Core::submit(peer::Operation& operation, runtime::RequestTable::Acquired acquired,
                             const OpOptions& options, const Said& said) {
  operation.slot = acquired.slot;
  note_post(operation, acquired.generation, options, said);
  // Before all that the loop's clock can show, so that it is over when its mail is read.
  if (options.timeout == Timeout{}) operation.deadline = Instant::min();
  if (!operation.is_order()) {
    if (const auto* order = posting_order(operation.rank); order != nullptr) {
      operation.place = order->place_of_transfer();
    }
  }
  if (const auto handed = hand_over(operation, options); !handed) {
    operation.reset();
    requests_->abandon(acquired.slot);
    return fail(handed.error());
  }
  return Result<Request>(tl::in_place, *requests_, acquired.slot, acquired.generation);
}

/// Cancelled on its way here, or its time is over: nothing of it begins. Its actor has to know of it all the same,
/// since its end has its place among the others', and a fence orders also when its request is over.
std::optional<Error> Core::over_before_start(const peer::Operation& operation) const {
  if (requests_->cancel_asked(operation.slot)) {
    return Error(ErrorCode::cancelled, {.rank = operation.rank, .stage = Stage::transfer});
  }
  if (operation.deadline <= loop_->now()) {
    return Error(ErrorCode::deadline_exceeded,
                 {.rank = operation.rank, .stage = Stage::transfer, .length = operation.total_bytes()});
  }
  return std::nullopt;
}

void Core::start_operation(peer::Operation& operation) {
  begun_[operation.slot] = 1;
  if (stop_stage_ >= StopStage::closing) {
    on_operation_end(operation, fail(ErrorCode::stopped, {.rank = operation.rank, .stage = Stage::shutdown}));
    return;
  }
  counters_.coalesced += operation.plan.coalesced();
  const std::optional<Error> over = over_before_start(operation);
  const Error* const why = over ? &*over : nullptr;
  if (operation.rank == options_.rank) {
    self_->post(operation, why);
    return;
  }
  if (peer::PeerActor* actor = directory_->peer(operation.rank); actor != nullptr) {
    actor->post(operation, why);
  } else {
    on_operation_end(operation, fail(ErrorCode::limit_reached, {.rank = operation.rank, .limit = options_.peers_max}));
  }
}

}  // namespace hixl::core
