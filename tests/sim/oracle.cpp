// SPDX-License-Identifier: Apache-2.0
#include "oracle.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"

namespace hixl::sim {

namespace {

/// First place at which two ranges differ; their size when they are equal.
std::size_t difference(const std::byte* a, const std::byte* b, std::size_t size) {
  if (size == 0 || std::memcmp(a, b, size) == 0) return size;
  return static_cast<std::size_t>(std::mismatch(a, a + size, b).first - a);
}

}  // namespace

Memory::Memory(std::uint64_t seed) : bytes_(word_offset(k_words)), states_(k_slots) {
  Random random(seed);
  for (std::size_t i = 0; i < k_slots; ++i) {
    settle(i);
    refill(i, 0, k_slot_bytes, random);
  }
}

std::uint64_t Memory::signal(std::size_t index) const noexcept {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes_.data() + signal_offset(index), sizeof(value));
  return value;
}

std::array<std::uint64_t, k_words> Memory::words() const noexcept {
  std::array<std::uint64_t, k_words> values{};
  std::memcpy(values.data(), bytes_.data() + word_offset(0), sizeof(values));
  return values;
}

void Memory::begin_read(std::size_t index) {
  HIXL_ASSERT(readable(index));
  states_[index].use = Use::read;
  states_[index].readers += 1;
}

void Memory::end_read(std::size_t index) {
  Slot& slot = states_[index];
  HIXL_ASSERT(slot.readers > 0);
  if (--slot.readers == 0 && slot.use == Use::read) slot.use = Use::quiet;
}

void Memory::begin_write(std::size_t index, std::size_t offset, Bytes bytes, std::uint64_t signal) {
  Slot& slot = states_[index];
  HIXL_ASSERT(slot.use == Use::quiet);
  slot.use = Use::written;
  slot.offset = offset;
  slot.incoming = std::move(bytes);
  slot.incoming_signal = signal;
}

void Memory::settle(std::size_t index) {
  Slot& slot = states_[index];
  slot.signal = signal(index);
  if (slot.expected.empty()) {
    slot.expected.assign(this->slot(index), this->slot(index) + k_slot_bytes);
  } else {
    std::memcpy(slot.expected.data(), this->slot(index), k_slot_bytes);
  }
  slot.incoming.reset();
  slot.use = slot.readers > 0 ? Use::read : Use::quiet;
}

void Memory::quarantine(std::size_t index, std::uint64_t writer) {
  states_[index].use = Use::quarantined;
  states_[index].writer = writer;
}

void Memory::lift(std::uint64_t from, std::uint64_t below) {
  for (std::size_t i = 0; i < k_slots; ++i) {
    const Slot& slot = states_[i];
    if (slot.use == Use::quarantined && slot.writer >= from && slot.writer < below) settle(i);
  }
}

void Memory::freeze(std::size_t index) {
  if (use(index) != Use::written) return;
  settle(index);
  begin_write(index, 0, std::make_shared<const std::vector<std::byte>>(), states_[index].signal);
}

void Memory::refill(std::size_t index, std::size_t offset, std::size_t size, Random& random) {
  HIXL_ASSERT(use(index) == Use::quiet || use(index) == Use::read || use(index) == Use::quarantined);
  std::byte* const to = slot(index) + offset;
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    std::memcpy(to + at, &word, std::min(sizeof(word), size - at));
  }
  if (size > 0) std::memcpy(states_[index].expected.data() + offset, to, size);
}

void Memory::lose() {
  lost_ = true;
  for (std::size_t i = 0; i < k_slots; ++i) {
    if (use(i) == Use::quarantined) settle(i);
  }
}

bool Memory::moved(std::size_t index) const {
  const Slot& state = states_[index];
  if (lost_ || state.use != Use::written) return false;  // whatever lands at the dead, nobody vouches for it
  const std::size_t size = state.incoming->size();
  return signal(index) != state.signal ||
         difference(slot(index) + state.offset, state.expected.data() + state.offset, size) < size;
}

std::string Memory::complaint(std::size_t index) const {
  const Slot& state = states_[index];
  if (lost_ || state.use == Use::quarantined) return {};
  const std::byte* const now = slot(index);
  const std::byte* const before = state.expected.data();
  const std::uint64_t word = signal(index);
  if (state.use != Use::written) {
    if (word != state.signal) return fmt::format("its signal went from {} to {}", state.signal, word);
    const std::size_t at = difference(now, before, k_slot_bytes);
    return at == k_slot_bytes ? std::string() : fmt::format("byte {} changed", at);
  }
  if (word != state.signal && word != state.incoming_signal) {
    return fmt::format("its signal went from {} to {}, and only {} may come", state.signal, word,
                       state.incoming_signal);
  }
  const std::size_t size = state.incoming->size();
  const std::size_t end = state.offset + size;
  if (const std::size_t at = difference(now, before, state.offset); at < state.offset) {
    return fmt::format("byte {}, before the range being written, changed", at);
  }
  if (const std::size_t at = difference(now + end, before + end, k_slot_bytes - end); at < k_slot_bytes - end) {
    return fmt::format("byte {}, behind the range being written, changed", end + at);
  }
  const std::byte* const here = now + state.offset;
  const std::byte* const old = before + state.offset;
  const std::byte* const fresh = state.incoming->data();
  if (damage_) return {};
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < size; ++i) wrong += static_cast<std::size_t>(here[i] != old[i] && here[i] != fresh[i]);
  return wrong == 0 ? std::string() : fmt::format("{} bytes are neither the old nor the new ones", wrong);
}

}  // namespace hixl::sim
