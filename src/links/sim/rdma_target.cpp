// SPDX-License-Identifier: Apache-2.0
//
// What a target's card does with a request: it looks whether it is allowed, executes it in its turn, and shows what it
// wrote when it likes, at the latest when something behind it must see it.
#include <algorithm>
#include <utility>

#include "links/sim/rdma_parts.hpp"
#include "memory/device.hpp"

namespace hixl::links {

using namespace sim;

namespace {

/// What a request needs of the region, and of the queue pair.
int needed_access(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_ACCESS_REMOTE_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_ACCESS_REMOTE_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_ACCESS_REMOTE_ATOMIC;
    default:
      return 0;
  }
}

bool takes_receive(const RdmaPacket& packet) {
  return packet.opcode == IBV_WR_SEND || packet.opcode == IBV_WR_SEND_WITH_IMM ||
         (packet.opcode == IBV_WR_RDMA_WRITE_WITH_IMM && packet.last);
}

bool overlap(const std::byte* a, std::size_t a_size, const std::byte* b, std::size_t b_size) {
  return a < b + b_size && b < a + a_size;
}

}  // namespace

/// RNR_RETRY_EXC_ERR stands for "no receive, come again"; every other failure ends both queue pairs.
ibv_wc_status RdmaFabric::execute(const RdmaWire& wire, RdmaQueuePair& target, const RdmaPacket& packet,
                                  std::vector<std::byte>& back) {
  const Wc verdict = admit(wire, target, packet);
  if (verdict != IBV_WC_SUCCESS) return verdict;
  if (takes_receive(packet)) {
    if (world_.choices().chance(plan_.rnr_per_mille)) {
      target.not_ready_until = world_.now() + up_to(plan_.path_max);
    }
    if (target.receives.empty() || world_.now() < target.not_ready_until) return IBV_WC_RNR_RETRY_EXC_ERR;
  }
  switch (packet.opcode) {
    case IBV_WR_RDMA_READ:
      show(target);
      back.resize(packet.request_bytes);
      memory::host_device().read(back.data(), packet.place, back.size());
      return IBV_WC_SUCCESS;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: {
      show(target);
      const std::uint64_t before = apply(packet);
      back.resize(sizeof(before));
      memory::host_device().read(back.data(), reinterpret_cast<const std::byte*>(&before), sizeof(before));
      return IBV_WC_SUCCESS;
    }
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      if (packet.bytes > 0) write(target, packet);
      break;
    default:
      break;
  }
  return takes_receive(packet) ? take_receive(target, packet) : IBV_WC_SUCCESS;
}

ibv_wc_status RdmaFabric::admit(const RdmaWire& wire, const RdmaQueuePair& target, const RdmaPacket& packet) {
  const int access = needed_access(packet.opcode);
  if ((static_cast<int>(target.attributes.qp_access_flags) & access) != access) return IBV_WC_REM_INV_REQ_ERR;
  if (wire.mtu > target.attributes.path_mtu && packet.opcode != IBV_WR_RDMA_READ &&
      packet.request_bytes > bytes_of(target.attributes.path_mtu)) {
    return IBV_WC_REM_INV_REQ_ERR;
  }
  const bool reads = access == IBV_ACCESS_REMOTE_READ || access == IBV_ACCESS_REMOTE_ATOMIC;
  if (reads && target.attributes.max_dest_rd_atomic == 0) return IBV_WC_REM_INV_REQ_ERR;
  if (access == IBV_ACCESS_REMOTE_ATOMIC &&
      reinterpret_cast<std::uintptr_t>(packet.place) % sizeof(std::uint64_t) != 0) {
    return IBV_WC_REM_INV_REQ_ERR;
  }
  if (access == 0 || packet.request_bytes == 0) return IBV_WC_SUCCESS;
  const auto key = target.card().keys.find(packet.key);
  if (key == target.card().keys.end()) return IBV_WC_REM_ACCESS_ERR;
  const RdmaRegion& region = *key->second;
  const bool granted = region.remote_key == packet.key && region.device == target.device &&
                       (region.access & access) == access && region.covers(packet.place, packet.rest);
  return granted ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
}

/// The message behind the writes: whoever takes its completion sees what they wrote.
ibv_wc_status RdmaFabric::take_receive(RdmaQueuePair& target, const RdmaPacket& packet) {
  show(target);
  const RdmaReceive receive = std::move(target.receives.front());
  target.receives.pop_front();
  ibv_wc wc{};
  wc.wr_id = receive.wr_id;
  wc.qp_num = target.number;
  wc.src_qp = target.attributes.dest_qp_num;
  wc.byte_len = packet.request_bytes;
  wc.opcode = packet.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  if (packet.opcode != IBV_WR_SEND) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = packet.immediate;
  }
  if (packet.opcode != IBV_WR_RDMA_WRITE_WITH_IMM) {
    std::size_t at = 0;
    for (const RdmaPiece& piece : receive.pieces) {
      const std::size_t bytes = std::min<std::size_t>(piece.bytes, packet.data.size() - at);
      memory::host_device().write(piece.data, packet.data.data() + at, bytes);
      at += bytes;
    }
    if (at < packet.data.size()) wc.status = IBV_WC_LOC_LEN_ERR;
  }
  push(target, wc, receive.number, true);
  return wc.status == IBV_WC_SUCCESS ? IBV_WC_SUCCESS : IBV_WC_REM_INV_REQ_ERR;
}

void RdmaFabric::write(RdmaQueuePair& target, const RdmaPacket& packet) {
  // Of two writes to one place the later one stays.
  show_range(target, packet.place, packet.bytes);
  if (!world_.choices().chance(plan_.hidden_per_mille)) {
    memory::host_device().write(packet.place, packet.data.data(), packet.bytes);
    return;
  }
  ++counts_.hidden;
  const Duration time = up_to(plan_.hidden_max);
  target.hidden.push_back({.place = packet.place, .data = packet.data, .due = world_.now() + time});
  schedule(time, Token::landing, target.id);
}

void RdmaFabric::on_landing(RdmaQueuePair& target) {
  std::erase_if(target.hidden, [&](const RdmaLanding& landing) {
    if (landing.due > world_.now()) return false;
    memory::host_device().write(landing.place, landing.data.data(), landing.data.size());
    return true;
  });
}

void RdmaFabric::show(RdmaQueuePair& target) {
  for (const RdmaLanding& landing : std::exchange(target.hidden, {})) {
    memory::host_device().write(landing.place, landing.data.data(), landing.data.size());
  }
}

void RdmaFabric::show_range(RdmaQueuePair& target, const std::byte* data, std::size_t size) {
  std::erase_if(target.hidden, [&](const RdmaLanding& landing) {
    if (!overlap(landing.place, landing.data.size(), data, size)) return false;
    memory::host_device().write(landing.place, landing.data.data(), landing.data.size());
    return true;
  });
}

std::uint64_t RdmaFabric::apply(const RdmaPacket& packet) {
  memory::Device& host = memory::host_device();
  if (packet.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    return memory::fetch_add_word(host, packet.place, packet.compare_add);
  }
  return memory::compare_swap_word(host, packet.place, packet.compare_add, packet.swap);
}

}  // namespace hixl::links
