// SPDX-License-Identifier: Apache-2.0
//
// LinkActor's watch over its own link: probation, stalls, and what it may have in flight.
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "peer/link_actor.hpp"

namespace hixl::peer {

// ---- what may be in flight ----

/// Where work is shared, no more than keeps the link busy: what a slow link holds, a fast one cannot take.
std::uint64_t LinkActor::window() const noexcept {
  if (!choice_.shares) return k_inflight_bytes_max;
  const std::uint64_t least = k_window_chunks_min * std::min<std::uint64_t>(caps().chunk_bytes, 1U << 20U);
  std::uint64_t bytes = k_inflight_bytes_max;
  if (const std::uint64_t rate = health_.rate(); rate != 0) {
    const Duration time = std::max<Duration>(k_window_time, 2 * health_.round_trip());
    bytes =
        std::min<std::uint64_t>(rate / 1000 * static_cast<std::uint64_t>(time / std::chrono::milliseconds(1)), bytes);
  }
  // On probation: only when nothing else stands, and then all of it.
  const std::uint32_t share = health_.on_probation() ? 100 : health_.share(loop_.now());
  return std::max(bytes, least) * share / 100;
}

Duration LinkActor::backlog() const noexcept {
  // What is remembered of one that has had nothing to do is old: it is tried.
  if (in_flight() == 0 && loop_.now() - worked_at_ > k_compare_period) return {};
  const std::uint64_t bytes = inflight_bytes_ + caps().chunk_bytes;
  // Without a rate, and on a window link, bytes alone are compared.
  const std::uint64_t rate = std::max<std::uint64_t>(health_.rate(), 1'000'000);
  const std::uint64_t share = std::max<std::uint64_t>(health_.share(loop_.now()), 1);
  return Duration(static_cast<std::int64_t>(bytes * 1'000 / (rate / 1'000'000) * 100 / share));
}

Duration LinkActor::busy() const noexcept { return in_flight() == 0 ? busy_ : busy_ + (loop_.now() - busy_since_); }

// ---- probation ----

void LinkActor::begin_probation() {
  const Instant now = loop_.now();
  watch_tick_.cancel();  // of the set-up
  health_.note_up(now);
  progress_at_ = now;
  if (!health_.on_probation()) return;
  probation_until_ = now + timing_.probation;
  ping(health_.probe_bytes());
  watch();
}

/// The body is our own, so it must come back as it was; the link has checked its checksum.
void LinkActor::on_pong(ConstBytes body) {
  ByteReader reader(body);
  const auto number = reader.get<std::uint64_t>();
  if (!ping_open_ || number != pings_ || body.size() != ping_size_) return;
  ping_open_ = false;
  const Instant now = loop_.now();
  health_.note_round_trip(now - ping_at_);
  note_progress();
  if (!health_.on_probation()) return;
  if (body.size() == health_.probe_bytes()) health_.note_probe(now);
  if (health_.on_probation()) {
    ping(health_.probe_bytes());
  } else {
    events_.on_link_credit(*this);
  }
}

void LinkActor::ping(std::size_t bytes) {
  if (state_ != State::up || ping_open_) return;
  std::vector<std::byte> body(bytes);
  const std::uint64_t number = pings_ + 1;
  ByteWriter writer(body);
  writer.put(number);
  // Bytes that differ by their place, so that a mix-up on the way shows.
  for (std::size_t i = sizeof(number); i < bytes; ++i) body[i] = static_cast<std::byte>(i * 31 + number);
  if (!link_->send(wire::FrameType::ping, body)) {
    watch();  // no room now; asked for again by the watch
    return;
  }
  pings_ = number;
  ping_size_ = bytes;
  ping_at_ = loop_.now();
  ping_open_ = true;
  watch();
}

/// The answer to a question may lie behind megabytes on a slow path, for longer than a lease; the peer must hear of us
/// all the same.
void LinkActor::sign_of_life() {
  if (!ping_open_) return ping();
  if (state_ == State::up) static_cast<void>(link_->send(wire::FrameType::pong, {}));
}

// ---- stalls ----

void LinkActor::note_progress() {
  progress_at_ = loop_.now();
  questioned_ = false;
  if (!std::exchange(suspect_, false)) return;
  events_.on_link_credit(*this);
}

/// Something waits for an answer from now on.
void LinkActor::watch() {
  if (watch_tick_.active() || state_ != State::up || caps().executed_by_initiator) return;
  // What waits was begun just now, or the timer would run.
  progress_at_ = loop_.now();
  loop_.start(watch_tick_, progress_at_ + health_.stall_after(timing_.stall) / 2);
}

void LinkActor::on_watch() {
  if (state_ == State::setup) {
    return fail(Error(ErrorCode::connect_timeout, {.link = id(), .stage = Stage::handshake}));
  }
  if (state_ != State::up) return;
  const Instant now = loop_.now();
  const Duration limit = health_.stall_after(timing_.stall);
  if (health_.on_probation()) {
    if (now >= probation_until_) return fail(Error(ErrorCode::link_failed, {.link = id(), .stage = Stage::handshake}));
  } else if (!waiting()) {
    return;
  }
  // The peer's program may be slow and the network too: when bytes went over since the question, the path works. The
  // question itself is no such sign: some kernel on the way may have taken it, with nobody reading behind it.
  constexpr std::uint64_t k_question_bytes = wire::k_header_bytes + k_ping_bytes;
  if (questioned_ && link_->progress() > progress_seen_ + k_question_bytes) note_progress();
  // A loop that was late itself has not read what came meanwhile.
  const Instant progress = progress_at_ + loop_.lag();
  loop_.start(watch_tick_,
              now - progress < limit / 2 ? progress + limit / 2 : std::max(progress + limit, now + limit / 8));
  if (health_.on_probation()) ping(health_.probe_bytes());  // if the last one found no room
  if (now - progress < limit / 2) return;
  if (!questioned_) {
    questioned_ = true;
    quiet_since_ = now;
    progress_seen_ = link_->progress();
    ping();
    return events_.on_link_quiet(*this);
  }
  if (now - progress < limit) return;
  if (!suspect_) stalls_ += 1;
  suspect_ = true;
  events_.on_link_suspect(*this);
}

void LinkActor::end_watch() noexcept {
  watch_tick_.cancel();
  pace_tick_.cancel();
  questioned_ = suspect_ = ping_open_ = false;
}

}  // namespace hixl::peer
