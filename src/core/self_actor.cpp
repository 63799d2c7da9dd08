// SPDX-License-Identifier: Apache-2.0
#include "core/self_actor.hpp"

#include <algorithm>
#include <array>

#include "base/assert.hpp"

namespace hixl::core {

namespace {

/// Bytes copied in one turn: about 0.1 ms of memcpy.
constexpr std::uint64_t k_turn_bytes = 1U << 20U;
/// An atomic with its end counts for about as much of a turn as copying this.
constexpr std::uint64_t k_turn_atomic_bytes = 1U << 10U;

}  // namespace

void SelfActor::post(peer::Operation& operation, const Error* over) {
  operation.owner = this;
  if (over != nullptr) {
    end_later(operation, *over);
    return;
  }
  static_cast<void>(arrivals_.add(open_, operation));  // nothing begins before run() has settled it
  loop_.start(operation, operation.deadline);
  loop_.defer(*this);
}

void SelfActor::run() {
  arrivals_.settle();
  while (peer::Operation* operation = over_.front()) finish(*operation, fail(operation->error));
  std::uint64_t left = k_turn_bytes;
  for (;;) {
    // A flush that a callback posted has to be settled first.
    peer::Operation* operation = arrivals_.due() ? nullptr : open_.front();
    if (operation == nullptr) break;
    if (operation->kind == peer::Operation::Kind::transfer) {
      const std::uint64_t before = operation->executed_bytes;
      Result<void> result = copy_piece(*operation, left);
      left -= operation->executed_bytes - before;
      if (result && !operation->all_cut()) break;
      if (result && operation->signal.wanted) result = signal(*operation);
      finish(*operation, result);
    } else if (operation->kind == peer::Operation::Kind::atomic) {
      finish(*operation, execute(*operation));
      left -= std::min(left, k_turn_atomic_bytes);
    } else {
      finish(*operation, {});
    }
    if (left == 0) break;
  }
  if (!open_.empty()) loop_.defer(*this);
}

/// Copies at most `bytes_max`; each piece is checked in the turn that touches it.
Result<void> SelfActor::copy_piece(peer::Operation& operation, std::uint64_t bytes_max) {
  std::array<links::Segment, wire::k_segments_max> segments;
  std::uint64_t left = bytes_max;
  while (left > 0 && !peer::skip_finished_entries(operation)) {
    const peer::Chunk chunk = peer::cut_chunk(operation, left, segments.size());
    peer::fill_segments(operation, chunk, std::span(segments).first(chunk.segments));
    const peer::Entry& entry = operation.entries()[chunk.from.entry];
    const bool put = entry.verb == TransferVerb::put;
    for (const links::Segment& segment : std::span(segments).first(chunk.segments)) {
      const auto place =
          regions_.check(entry.region, entry.token, segment.offset, segment.bytes, put ? Rights::write : Rights::read);
      if (!place) return fail(place.error());
      if (put) {
        memory::copy(*place->device, place->data, *entry.device, segment.local, segment.bytes);
      } else {
        memory::copy(*entry.device, segment.local, *place->device, place->data, segment.bytes);
      }
    }
    operation.executed_bytes += chunk.bytes;
    operation.written.add(chunk.at, chunk.at + chunk.bytes);
    left -= chunk.bytes;
  }
  peer::skip_finished_entries(operation);
  return {};
}

Result<void> SelfActor::signal(const peer::Operation& operation) {
  const peer::SignalEntry& entry = operation.signal;
  const auto place = regions_.check(entry.region, entry.token, entry.offset, sizeof(std::uint64_t), Rights::write);
  if (!place) return fail(place.error());
  if (entry.verb == links::Verb::signal_add) {
    memory::add_word(*place->device, place->data, entry.value);
  } else {
    memory::store_word(*place->device, place->data, entry.value);
  }
  signals_.ring();
  return {};
}

/// Done in this turn or not at all, so nothing has to be remembered.
Result<void> SelfActor::execute(peer::Operation& operation) {
  peer::AtomicEntry& atomic = operation.atomic;
  const auto place = regions_.check(atomic.region, atomic.token, atomic.offset, sizeof(std::uint64_t), Rights::atomic);
  if (!place) return fail(place.error());
  if (!place->device->caps().atomic_capable) return fail(ErrorCode::unsupported, {.rank = rank_});
  atomic.before = links::apply_atomic(links::atomic_op(atomic.verb), *place->device, place->data, atomic.value,
                                      atomic.terms.expected);
  operation.executed_bytes = sizeof(std::uint64_t);
  signals_.ring();
  return {};
}

void SelfActor::finish(peer::Operation& operation, const Result<void>& result) {
  operation.cancel();
  static_cast<ListNode<peer::OpenTag>&>(operation).unlink();
  listener_.on_operation_end(operation, result);
}

void SelfActor::end_later(peer::Operation& operation, const Error& error) {
  operation.cancel();
  operation.ending = true;
  operation.error = error;
  over_.push_back(operation);
  loop_.defer(*this);
}

void SelfActor::cancel(peer::Operation& operation) {
  if (operation.ending) return;
  static_cast<ListNode<peer::OpenTag>&>(operation).unlink();
  end_later(operation, Error(ErrorCode::cancelled, {.rank = rank_,
                                                    .stage = Stage::transfer,
                                                    .length = operation.total_bytes(),
                                                    .limit = operation.executed_bytes}));
}

void SelfActor::on_operation_timer(peer::OperationTimer& timer) {
  auto& operation = static_cast<peer::Operation&>(timer);
  finish(operation, fail(ErrorCode::deadline_exceeded, {.rank = rank_,
                                                        .stage = Stage::transfer,
                                                        .length = operation.total_bytes(),
                                                        .limit = operation.executed_bytes}));
}

void SelfActor::end_operations_on(std::uint32_t region_id) {
  for (peer::Operation* operation = open_.front(); operation != nullptr;) {
    peer::Operation* next = open_.next(*operation);
    bool uses = operation->pin && operation->pin.id() == region_id;
    for (const memory::Pin& pin : operation->pins) uses = uses || pin.id() == region_id;
    if (uses) finish(*operation, fail(ErrorCode::stale, {.rank = rank_, .stage = Stage::local_check}));
    operation = next;
  }
}

void SelfActor::stop() {
  while (peer::Operation* operation = over_.front()) finish(*operation, fail(operation->error));
  while (peer::Operation* operation = open_.front()) {
    finish(*operation, fail(ErrorCode::stopped, {.rank = rank_, .stage = Stage::shutdown}));
  }
}

}  // namespace hixl::core
