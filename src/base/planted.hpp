// SPDX-License-Identifier: Apache-2.0
//
// Planted bugs: places at which a protection can be taken away by name, to prove that the simulated world notices. The
// protection is there in every build but the one that defines HIXL_ZOO, which is a test program and nothing else; there
// the condition is a constant and costs nothing. tests/sim/zoo.cpp says what each bug is and who must catch it.
#pragma once

#ifdef HIXL_ZOO

#include <cstdint>

// name, the protection that is missing
#define HIXL_PLANTED_BUGS(X)                                                                             \
  X(token_unchecked, "a region opens to any token")                                                      \
  X(generation_unchecked, "a request for an earlier life of a region reaches the present one")           \
  X(body_crc_unchecked, "a frame's body is believed whatever its checksum")                              \
  X(atomic_executed_again, "the target's window of answers is not looked at")                            \
  X(atomic_acknowledged_early, "answers that are still wanted are acknowledged")                         \
  X(atomic_believes_fence, "a fence's word about an atomic is taken before the window's")                \
  X(write_acknowledged_at_start, "a write counts as executed with its first byte")                       \
  X(read_not_taken_back, "a read that was given up goes on writing")                                     \
  X(read_answer_outlives_region, "a closed region goes on being sent from")                              \
  X(refused_read_keeps_credit, "the refusal of a read that was taken back gives no credit")              \
  X(retry_before_fence, "attempts of a broken link are repeated before the target has fenced it")        \
  X(executed_set_forgotten, "a broken link's executed set is lost")                                      \
  X(executed_set_of_any_generation, "the executed set of one generation answers for another")            \
  X(refusal_is_success, "a refused attempt counts as executed")                                          \
  X(end_told_twice, "an end is told twice")                                                              \
  X(deadline_without_fence, "a deadline ends an operation whose attempts are live")                      \
  X(cancel_without_fence, "a cancel ends an operation whose attempts are live")                          \
  X(lease_end_unnamed, "an end by lease is told as an end by deadline")                                  \
  X(signal_before_data, "a signal is sent while data is under way")                                      \
  X(late_is_success, "an operation that is over counts as done")                                         \
  X(busy_loses_chunk, "a chunk that found no credit is not cut again")                                   \
  X(timer_outlives_operation, "the timer of an operation is not cancelled at its end")                   \
  X(fence_ignored, "operations do not wait behind a fence")                                              \
  X(fence_ends_with_its_request, "the order that a fence asked for ends with its request")               \
  X(fence_answered_without_closing, "a fence is answered and its link goes on")                          \
  X(fenced_generation_opens, "a generation that a fence answer has ended is opened after all")           \
  X(dead_life_returns, "a life that was declared dead is let in")                                        \
  X(dial_joins_ended_session, "a dial outlives its session and joins the next")                          \
  X(atomic_window_outlives_life, "a new life is given the answers of the one before")                    \
  X(region_released_early, "a closed region is given back while links touch it")                         \
  X(region_released_pinned, "a closed region is given back while operations use it")                     \
  X(barrier_releases_early, "a barrier opens before all have entered")                                   \
  X(heartbeat_missing, "an idle peer sends no signs of life")                                            \
  X(own_lateness_blames_peer, "a peer is judged by what its judge was too late to read")                 \
  X(exchange_told_once, "an exchange that was lost is not told again")                                   \
  X(rdma_queue_left_open, "a fence is answered while the queue pair still takes writes")                 \
  X(rdma_queue_only_failed, "a fence is answered before the queue pair is destroyed")                    \
  X(rdma_read_let_go, "a read that the card has in hand counts as taken back")                           \
  X(rdma_word_too_high, "the progress word is read as if it counted one write more")                     \
  X(rdma_complete_unseen, "a write is done when the card says so, whether its bytes can be seen or not") \
  X(rdma_marker_reaches_back, "a read of the word speaks for writes that were posted behind it")         \
  X(rdma_region_left_registered, "a closed region stays registered with the card")                       \
  X(rdma_flush_is_success, "a request that was flushed counts as done")                                  \
  X(rdma_read_done_early, "a read ends with the completion before its own")

namespace hixl {

enum class Planted : std::uint8_t {
  none,
#define HIXL_PLANTED_NAME(name, text) name,
  HIXL_PLANTED_BUGS(HIXL_PLANTED_NAME)
#undef HIXL_PLANTED_NAME
};

/// The bug that this process has. One thread only, as the simulated world is.
inline Planted planted_bug = Planted::none;

}  // namespace hixl

#define HIXL_PLANTED(name) (::hixl::planted_bug == ::hixl::Planted::name)
#else
#define HIXL_PLANTED(name) false
#endif
