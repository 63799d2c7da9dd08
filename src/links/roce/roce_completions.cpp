// SPDX-License-Identifier: Apache-2.0
//
// Completions of an RDMA link: from what the card says to the ends of attempts.
#include <array>
#include <utility>

#include "base/planted.hpp"
#include "links/roce/roce_link.hpp"

namespace hixl::links::roce {
namespace {

/// Completions of one look.
constexpr std::size_t k_completions_a_look = 32;

}  // namespace

bool RoceLink::poll() {
  if (!alive()) return false;
  if (sleep_error_) {
    break_down(*sleep_error_);
    return true;
  }
  const std::size_t count = take_completions();
  if (!alive()) return true;
  if (count == 0) return false;
  if (probing_) {
    if (!queue_->busy()) on_probed();  // last: the owner may destroy us
    return true;
  }
  if (uncovered_ != 0 || !waiting_.empty()) flush_later();
  if (!queue_->busy()) static_cast<runtime::Poller*>(this)->unlink();
  return true;
}

/// Arm, look once more, sleep. What that look finds is dealt with by poll(): here the loop walks over its pollers.
bool RoceLink::can_sleep() {
  if (found_ != 0 || sleep_error_) return false;
  if (!armed_) {
    if (const Result<void> armed = endpoint_->completions().arm(); !armed) {
      sleep_error_ = armed.error();
      return false;
    }
    armed_ = true;
  }
  const auto count = endpoint_->completions().poll(found_before_sleep_);
  if (!count) {
    sleep_error_ = count.error();
    return false;
  }
  found_ = *count;
  return found_ == 0;
}

void RoceLink::on_ready() {
  endpoint_->completions().acknowledge();
  armed_ = false;
}

std::size_t RoceLink::take_completions() {
  if (const std::size_t found = std::exchange(found_, 0); found != 0) {
    for (const ibv_wc& completion : std::span(found_before_sleep_).first(found)) on_completion(completion);
    return found;
  }
  std::array<ibv_wc, k_completions_a_look> completions;
  const auto count = endpoint_->completions().poll(completions);
  if (!count) {
    break_down(count.error());
    return 0;
  }
  for (const ibv_wc& completion : std::span(completions).first(*count)) on_completion(completion);
  return *count;
}

void RoceLink::on_completion(const ibv_wc& completion) {
  const bool flushed = completion.status == IBV_WC_WR_FLUSH_ERR;
  if (completion.status == IBV_WC_SUCCESS || (flushed && HIXL_PLANTED(rdma_flush_is_success))) {
    completed_ += 1;
    return on_place(completion.wr_id);
  }
  if (!alive()) return;  // flushed behind the first one
  const Error error(ErrorCode::link_failed, {.stage = Stage::transfer, .os_error = -completion.status});
  if (state_ == State::setting_up) {
    // The way through the network is not there, or too narrow.
    return refuse_link(Error(ErrorCode::transport_unavailable, error.detail));
  }
  services_.loop.log().warn({"RDMA requests that failed to rank", identity_.rank},
                            "link {} to rank {}: an RDMA request failed with status {} ({})", identity_.link_id,
                            identity_.rank, static_cast<int>(completion.status), ibv_wc_status_str(completion.status));
  break_down(error);
}

/// Everything up to this place of the queue is over.
void RoceLink::on_place(std::uint64_t place) {
  queue_->retire(place);
  LinkSeq number = 0;
  while (!markers_.empty() && markers_.front().place <= place) {
    number = markers_.front().number;
    markers_.drop(1);
  }
  if (number != 0 && memory::load_word(memory::host_device(), endpoint_->page() + k_page_seen) < number) {
    // The word does not hold what was written there before it was read: whatever that is, it is no memory.
    return break_down(Error(ErrorCode::corrupt, {.stage = Stage::transfer}));
  }
  for (Attempt* attempt = in_flight_.front(); attempt != nullptr;) {
    Attempt* const next = in_flight_.next(*attempt);
    if (attempt->ends_at != 0 && attempt->ends_at <= place) finish(*attempt);
    attempt = next;
  }
}

/// It was executed.
void RoceLink::finish(Attempt& attempt) {
  if (attempt.verb == Verb::read && attempt.buffer != nullptr && !attempt.abandoned) {
    const std::byte* at = attempt.buffer->bytes.data();
    for (const Segment& segment : attempt.segments) {
      if (segment.bytes == 0) continue;
      attempt.device->write(segment.local, at, segment.bytes);
      traffic_.copies += 1;
      at += segment.bytes;
    }
  }
  if (!attempt.abandoned) (attempt.verb == Verb::write ? traffic_.bytes_out : traffic_.bytes_in) += attempt.bytes;
  release(attempt);
  end(attempt, Error());
}

/// Gives back what it took of the card.
void RoceLink::release(Attempt& attempt) {
  for (Registration* one : std::span(attempt.registrations).first(attempt.used)) adapter_->registrations().drop(*one);
  attempt.used = 0;
  if (Adapter::Buffer* const buffer = std::exchange(attempt.buffer, nullptr); buffer != nullptr) {
    adapter_->give_buffer(*buffer);
  }
  RemoteKeyEntry* const key = std::exchange(attempt.key, nullptr);
  if (key == nullptr) return;
  key->uses -= 1;
  if (key->uses == 0 && key->state == RemoteKeyEntry::State::dropped) forget_key(*key);
}

/// No request of ours uses a key that the peer wants back.
void RoceLink::forget_key(RemoteKeyEntry& key) {
  const RegionKey region = key.region;
  keys_.erase(region);
  if (const Result<void> told = order({.type = wire::FrameType::roce_dropped, .region = region}); !told) {
    break_down(told.error());
  }
}

void RoceLink::end(Attempt& attempt, const Error& error) {
  attempt.unlink();
  attempt.error = error;
  if (!waiting_.empty() || !orders_.empty()) flush_later();  // its number may be what they wait for
  if (attempt.abandoned) {
    free_.push_back(attempt);
    give_credit();
  } else {
    done_.push_back(attempt);
    schedule_events();
  }
}

}  // namespace hixl::links::roce
