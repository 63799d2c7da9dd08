// SPDX-License-Identifier: Apache-2.0
#include "links/roce/endpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "memory/device.hpp"

namespace hixl::links::roce {
namespace {

/// A peer sends nothing that takes a receive; one place, because some cards make no queue without.
constexpr std::uint32_t k_receive_depth = 1;
/// Pieces of local memory in one request: a post has up to 32 segments, and few cards take more than 30.
constexpr std::uint32_t k_pieces_max = 32;
/// Routers on the way: a data centre has few.
constexpr std::uint8_t k_hop_limit = 64;
/// 0.64 ms between two tries of a peer that finds no receive; it never should.
constexpr std::uint8_t k_min_rnr_timer = 12;
/// Reads open at once in one direction: more hide no more of the way.
constexpr int k_reads_max = 16;

std::uint8_t reads(int granted) noexcept { return static_cast<std::uint8_t>(std::clamp(granted, 1, k_reads_max)); }

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::create(const Rails::Path& path, const Wishes& wishes, Random& random) {
  Device& device = path.adapter->device();
  const ibv_device_attr& limits = device.limits();
  auto made = std::make_unique<Endpoint>();
  made->name_ = path.name;
  made->port_ = path.port;
  made->mtu_ = path.mtu;
  made->packet_number_ = static_cast<std::uint32_t>(random.identity()) & 0xffffffU;
  made->challenge_ = random.identity();
  made->reads_out_ = reads(limits.max_qp_init_rd_atom);
  made->reads_in_ = reads(limits.max_qp_rd_atom);
  made->pages_ = memory::PrivatePages(k_page_bytes);
  if (made->pages_.size() == 0) return fail(ErrorCode::no_memory, {.stage = Stage::handshake, .length = k_page_bytes});
  memory::store_word(memory::host_device(), made->page() + k_page_challenge, made->challenge_);
  auto memory = device.register_memory(made->page(), k_page_bytes,
                                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (!memory) return fail(memory.error());
  made->memory_ = std::move(*memory);

  const auto pieces = static_cast<std::uint32_t>(std::max(1, std::min(limits.max_sge, limits.max_sge_rd)));
  made->granted_ = {.send_depth = std::min(wishes.send_depth, static_cast<std::uint32_t>(limits.max_qp_wr)),
                    .receive_depth = k_receive_depth,
                    .inline_bytes = std::max(wishes.inline_bytes, k_word_bytes),
                    .send_segments = std::min(pieces, k_pieces_max)};
  // Room for a completion of every request, signalled or not: in the error state each has one.
  const std::uint32_t depth = made->granted_.send_depth + k_receive_depth + 1;
  auto completions = device.create_completion_queue(std::min(depth, static_cast<std::uint32_t>(limits.max_cqe)));
  if (!completions) return fail(completions.error());
  made->completions_ = std::move(*completions);
  const std::uint32_t asked = made->granted_.send_depth;
  auto pair = device.create_queue_pair(*made->completions_, made->granted_);
  if (!pair) return fail(pair.error());
  made->pair_ = std::move(*pair);
  made->granted_.send_depth = std::min(made->granted_.send_depth, asked);  // the completion queue is as deep
  if (made->granted_.inline_bytes < k_word_bytes) {
    return fail(ErrorCode::unsupported, {.stage = Stage::handshake, .limit = made->granted_.inline_bytes});
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = static_cast<std::uint8_t>(path.port);
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (const Result<void> done =
          made->pair_->modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      !done) {
    return fail(done.error());
  }
  return made;
}

std::uint64_t Endpoint::end() noexcept {
  pair_.reset();
  completions_.reset();
  return memory::load_word(memory::host_device(), page());
}

Endpoint::~Endpoint() {
  // In this order: requests end, then their completions, then the memory that they used.
  pair_.reset();
  completions_.reset();
  memory_.reset();
}

wire::RoceOffer Endpoint::offer() const {
  wire::RoceOffer offer;
  offer.queue_pair = pair_->number();
  offer.packet_number = packet_number_;
  offer.mtu = static_cast<std::uint8_t>(mtu_);
  offer.reads_out = reads_out_;
  offer.reads_in = reads_in_;
  offer.page_address = reinterpret_cast<std::uint64_t>(page());
  offer.page_key = memory_->remote_key();
  offer.challenge = challenge_;
  offer.name = name_.substr(0, wire::k_roce_name_max);
  return offer;
}

Result<void> Endpoint::connect(const Peer& peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = mtu_;
  attributes.dest_qp_num = peer.offer.queue_pair;
  attributes.rq_psn = peer.offer.packet_number;
  attributes.max_dest_rd_atomic = std::min(reads_in_, reads(peer.offer.reads_out));
  attributes.min_rnr_timer = k_min_rnr_timer;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.grh.dgid = peer.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(peer.ours.index);
  attributes.ah_attr.grh.hop_limit = k_hop_limit;
  attributes.ah_attr.grh.traffic_class = peer.options.traffic_class;
  attributes.ah_attr.sl = peer.options.service_level;
  attributes.ah_attr.port_num = static_cast<std::uint8_t>(port_);
  Result<void> done = pair_->modify(attributes, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                                    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (!done) {
    const int error = done.error().detail.os_error;
    const bool route = error == ENETUNREACH || error == EHOSTUNREACH || error == ETIMEDOUT || error == ENODATA;
    return fail(route ? ErrorCode::no_route : ErrorCode::os_error, {.stage = Stage::handshake, .os_error = error});
  }
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = packet_number_;
  attributes.timeout = peer.options.timeout;
  attributes.retry_cnt = peer.options.retry;
  attributes.rnr_retry = peer.options.rnr_retry;
  attributes.max_rd_atomic = std::min(reads_out_, reads(peer.offer.reads_in));
  return pair_->modify(attributes, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                       IBV_QP_MAX_QP_RD_ATOMIC);
}

void Endpoint::stop() noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  static_cast<void>(pair_->modify(attributes, IBV_QP_STATE));
}

}  // namespace hixl::links::roce
