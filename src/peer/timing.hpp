// SPDX-License-Identifier: Apache-2.0
//
// Times and limits of the peer protocol, with the reason of each. Timers decide when to fence, never that it is safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/time.hpp"

namespace hixl::peer {

struct Timing {
  /// A connection with its handshake; from RuntimeOptions::connect_timeout.
  Duration connect{std::chrono::seconds(5)};
  /// Silence after which a peer whose death the kernel does not report counts as dead.
  Duration lease{std::chrono::seconds(5)};
  /// Sign of life on an idle link to such a peer: a tenth of the lease, so that losing three is no death.
  Duration heartbeat{std::chrono::milliseconds(500)};
  /// How long an attempt may stay unanswered after its operation's end before its link is fenced. 200 ms is above
  /// every scheduling delay seen on a loaded 2-core machine and far below the default deadline.
  Duration fence{std::chrono::milliseconds(200)};
  /// A fence request is sent again after this, over another link if there is one.
  Duration fence_repeat{std::chrono::milliseconds(50)};
  /// First delay before a broken link is dialled again; doubles with full jitter up to the cap. Never gives up.
  Duration backoff{std::chrono::milliseconds(50)};
  Duration backoff_cap{std::chrono::seconds(30)};
  /// The side that did not dial a link first dials only after this, so that both do not dial at once.
  Duration passive_delay{std::chrono::milliseconds(500)};
  /// Nothing of ours acknowledged on a link for so long: suspected. From RuntimeOptions::stall.
  Duration stall{std::chrono::milliseconds(200)};
  /// The probes of a link that came back: all of them within this.
  Duration probation{std::chrono::seconds(2)};
  /// Exchanges and other repeated messages.
  Duration repeat{std::chrono::milliseconds(200)};
};

/// Bytes in flight a link: what one link failure replays at most.
inline constexpr std::uint64_t k_inflight_bytes_max = 8U << 20U;
/// Of these, and of the attempts of a link that has many, bulk leaves this to operations that are small.
inline constexpr std::uint64_t k_small_reserve_bytes = 256U << 10U;
inline constexpr std::uint32_t k_small_reserve_attempts = 2;
/// Up to this an operation is small and goes before others: the longest that the express lane takes, too.
inline constexpr std::uint64_t k_small_bytes = 64U << 10U;
/// Bytes of small ones in one turn before bulk gets a chunk in: one chunk's worth, so that they halve it at worst.
inline constexpr std::uint64_t k_small_bytes_a_turn = 1U << 20U;
/// Control messages that wait for a link, a peer: an exchange of 10^5 regions takes 100 frames.
inline constexpr std::size_t k_control_queue_max = 256;
/// Exchanges of one peer that nobody has taken, and of ours that it has not acknowledged: far above what a program has
/// open at once, and a bound for one that never looks.
inline constexpr std::size_t k_exchanges_open_max = 64;
/// Connections that a runtime makes at once: so many in their first round trip do not make a listener's queue long
/// (128 places at the least), and a thousand peers are through in 167 of them.
inline constexpr std::uint32_t k_dials_max = 8;
/// Of these, only for those whose lease is running.
inline constexpr std::uint32_t k_dials_in_haste = 2;
/// Such a dial may take this part of the lease, so that one that hangs leaves time for others. Of a lease of 5 s it is
/// more than the second after which a kernel sends a lost first packet again.
inline constexpr int k_hasty_dials_a_lease = 3;
/// A link that stood for this long has proved itself: its next failure counts as the first one. Below it the backoff
/// goes on growing, so that a link which breaks as soon as it is up causes no storm of connections.
inline constexpr std::chrono::seconds k_link_proved{1};
/// Probes that a link answers after a failure before it carries anything else that another link can carry.
inline constexpr std::uint32_t k_probes = 5;
/// A stall is at least this many round trips: four of the kernel's own retransmissions on a lossy path.
inline constexpr std::int64_t k_stall_round_trips = 16;
/// Bytes in flight on a link that has siblings: what it moves in this time (or in two round trips), so that the last
/// chunks of a transfer do not wait for the slowest link.
inline constexpr std::chrono::milliseconds k_window_time{20};
/// … but never fewer than this many chunks.
inline constexpr std::uint64_t k_window_chunks_min = 2;
/// How often the rates of siblings are compared while they work.
inline constexpr std::chrono::milliseconds k_compare_period{250};
/// How long a rank that stops stays at the door for a peer to which it could not say goodbye, no link being up: that
/// peer dials after passive_delay at the latest, and one failed dial more fits in. Its lease would be several times
/// that.
inline constexpr std::chrono::seconds k_farewell{1};
/// Chunks posted in one turn before other actors get theirs.
inline constexpr std::size_t k_chunks_a_turn = 64;
/// A handshake: time and size that a stranger may take.
inline constexpr std::chrono::seconds k_greeting_time{2};
inline constexpr std::size_t k_greetings_max = 64;

}  // namespace hixl::peer
