// SPDX-License-Identifier: Apache-2.0
//
// PeerActor's atomics: each is executed once or not at all, and whoever posted it is told which, or that nobody can
// know. What became of one, as far as this side knows:
//
//   unsent ──frame of it posted──▶ asked ──its result──▶ answered
//      ▲                             │ refused by the target
//      └─────────────────────────────┤
//                                    └ fence: executed, but the answer is lost ──▶ executed ──asked again──▶ answered
//
// An atomic that was asked or executed is asked again under the same number, of links that execute at the target only:
// the target's window knows the answer. A fence that says "not executed" changes nothing about that: asking again costs
// no more, and is right whatever was said. After its end was due it only asks, and at
// most for a lease.
#include <utility>

#include "base/assert.hpp"
#include "base/planted.hpp"
#include "peer/peer_actor.hpp"

namespace hixl::peer {

/// It has no bytes to cut: its one chunk waits as what is tried again does.
void PeerActor::begin_atomic(Operation& operation) {
  operation.cut.entry = static_cast<std::uint32_t>(operation.entries().size());
  return_chunk(operation, Chunk{.from = {}, .word = true});
}

PeerActor::Need PeerActor::need_of(const Operation& operation, const Chunk& chunk) noexcept {
  if (!chunk.word) return Need::bytes;
  const bool settled = operation.kind != Operation::Kind::atomic || operation.atomic.fate == AtomicFate::unsent;
  return settled ? Need::word : Need::word_at_target;
}

/// Gives the attempt what the target's window needs. False: the window is full; goes on when an answer has come.
bool PeerActor::number_atomic(Operation& operation, const LinkActor& link) noexcept {
  if (operation.kind != Operation::Kind::atomic || link.caps().executed_by_initiator) return true;
  links::AtomicTerms& terms = operation.atomic.terms;
  if (terms.number == 0) terms.number = atomic_numbers_.take();
  terms.acked_upto = HIXL_PLANTED(atomic_acknowledged_early) ? terms.number - 1 : atomic_numbers_.acked_upto();
  terms.ask = operation.ending;
  return terms.number != 0;
}

void PeerActor::note_asked(Operation& operation, const LinkActor& link) noexcept {
  const bool by_target = operation.kind == Operation::Kind::atomic && !link.caps().executed_by_initiator;
  if (by_target && operation.atomic.fate == AtomicFate::unsent) operation.atomic.fate = AtomicFate::asked;
}

/// The end of an attempt, on top of what on_attempt_end() does with every operation.
PeerActor::Verdict PeerActor::judge_atomic(Operation& operation, AttemptEnd how, const Error& error) {
  AtomicEntry& atomic = operation.atomic;
  // The end of a mere question tells nothing about the attempt before it, but for the target's own answer.
  const bool executing = !atomic.terms.ask;
  const bool told = error.code == ErrorCode::cancelled || error.code == ErrorCode::busy;
  switch (how) {
    case AttemptEnd::executed:
      if (atomic.fate == AtomicFate::answered) return Verdict::settled;
      atomic.fate = AtomicFate::executed;
      return operation.ending ? Verdict::settled : Verdict::again;
    case AttemptEnd::refused:
      if (atomic.fate == AtomicFate::asked && (executing || told)) atomic.fate = AtomicFate::unsent;
      if (error.code != ErrorCode::busy) return Verdict::settled;
      atomic_numbers_.narrow(atomic.terms.number, atomic.terms.acked_upto);
      return operation.ending ? Verdict::settled : Verdict::again;
    case AttemptEnd::not_executed:
      if (HIXL_PLANTED(atomic_believes_fence) && executing) atomic.fate = AtomicFate::unsent;
      // Whatever a fence or the end of a session says of the attempt, the target's window knows better: it stays asked.
      return operation.ending ? Verdict::settled : Verdict::again;
  }
  return Verdict::settled;
}

/// Nothing is live or waiting. An atomic whose end was due may still have to learn what it was.
void PeerActor::settle_atomic(Operation& operation) {
  if (operation.atomic.fate == AtomicFate::answered) operation.error = {};  // done, whatever came meanwhile (H5)
  const bool open = operation.atomic.fate == AtomicFate::asked || operation.atomic.fate == AtomicFate::executed;
  if (!open || stopping_) {
    finish(operation);
    return;
  }
  HIXL_ASSERT(operation.ending);
  return_chunk(operation, Chunk{.from = {}, .word = true});
  if (!operation.fencing) {
    operation.fencing = true;
    services_.loop.start_after(operation, lease_);
  }
  // No dial from here: this may be a handshake's own settling, whose link is about to open.
  pump_later();
}

/// The last word about an atomic. What may have been executed and is not answered is neither a failure nor a loss.
void PeerActor::close_atomic(Operation& operation) noexcept {
  AtomicEntry& atomic = operation.atomic;
  if (operation.error.code == ErrorCode::ok) {
    operation.executed_bytes = sizeof(std::uint64_t);
  } else if (atomic.fate == AtomicFate::asked || atomic.fate == AtomicFate::executed) {
    operation.error.code = ErrorCode::outcome_unknown;
  }
  if (atomic.terms.number == 0) return;
  atomic_numbers_.release(std::exchange(atomic.terms.number, 0));
  pump_if_waiting();  // one that the window had no room for
}

/// The life that executed them is over, and its window with it: nobody can be asked any more.
void PeerActor::give_up_atomics() {
  for (Operation* operation = open_.front(); operation != nullptr;) {
    Operation* next = open_.next(*operation);
    if (operation->kind == Operation::Kind::atomic && operation->ending && operation->live == 0) {
      take_back_returned(*operation);
      finish(*operation);
    }
    operation = next;
  }
}

}  // namespace hixl::peer
