// SPDX-License-Identifier: Apache-2.0
//
// What a Request may ask of the loop while and after its operation is under way: to end it early, and to call a
// callback that comes later than the post. And how a slot stands, for those who look inside.
#include "runtime/futex.hpp"
#include "runtime/request_slot.hpp"

namespace hixl::runtime {

/// A caller's stay at the keeper, which does not go away meanwhile.
class RequestTable::Visit {
 public:
  explicit Visit(RequestTable& table) noexcept : table_(table) {
    table_.visitors_.fetch_add(1, std::memory_order_seq_cst);
    keeper = table_.keeper_.load(std::memory_order_seq_cst);
  }
  /// The last touch: the table may be gone after it.
  ~Visit() { table_.visitors_.fetch_sub(1, std::memory_order_release); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  RequestKeeper* keeper;  // null: gone

 private:
  RequestTable& table_;
};

void RequestTable::detach() noexcept {
  keeper_.store(nullptr, std::memory_order_seq_cst);
  // A visit is one post to a mailbox.
  while (visitors_.load(std::memory_order_seq_cst) != 0) spin_pause();
}

// ---- cancel ----

Result<void> RequestTable::cancel(std::uint32_t slot, std::uint32_t life) noexcept {
  std::atomic<Word>& state = slots_[slot].state;
  Word word = state.load(std::memory_order_acquire);
  do {
    if (generation(word) != life || (word & k_taken) != 0) return fail(ErrorCode::invalid_request);
    if ((word & k_pending) == 0 || (word & k_cancelled) != 0) return {};
  } while (
      !state.compare_exchange_weak(word, word | k_cancelled, std::memory_order_acq_rel, std::memory_order_acquire));
  const Visit visit(*this);
  if (visit.keeper == nullptr) return {};  // the runtime is going, and ends it
  Result<void> asked = visit.keeper->cancel_later(slot, life);
  if (asked) return asked;
  word = state.load(std::memory_order_acquire);
  while (
      generation(word) == life && (word & k_pending) != 0 &&
      !state.compare_exchange_weak(word, word & ~k_cancelled, std::memory_order_acq_rel, std::memory_order_acquire)) {
  }
  return asked;
}

bool RequestTable::cancel_asked(std::uint32_t slot) const noexcept {
  return (slots_[slot].state.load(std::memory_order_acquire) & k_cancelled) != 0;
}

// ---- the callback, of the post or after it ----

void RequestTable::prepare(std::uint32_t slot, const Callback& callback, std::uint64_t user_data) noexcept {
  Slot& s = slots_[slot];
  s.user_data = user_data;
  if (callback.function == nullptr) return;
  s.callback = callback;
  // No Request of this life exists yet, so nobody else changes the word; a plain store, as in acquire().
  s.state.store(s.state.load(std::memory_order_relaxed) | k_callback, std::memory_order_release);
}

RequestTable::Promise RequestTable::promise(std::uint32_t slot, std::uint32_t life, const Callback& callback) noexcept {
  Slot& s = slots_[slot];
  Word word = s.state.load(std::memory_order_acquire);
  Word claimed = 0;
  do {
    if (generation(word) != life || (word & k_taken) != 0) return Promise::invalid;
    if ((word & k_callback) != 0) return Promise::taken;
    claimed = word | k_callback | ((word & k_pending) != 0 ? k_writing : k_taken);
  } while (!s.state.compare_exchange_weak(word, claimed, std::memory_order_acq_rel, std::memory_order_acquire));
  s.callback = callback;
  if ((claimed & k_taken) != 0) return Promise::ended;

  // It may have ended since, and somebody may have looked at that.
  word = s.state.load(std::memory_order_acquire);
  for (;;) {
    const bool under_way = (word & k_pending) != 0;
    const Word wanted = (word & ~k_writing) | (under_way ? 0 : k_taken);
    if (!s.state.compare_exchange_weak(word, wanted, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    if (under_way) return Promise::made;
    if ((word & k_taken) == 0) return Promise::ended;
    if ((word & k_looked) != 0) recycle(slot, word | k_seen);
    return Promise::invalid;
  }
}

RequestTable::Glance RequestTable::glance(std::uint32_t slot) const noexcept {
  const Slot& s = slots_[slot];
  const Word word = s.state.load(std::memory_order_acquire);
  Glance glance{.generation = runtime::generation(word)};
  if ((word & k_taken) != 0) return glance;
  glance.stand = (word & k_pending) != 0 ? Stand::pending : Stand::ended;
  glance.seen = (word & k_seen) != 0;
  // Only finish() writes it, on this thread.
  if (glance.stand == Stand::ended && (word & k_failed) != 0) glance.error = s.error;
  return glance;
}

/// The caller has taken the end, so the slot's values stand still.
RequestTable::End RequestTable::ended_with(std::uint32_t slot) const noexcept {
  const Slot& s = slots_[slot];
  if ((s.state.load(std::memory_order_acquire) & k_failed) != 0) return {.error = s.error};
  return {.value = s.effect.value};
}

Result<void> RequestTable::deliver(std::uint32_t slot, std::uint32_t life) noexcept {
  Result<void> asked = fail(ErrorCode::stopped, {.stage = Stage::shutdown});
  {
    const Visit visit(*this);
    if (visit.keeper != nullptr) asked = visit.keeper->deliver_later(slot);
    // When that went well, the loop may have told the callback by now.
  }
  if (asked) return asked;
  recycle(slot, k_seen);
  drop_reference(slot, life);
  return asked;
}

RequestTable::Delivery RequestTable::take_delivery(std::uint32_t slot) noexcept {
  Slot& s = slots_[slot];
  const Word word = s.state.load(std::memory_order_acquire);
  Delivery delivery{
      .callback = s.callback,
      .completion = {.result = {}, .user_data = s.user_data, .bytes = s.effect.bytes, .value = s.effect.value}};
  if ((word & k_failed) != 0) delivery.completion.result = fail(s.error);
  recycle(slot, k_seen);
  drop_reference(slot, generation(word));
  return delivery;
}

}  // namespace hixl::runtime
