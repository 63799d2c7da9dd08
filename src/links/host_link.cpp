// SPDX-License-Identifier: Apache-2.0
//
// Jobs, completions, events and the end of a link on one host. Its frames are in host_link_frames.cpp.
#include "links/host_link.hpp"

#include <algorithm>
#include <thread>

#include "base/log.hpp"
#include "links/pidfd.hpp"

namespace hixl::links {
namespace {

/// What the loop copies in one turn: about 100 µs. The rest goes to an engine.
constexpr std::uint64_t k_turn_bytes_max = 1U << 20U;

}  // namespace

std::uint64_t total_bytes(std::span<const Segment> segments) noexcept {
  std::uint64_t total = 0;
  for (const Segment& segment : segments) total += segment.bytes;
  return total;
}

ErrorCode code_of(memory::Lane::Outcome outcome) noexcept {
  return outcome == memory::Lane::Outcome::stale ? ErrorCode::stale : ErrorCode::link_failed;
}

ErrorCode code_of(memory::CopyJob::Outcome outcome) noexcept {
  switch (outcome) {
    case memory::CopyJob::Outcome::done:
      return ErrorCode::ok;
    case memory::CopyJob::Outcome::stale:
      return ErrorCode::stale;
    case memory::CopyJob::Outcome::crowded:
    case memory::CopyJob::Outcome::closed:
    case memory::CopyJob::Outcome::cancelled:
    case memory::CopyJob::Outcome::foreign:  // its kind says what it means
      break;
  }
  return ErrorCode::link_failed;
}

HostLink::HostLink(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream, const LinkServices& services,
                   LinkEvents& events, CopyPool& pool, const SetUpFrames& frames)
    : identity_(identity),
      services_(services),
      stream_(std::move(stream)),
      challenge_(services.loop.random().identity()),
      frames_(frames),
      events_(events),
      pool_(pool),
      sequencer_(*stream_, {identity.session, identity.link_id, identity.link_gen}, services.rx_depth, services.loop),
      last_heard_(services.loop.now()),
      jobs_(std::make_unique<memory::CopyJob[]>(services.tx_depth)) {
  free_jobs_.reserve(services.tx_depth);
  for (std::uint32_t index = 0; index < services.tx_depth; ++index) free_jobs_.push_back(&jobs_[index]);
  completions_.reserve(2 * std::size_t{services.tx_depth});
}

void HostLink::begin() {
  stream_->set_sink(this);
  Result<void> prepared = prepare();
  if (prepared) prepared = order(frames_.offer, 0);
  if (!prepared) break_down(prepared.error());
}

void HostLink::let_go() {
  close();
  // Bounded: each job that is still with an engine ends with the piece that it is at. Others' completions are only
  // queued by this, never delivered.
  while (free_jobs_.size() < services_.tx_depth) {
    if (!pool_.poll()) std::this_thread::yield();
  }
}

// ---- posts ----

memory::CopyJob* HostLink::job_for(const Post& post) {
  if (free_jobs_.empty()) return nullptr;
  memory::CopyJob& job = *free_jobs_.back();
  using Direction = memory::CopyJob::Direction;
  job.direction = post.verb == Verb::write ? Direction::to_peer : Direction::from_peer;
  job.lane = lane_.get();
  job.region = post.region;
  job.local_device = &post.device();
  HIXL_ASSERT(post.segments.size() <= job.segments.size());
  job.segment_count = 0;
  job.cookie = post.cookie;
  job.reset();
  return &job;
}

Answer HostLink::submit(memory::CopyJob& job) {
  if (!pool_.submit(job, *this)) {
    job.owner = nullptr;
    return busy();
  }
  free_jobs_.pop_back();
  return Answer::posted;
}

Answer HostLink::refuse(const Post& post, const Error& error) {
  complete(post.cookie, error);
  return Answer::posted;
}

Answer HostLink::busy() {
  credit_wanted_ = true;
  return Answer::busy;
}

bool HostLink::take_turn_budget(std::uint64_t bytes) {
  if (budget_turn_ != services_.loop.now()) {
    budget_turn_ = services_.loop.now();
    budget_left_ = k_turn_bytes_max;
  }
  if (bytes > budget_left_) return false;
  budget_left_ -= bytes;
  return true;
}

void HostLink::on_copied(memory::CopyJob& job) {
  const Error error = error_of(job);
  if (error.code == ErrorCode::ok) count(job.direction == memory::CopyJob::Direction::to_peer, job.bytes);
  job.owner = nullptr;
  free_jobs_.push_back(&job);
  if (credit_wanted_ && alive()) credit_due_ = true;
  complete(job.cookie, error);
}

void HostLink::count(bool outgoing, std::uint64_t bytes) noexcept {
  (outgoing ? traffic_.bytes_out : traffic_.bytes_in) += bytes;
}

std::size_t HostLink::poll(std::span<Completion> out) {
  // Who waits for a closed link may be the one that would turn the loop, as in a destruction without stop. Others'
  // completions are only queued by this.
  if (state_ == State::closed && free_jobs_.size() < services_.tx_depth) pool_.poll();
  const std::size_t count = std::min(out.size(), completions_.size());
  const auto end = completions_.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(completions_.begin(), end, out.begin());
  completions_.erase(completions_.begin(), end);
  if (completions_.empty()) completions_told_ = completions_due_ = false;
  if (count != 0 && credit_wanted_ && alive()) {
    credit_due_ = true;
    schedule_events();
  }
  return count;
}

bool HostLink::abandon(std::uint64_t cookie) {
  for (std::uint32_t index = 0; index < services_.tx_depth; ++index) {
    if (jobs_[index].owner != nullptr && jobs_[index].cookie == cookie) return false;
  }
  std::erase_if(completions_, [cookie](const Completion& completion) { return completion.cookie == cookie; });
  return true;
}

// ---- the end ----

bool HostLink::revoke(RegionKey key) { return door_ == nullptr || door_->idle(key) || process_ended(pidfd()); }

void HostLink::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  if (door_ != nullptr) door_->close();
  sequencer_.close();
  stream_.reset();
  on_close();
  for (std::uint32_t index = 0; index < services_.tx_depth; ++index) {
    if (jobs_[index].owner != nullptr) jobs_[index].cancel();
  }
  orders_.clear();
  attached_.clear();
  attached_told_ = 0;
  credit_due_ = down_due_ = false;
}

bool HostLink::drained() {
  const bool ours = free_jobs_.size() == services_.tx_depth && (lane_ == nullptr || lane_->idle());
  const bool theirs = door_ == nullptr || door_->idle() || process_ended(pidfd());
  return state_ == State::closed && ours && theirs;
}

// ---- events ----

void HostLink::complete(std::uint64_t cookie, const Error& error, std::uint64_t value) {
  completions_.push_back({cookie, error.code == ErrorCode::ok ? error : located(error), value});
  if (!completions_told_) completions_due_ = true;
  schedule_events();
}

void HostLink::become_up() {
  state_ = State::up;
  own_process_ = {};
  log::debug("link {} to rank {}: {} is up", identity_.link_id, identity_.rank, description(caps().kind));
  events_.on_up();
}

void HostLink::break_down(const Error& error) {
  if (!alive()) return;
  state_ = State::broken;
  down_error_ = located(error);
  down_due_ = true;
  schedule_events();
}

Error HostLink::located(Error error) const noexcept {
  error.detail.rank = identity_.rank;
  error.detail.link = identity_.link_id;
  return error;
}

bool HostLink::event_due() const noexcept {
  return completions_due_ || attached_told_ < attached_.size() || credit_due_ || down_due_;
}

void HostLink::schedule_events() {
  if (event_due()) services_.loop.defer(event_task_);
}

/// One event a run, told last: the owner may close or destroy the link in it.
void HostLink::deliver() {
  if (completions_due_) {
    completions_due_ = false;
    completions_told_ = true;
    schedule_events();
    return events_.on_completions();
  }
  if (attached_told_ < attached_.size()) {
    const Attached told = attached_[attached_told_++];
    if (attached_told_ == attached_.size()) {
      attached_.clear();
      attached_told_ = 0;
    }
    schedule_events();
    return events_.on_attached(told.key, told.result);
  }
  if (credit_due_) {
    credit_due_ = credit_wanted_ = false;
    schedule_events();
    return events_.on_credit();
  }
  if (down_due_) {
    down_due_ = false;
    return events_.on_down(down_error_);
  }
}

}  // namespace hixl::links
