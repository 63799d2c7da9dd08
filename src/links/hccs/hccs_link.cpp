// SPDX-License-Identifier: Apache-2.0
//
// Posts, completions, events and the end of a window link. Its frames are in hccs_frames.cpp.
#include "links/hccs/hccs_link.hpp"

#include <algorithm>
#include <thread>

#include "base/log.hpp"
#include "links/hccs/pidfd.hpp"

namespace hixl::links {
namespace {

/// Posts up to this size are copied by the loop itself: some 5 µs, less than handing them to another thread and back.
constexpr std::uint64_t k_short_bytes_max = 64U << 10U;
/// What the loop copies in one turn: about 100 µs. The rest goes to an engine.
constexpr std::uint64_t k_turn_bytes_max = 1U << 20U;

std::uint64_t total_bytes(std::span<const Segment> segments) noexcept {
  std::uint64_t total = 0;
  for (const Segment& segment : segments) total += segment.bytes;
  return total;
}

memory::Device& device_of(const Post& post) noexcept {
  return post.local_device != nullptr ? *post.local_device : memory::host_device();
}

/// How a copy that did not run is told to the owner. LINK_FAILED means: not executed, through no fault of the post.
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
      break;
  }
  return ErrorCode::link_failed;
}

}  // namespace

const LinkCaps& hccs_caps() noexcept {
  static constexpr LinkCaps k_caps{.kind = LinkKind::hccs,
                                   .rank_of_choice = 10,
                                   .chunk_bytes = 1U << 20U,
                                   .needs_window = true,
                                   .target_passive = true,
                                   .same_host_only = true,
                                   .executed_by_initiator = true};
  return k_caps;
}

HccsLink::HccsLink(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream, const LinkServices& services,
                   LinkEvents& events, CopyPool& pool)
    : identity_(identity),
      services_(services),
      events_(events),
      pool_(pool),
      stream_(std::move(stream)),
      sequencer_(*stream_, {identity.session, identity.link_id, identity.link_gen}, services.rx_depth, services.loop),
      last_heard_(services.loop.now()),
      challenge_(services.loop.random().identity()),
      windows_(services.remotes),
      jobs_(std::make_unique<memory::CopyJob[]>(services.tx_depth)) {
  free_jobs_.reserve(services.tx_depth);
  for (std::uint32_t index = 0; index < services.tx_depth; ++index) free_jobs_.push_back(&jobs_[index]);
  completions_.reserve(2 * std::size_t{services.tx_depth});
  stream_->set_sink(this);
  Result<void> prepared = prepare();
  if (prepared) prepared = order(wire::FrameType::hccs_offer, 0);
  if (!prepared) break_down(prepared.error());
}

HccsLink::~HccsLink() {
  close();
  // Bounded: each job that is still with an engine ends with the piece that it is at. Others' completions are only
  // queued by this, never delivered.
  while (free_jobs_.size() < services_.tx_depth) {
    if (!pool_.poll()) std::this_thread::yield();
  }
}

// ---- posts ----

Answer HccsLink::post(const Post& post) {
  if (!up()) return Answer::busy;
  if (completions_.size() >= 2 * std::size_t{services_.tx_depth}) return busy();
  std::byte* const mapped = services_.remotes.mapping(post.region);
  if (mapped == nullptr) return refuse(post, ErrorCode::stale);
  if (post.verb == Verb::signal_set || post.verb == Verb::signal_add) return post_signal(post, mapped);
  const std::uint64_t bytes = total_bytes(post.segments);
  if (bytes <= k_short_bytes_max && take_turn_budget(bytes)) return post_short(post, mapped, bytes);
  return post_long(post, mapped);
}

Answer HccsLink::post_signal(const Post& post, std::byte* mapped) {
  std::byte* const word = mapped + post.segments.front().offset;
  if (reinterpret_cast<std::uintptr_t>(word) % sizeof(std::uint64_t) != 0) return refuse(post, ErrorCode::unaligned);
  const auto outcome = lane_->run(post.region, [&] {
    if (post.verb == Verb::signal_set) {
      memory::store_word(memory::host_device(), word, post.value);
    } else {
      memory::add_word(memory::host_device(), word, post.value);
    }
  });
  if (outcome == memory::Lane::Outcome::crowded) return busy();
  if (outcome != memory::Lane::Outcome::done) return refuse(post, code_of(outcome));
  bell_->ring();
  return Answer::done;
}

Answer HccsLink::post_short(const Post& post, std::byte* mapped, std::uint64_t bytes) {
  memory::Device& local = device_of(post);
  const auto outcome = lane_->run(post.region, [&] {
    for (const Segment& segment : post.segments) {
      std::byte* const there = mapped + segment.offset;
      if (post.verb == Verb::write) {
        memory::copy(memory::host_device(), there, local, segment.local, segment.bytes);
      } else {
        memory::copy(local, segment.local, memory::host_device(), there, segment.bytes);
      }
    }
  });
  if (outcome == memory::Lane::Outcome::crowded) return post_long(post, mapped);
  if (outcome != memory::Lane::Outcome::done) return refuse(post, code_of(outcome));
  count(post.verb == Verb::write, bytes);
  return Answer::done;
}

Answer HccsLink::post_long(const Post& post, std::byte* mapped) {
  if (free_jobs_.empty()) return busy();
  memory::CopyJob& job = *free_jobs_.back();
  using Direction = memory::CopyJob::Direction;
  job.direction = post.verb == Verb::write ? Direction::to_peer : Direction::from_peer;
  job.lane = lane_.get();
  job.region = post.region;
  job.local_device = &device_of(post);
  HIXL_ASSERT(post.segments.size() <= job.segments.size());
  job.segment_count = 0;
  for (const Segment& segment : post.segments) {
    job.segments[job.segment_count++] = {segment.local, mapped + segment.offset, segment.bytes};
  }
  job.cookie = post.cookie;
  job.reset();
  if (!pool_.submit(job, *this)) {
    job.owner = nullptr;
    return busy();
  }
  free_jobs_.pop_back();
  return Answer::posted;
}

Answer HccsLink::refuse(const Post& post, ErrorCode code) {
  complete(post.cookie, Error(code));
  return Answer::posted;
}

Answer HccsLink::busy() {
  credit_wanted_ = true;
  return Answer::busy;
}

bool HccsLink::take_turn_budget(std::uint64_t bytes) {
  if (budget_turn_ != services_.loop.now()) {
    budget_turn_ = services_.loop.now();
    budget_left_ = k_turn_bytes_max;
  }
  if (bytes > budget_left_) return false;
  budget_left_ -= bytes;
  return true;
}

void HccsLink::on_copied(memory::CopyJob& job) {
  const ErrorCode code = code_of(job.outcome);
  if (code == ErrorCode::ok) count(job.direction == memory::CopyJob::Direction::to_peer, job.bytes);
  job.owner = nullptr;
  free_jobs_.push_back(&job);
  if (credit_wanted_ && alive()) credit_due_ = true;
  complete(job.cookie, Error(code));
}

void HccsLink::count(bool outgoing, std::uint64_t bytes) noexcept {
  (outgoing ? traffic_.bytes_out : traffic_.bytes_in) += bytes;
}

std::size_t HccsLink::poll(std::span<Completion> out) {
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

bool HccsLink::abandon(std::uint64_t cookie) {
  for (std::uint32_t index = 0; index < services_.tx_depth; ++index) {
    if (jobs_[index].owner != nullptr && jobs_[index].cookie == cookie) return false;
  }
  std::erase_if(completions_, [cookie](const Completion& completion) { return completion.cookie == cookie; });
  return true;
}

// ---- regions ----

Answer HccsLink::attach(const wire::RegionDescriptor& region) {
  if (region.window_id == 0) return Answer::done;  // not in a window: stays unmapped, other links serve it
  const auto step = windows_.attach(region);
  if (step && *step == PeerWindows::Step::mapped) return Answer::done;
  Result<void> asked{};
  if (!step) asked = fail(step.error());
  if (step && *step == PeerWindows::Step::request) asked = order(wire::FrameType::window_request, region.window_id);
  if (!asked) {
    attached_.push_back({region.key, asked});
    schedule_events();
  }
  return Answer::posted;
}

bool HccsLink::revoke(RegionKey key) { return door_ == nullptr || door_->idle(key) || process_ended(pidfd()); }

void HccsLink::drop_window(std::uint32_t window_id) {
  if (const Result<void> told = order(wire::FrameType::window_drop, window_id); !told) break_down(told.error());
}

// ---- the end ----

void HccsLink::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  if (door_ != nullptr) door_->close();
  sequencer_.close();
  stream_.reset();
  windows_.clear();
  for (std::uint32_t index = 0; index < services_.tx_depth; ++index) {
    if (jobs_[index].owner != nullptr) jobs_[index].cancel();
  }
  orders_.clear();
  attached_.clear();
  attached_told_ = 0;
  credit_due_ = down_due_ = false;
}

bool HccsLink::drained() {
  const bool ours = free_jobs_.size() == services_.tx_depth && (lane_ == nullptr || lane_->idle());
  const bool theirs = door_ == nullptr || door_->idle() || process_ended(pidfd());
  return state_ == State::closed && ours && theirs;
}

// ---- events ----

void HccsLink::complete(std::uint64_t cookie, const Error& error) {
  completions_.push_back({cookie, error.code == ErrorCode::ok ? error : located(error)});
  if (!completions_told_) completions_due_ = true;
  schedule_events();
}

void HccsLink::become_up() {
  state_ = State::up;
  own_process_ = {};
  log::debug("link {} to rank {}: {} is up", identity_.link_id, identity_.rank, description(LinkKind::hccs));
  events_.on_up();
}

void HccsLink::break_down(const Error& error) {
  if (!alive()) return;
  state_ = State::broken;
  down_error_ = located(error);
  down_due_ = true;
  schedule_events();
}

Error HccsLink::located(Error error) const noexcept {
  error.detail.rank = identity_.rank;
  error.detail.link = identity_.link_id;
  return error;
}

bool HccsLink::event_due() const noexcept {
  return completions_due_ || attached_told_ < attached_.size() || credit_due_ || down_due_;
}

void HccsLink::schedule_events() {
  if (event_due()) services_.loop.defer(event_task_);
}

/// One event a run, told last: the owner may close or destroy the link in it.
void HccsLink::deliver() {
  if (completions_due_) {
    completions_due_ = false;
    completions_told_ = true;
    schedule_events();
    return events_.on_completions();
  }
  if (attached_told_ < attached_.size()) {
    const PeerWindows::Attached told = attached_[attached_told_++];
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
