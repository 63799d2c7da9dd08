// SPDX-License-Identifier: Apache-2.0
#include "links/sim/sim_link.hpp"

#include <algorithm>
#include <utility>

#include "base/assert.hpp"

namespace hixl::links::sim {

SimLink::SimLink(const LinkCaps& caps, SimFabric& fabric, const LinkIdentity& identity,
                 std::unique_ptr<FrameStream> stream, const LinkServices& services, LinkEvents& events)
    : caps_(caps),
      identity_(identity),
      fabric_(fabric),
      services_(services),
      events_(events),
      stream_(std::move(stream)),
      sequencer_(std::make_unique<Sequencer>(*stream_,
                                             Sequencer::Identity{identity.session, identity.link_id, identity.link_gen},
                                             services.rx_depth, services.loop)),
      last_heard_(services.loop.now()) {
  seat_.services = &services_;
  fabric_.join(seat_, stream_->stream().remote_text());
  stream_->set_sink(this);
  services_.loop.attach(*this);
}

SimLink::~SimLink() {
  close();
  fabric_.leave(seat_);
}

// ---- the owner's side ----

Answer SimLink::post(const Post& post) {
  HIXL_ASSERT(!post.segments.empty() && post.segments.size() <= wire::k_segments_max);
  if (up_ && !down_due_ && fabric_.post(seat_, post)) return Answer::posted;
  credit_wanted_ = true;
  // Refused by a whim of the fabric: nothing will end that could bring the credit back.
  if (SimFabric::has_credit(seat_)) credit_due_ = true;
  return Answer::busy;
}

std::size_t SimLink::poll(std::span<Completion> out) {
  const std::size_t count = std::min(out.size(), seat_.completions.size());
  for (std::size_t i = 0; i < count; ++i) {
    Completion& completion = out[i] = seat_.completions[i];
    const auto flight = seat_.flights.find(completion.cookie);
    HIXL_ASSERT(flight != seat_.flights.end());
    if (completion.error.code != ErrorCode::ok) {
      completion.error.detail.rank = identity_.rank;
      completion.error.detail.link = identity_.link_id;
    } else {
      (flight->second.verb == Verb::read ? traffic_.bytes_in : traffic_.bytes_out) += flight->second.bytes;
    }
    seat_.flights.erase(flight);
  }
  seat_.completions.erase(seat_.completions.begin(), seat_.completions.begin() + static_cast<std::ptrdiff_t>(count));
  if (seat_.completions.empty()) completions_told_ = false;
  if (count > 0) credit_due_ = credit_wanted_;
  return count;
}

bool SimLink::send(wire::FrameType type, ConstBytes body) {
  if (sequencer_ == nullptr || down_due_) return false;
  if (sequencer_->send_control(type, body)) return true;
  credit_wanted_ = true;
  return false;
}

void SimLink::close() {
  fabric_.close(seat_);
  sequencer_.reset();
  stream_.reset();
}

LinkSeq SimLink::sequence_of(std::uint64_t cookie) const noexcept {
  const auto flight = seat_.flights.find(cookie);
  return flight == seat_.flights.end() ? 0 : flight->second.seq;
}

bool SimLink::abandon(std::uint64_t cookie) {
  if (!fabric_.abandon(seat_, cookie)) return false;
  credit_due_ = credit_wanted_;
  return true;
}

// ---- events: one a call and nothing after it, since the owner may end this link in it ----

SimLink::Due SimLink::due() const noexcept {
  if (!seat_.completions.empty() && !completions_told_) return Due::completions;
  if (seat_.closed || down_told_) return Due::nothing;
  if (seat_.broken || down_due_) return Due::down;
  if (!up_) return seat_.joined ? Due::up : Due::nothing;
  return credit_due_ ? Due::credit : Due::nothing;
}

bool SimLink::poll() {
  switch (due()) {
    case Due::nothing:
      return false;
    case Due::completions:
      completions_told_ = true;
      last_heard_ = services_.loop.now();
      events_.on_completions();
      return true;
    case Due::down:
      if (!down_due_) break_down(Error(ErrorCode::link_failed, {.stage = Stage::transfer}));
      down_told_ = true;
      events_.on_down(down_error_);
      return true;
    case Due::up:
      up_ = true;
      events_.on_up();
      return true;
    case Due::credit:
      credit_due_ = credit_wanted_ = false;
      events_.on_credit();
      return true;
  }
  return false;
}

void SimLink::break_down(const Error& error) {
  if (std::exchange(down_due_, true)) return;
  down_error_ = error;
  down_error_.detail.rank = identity_.rank;
  down_error_.detail.link = identity_.link_id;
}

// ---- the peer's frames ----

void SimLink::on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>&) {
  using wire::FrameType;
  if (down_due_) return;
  if (const Result<void> accepted = sequencer_->accept(header); !accepted) return break_down(accepted.error());
  last_heard_ = services_.loop.now();
  switch (header.type) {
    case FrameType::ack: {
      wire::Ack ack;
      if (!wire::decode_body(body, ack) || !sequencer_->on_ack(ack.upto)) {
        return break_down(Error(ErrorCode::malformed_frame));
      }
      if (sequencer_->take_credit_returned()) credit_due_ = true;
      return;
    }
    case FrameType::ping:
      // A peer that probes and does not read gets no more answers.
      static_cast<void>(stream_->send_answer(sequencer_->header(FrameType::pong), body));
      return;
    case FrameType::write:
    case FrameType::read:
    case FrameType::read_data:
    case FrameType::signal:
    case FrameType::atomic:
    case FrameType::atomic_result:
    case FrameType::nack:
      return break_down(Error(ErrorCode::malformed_frame, {.length = static_cast<std::uint64_t>(header.type)}));
    default:
      if (header.link_seq != 0) sequencer_->executed(header.link_seq, true);
      break;
  }
  if (!up_ && seat_.joined) {  // the peer came up and spoke before our turn
    up_ = true;
    events_.on_up();
  }
  events_.on_control(header, body);
}

void SimLink::on_payload_start(const wire::FrameHeader&, ConstBytes) { break_down(Error(ErrorCode::malformed_frame)); }

}  // namespace hixl::links::sim
