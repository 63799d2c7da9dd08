// SPDX-License-Identifier: Apache-2.0
//
// Frames of the window link: its half of the set-up, and windows.
#include <array>

#include "links/hccs/hccs_link.hpp"

namespace hixl::links {
namespace {

/// Board, lane page, signal page, process.
constexpr std::size_t k_hccs_offer_fds = 4;

}  // namespace

bool HccsLink::send_order(const Order& order) {
  switch (order.type) {
    case wire::FrameType::hccs_offer: {
      memory::Board& board = services_.regions.board();
      const std::array<int, k_hccs_offer_fds> fds{board.window().read_only_fd(), door_->window().fd(),
                                                  services_.signals.window().fd(), own_process_.get()};
      return send_own(order.type, wire::HccsOffer{challenge_, board.regions_max()}, fds);
    }
    case wire::FrameType::hccs_ready:
      return send_own(order.type, wire::HccsReady{lane_->challenge()});
    case wire::FrameType::window: {
      const auto window = services_.regions.window_fd(order.window_id);
      const ErrorCode code = window.fd >= 0 ? ErrorCode::ok : ErrorCode::not_registered;
      const wire::WindowBody body{order.window_id, window.size, static_cast<std::uint16_t>(code)};
      const auto fds = std::span(&window.fd, window.fd >= 0 ? 1 : 0);
      return send_own(order.type, body, fds);
    }
    default:
      return send_own(order.type, wire::WindowRequest{order.window_id});
  }
}

Result<void> HccsLink::on_offer(ConstBytes body, std::vector<runtime::Fd>& fds) {
  wire::HccsOffer offer;
  if (!decode_body(body, offer) || fds.size() != k_hccs_offer_fds) return malformed(Stage::handshake);
  const runtime::Fd& signals = fds[2];
  auto lane = open_lane({offer.challenge, offer.regions_max, fds[0], fds[1], fds[3]});
  if (!lane) return fail(lane.error());
  auto bell = memory::SignalBell::map(signals.get());
  if (!bell) return fail(bell.error());
  bell_ = std::move(*bell);
  accept_peer(std::move(*lane), std::move(fds[3]));
  return order(wire::FrameType::hccs_ready, 0);
}

Result<void> HccsLink::on_ready(ConstBytes body) {
  wire::HccsReady ready;
  if (!decode_body(body, ready)) return malformed(Stage::handshake);
  return check_answer(ready.challenge);
}

std::optional<Result<void>> HccsLink::handle_own(wire::FrameType type, ConstBytes body, std::vector<runtime::Fd>& fds) {
  switch (type) {
    case wire::FrameType::window_request:
    case wire::FrameType::window:
    case wire::FrameType::window_drop:
      return handle_window(type, body, fds);
    default:
      return std::nullopt;
  }
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
