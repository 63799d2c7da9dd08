// SPDX-License-Identifier: Apache-2.0
//
// What the owner of a link asks of it, its events, and its end. Set-up, frames and posts have files of their own.
#include "links/roce/roce_link.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "base/planted.hpp"
#include "links/roce/connecting.hpp"

namespace hixl::links::roce {
namespace {

/// How long a peer that was asked to give a key back may go on using it. Then the registration ends all the same, and
/// its next request under that key breaks the link. What one link has in flight, 8 MiB, takes that long at 16 MB/s.
constexpr std::chrono::milliseconds k_drop_patience{500};

}  // namespace

const LinkCaps& roce_caps() noexcept {
  static constexpr LinkCaps k_caps{.kind = LinkKind::roce,
                                   .rank_of_choice = 30,  // behind what stays on the host, before sockets
                                   .chunk_bytes = k_roce_chunk_bytes,
                                   .target_passive = true,
                                   .host_memory_only = true,  // emulated device memory cannot be registered
                                   .attaches = true};
  return k_caps;
}

RoceLink::RoceLink(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream, const LinkServices& services,
                   LinkEvents& events, Rails& rails, std::uint32_t max_inline)
    : identity_(identity),
      services_(services),
      events_(events),
      rails_(rails),
      max_inline_(max_inline),
      stream_(std::move(stream)),
      sequencer_(*stream_, {identity.session, identity.link_id, identity.link_gen}, services.rx_depth, services.loop,
                 Sequencer::Numbers::odd),
      words_target_(identity, services, *stream_, sequencer_),
      last_heard_(services.loop.now()),
      attempts_(std::make_unique<Attempt[]>(services.tx_depth)),
      markers_({64, 1024}) {
  for (std::uint32_t i = 0; i < services.tx_depth; ++i) free_.push_back(attempts_[i]);
  stream_->set_sink(this);
  start();
}

RoceLink::~RoceLink() { close(); }

// ---- the owner's side ----

std::size_t RoceLink::poll(std::span<Completion> out) {
  std::size_t count = 0;
  while (count < out.size() && !done_.empty()) {
    Attempt& attempt = *done_.pop_front();
    out[count++] = {attempt.cookie, attempt.error.code == ErrorCode::ok ? attempt.error : located(attempt.error),
                    attempt.value};
    free_.push_back(attempt);
  }
  if (done_.empty()) completions_told_ = false;
  if (count != 0) give_credit();
  return count;
}

bool RoceLink::send(wire::FrameType type, ConstBytes body) {
  if (!alive()) return false;
  // The link's own frames were first.
  if (orders_.empty() && numbers_left() && sequencer_.send_control(type, body)) return true;
  credit_wanted_ = true;
  return false;
}

Answer RoceLink::attach(const wire::RegionDescriptor& region) {
  if (state_ != State::up || region.kind != MemoryKind::host) return Answer::done;
  RemoteKeyEntry* entry = keys_.find(region.key);
  if (entry == nullptr) {
    entry = &keys_.add(region.key);
    if (const Result<void> asked =
            order({.type = wire::FrameType::roce_ask, .region = region.key, .token = region.token});
        !asked) {
      break_down(asked.error());
    }
  }
  if (entry->state != RemoteKeyEntry::State::asked) return Answer::done;
  entry->attaching = true;
  return Answer::posted;
}

bool RoceLink::reaches(RegionKey key) const noexcept {
  const RemoteKeyEntry* entry = keys_.find(key);
  return entry == nullptr || entry->state != RemoteKeyEntry::State::refused;
}

bool RoceLink::revoke(RegionKey key) {
  if (adapter_ == nullptr || HIXL_PLANTED(rdma_region_left_registered)) return true;
  const auto given = given_.find(number_of(key));
  if (state_ == State::up && given != given_.end()) {
    const Instant now = services_.loop.now();
    if (!std::exchange(given->second.dropping, true)) {
      given->second.asked = now;
      if (const Result<void> told = order({.type = wire::FrameType::roce_drop, .region = key}); !told) {
        break_down(told.error());
      }
    }
    if (now - given->second.asked < k_drop_patience) return false;
  }
  if (given != given_.end()) {
    Registration* const registration = given->second.registration;
    given_.erase(given);
    adapter_->registrations().drop(*registration);
  }
  return adapter_->registrations().revoke(key);
}

LinkSeq RoceLink::sequence_of(std::uint64_t cookie) const noexcept {
  for (Attempts* list : {&in_flight_, &words_}) {
    for (Attempt* attempt = list->front(); attempt != nullptr; attempt = list->next(*attempt)) {
      if (attempt->cookie == cookie && !attempt->abandoned) return attempt->number;
    }
  }
  return 0;
}

bool RoceLink::abandon(std::uint64_t cookie) {
  for (Attempts* list : {&waiting_, &done_}) {
    for (Attempt* attempt = list->front(); attempt != nullptr; attempt = list->next(*attempt)) {
      if (attempt->cookie != cookie) continue;
      attempt->unlink();
      free_.push_back(*attempt);
      if (done_.empty()) completions_told_ = false;
      give_credit();
      return true;
    }
  }
  for (Attempt* attempt = in_flight_.front(); attempt != nullptr; attempt = in_flight_.next(*attempt)) {
    if (attempt->cookie != cookie || attempt->abandoned) continue;
    // The card writes into a buffer of ours; or straight into the memory, and cannot be called back.
    attempt->abandoned = attempt->verb == Verb::read && (attempt->buffer != nullptr || HIXL_PLANTED(rdma_read_let_go));
    if (attempt->abandoned) attempt->segments = {};
    return attempt->abandoned || state_ == State::closed;
  }
  return true;
}

std::uint64_t RoceLink::progress() noexcept {
  return completed_ + (stream_ != nullptr ? stream_->stream().bytes_delivered() : 0);
}

// ---- the end ----

void RoceLink::close() {
  if (state_ == State::closed) return;
  state_ = State::broken;
  const bool late = HIXL_PLANTED(rdma_queue_left_open) || HIXL_PLANTED(rdma_queue_only_failed);
  if (late && endpoint_ != nullptr) {  // a worker does it, some time
    if (HIXL_PLANTED(rdma_queue_only_failed)) endpoint_->stop();
    auto* const ends = new Connecting(*this, std::move(endpoint_), {});
    ends->link = nullptr;
    rails_.connector().run(*ends);
  }
  if (endpoint_ != nullptr) {
    endpoint_->stop();
    // What ended well before that has ended well. The rest is flushed, and what became of it the peer knows.
    while (queue_ != nullptr && take_completions() != 0) {
    }
  }
  state_ = State::closed;
  static_cast<runtime::Poller*>(this)->unlink();
  sequencer_.close();
  stream_.reset();
  watch_.reset();
  LinkSeq word = 0;
  if (endpoint_ != nullptr) word = endpoint_->end();
  if (HIXL_PLANTED(rdma_word_too_high) && word != 0) word += 2;
  note_executed(word);
  queue_.reset();
  endpoint_.reset();
  if (connecting_ != nullptr) connecting_->link = nullptr;
  connecting_ = nullptr;
  for (Attempt* one = in_flight_.front(); one != nullptr; one = in_flight_.next(*one)) release(*one);
  leave_adapter();
  orders_.clear();
  attached_.clear();
  attached_told_ = 0;
  credit_due_ = down_due_ = false;
  flush_task_.unlink();
  schedule_events();
}

void RoceLink::leave_adapter() {
  if (adapter_ == nullptr) return;
  for (const auto& [number, given] : given_) adapter_->registrations().drop(*given.registration);
  given_.clear();
  adapter_->remove(*this);
  adapter_ = nullptr;  // it may end before this link does
  rails_.let_go();
}

/// The peer's word is a prefix of its writes; what its frames did is known one by one. Numbers that were neither, since
/// the peer skipped them, do no harm: it never asks for them.
void RoceLink::note_executed(LinkSeq word) {
  const wire::ExecutedSet& frames = sequencer_.executed_set();
  const LinkSeq writes = word & ~LinkSeq{1};
  const LinkSeq highest = std::max(frames.highest, writes);
  constexpr LinkSeq k_window = 1024;
  for (LinkSeq number = highest > k_window ? highest - k_window + 1 : 1; number != 0 && number <= highest; ++number) {
    executed_.record(number, number % 2 == 0 ? number <= writes : frames.contains(number));
  }
}

// ---- events ----

void RoceLink::become_up() {
  state_ = State::up;
  log::debug("link {} to rank {}: {} is up, {} to {}, {} bytes a packet", identity_.link_id, identity_.rank,
             description(caps().kind), text_of(gid_.value), peer_.name, bytes_of(endpoint_->mtu()));
  events_.on_up();  // last: the owner may destroy us
}

void RoceLink::break_down(const Error& error) {
  if (!alive()) return;
  state_ = State::broken;
  static_cast<runtime::Poller*>(this)->unlink();
  down_error_ = located(error);
  down_due_ = true;
  // The peer learns of it by the end of the stream, and its requests end, whenever the owner comes to close us.
  sequencer_.close();
  stream_.reset();
  if (endpoint_ != nullptr) endpoint_->stop();
  schedule_events();
}

Error RoceLink::located(Error error) const noexcept {
  error.detail.rank = identity_.rank;
  error.detail.link = identity_.link_id;
  return error;
}

void RoceLink::give_credit() {
  if (!credit_wanted_ || !alive()) return;
  credit_due_ = true;
  schedule_events();
}

bool RoceLink::event_due() noexcept {
  return (!done_.empty() && !completions_told_) || attached_told_ < attached_.size() || credit_due_ || down_due_;
}

void RoceLink::schedule_events() {
  if (event_due()) services_.loop.defer(event_task_);
}

/// One event a run, told last: the owner may close or destroy the link in it.
void RoceLink::deliver() {
  if (!done_.empty() && !completions_told_) {
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
  if (std::exchange(credit_due_, false)) {
    credit_wanted_ = false;
    schedule_events();
    return events_.on_credit();
  }
  if (std::exchange(down_due_, false)) {
    const Error error = down_error_;  // the owner may destroy us and go on reading it
    return events_.on_down(error);
  }
}

// ---- the card ----

std::uint32_t RoceLink::queue_pair_number() const noexcept {
  return endpoint_ != nullptr ? endpoint_->pair().number() : 0;
}

void RoceLink::on_gids(std::span<const Gid> gids) {
  if (!gid_chosen_) return;
  const wire::RoceGid ours = wire_gid(gid_.value);
  const bool there = std::any_of(gids.begin(), gids.end(), [&](const Gid& gid) {
    return gid.index == gid_.index && gid.v2 && wire_gid(gid.value) == ours;
  });
  if (there) return;
  break_down(Error(ErrorCode::link_failed, {.stage = Stage::transfer, .os_error = EADDRNOTAVAIL}));
}

}  // namespace hixl::links::roce
