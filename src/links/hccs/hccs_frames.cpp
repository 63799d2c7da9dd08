// SPDX-License-Identifier: Apache-2.0
//
// Frames of the window link: set-up, windows, and the control frames that it carries for others.
#include <array>
#include <cerrno>

#include "links/hccs/hccs_link.hpp"
#include "links/hccs/pidfd.hpp"

namespace hixl::links {
namespace {

/// RuntimeOptions::regions_max allows no more; a larger board is no board.
constexpr std::uint32_t k_regions_max = 1U << 20U;
/// Frames of the link itself that wait for credit. A peer that keeps to its limits asks for each window once.
constexpr std::size_t k_orders_max = 4096;
/// Board, lane page, signal page, process.
constexpr std::size_t k_offer_fds = 4;

tl::unexpected<Error> malformed(Stage stage) { return fail(ErrorCode::malformed_frame, {.stage = stage}); }

template <class Message>
bool send_control(Sequencer& sequencer, wire::FrameType type, const Message& message, std::span<const int> fds = {}) {
  std::array<std::byte, 64> buffer;  // the longest of these bodies has 14 bytes
  ByteWriter writer(buffer);
  encode(message, writer);
  HIXL_ASSERT(writer.ok());
  return sequencer.send_control(type, writer.written(), fds);
}

}  // namespace

Result<void> HccsLink::prepare() {
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

bool HccsLink::send(wire::FrameType type, ConstBytes body) {
  if (!alive()) return false;
  // The link's own frames were first.
  if (orders_.empty() && sequencer_.send_control(type, body)) return true;
  credit_wanted_ = true;
  return false;
}

Result<void> HccsLink::order(wire::FrameType type, std::uint32_t window_id) {
  if (!alive()) return {};
  if (orders_.size() == k_orders_max) {
    return fail(ErrorCode::limit_reached, {.stage = Stage::exchange, .limit = k_orders_max});
  }
  orders_.push_back({type, window_id});
  while (!orders_.empty() && send_order(orders_.front())) orders_.pop_front();
  return {};
}

bool HccsLink::send_order(const Order& order) {
  switch (order.type) {
    case wire::FrameType::hccs_offer: {
      memory::Board& board = services_.regions.board();
      const std::array<int, k_offer_fds> fds{board.window().read_only_fd(), door_->window().fd(),
                                             services_.signals.window().fd(), own_process_.get()};
      return send_control(sequencer_, order.type, wire::HccsOffer{challenge_, board.regions_max()}, fds);
    }
    case wire::FrameType::hccs_ready:
      return send_control(sequencer_, order.type, wire::HccsReady{lane_->challenge()});
    case wire::FrameType::window: {
      const auto window = services_.regions.window_fd(order.window_id);
      const ErrorCode code = window.fd >= 0 ? ErrorCode::ok : ErrorCode::not_registered;
      const wire::WindowBody body{order.window_id, window.size, static_cast<std::uint16_t>(code)};
      const auto fds = std::span(&window.fd, window.fd >= 0 ? 1 : 0);
      return send_control(sequencer_, order.type, body, fds);
    }
    default:
      return send_control(sequencer_, order.type, wire::WindowRequest{order.window_id});
  }
}

void HccsLink::send_orders_and_offer_credit() {
  if (!alive()) return;
  while (!orders_.empty() && send_order(orders_.front())) orders_.pop_front();
  if (credit_wanted_ && orders_.empty()) credit_due_ = true;
  schedule_events();
}

// ---- incoming ----

void HccsLink::on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) {
  if (!alive()) return;
  const Result<void> handled = handle(header, body, fds);
  if (!handled) break_down(handled.error());  // after success the link may be gone
}

void HccsLink::on_payload_start(const wire::FrameHeader& header, ConstBytes) {
  Error error(ErrorCode::malformed_frame);  // no frame of this kind has payload
  error.detail.stage = Stage::transfer;
  error.detail.length = header.payload_bytes;
  break_down(error);
}

Result<void> HccsLink::handle(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& fds) {
  if (const Result<void> accepted = sequencer_.accept(header); !accepted) return accepted;
  last_heard_ = services_.loop.now();
  switch (header.type) {
    case wire::FrameType::ack:
      return on_ack(body);
    case wire::FrameType::write:
    case wire::FrameType::read:
    case wire::FrameType::read_data:
    case wire::FrameType::signal:
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
  switch (header.type) {
    case wire::FrameType::hccs_offer:
    case wire::FrameType::hccs_ready:
      return handle_set_up(header.type, body, fds);
    case wire::FrameType::window_request:
    case wire::FrameType::window:
    case wire::FrameType::window_drop:
      return handle_window(header.type, body, fds);
    default:
      break;
  }
  if (!up()) return malformed(Stage::handshake);  // a peer that is up has sent its answer before anything else
  events_.on_control(header, body);
  return {};
}

Result<void> HccsLink::on_ack(ConstBytes body) {
  wire::Ack ack;
  if (!decode_body(body, ack) || !sequencer_.on_ack(ack.upto)) return malformed(Stage::transfer);
  send_orders_and_offer_credit();
  return {};
}

Result<void> HccsLink::handle_set_up(wire::FrameType type, ConstBytes body, std::vector<runtime::Fd>& fds) {
  if (up()) return malformed(Stage::handshake);
  const Result<void> handled = type == wire::FrameType::hccs_offer ? on_offer(body, fds) : on_ready(body);
  if (handled && answered_ && lane_ != nullptr) become_up();
  return handled;
}

Result<void> HccsLink::on_offer(ConstBytes body, std::vector<runtime::Fd>& fds) {
  wire::HccsOffer offer;
  if (lane_ != nullptr || !decode_body(body, offer) || fds.size() != k_offer_fds || offer.regions_max == 0 ||
      offer.regions_max > k_regions_max) {
    return malformed(Stage::handshake);
  }
  const runtime::Fd &board = fds[0], &page = fds[1], &signals = fds[2];
  auto lane = memory::Lane::open(page.get(), board.get(), offer.regions_max, identity_.link_gen);
  if (!lane) return fail(lane.error());
  auto bell = memory::SignalBell::map(signals.get());
  if (!bell) return fail(bell.error());
  if ((*lane)->challenge() != offer.challenge || !is_pidfd(fds[3].get())) {
    return fail(ErrorCode::access_denied, {.stage = Stage::handshake});
  }
  lane_ = std::move(*lane);
  bell_ = std::move(*bell);
  peer_process_ = std::move(fds[3]);
  // Open before the answer leaves: with it the peer may be up and store at once.
  door_->open(identity_.link_gen);
  return order(wire::FrameType::hccs_ready, 0);
}

Result<void> HccsLink::on_ready(ConstBytes body) {
  wire::HccsReady ready;
  if (answered_ || !decode_body(body, ready)) return malformed(Stage::handshake);
  if (ready.challenge != challenge_) return fail(ErrorCode::access_denied, {.stage = Stage::handshake});
  answered_ = true;
  return {};
}

Result<void> HccsLink::handle_window(wire::FrameType type, ConstBytes body, std::vector<runtime::Fd>& fds) {
  if (type == wire::FrameType::window) {
    wire::WindowBody window;
    if (!decode_body(body, window) || fds.size() > 1) return malformed(Stage::exchange);
    const Result<void> placed = windows_.on_window(window, fds.empty() ? runtime::Fd() : std::move(fds[0]), attached_);
    schedule_events();
    return placed;
  }
  wire::WindowRequest request;
  if (!decode_body(body, request)) return malformed(Stage::exchange);
  if (type == wire::FrameType::window_request) return order(wire::FrameType::window, request.window_id);
  windows_.drop(request.window_id, attached_);
  schedule_events();
  return {};
}

}  // namespace hixl::links
