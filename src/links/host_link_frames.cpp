// SPDX-License-Identifier: Apache-2.0
//
// Frames of a link on one host: set-up, and the control frames that it carries for others.
#include <cerrno>

#include "links/host_link.hpp"
#include "links/pidfd.hpp"

namespace hixl::links {
namespace {

/// RuntimeOptions::regions_max allows no more; a larger board is no board.
constexpr std::uint32_t k_regions_max = 1U << 20U;
/// Frames of the link itself that wait for credit. A peer that keeps to its limits asks for each window once.
constexpr std::size_t k_orders_max = 4096;

}  // namespace

tl::unexpected<Error> HostLink::malformed(Stage stage) { return fail(ErrorCode::malformed_frame, {.stage = stage}); }

Result<void> HostLink::prepare() {
  if (const Result<void> started = pool_.start(); !started) return started;
  auto process = own_pidfd();
  if (!process) return fail(process.error());
  own_process_ = std::move(*process);
  auto door = memory::LaneDoor::create(challenge_);
  if (!door) return fail(door.error());
  door_ = std::move(*door);
  if (services_.regions.board().window().read_only_fd() < 0) {
    return fail(ErrorCode::transport_unavailable, {.stage = Stage::handshake, .os_error = errno});
  }
  return {};
}

// ---- outgoing ----

bool HostLink::send(wire::FrameType type, ConstBytes body) {
  if (!alive()) return false;
  // The link's own frames were first.
  if (orders_.empty() && sequencer_.send_control(type, body)) return true;
  credit_wanted_ = true;
  return false;
}

Result<void> HostLink::order(wire::FrameType type, std::uint32_t window_id) {
  if (!alive()) return {};
  if (orders_.size() == k_orders_max) {
    return fail(ErrorCode::limit_reached, {.stage = Stage::exchange, .limit = k_orders_max});
  }
  orders_.push_back({type, window_id});
  while (!orders_.empty() && send_order(orders_.front())) orders_.pop_front();
  return {};
}

void HostLink::send_orders_and_offer_credit() {
  if (!alive()) return;
  while (!orders_.empty() && send_order(orders_.front())) orders_.pop_front();
  if (credit_wanted_ && orders_.empty()) credit_due_ = true;
  schedule_events();
}

// ---- incoming ----

void HostLink::on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) {
  if (!alive()) return;
  const Result<void> handled = handle(header, body, fds);
  if (!handled) break_down(handled.error());  // after success the link may be gone
}

void HostLink::on_payload_start(const wire::FrameHeader& header, ConstBytes) {
  Error error(ErrorCode::malformed_frame);  // no frame of these kinds has payload
  error.detail.stage = Stage::transfer;
  error.detail.length = header.payload_bytes;
  break_down(error);
}

Result<void> HostLink::handle(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) {
  if (const Result<void> accepted = sequencer_.accept(header); !accepted) return accepted;
  last_heard_ = services_.loop.now();
  switch (header.type) {
    case wire::FrameType::ack:
      return on_ack(body);
    case wire::FrameType::write:
    case wire::FrameType::read:
    case wire::FrameType::read_data:
    case wire::FrameType::signal:
    case wire::FrameType::atomic:
    case wire::FrameType::atomic_result:
    case wire::FrameType::nack:
      return malformed(Stage::transfer);
    case wire::FrameType::ping:
      // A peer that probes and does not read gets no more answers; it learns nothing from them either.
      static_cast<void>(stream_->send_answer(sequencer_.header(wire::FrameType::pong), body));
      return {};
    default:
      break;
  }
  // Recorded first, because the owner may close or destroy the link when it is told.
  if (header.link_seq != 0) sequencer_.executed(header.link_seq, true);
  if (header.type == frames_.offer || header.type == frames_.ready) return handle_set_up(header.type, body, fds);
  if (const auto own = handle_own(header.type, body, fds)) return *own;
  if (!up()) return malformed(Stage::handshake);  // a peer that is up has sent its answer before anything else
  events_.on_control(header, body);
  return {};
}

std::optional<Result<void>> HostLink::handle_own(wire::FrameType, ConstBytes, std::vector<runtime::Fd>&) {
  return std::nullopt;
}

Result<void> HostLink::on_ack(ConstBytes body) {
  wire::Ack ack;
  if (!decode_body(body, ack) || !sequencer_.on_ack(ack.upto)) return malformed(Stage::transfer);
  send_orders_and_offer_credit();
  return {};
}

Result<void> HostLink::handle_set_up(wire::FrameType type, ConstBytes body, std::vector<runtime::Fd>& fds) {
  const bool offer = type == frames_.offer;
  if (up() || (offer ? lane_ != nullptr : answered_)) return malformed(Stage::handshake);
  const Result<void> handled = offer ? on_offer(body, fds) : on_ready(body);
  if (!handled) return handled;
  if (!offer) answered_ = true;
  finish_set_up();
  return {};
}

void HostLink::finish_set_up() {
  if (alive() && !up() && answered_ && lane_ != nullptr && proved()) become_up();
}

Result<std::unique_ptr<memory::Lane>> HostLink::open_lane(const Offered& offered) const {
  if (offered.regions_max == 0 || offered.regions_max > k_regions_max) return malformed(Stage::handshake);
  auto lane = memory::Lane::open(offered.page.get(), offered.board.get(), offered.regions_max, identity_.link_gen);
  if (!lane) return lane;
  if ((*lane)->challenge() != offered.challenge || !is_pidfd(offered.process.get())) {
    return fail(ErrorCode::access_denied, {.stage = Stage::handshake});
  }
  return lane;
}

void HostLink::accept_peer(std::unique_ptr<memory::Lane> lane, runtime::Fd process) {
  lane_ = std::move(lane);
  peer_process_ = std::move(process);
  // Open before the answer leaves: with it the peer may be up and store at once.
  door_->open(identity_.link_gen);
}

Result<void> HostLink::check_answer(std::uint64_t challenge) const {
  if (challenge != challenge_) return fail(ErrorCode::access_denied, {.stage = Stage::handshake});
  return {};
}

}  // namespace hixl::links
