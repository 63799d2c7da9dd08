// SPDX-License-Identifier: Apache-2.0
#include "peer/link_actor.hpp"

#include <algorithm>
#include <limits>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "base/planted.hpp"

namespace hixl::peer {

namespace {

void add(links::Link::Traffic& sum, const links::Link& link) noexcept {
  const auto traffic = link.traffic();
  sum.bytes_out += traffic.bytes_out;
  sum.bytes_in += traffic.bytes_in;
  sum.copies += traffic.copies;
  sum.corrupt += traffic.corrupt;
}

void add(memory::Lane::Totals& sum, const memory::Lane* lane) noexcept {
  if (lane == nullptr) return;
  const auto totals = lane->totals();
  sum.operations += totals.operations;
  sum.bytes_out += totals.bytes_out;
  sum.bytes_in += totals.bytes_in;
}

}  // namespace

LinkActor::LinkActor(runtime::Loop& loop, const LinkChoice& choice, const Timing& timing, std::uint32_t tx_depth,
                     LinkActorEvents& events)
    : loop_(loop),
      choice_(choice),
      timing_(timing),
      events_(events),
      attempts_(tx_depth),
      bucket_(choice.max_bandwidth) {
  free_.reserve(tx_depth);
  for (std::uint32_t i = tx_depth; i > 0; --i) free_.push_back(i - 1);
}

LinkActor::~LinkActor() = default;

void LinkActor::open(const links::LinkIdentity& identity, std::unique_ptr<links::FrameStream> stream,
                     const links::LinkServices& services) {
  if (state_ == State::setup || state_ == State::up) fail(Error(ErrorCode::link_failed, {.link = id()}));
  HIXL_ASSERT(identity.link_gen > last_open_);
  generation_ = last_open_ = identity.link_gen;
  dialled = identity.dialled;
  state_ = State::setup;
  blocked_ = false;
  peer_unaware_ = false;
  link_ = choice_.factory->make(identity, std::move(stream), services, *this);
  loop_.start_after(watch_tick_, timing_.connect);
}

void LinkActor::raise_generation(LinkGen generation) noexcept {
  // The last number is nobody's (Directory refuses it), so that one more never wraps, whatever a peer says.
  generation_ = std::max(generation_, std::min(generation, std::numeric_limits<LinkGen>::max() - 1));
}

bool LinkActor::has_credit(std::uint64_t bytes, Bulk bulk) const noexcept {
  if (state_ != State::up || blocked_ || suspect_ || free_.empty() || !bucket_.open(loop_.now())) return false;
  if (inflight_bytes_ + bytes > k_inflight_bytes_max) return false;
  if (bulk == Bulk::no) return true;
  // One chunk may always be under way, and two where they are the largest.
  if (in_flight() < 2) return inflight_bytes_ == 0 || inflight_bytes_ < window();
  const bool many = attempts_.size() > 4 * std::size_t{k_small_reserve_attempts};
  return (!many || free_.size() > k_small_reserve_attempts) && inflight_bytes_ < window() &&
         inflight_bytes_ + bytes + k_small_reserve_bytes <= k_inflight_bytes_max;
}

LinkActor::Attempt* LinkActor::free_attempt() noexcept {
  if (free_.empty()) return nullptr;
  Attempt* attempt = &attempts_[free_.back()];
  free_.pop_back();
  return attempt;
}

links::Answer LinkActor::start(Operation& operation, const Chunk& chunk) {
  const Bulk bulk = operation.small || chunk.word ? Bulk::no : Bulk::yes;
  if (!has_credit(chunk.bytes, bulk)) return links::Answer::busy;
  Attempt* attempt = free_attempt();
  links::Post post;
  post.cookie = static_cast<std::uint64_t>(attempt - attempts_.data());
  post.op_id = operation.op_id;
  post.chunk = chunk.index;
  post.attempt = chunk.attempt;
  if (chunk.word && operation.kind == Operation::Kind::atomic) {
    attempt->segments[0] = {.local = nullptr, .offset = operation.atomic.offset, .bytes = sizeof(std::uint64_t)};
    post.verb = operation.atomic.verb;
    post.region = operation.atomic.region;
    post.token = operation.atomic.token;
    post.value = operation.atomic.value;
    post.atomic = operation.atomic.terms;
    post.segments = std::span(attempt->segments.data(), 1);
  } else if (chunk.word) {
    attempt->segments[0] = {.local = nullptr, .offset = operation.signal.offset, .bytes = sizeof(std::uint64_t)};
    post.verb = operation.signal.verb;
    post.region = operation.signal.region;
    post.token = operation.signal.token;
    post.value = operation.signal.value;
    post.segments = std::span(attempt->segments.data(), 1);
  } else {
    const Entry& entry = operation.entries()[chunk.from.entry];
    fill_segments(operation, chunk, std::span(attempt->segments.data(), chunk.segments));
    post.verb = entry.verb == TransferVerb::put ? links::Verb::write : links::Verb::read;
    post.region = entry.region;
    post.token = entry.token;
    post.local_device = entry.device;
    post.segments = std::span(attempt->segments.data(), chunk.segments);
  }
  attempt->operation = &operation;
  attempt->link = link_.get();
  attempt->chunk = chunk;
  attempt->generation = last_open_;
  attempt->sequence = 0;
  attempt->verb = post.verb;
  attempt->live = true;
  if (in_flight() == 1) busy_since_ = worked_at_ = loop_.now();
  inflight_bytes_ += chunk.bytes;
  live_here_ += 1;
  operation.live += 1;
  bucket_.take(chunk.bytes, loop_.now());

  const links::Answer answer = link_->post(post);
  if (answer == links::Answer::busy) {
    blocked_ = true;
    operation.live -= 1;
    inflight_bytes_ -= chunk.bytes;
    live_here_ -= 1;
    bucket_.give_back(chunk.bytes);
    attempt->live = false;
    attempt->operation = nullptr;
    free_.push_back(static_cast<std::uint32_t>(post.cookie));
  } else if (answer == links::Answer::done) {
    finish(*attempt, AttemptEnd::executed, Error());
  } else {
    watch();
  }
  if (!bucket_.open(loop_.now())) loop_.start(pace_tick_, bucket_.opens_at());
  return answer;
}

bool LinkActor::send(wire::FrameType type, ConstBytes body) { return state_ == State::up && link_->send(type, body); }

void LinkActor::finish(Attempt& attempt, AttemptEnd end, const Error& error) {
  HIXL_ASSERT(attempt.live);
  Operation* operation = attempt.operation;
  const Chunk chunk = attempt.chunk;
  const Instant now = loop_.now();
  if (attempt.link != nullptr && attempt.link == link_.get()) live_here_ -= 1;
  if (end == AttemptEnd::executed) health_.note_work(chunk.bytes, now - worked_at_);
  if (end == AttemptEnd::not_executed && operation != nullptr) given_back_ += 1;
  worked_at_ = now;
  attempt.live = attempt.in_hand = false;
  attempt.operation = nullptr;
  attempt.link = nullptr;
  inflight_bytes_ -= chunk.bytes;
  free_.push_back(static_cast<std::uint32_t>(&attempt - attempts_.data()));
  if (in_flight() == 0) busy_ += now - busy_since_;
  if (operation == nullptr) return;
  HIXL_ASSERT(operation->live > 0);
  operation->live -= 1;
  events_.on_attempt_end(*this, *operation, chunk, end, error);
}

void LinkActor::take_completions(links::Link& link) {
  std::array<links::Completion, 64> completions;
  for (;;) {
    const std::size_t count = link.poll(completions);
    // The end of one attempt may end its operation and withdraw the others, whose completions are in hand already.
    for (const links::Completion& completion : std::span(completions).first(count)) {
      HIXL_ASSERT(completion.cookie < attempts_.size());
      Attempt& attempt = attempts_[completion.cookie];
      HIXL_ASSERT(attempt.live && attempt.link == &link && !attempt.in_hand);
      attempt.in_hand = true;
    }
    for (const links::Completion& completion : std::span(completions).first(count)) {
      Attempt& attempt = attempts_[completion.cookie];
      AttemptEnd end = AttemptEnd::executed;
      if (completion.error.code == ErrorCode::ok && attempt.operation != nullptr && links::is_atomic(attempt.verb)) {
        attempt.operation->atomic.before = completion.value;
        attempt.operation->atomic.fate = AtomicFate::answered;
      } else if (completion.error.code == ErrorCode::link_failed ||
                 completion.error.code == ErrorCode::payload_corrupt) {
        end = AttemptEnd::not_executed;
      } else if (completion.error.code != ErrorCode::ok && !HIXL_PLANTED(refusal_is_success)) {
        end = AttemptEnd::refused;
      }
      finish(attempt, end, completion.error);
    }
    if (count < completions.size()) return;
  }
}

void LinkActor::on_up() {
  if (state_ != State::setup) return;
  state_ = State::up;
  last_error = {};
  if (!bucket_.limited()) lane_ = link_->lane();
  begin_probation();
  events_.on_link_up(*this);
}

void LinkActor::on_completions() {
  if (link_ != nullptr) {
    note_progress();
    take_completions(*link_);
  }
  for (std::size_t i = 0; i < draining_.size(); ++i) take_completions(*draining_[i].link);
}

void LinkActor::on_credit() {
  blocked_ = false;
  if (state_ == State::up) events_.on_link_credit(*this);
}

void LinkActor::on_control(const wire::FrameHeader& header, ConstBytes body) {
  if (state_ != State::up) return;
  if (header.type == wire::FrameType::pong) on_pong(body);
  events_.on_link_control(*this, header, body);
}

void LinkActor::on_attached(RegionKey key, const Result<void>& result) { events_.on_link_attached(*this, key, result); }

void LinkActor::on_down(const Error& error) { fail(error); }

void LinkActor::fail(const Error& error) {
  if (state_ != State::setup && state_ != State::up) return;
  state_ = State::down;
  last_error = error;
  note_failure(error);
  end_watch();
  live_here_ = 0;
  peer_unaware_ = true;
  links::Link& link = *link_;
  for (Attempt& attempt : attempts_) {
    if (attempt.live && attempt.link == &link) {
      attempt.sequence = link.sequence_of(static_cast<std::uint64_t>(&attempt - attempts_.data()));
    }
  }
  link.close();
  if (link.executed().highest > 0 && !HIXL_PLANTED(executed_set_forgotten)) executed_ = {last_open_, link.executed()};
  draining_.push_back({.link = std::move(link_), .lane = std::exchange(lane_, nullptr), .settled = false});
  take_completions(link);
  settle_closed(link);
  events_.on_link_down(*this, error);
}

/// Ends the attempts of a closed link whose fate this side knows.
void LinkActor::settle_closed(links::Link& link) {
  const bool own_copies = caps().executed_by_initiator;
  if (own_copies && !link.drained()) return;  // its completions tell; reap() comes back
  for (Closed& closed : draining_) {
    if (closed.link.get() == &link) closed.settled = true;
  }
  for (Attempt& attempt : attempts_) {
    if (!attempt.live || attempt.link != &link) continue;
    attempt.link = nullptr;
    // A read changes only memory here, and this side is closed. What never left was never executed there.
    if (attempt.verb == links::Verb::read || attempt.sequence == 0 || HIXL_PLANTED(retry_before_fence)) {
      finish(attempt, AttemptEnd::not_executed, Error(ErrorCode::link_failed, {.link = id()}));
    }
  }
}

bool LinkActor::unresolved() const noexcept {
  return std::any_of(attempts_.begin(), attempts_.end(),
                     [](const Attempt& attempt) { return attempt.live && attempt.link == nullptr; });
}

LinkGen LinkActor::unresolved_generation() const noexcept {
  LinkGen lowest = 0;
  for (const Attempt& attempt : attempts_) {
    if (attempt.live && attempt.link == nullptr && (lowest == 0 || attempt.generation < lowest)) {
      lowest = attempt.generation;
    }
  }
  return lowest;
}

void LinkActor::resolve(LinkGen generation, const wire::ExecutedSet& executed, LinkGen upto) {
  if (state_ == State::down && std::max(generation, upto) >= last_open_) peer_unaware_ = false;
  for (Attempt& attempt : attempts_) {
    if (!attempt.live || attempt.link != nullptr) continue;
    if (attempt.generation == generation) {
      const bool done = executed.contains(attempt.sequence);
      finish(attempt, done ? AttemptEnd::executed : AttemptEnd::not_executed,
             done ? Error() : Error(ErrorCode::link_failed, {.link = id(), .stage = Stage::fence}));
    } else if (attempt.generation > generation && attempt.generation <= upto) {
      finish(attempt, AttemptEnd::not_executed, Error(ErrorCode::link_failed, {.link = id(), .stage = Stage::fence}));
    }
  }
}

void LinkActor::give_up_unresolved(const Error& why) {
  for (Attempt& attempt : attempts_) {
    if (attempt.live && attempt.link == nullptr) finish(attempt, AttemptEnd::not_executed, why);
  }
}

wire::ExecutedSet LinkActor::executed_in(LinkGen generation) const noexcept {
  const bool of_it = executed_.generation == generation || HIXL_PLANTED(executed_set_of_any_generation);
  return generation != 0 && of_it ? executed_.set : wire::ExecutedSet{};
}

std::size_t LinkActor::withdraw(Operation& operation) {
  std::size_t live = 0;
  for (Attempt& attempt : attempts_) {
    if (!attempt.live || attempt.operation != &operation) continue;
    const auto cookie = static_cast<std::uint64_t>(&attempt - attempts_.data());
    const bool takeable = attempt.verb == links::Verb::read && attempt.link != nullptr && !attempt.in_hand;
    if (takeable && attempt.link->abandon(cookie)) {
      operation.live -= 1;
      attempt.operation = nullptr;  // silently: the caller is the one who would be told
      finish(attempt, AttemptEnd::not_executed, Error());
    } else {
      live += 1;
    }
  }
  return live;
}

void LinkActor::drop(Operation& operation) noexcept {
  for (Attempt& attempt : attempts_) {
    if (!attempt.live || attempt.operation != &operation) continue;
    operation.live -= 1;
    attempt.operation = nullptr;
    if (attempt.link == nullptr) finish(attempt, AttemptEnd::not_executed, Error());
  }
}

bool LinkActor::revoke(RegionKey key) {
  bool clear = link_ == nullptr || link_->revoke(key);
  for (const Closed& closed : draining_) clear = closed.link->revoke(key) && clear;
  return clear;
}

bool LinkActor::reap(bool lanes_idle) {
  for (std::size_t i = 0; i < draining_.size();) {
    links::Link& link = *draining_[i].link;
    take_completions(link);
    const bool drained = link.drained();
    if (drained && !draining_[i].settled) settle_closed(link);
    if (drained && (lanes_idle || draining_[i].lane == nullptr) && link.give_back()) {
      add(past_, link);
      add(past_lane_, draining_[i].lane);
      draining_.erase(draining_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return !draining_.empty();
}

Instant LinkActor::last_heard() const noexcept { return link_ ? link_->last_heard() : Instant{}; }

memory::Lane::Totals LinkActor::lane_totals() const noexcept {
  memory::Lane::Totals sum = past_lane_;
  for (const Closed& closed : draining_) add(sum, closed.lane);
  add(sum, lane_);
  return sum;
}

links::Link::Traffic LinkActor::traffic() const noexcept {
  links::Link::Traffic sum = past_;
  for (const Closed& closed : draining_) add(sum, *closed.link);
  if (link_) add(sum, *link_);
  for (const Closed& closed : draining_) sum.staging_bytes += closed.link->traffic().staging_bytes;
  if (link_) sum.staging_bytes += link_->traffic().staging_bytes;  // what it keeps now: ended ones keep nothing
  const auto lane = lane_totals();
  sum.bytes_out += lane.bytes_out;
  sum.bytes_in += lane.bytes_in;
  return sum;
}

}  // namespace hixl::peer
