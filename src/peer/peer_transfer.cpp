// SPDX-License-Identifier: Apache-2.0
//
// PeerActor's operations: from the mailbox through chunks and attempts to exactly one end.
#include <algorithm>

#include "base/assert.hpp"
#include "base/planted.hpp"
#include "peer/peer_actor.hpp"

namespace hixl::peer {

void PeerActor::post(Operation& operation, const Error* over) {
  operation.op_id = ++services_.last_op_id;
  operation.owner = this;
  const bool settled = arrivals_.add(open_, operation);
  services_.loop.start(operation, operation.deadline);
  if (operation.is_order()) keep_order(operation);
  if (stopping_) {
    end_later(operation, Error(ErrorCode::stopped, {.rank = rank_, .stage = Stage::shutdown}));
    return;
  }
  if (over != nullptr) {
    end_later(operation, *over);
    return;
  }
  if (operation.is_order()) {
    pump_later();
    return;
  }
  if (const auto reach = check_reach(operation); !reach) {
    end_later(operation, reach.error());
    return;
  }
  if (settled && !held(operation)) {
    make_ready(operation);
  } else {
    operation.waiting = true;
    waiting_count_ += 1;
  }
  pump_later();
  want();
}

void PeerActor::run() {
  over_dials_.clear();
  settle_order();
  tell_ends();
  // Before a goodbye that came in the same turn: whoever said it had all of ours.
  if (exchange_ready_) serve_exchanges();
  act_on_control();
  if (suspects_due_) fence_suspects();
  serve_connects();
  flush_control();
  if (control_.empty()) publish();
  post_turn();
  finish_orders();
}

/// What came back first, then small operations up to their budget, then bulk; then small ones again, if bulk has no use
/// for the rest of the turn.
void PeerActor::post_turn() {
  std::uint64_t small_bytes = 0;
  for (std::size_t posted = 0; posted < k_chunks_a_turn; ++posted) {
    if (post_returned()) continue;
    if (small_bytes < k_small_bytes_a_turn) {
      if (const std::uint64_t bytes = post_ready(small_); bytes > 0) {
        small_bytes += bytes;
        continue;
      }
    }
    if (post_ready(bulk_) == 0 && post_ready(small_) == 0) return;
  }
  pump_later();
}

namespace {

RegionKey region_of(const Operation& operation, const Chunk& chunk) noexcept {
  if (!chunk.word) return operation.entries()[chunk.from.entry].region;
  return operation.kind == Operation::Kind::atomic ? operation.atomic.region : operation.signal.region;
}

}  // namespace

bool PeerActor::post_returned() {
  // Nobody has credit, as often when a program has posted many atomics: looking at each of them would be in vain.
  if (std::none_of(links_.begin(), links_.end(), [](const auto& link) { return link->has_credit(); })) return false;
  const Instant now = services_.loop.now();
  // The first that can go, so that one whose region no link reaches yet does not hold up the others.
  for (std::size_t i = 0; i < returned_.size(); ++i) {
    const Returned item = returned_[i];
    if (item.due > now) continue;
    LinkActor* link = choose(*item.operation, region_of(*item.operation, item.chunk),
                             need_of(*item.operation, item.chunk), item.chunk.bytes);
    if (link == nullptr || !number_atomic(*item.operation, *link)) continue;
    const auto place = returned_.begin() + static_cast<std::ptrdiff_t>(i);
    const auto after = returned_.erase(place);
    item.operation->returned -= 1;
    const links::Answer answer = link->start(*item.operation, item.chunk);
    if (answer == links::Answer::posted) note_asked(*item.operation, *link);
    if (answer != links::Answer::busy) return true;
    item.operation->returned += 1;
    returned_.insert(after, item);  // its link is blocked now; another kind's chunk may go
  }
  return false;
}

std::uint64_t PeerActor::post_ready(Ready& ready) {
  // The first that can go; those whose link has no credit keep their turn.
  for (std::size_t looked = 0; looked < ready.count; ++looked) {
    Operation* operation = ready.list.pop_front();
    if (skip_finished_entries(*operation)) {  // nothing but empty entries
      ready.count -= 1;
      settle(*operation);
      return 1;
    }
    const std::uint64_t most = operation->small ? k_small_bytes : services_.chunk_bytes;
    LinkActor* link = choose(*operation, operation->entries()[operation->cut.entry].region, Need::bytes, most);
    if (link == nullptr) {
      ready.list.push_back(*operation);
      continue;
    }
    const Cursor before = operation->cut;
    const std::uint64_t bytes_max = std::min<std::uint64_t>(services_.chunk_bytes, link->caps().chunk_bytes);
    const Chunk chunk = cut_chunk(*operation, bytes_max, wire::k_segments_max);
    // Round robin among operations, so that a long one does not hold up short ones. `operation` may end inside start().
    const bool more = !operation->all_cut();
    if (more) {
      ready.list.push_back(*operation);
    } else {
      ready.count -= 1;
    }
    if (link->start(*operation, chunk) != links::Answer::busy) return chunk.bytes;
    if (!HIXL_PLANTED(busy_loses_chunk)) operation->cut = before;
    operation->chunks -= 1;
    operation->cut_bytes -= chunk.bytes;
    static_cast<ListNode<ReadyTag>&>(*operation).unlink();
    ready.list.push_front(*operation);
    if (!more) ready.count += 1;
    return chunk.bytes;  // its link is blocked now, so this does not come again; another kind's operation may go
  }
  return 0;
}

void PeerActor::end_refused(Operation& operation, const LinkActor& link, const Error& why) {
  Error told = why;
  told.detail.rank = rank_;
  told.detail.link = link.id();
  if (told.detail.stage == Stage::none) told.detail.stage = Stage::transfer;
  end(operation, told);
}

void PeerActor::on_attempt_end(LinkActor& link, Operation& operation, const Chunk& chunk, AttemptEnd how,
                               const Error& error) {
  pump_if_waiting();
  if (link.choice().siblings > 1 && !compare_tick_.active()) {
    services_.loop.start_after(compare_tick_, k_compare_period);
  }
  const bool atomic = operation.kind == Operation::Kind::atomic;
  if (atomic && judge_atomic(operation, how, error) == Verdict::again) how = AttemptEnd::not_executed;
  switch (how) {
    case AttemptEnd::executed:
      operation.executed_bytes += chunk.bytes;
      if (!chunk.word) operation.written.add(chunk.at, chunk.at + chunk.bytes);
      operation.signal_done = operation.signal_done || chunk.word;
      break;
    case AttemptEnd::refused:
      if (operation.ending) break;
      // It never left: the link found out that it does not reach the region, and another one may.
      if (!chunk.word && !reaches(link, region_of(operation, chunk)) &&
          reached_elsewhere(link, operation, region_of(operation, chunk))) {
        return_chunk(operation, chunk);
        pump_later();
        return;
      }
      end_refused(operation, link, error);
      return;
    case AttemptEnd::not_executed:
      if (!operation.ending) {
        if (error.code == ErrorCode::link_failed || error.code == ErrorCode::payload_corrupt) {
          return try_again(link, operation, chunk, error);
        }
        return_chunk(operation, chunk);  // an atomic is asked again; nothing broke
        pump_later();
        return;
      }
      // The one end after which the target may still write (R1 c): it has to be told apart.
      if (error.code == ErrorCode::peer_lost && !atomic) operation.error = error;
      break;
  }
  settle(operation);
}

/// Ends the operation if everything about it has come to rest.
void PeerActor::settle(Operation& operation) {
  const bool early = HIXL_PLANTED(signal_before_data) && operation.signal.wanted && !operation.signalled;
  if (operation.live > 0 && !early) return;
  if (operation.kind == Operation::Kind::atomic) return settle_atomic(operation);
  if (!operation.ending) {
    if (operation.returned > 0 || !operation.all_cut()) return;
    if (operation.signal.wanted && !operation.signalled) {
      // Only now: every byte is known to be there, over whatever links it went (H3).
      operation.signalled = true;
      return_chunk(operation, Chunk{.from = {}, .index = operation.chunks, .word = true});
      pump_later();
      return;
    }
  } else if ((operation.error.code == ErrorCode::deadline_exceeded || operation.error.code == ErrorCode::cancelled) &&
             (operation.executed() || HIXL_PLANTED(late_is_success))) {
    operation.error = {};  // late, but everything is known to be there: saying anything else would be false (H5)
  }
  finish(operation);
}

/// R6: the one door. Stops posting; what is live is waited for or fenced.
void PeerActor::end(Operation& operation, const Error& error) {
  if (operation.ending) return;
  operation.ending = true;
  operation.error = error;
  leave_ready(operation);
  take_back_returned(operation);
  std::size_t live = 0;
  for (const auto& link : links_) live += link->withdraw(operation);
  HIXL_ASSERT(live == operation.live);
  if (HIXL_PLANTED(deadline_without_fence) ||
      (HIXL_PLANTED(cancel_without_fence) && error.code == ErrorCode::cancelled)) {
    for (const auto& link : links_) link->drop(operation);
    live = 0;
  }
  pump_if_waiting();  // what was taken back gave its place to others
  if (live == 0) {
    if (operation.kind == Operation::Kind::atomic) return settle_atomic(operation);
    finish(operation);
    return;
  }
  services_.loop.start_after(operation, services_.timing.fence);
}

void PeerActor::cancel(Operation& operation) {
  end_later(operation, Error(ErrorCode::cancelled, {.rank = rank_,
                                                    .stage = Stage::transfer,
                                                    .length = operation.total_bytes(),
                                                    .limit = operation.executed_bytes}));
}

void PeerActor::take_back_returned(Operation& operation) {
  if (operation.returned == 0) return;
  std::erase_if(returned_, [&operation](const Returned& item) { return item.operation == &operation; });
  operation.returned = 0;
}

void PeerActor::on_operation_timer(OperationTimer& timer) {
  auto& operation = static_cast<Operation&>(timer);
  if (!operation.ending) {
    Error error(ErrorCode::deadline_exceeded, {.rank = rank_,
                                               .stage = Stage::transfer,
                                               .length = operation.total_bytes(),
                                               .limit = operation.executed_bytes});
    if (operation.waiting) {
      error.detail.stage = Stage::fence;
    } else if (best_up() == nullptr) {
      // Nothing connected: where that stands, and the address at which it failed last.
      const Stage reached = connect_error_.detail.stage;
      const bool earlier = reached == Stage::resolve || reached == Stage::handshake;
      error.detail.stage = !address_known_ && reached == Stage::none ? Stage::rendezvous
                           : earlier                                 ? reached
                                                                     : Stage::connect;
      error.detail.os_error = connect_error_.detail.os_error;
      error.detail.host = connect_error_.detail.host;
      error.detail.port = connect_error_.detail.port;
    }
    end(operation, error);
    return;
  }
  // Still live after the fence time. First the links that hold it are fenced; if even that gets no answer for a lease,
  // the target could not be asked (R1 c). Copies that this side makes end by themselves.
  std::array<LinkActor*, 16> holders{};
  std::size_t count = 0;
  bool own_copies = false;
  for (const auto& link : links_) {
    if (link->withdraw(operation) == 0) continue;
    own_copies = own_copies || link->caps().executed_by_initiator;
    if (link->up() && !link->caps().executed_by_initiator && count < holders.size()) holders[count++] = link.get();
  }
  // An atomic may have been asked again meanwhile, on a link that stands; its lease is over all the same.
  const bool over = operation.kind == Operation::Kind::atomic && operation.fencing && !own_copies;
  if (!over && (count > 0 || (!own_copies && !operation.fencing && !stopping_))) {
    operation.fencing = true;
    services_.loop.start_after(operation, lease_);
    // The operation may end, and its slot live again, inside fail().
    for (LinkActor* link : std::span(holders).first(count)) {
      link->fail(Error(ErrorCode::link_failed, {.rank = rank_, .link = link->id(), .stage = Stage::fence}));
    }
    return;
  }
  if (own_copies) {
    services_.loop.start_after(operation, services_.timing.fence);
    return;
  }
  for (const auto& link : links_) link->drop(operation);
  take_back_returned(operation);
  pump_if_waiting();
  if (!HIXL_PLANTED(lease_end_unnamed)) operation.error.code = ErrorCode::peer_lost;
  operation.error.detail.stage = Stage::fence;
  finish(operation);
}

void PeerActor::finish(Operation& operation) {
  HIXL_ASSERT(operation.live == 0 && operation.returned == 0);
  if (operation.kind == Operation::Kind::atomic) close_atomic(operation);
  if (!HIXL_PLANTED(timer_outlives_operation)) operation.cancel();
  static_cast<ListNode<OpenTag>&>(operation).unlink();
  leave_ready(operation);
  const bool gone = HIXL_PLANTED(fence_ends_with_its_request) && operation.kind == Operation::Kind::fence;
  if (gone && std::erase(fence_places_, operation.place) != 0) memory_.gate.end_order();
  if (operation.kind == Operation::Kind::flush && operation.place != 0) memory_.gate.end_order();
  if (ends_held_) {
    ended_.push_back(operation);
  } else {
    tell_end(operation);
  }
}

void PeerActor::tell_end(Operation& operation) {
  Result<void> result;
  if (operation.error.code != ErrorCode::ok) result = fail(operation.error);
  services_.listener.on_operation_end(operation, result);
  if (HIXL_PLANTED(end_told_twice)) services_.listener.on_operation_end(operation, result);
  const Operation* front = open_.front();
  if (!fence_places_.empty() || (front != nullptr && front->is_order())) pump_later();
}

/// The program's callback may call us again and so end other operations; where a list is walked, the ends are held
/// back until the walk is over.
void PeerActor::tell_ends() {
  ends_held_ = false;
  while (Operation* operation = ended_.pop_front()) tell_end(*operation);
}

/// From inside a call of the owner: the end is told by the pump.
void PeerActor::end_later(Operation& operation, const Error& error) {
  ends_held_ = true;
  end(operation, error);
  ends_held_ = false;
  pump_later();
}

/// Ends every operation that is open now. The ends are held back: tell_ends() follows.
void PeerActor::end_all(const Error& error) {
  ends_held_ = true;
  for (Operation* operation = open_.front(); operation != nullptr;) {
    Operation* next = open_.next(*operation);
    end(*operation, error);
    operation = next;
  }
}

void PeerActor::on_link_credit(LinkActor& link) {
  static_cast<void>(link);
  pump_later();
}

/// The peer's region is retired: what waits for it ends; what is live ends by the link's own answer.
void PeerActor::end_operations_to(RegionKey key) {
  ends_held_ = true;
  for (Operation* operation = open_.front(); operation != nullptr;) {
    Operation* next = open_.next(*operation);
    bool uses = operation->signal.wanted && operation->signal.region == key;
    if (operation->kind == Operation::Kind::atomic) uses = operation->atomic.region == key;
    if (operation->kind == Operation::Kind::transfer) {
      for (const Entry& entry : operation->entries()) uses = uses || entry.region == key;
    }
    if (uses) end(*operation, Error(ErrorCode::stale, {.rank = rank_, .stage = Stage::remote_check}));
    operation = next;
  }
  tell_ends();
}

void PeerActor::end_operations_on(std::uint32_t region_id) {
  ends_held_ = true;
  for (Operation* operation = open_.front(); operation != nullptr;) {
    Operation* next = open_.next(*operation);
    bool uses = operation->pin && operation->pin.id() == region_id;
    for (const memory::Pin& pin : operation->pins) uses = uses || pin.id() == region_id;
    if (uses) end(*operation, Error(ErrorCode::stale, {.rank = rank_, .stage = Stage::local_check}));
    operation = next;
  }
  tell_ends();
}

}  // namespace hixl::peer
