// SPDX-License-Identifier: Apache-2.0
//
// From two frame streams to two connected pairs of queues. Each side reads the other's page through the network before
// it believes that there is a way: an address that is not the peer's, a network that drops long packets, or none at all
// shows here, and not in the first transfer.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "links/roce/connecting.hpp"
#include "links/roce/roce_link.hpp"

namespace hixl::links::roce {
namespace {

/// Requests for each attempt: most posts are one, scattered ones more; what finds no room waits in the link.
constexpr std::uint32_t k_requests_an_attempt = 4;
/// Room for one post of 32 segments that lie apart, and a marker, and as much again.
constexpr std::uint32_t k_send_depth_min = 128;

tl::unexpected<Error> bad_set_up() { return fail(ErrorCode::malformed_frame, {.stage = Stage::handshake}); }

std::uint32_t rail_of(const LinkIdentity& identity) noexcept { return identity.link_id & 0xffU; }

}  // namespace

void RoceLink::start() {
  if (!identity_.dialled) return;  // the acceptor chooses when it knows what the dialler has
  auto path = rails_.path(rail_of(identity_));
  if (!path) return refuse_link(path.error());
  gids_ = path->gids;
  if (const Result<void> made = make_endpoint(*path); !made) return refuse_link(made.error());
  if (const Result<void> ordered = order({.type = wire::FrameType::roce_offer}); !ordered) break_down(ordered.error());
}

Result<void> RoceLink::make_endpoint(const Rails::Path& path) {
  adapter_ = path.adapter;
  port_ = path.port;
  adapter_->add(*this);
  auto made = Endpoint::create(path,
                               {.send_depth = std::max(k_send_depth_min, k_requests_an_attempt * services_.tx_depth),
                                .inline_bytes = max_inline_},
                               services_.loop.random());
  if (!made) return fail(made.error());
  endpoint_ = std::move(*made);
  return {};
}

bool RoceLink::send_offer() {
  wire::RoceOffer offer = endpoint_->offer();
  if (gid_chosen_) {
    offer.gids = {wire_gid(gid_.value)};
    offer.chosen = peer_.chosen;
  } else {
    for (const Gid& gid : gids_) offer.gids.push_back(wire_gid(gid.value));
  }
  return send_own(wire::FrameType::roce_offer, offer);
}

void RoceLink::refuse_link(const Error& error) {
  if (!alive()) return;
  Error told = located(error);
  told.detail.stage = Stage::handshake;
  services_.loop.log().info({"RDMA refused to rank", identity_.rank}, "link {} to rank {}: no RDMA link: {}",
                            identity_.link_id, identity_.rank, told.message());
  static_cast<void>(order({.type = wire::FrameType::roce_ready, .error = told}));
  stream_->flush();  // so that the peer hears the reason, and not only that we left
  break_down(told);
}

Result<void> RoceLink::on_offer(ConstBytes body) {
  wire::RoceOffer offer;
  if (offer_seen_ || !decode_body(body, offer)) return bad_set_up();
  offer_seen_ = true;
  return identity_.dialled ? take_answer(offer) : answer_offer(offer);
}

Result<void> RoceLink::answer_offer(const wire::RoceOffer& offer) {
  auto answer = rails_.answer(rail_of(identity_), offer.gids);
  if (!answer) {
    refuse_link(answer.error());
    return {};
  }
  peer_ = offer;
  peer_.chosen = static_cast<std::uint8_t>(answer->pair.theirs);
  gid_ = answer->pair.ours;
  gid_chosen_ = true;
  if (const Result<void> made = make_endpoint(answer->path); !made) {
    refuse_link(made.error());
    return {};
  }
  connect({.offer = peer_, .gid = verbs_gid(offer.gids[peer_.chosen]), .ours = gid_, .options = rails_.options()});
  return {};
}

Result<void> RoceLink::take_answer(const wire::RoceOffer& answer) {
  if (endpoint_ == nullptr || answer.gids.size() != 1 || answer.chosen >= gids_.size()) return bad_set_up();
  peer_ = answer;
  gid_ = gids_[answer.chosen];
  gid_chosen_ = true;
  connect({.offer = peer_, .gid = verbs_gid(answer.gids[0]), .ours = gid_, .options = rails_.options()});
  return {};
}

void RoceLink::connect(const Endpoint::Peer& peer) {
  endpoint_->set_mtu(std::min(endpoint_->mtu(), static_cast<ibv_mtu>(peer.offer.mtu)));
  connecting_ = new Connecting(*this, std::move(endpoint_), peer);
  rails_.connector().run(*connecting_);
}

void RoceLink::on_connected(std::unique_ptr<Endpoint> endpoint, const Result<void>& result) {
  connecting_ = nullptr;
  endpoint_ = std::move(endpoint);
  if (!alive()) return;
  if (!result) return refuse_link(result.error());
  queue_ = std::make_unique<SendQueue>(endpoint_->pair(), endpoint_->granted());
  auto watch =
      endpoint_->completions().watch_completions(services_.loop.port(), static_cast<runtime::WatchEvents&>(*this));
  if (!watch) return refuse_link(watch.error());
  watch_ = std::move(*watch);
  if (identity_.dialled) return probe();
  if (const Result<void> ordered = order({.type = wire::FrameType::roce_offer}); !ordered) break_down(ordered.error());
}

/// Reads one whole packet of the peer's page. It comes back in the largest packet that this link will ever send.
void RoceLink::probe() {
  const ibv_sge piece{.addr = reinterpret_cast<std::uint64_t>(endpoint_->page() + k_page_probe),
                      .length = std::min<std::uint32_t>(bytes_of(endpoint_->mtu()), k_page_bytes - k_page_probe),
                      .lkey = endpoint_->page_key()};
  queue_->add({.opcode = IBV_WR_RDMA_READ, .address = peer_.page_address, .key = peer_.page_key, .signalled = true},
              {&piece, 1});
  probing_ = true;
  if (const Result<void> posted = queue_->ring(); !posted) return refuse_link(posted.error());
  services_.loop.attach(*this);
}

void RoceLink::on_probed() {
  probing_ = false;
  const std::uint64_t found =
      memory::load_word(memory::host_device(), endpoint_->page() + k_page_probe + k_page_challenge);
  if (found != peer_.challenge) {
    // Somebody answered at that address, and it was not this peer.
    return refuse_link(Error(ErrorCode::access_denied, {.stage = Stage::handshake}));
  }
  probed_ = true;
  if (const Result<void> ordered = order({.type = wire::FrameType::roce_ready}); !ordered) {
    return break_down(ordered.error());
  }
  if (ready_seen_) become_up();
}

Result<void> RoceLink::on_peer_ready(ConstBytes body) {
  wire::RoceReady ready;
  if (ready_seen_ || !decode_body(body, ready)) return bad_set_up();
  const auto code = static_cast<ErrorCode>(ready.code);
  if (code != ErrorCode::ok) {
    services_.loop.log().info({"RDMA refused of rank", identity_.rank}, "link {} to rank {}: it has no RDMA link: {}",
                              identity_.link_id, identity_.rank, what(code));
    return fail(code, {.stage = Stage::handshake, .os_error = static_cast<std::int32_t>(ready.os_error)});
  }
  if (queue_ == nullptr || identity_.dialled != probed_) return bad_set_up();
  ready_seen_ = true;
  if (!identity_.dialled) {
    probe();
  } else {
    become_up();
  }
  return {};
}

}  // namespace hixl::links::roce
