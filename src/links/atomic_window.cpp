// SPDX-License-Identifier: Apache-2.0
#include "links/atomic_window.hpp"

#include <algorithm>

#include "base/assert.hpp"
#include "base/planted.hpp"
#include "links/link.hpp"
#include "memory/mapping.hpp"

namespace hixl::links {

namespace {

constexpr std::uint64_t k_word_bytes = sizeof(std::uint64_t);

/// The word, if the region grants it.
Result<memory::RegionTable::Place> find_word(const wire::AtomicBody& body, const memory::RegionTable& regions) {
  const auto place = regions.check(body.region, body.token, body.offset, k_word_bytes, Rights::atomic);
  if (!place) return fail(place.error());
  if (!place->device->caps().atomic_capable) return fail(ErrorCode::unsupported);
  const auto address = reinterpret_cast<std::uint64_t>(place->data);
  if (address % k_word_bytes != 0) {
    return fail(ErrorCode::unaligned, {.address = address, .length = k_word_bytes, .limit = k_word_bytes});
  }
  // A program that has unmapped its memory without a word is told of, not killed.
  if (!place->owned && !memory::is_mapped(place->data, k_word_bytes)) {
    return fail(ErrorCode::memory_unmapped, {.address = address, .length = k_word_bytes});
  }
  return *place;
}

}  // namespace

wire::AtomicOp atomic_op(Verb verb) noexcept {
  HIXL_ASSERT(is_atomic(verb));
  if (verb == Verb::atomic_swap) return wire::AtomicOp::swap;
  return verb == Verb::atomic_add ? wire::AtomicOp::add : wire::AtomicOp::compare_swap;
}

wire::AtomicBody atomic_body(const Post& post, std::uint64_t offset) noexcept {
  return {.region = post.region,
          .token = post.token,
          .offset = offset,
          .number = post.atomic.number,
          .acked_upto = post.atomic.acked_upto,
          .op = atomic_op(post.verb),
          .value = post.value,
          .expected = post.atomic.expected,
          .ask = static_cast<std::uint8_t>(post.atomic.ask ? 1 : 0)};
}

std::uint64_t apply_atomic(wire::AtomicOp op, memory::Device& device, std::byte* word, std::uint64_t value,
                           std::uint64_t expected) noexcept {
  switch (op) {
    case wire::AtomicOp::add:
      break;
    case wire::AtomicOp::swap:
      return memory::swap_word(device, word, value);
    case wire::AtomicOp::compare_swap:
      return memory::compare_swap_word(device, word, expected, value);
  }
  return memory::fetch_add_word(device, word, value);
}

Result<std::uint64_t> AtomicWindow::execute(const wire::AtomicBody& body, memory::RegionTable& regions,
                                            memory::SignalPage& signals) {
  if (places_.empty()) places_.resize(size_);
  acknowledge(body.acked_upto);
  if (body.number <= acked_) return fail(ErrorCode::malformed_frame, {.length = body.number, .limit = acked_});
  if (body.number - acked_ > size_) {
    turned_away_ += 1;
    return fail(ErrorCode::busy, {.length = body.number - acked_, .limit = size_});
  }
  Place& place = at(body.number);
  if (place.fate == Fate::executed && !HIXL_PLANTED(atomic_executed_again)) {
    repeats_ += 1;
    return place.value;
  }
  if (body.ask != 0) place.fate = Fate::cancelled;
  if (place.fate == Fate::cancelled) return fail(ErrorCode::cancelled);
  const auto word = find_word(body, regions);
  if (!word) return fail(word.error());
  place = {.fate = Fate::executed,
           .value = apply_atomic(body.op, *word->device, word->data, body.value, body.expected)};
  signals.ring();
  return place.value;
}

/// Their places are taken by the numbers that are now inside the window.
void AtomicWindow::acknowledge(AtomicSeq upto) noexcept {
  if (upto <= acked_) return;
  const std::uint64_t left = std::min<std::uint64_t>(upto - acked_, size_);
  for (std::uint64_t i = 1; i <= left; ++i) at(acked_ + i) = {};
  acked_ = upto;
}

void AtomicWindow::reset() noexcept {
  acked_ = 0;
  places_.clear();
}

}  // namespace hixl::links
