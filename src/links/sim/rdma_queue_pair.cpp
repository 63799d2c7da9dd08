// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs: their states, what may be asked of them in which, and how they fail. (A reliable connection has no SQE
// state, and nobody here asks for SQD.)
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/assert.hpp"
#include "links/sim/rdma_parts.hpp"
#include "memory/device.hpp"

namespace hixl::links {

using namespace sim;

namespace {

constexpr int k_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int k_receive =
    IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int k_send = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

/// ibv_modify_qp's table for reliable connections.
struct Step {
  ibv_qp_state from, to;
  int required, optional;
};
constexpr Step k_steps[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, k_init, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, k_init},
    {IBV_QPS_INIT, IBV_QPS_RTR, k_receive, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, k_send, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER},
};

bool allowed(ibv_qp_state from, ibv_qp_state to, int mask) {
  mask &= ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return mask == 0;
  return std::any_of(std::begin(k_steps), std::end(k_steps), [&](const Step& step) {
    return step.from == from && step.to == to && (mask & step.required) == step.required &&
           (mask & ~(step.required | step.optional)) == 0;
  });
}

void keep(ibv_qp_attr& own, const ibv_qp_attr& given, int mask) {
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0) own.qp_access_flags = given.qp_access_flags;
  if ((mask & IBV_QP_AV) != 0) own.ah_attr = given.ah_attr;
  if ((mask & IBV_QP_PATH_MTU) != 0) own.path_mtu = given.path_mtu;
  if ((mask & IBV_QP_DEST_QPN) != 0) own.dest_qp_num = given.dest_qp_num;
  if ((mask & IBV_QP_RQ_PSN) != 0) own.rq_psn = given.rq_psn & k_psn_mask;
  if ((mask & IBV_QP_SQ_PSN) != 0) own.sq_psn = given.sq_psn & k_psn_mask;
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0) own.max_dest_rd_atomic = given.max_dest_rd_atomic;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) own.max_rd_atomic = given.max_rd_atomic;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) own.min_rnr_timer = given.min_rnr_timer;
  if ((mask & IBV_QP_TIMEOUT) != 0) own.timeout = given.timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) own.retry_cnt = given.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) own.rnr_retry = given.rnr_retry;
}

bool reads(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

ibv_wc_opcode done(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      return IBV_WC_SEND;
    default:
      return IBV_WC_RDMA_WRITE;
  }
}

}  // namespace

Result<sim::RdmaQueuePair*> RdmaFabric::create(RdmaDevice& device, RdmaQueue& queue,
                                               const roce::Device::QueuePairOptions& options) {
  const auto refused = [](int error) {
    return fail(ErrorCode::os_error, {.stage = Stage::connect, .os_error = error});
  };
  if (device.gone) return refused(EIO);
  if (options.send_depth == 0 || options.send_depth > k_depth_max || options.receive_depth > k_depth_max ||
      options.inline_bytes > k_inline_max || options.send_segments == 0 || options.send_segments > k_pieces_max) {
    return refused(EINVAL);
  }
  if (pairs_.size() >= k_pairs_max || world_.choices().chance(plan_.create_per_mille)) {
    ++counts_.queue_pairs_failed;
    return refused(ENOMEM);
  }
  auto pair = std::make_unique<RdmaQueuePair>();
  pair->id = next_id_++;
  pair->device = &device;
  pair->queue = &queue;
  pair->options = options;
  pair->number = take_number(*device.card);
  device.card->pairs[pair->number] = pair.get();
  return (pairs_[pair->id] = std::move(pair)).get();
}

std::uint32_t RdmaFabric::take_number(RdmaCard& card) {
  if (!card.left.empty() && world_.choices().chance(plan_.reuse_per_mille)) {
    const std::uint32_t number = card.left.back();
    card.left.pop_back();
    ++counts_.numbers_reused;
    return number;
  }
  return card.next_number++;
}

Result<void> RdmaFabric::modify(RdmaQueuePair& pair, const ibv_qp_attr& attributes, int mask) {
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attributes.qp_state : pair.state;
  const int error = enter(pair, to, attributes, mask);
  if (error == 0) return {};
  return fail(ErrorCode::os_error, {.stage = Stage::connect, .os_error = error});
}

/// 0, or the error number.
int RdmaFabric::enter(RdmaQueuePair& pair, ibv_qp_state to, const ibv_qp_attr& attributes, int mask) {
  if (pair.gone) return EIO;
  if ((mask & IBV_QP_CUR_STATE) != 0 && attributes.cur_qp_state != pair.state) return EINVAL;
  if (!allowed(pair.state, to, mask)) return EINVAL;
  const RdmaCard& card = pair.card();
  if ((mask & IBV_QP_PORT) != 0 && attributes.port_num != 1) return EINVAL;
  if ((mask & IBV_QP_AV) != 0) {
    const ibv_ah_attr& path = attributes.ah_attr;
    if (path.is_global == 0 || path.port_num != 1 || path.grh.sgid_index > 1 || !card.up) return EINVAL;
  }
  if ((mask & IBV_QP_PATH_MTU) != 0 && (attributes.path_mtu < IBV_MTU_256 || attributes.path_mtu > card.mtu)) {
    return EINVAL;
  }
  if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) != 0 && attributes.max_dest_rd_atomic > k_reads_max) return EINVAL;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0 && attributes.max_rd_atomic > k_reads_max) return EINVAL;
  if (to == IBV_QPS_RTR && world_.choices().chance(plan_.create_per_mille)) {
    ++counts_.queue_pairs_failed;
    return ETIMEDOUT;  // nobody answered for that address
  }
  keep(pair.attributes, attributes, mask);
  switch (to) {
    case IBV_QPS_RESET:
      reset(pair);
      break;
    case IBV_QPS_ERR:
      fail_pair(pair);
      return 0;
    case IBV_QPS_RTR:
      pair.own_gid = card.gid;
      pair.expected_psn = pair.attributes.rq_psn;
      break;
    case IBV_QPS_RTS:
      if (pair.state == IBV_QPS_RTR) open_wire(pair);
      break;
    default:
      break;
  }
  pair.state = to;
  return 0;
}

// ---- posting ----

Result<void> RdmaFabric::post_send(RdmaQueuePair& pair, ibv_send_wr& chain, ibv_send_wr** refused) {
  for (ibv_send_wr* request = &chain; request != nullptr; request = request->next) {
    const int error = post_one(pair, *request);
    if (error == 0) continue;
    if (refused != nullptr) *refused = request;
    if (error == ENOMEM) return fail(ErrorCode::limit_reached, {.stage = Stage::transfer, .os_error = error});
    return fail(ErrorCode::os_error, {.stage = Stage::transfer, .os_error = error});
  }
  return {};
}

int RdmaFabric::post_one(RdmaQueuePair& pair, const ibv_send_wr& request) {
  if (pair.device->gone) return EIO;
  if (pair.gone) return 0;  // a dead process posts nothing; its objects may be cleared away
  if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR) return EINVAL;
  const auto pieces = static_cast<std::uint32_t>(request.num_sge);
  if (pieces > pair.options.send_segments || (reads(request.opcode) && (request.send_flags & IBV_SEND_INLINE) != 0)) {
    return EINVAL;
  }
  if (pair.posted - pair.freed >= pair.options.send_depth) return ENOMEM;
  RdmaSend send;
  send.wr_id = request.wr_id;
  send.opcode = request.opcode;
  send.flags = request.send_flags;
  send.immediate = request.imm_data;
  switch (request.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
      send.place = reinterpret_cast<std::byte*>(request.wr.rdma.remote_addr);
      send.key = request.wr.rdma.rkey;
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      send.place = reinterpret_cast<std::byte*>(request.wr.atomic.remote_addr);
      send.key = request.wr.atomic.rkey;
      send.compare_add = request.wr.atomic.compare_add;
      send.swap = request.wr.atomic.swap;
      break;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      break;
    default:
      return EINVAL;
  }
  for (std::uint32_t i = 0; i < pieces; ++i) {
    const ibv_sge& piece = request.sg_list[i];
    send.pieces.push_back({reinterpret_cast<std::byte*>(piece.addr), piece.length, piece.lkey});
    send.bytes += piece.length;
  }
  const bool word = request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  if (word && send.bytes != sizeof(std::uint64_t)) return EINVAL;
  if ((send.flags & IBV_SEND_INLINE) != 0) {
    if (send.bytes > pair.options.inline_bytes) return EINVAL;
    for (const RdmaPiece& piece : std::exchange(send.pieces, {})) {
      const std::size_t at = send.data.size();
      send.data.resize(at + piece.bytes);
      memory::host_device().read(send.data.data() + at, piece.data, piece.bytes);
    }
  }
  send.number = ++pair.posted;
  pair.sends.push_back(std::move(send));
  if (pair.state == IBV_QPS_RTS) {
    transmit(pair, pair.sends.back());
  } else if (!std::exchange(pair.flush_planned, true)) {
    schedule(up_to(plan_.drain_max), Token::flush, pair.id);
  }
  return 0;
}

Result<void> RdmaFabric::post_receive(RdmaQueuePair& pair, const ibv_recv_wr& chain) {
  const auto refused = [](int error) {
    return fail(error == ENOMEM ? ErrorCode::limit_reached : ErrorCode::os_error,
                {.stage = Stage::transfer, .os_error = error});
  };
  for (const ibv_recv_wr* request = &chain; request != nullptr; request = request->next) {
    if (pair.device->gone) return refused(EIO);
    if (pair.gone) return {};
    if (pair.state == IBV_QPS_RESET) return refused(EINVAL);
    if (pair.receives_posted - pair.receives_freed >= pair.options.receive_depth) return refused(ENOMEM);
    RdmaReceive receive{.number = ++pair.receives_posted, .wr_id = request->wr_id, .pieces = {}};
    for (int i = 0; i < request->num_sge; ++i) {
      const ibv_sge& piece = request->sg_list[i];
      receive.pieces.push_back({reinterpret_cast<std::byte*>(piece.addr), piece.length, piece.lkey});
    }
    pair.receives.push_back(std::move(receive));
    if (pair.state == IBV_QPS_ERR && !std::exchange(pair.flush_planned, true)) {
      schedule(up_to(plan_.drain_max), Token::flush, pair.id);
    }
  }
  return {};
}

// ---- completing and failing ----

void RdmaFabric::complete(RdmaQueuePair& pair, const RdmaSend& send, Wc status) {
  if (status == IBV_WC_SUCCESS && (send.flags & IBV_SEND_SIGNALED) == 0) return;
  ibv_wc wc{};
  wc.wr_id = send.wr_id;
  wc.status = status;
  wc.qp_num = pair.number;
  // Of a failure nothing else is valid.
  wc.opcode = status == IBV_WC_SUCCESS ? done(send.opcode) : IBV_WC_BIND_MW;
  if (status == IBV_WC_SUCCESS) wc.byte_len = send.bytes;
  push(pair, wc, send.number, false);
  count_failure(status);
}

void RdmaFabric::count_failure(Wc status) {
  switch (status) {
    case IBV_WC_WR_FLUSH_ERR:
      ++counts_.flushed;
      break;
    case IBV_WC_RETRY_EXC_ERR:
      ++counts_.retry_exceeded;
      break;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      ++counts_.rnr_exceeded;
      break;
    case IBV_WC_REM_ACCESS_ERR:
      ++counts_.access_refused;
      break;
    case IBV_WC_REM_INV_REQ_ERR:
      ++counts_.request_invalid;
      break;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
      ++counts_.local_refused;
      break;
    default:
      break;
  }
}

/// From now on nothing is executed here for the peer, and nothing completes well. What the card has in hand goes on
/// until the flush.
void RdmaFabric::fail_pair(RdmaQueuePair& pair) {
  if (pair.gone) return;
  pair.state = IBV_QPS_ERR;
  if (!std::exchange(pair.flush_planned, true)) schedule(up_to(plan_.drain_max), Token::flush, pair.id);
}

void RdmaFabric::flush_receive(RdmaQueuePair& pair) {
  ibv_wc wc{};
  wc.wr_id = pair.receives.front().wr_id;
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.qp_num = pair.number;
  wc.opcode = IBV_WC_BIND_MW;
  push(pair, wc, pair.receives.front().number, true);
  ++counts_.flushed;
  pair.receives.pop_front();
}

/// Each of the two queues in its order; between them there is none.
void RdmaFabric::flush(RdmaQueuePair& pair) {
  pair.flush_planned = false;
  if (pair.gone || pair.state != IBV_QPS_ERR) return;
  const std::uint64_t executed = pair.wire == nullptr ? 0 : pair.wire->executed;
  leave_wire(pair);
  const bool receives_first = world_.choices().chance(500);
  while (receives_first && !pair.receives.empty()) flush_receive(pair);
  while (!pair.sends.empty()) {
    const RdmaSend send = std::move(pair.sends.front());
    pair.sends.pop_front();
    complete(pair, send, IBV_WC_WR_FLUSH_ERR);
    counts_.flushed_executed += send.number <= executed ? 1 : 0;
  }
  while (!pair.receives.empty()) flush_receive(pair);
}

/// Everything under way is forgotten, and so are completions that nobody has taken. What was written is written.
void RdmaFabric::reset(RdmaQueuePair& pair) {
  show(pair);
  leave_wire(pair);
  pair.flush_planned = false;
  pair.sends.clear();
  pair.receives.clear();
  pair.freed = pair.posted;
  pair.receives_freed = pair.receives_posted;
  std::erase_if(pair.queue->entries, [&](const RdmaQueue::Entry& entry) { return entry.pair == pair.id; });
}

void RdmaFabric::destroy(RdmaQueuePair& pair) {
  if (!pair.gone) {
    reset(pair);
    RdmaCard& card = pair.card();
    card.pairs.erase(pair.number);
    card.left.push_back(pair.number);
  }
  std::erase_if(pair.queue->entries, [&](const RdmaQueue::Entry& entry) { return entry.pair == pair.id; });
  leave_wire(pair);
  pairs_.erase(pair.id);
}

}  // namespace hixl::links
