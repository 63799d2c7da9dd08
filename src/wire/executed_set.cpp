// SPDX-License-Identifier: Apache-2.0
//
// The window of executed frames behind the newest one: a shift register of 1024 bits.
#include "base/assert.hpp"
#include "wire/messages.hpp"

namespace hixl::wire {
namespace {

constexpr std::uint64_t k_word_bits = 64;

}  // namespace

void ExecutedSet::record(LinkSeq seq, bool executed) noexcept {
  HIXL_ASSERT(seq > highest);
  const std::uint64_t distance = seq - highest;
  if (distance == 1) {  // as it is for every frame of a stream that skips none
    for (std::uint64_t i = bits.size() - 1; i > 0; --i) bits[i] = bits[i] << 1U | bits[i - 1] >> (k_word_bits - 1);
    bits[0] = bits[0] << 1U | (executed ? 1U : 0U);
    highest = seq;
    return;
  }
  const std::uint64_t words = distance / k_word_bits;
  const std::uint64_t rest = distance % k_word_bits;
  // From the old end to the new one, so that no word is overwritten before it has been read.
  for (std::uint64_t i = bits.size(); i-- > 0;) {
    std::uint64_t word = 0;
    if (i >= words) {
      word = bits[i - words] << rest;
      if (rest != 0 && i > words) word |= bits[i - words - 1] >> (k_word_bits - rest);
    }
    bits[i] = word;
  }
  if (executed) bits[0] |= 1U;
  highest = seq;
}

bool ExecutedSet::contains(LinkSeq seq) const noexcept {
  if (seq == 0 || seq > highest) return false;
  const std::uint64_t bit = highest - seq;
  const std::uint64_t word = bit / k_word_bits;
  return word < bits.size() && ((bits[word] >> (bit % k_word_bits)) & 1U) != 0;
}

}  // namespace hixl::wire
