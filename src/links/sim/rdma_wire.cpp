// SPDX-License-Identifier: Apache-2.0
//
// The wire of a queue pair: requests that reach the target in order or not at all, and the answers to them. What was
// sent once no longer depends on its sender.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/assert.hpp"
#include "links/sim/rdma_parts.hpp"
#include "memory/device.hpp"

namespace hixl::links {

using namespace sim;

namespace {

/// One try takes 4.096 µs × 2^timeout (InfiniBand specification, "local ACK timeout"); 0 is for ever, here a day.
Duration wait_of(std::uint8_t timeout) {
  return timeout == 0 ? Duration(std::chrono::hours(24)) : Duration(std::int64_t{4096} << (timeout & 31U));
}

/// The pause that a target without a receive asks for, in units of 10 µs (InfiniBand specification, RNR NAK timer).
constexpr std::uint32_t k_not_ready[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                           48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                           2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
/// As a retry count: for ever.
constexpr std::uint8_t k_for_ever = 7;

bool brings_data(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

const RdmaRegion* region_of(const RdmaQueuePair& pair, const RdmaPiece& piece) {
  const auto key = pair.card().keys.find(piece.key);
  if (key == pair.card().keys.end()) return nullptr;
  const RdmaRegion& region = *key->second;
  return region.local_key == piece.key && region.device == pair.device && region.covers(piece.data, piece.bytes)
             ? &region
             : nullptr;
}

bool knows(const RdmaQueuePair& pair, const std::vector<RdmaPiece>& pieces, int access) {
  return std::all_of(pieces.begin(), pieces.end(), [&](const RdmaPiece& piece) {
    const RdmaRegion* region = region_of(pair, piece);
    return piece.bytes == 0 || (region != nullptr && (region->access & access) == access);
  });
}

/// Cuts the next `bytes` off a list of pieces, of which `at` is the first that is left.
std::vector<RdmaPiece> slice(std::vector<RdmaPiece>& pieces, std::size_t& at, std::uint32_t bytes) {
  std::vector<RdmaPiece> taken;
  while (bytes > 0) {
    RdmaPiece& piece = pieces[at];
    const std::uint32_t now = std::min(bytes, piece.bytes);
    if (now > 0) taken.push_back({piece.data, now, piece.key});
    piece.data += now;
    piece.bytes -= now;
    bytes -= now;
    if (piece.bytes == 0) ++at;
  }
  return taken;
}

void scatter(const std::vector<RdmaPiece>& pieces, const std::vector<std::byte>& data, std::size_t most) {
  std::size_t at = 0;
  for (const RdmaPiece& piece : pieces) {
    const std::size_t bytes = std::min<std::size_t>(piece.bytes, std::min(most, data.size()) - at);
    memory::host_device().write(piece.data, data.data() + at, bytes);
    at += bytes;
  }
}

}  // namespace

void RdmaFabric::open_wire(RdmaQueuePair& pair) {
  auto wire = std::make_unique<RdmaWire>();
  wire->id = next_id_++;
  wire->source = &pair;
  wire->from = pair.own_gid;
  wire->to = pair.attributes.ah_attr.grh.dgid;
  wire->source_number = pair.number;
  wire->target_number = pair.attributes.dest_qp_num;
  wire->mtu = pair.attributes.path_mtu;
  pair.next_psn = pair.attributes.sq_psn;
  pair.wire = wire.get();
  wires_[wire->id] = std::move(wire);
}

void RdmaFabric::transmit(RdmaQueuePair& pair, const RdmaSend& send) {
  RdmaWire& wire = *pair.wire;
  Choices& choices = world_.choices();
  const bool data_back = brings_data(send.opcode);
  Wc unsound = IBV_WC_SUCCESS;
  if (data_back && pair.attributes.max_rd_atomic == 0) unsound = IBV_WC_LOC_QP_OP_ERR;
  if (!knows(pair, send.pieces, data_back ? IBV_ACCESS_LOCAL_WRITE : 0)) unsound = IBV_WC_LOC_PROT_ERR;
  if (choices.chance(plan_.local_per_mille)) unsound = IBV_WC_LOC_PROT_ERR;
  const bool refuse = choices.chance(plan_.remote_per_mille);
  if (choices.chance(plan_.path_per_mille)) {
    wire.dead_until = world_.now() + up_to(plan_.path_max);
    const std::uint64_t which = choices.between(1, 3);
    wire.requests_lost = (which & 1U) != 0;
    wire.answers_lost = (which & 2U) != 0;
  }
  const bool in_packets = send.opcode == IBV_WR_RDMA_WRITE || send.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  std::vector<RdmaPiece> left = send.pieces;
  std::size_t piece = 0;
  std::uint32_t done = 0;
  do {
    RdmaPacket packet{.number = send.number, .opcode = send.opcode, .request_bytes = send.bytes};
    packet.psn = pair.next_psn;
    pair.next_psn = (pair.next_psn + 1) & k_psn_mask;
    packet.rest = send.bytes - done;
    packet.bytes = packet.rest;
    if (in_packets && packet.bytes > 0) {
      packet.bytes = std::min(packet.rest, static_cast<std::uint32_t>(choices.between(64, plan_.packet_bytes_max)));
    }
    packet.last = packet.bytes == packet.rest;
    packet.signalled = packet.last && (data_back || (send.flags & IBV_SEND_SIGNALED) != 0);
    packet.refuse = refuse && packet.last;
    packet.unsound = unsound;
    packet.place = send.place + done;
    packet.key = send.key;
    packet.compare_add = send.compare_add;
    packet.swap = send.swap;
    packet.immediate = send.immediate;
    if ((send.flags & IBV_SEND_INLINE) != 0) {
      packet.data.assign(send.data.begin() + done, send.data.begin() + done + packet.bytes);
      packet.captured = true;
    } else if (data_back) {
      packet.captured = true;  // nothing to send
    } else {
      packet.pieces = slice(left, piece, packet.bytes);
      if (unsound == IBV_WC_SUCCESS && choices.chance(plan_.early_per_mille)) static_cast<void>(capture(packet, pair));
    }
    done += packet.bytes;
    wire.last_due = packet.due = std::max(wire.last_due, world_.now() + delay());
    wire.packets.push_back(std::move(packet));
  } while (done < send.bytes);
  plan_packet(wire);
}

void RdmaFabric::plan_packet(RdmaWire& wire) {
  if (wire.packets.empty() || std::exchange(wire.packet_planned, true)) return;
  schedule(std::max(Duration{}, wire.packets.front().due - world_.now()), Token::packet, wire.id);
}

void RdmaFabric::plan_answer(RdmaWire& wire) {
  if (wire.answers.empty() || std::exchange(wire.answer_planned, true)) return;
  schedule(std::max(Duration{}, wire.answers.front().due - world_.now()), Token::answer, wire.id);
}

bool RdmaFabric::capture(RdmaPacket& packet, const RdmaQueuePair& source) {
  if (packet.captured) return true;
  if (!knows(source, packet.pieces, 0)) return false;
  packet.data.resize(packet.bytes);
  std::size_t at = 0;
  for (const RdmaPiece& piece : packet.pieces) {
    memory::host_device().read(packet.data.data() + at, piece.data, piece.bytes);
    at += piece.bytes;
  }
  return packet.captured = true;
}

/// The queue pair stops here. A beginning of what it has not sent yet, drawn, is on its way all the same, and may be
/// for long; and what came back may have reached local memory, in part.
void RdmaFabric::leave_wire(RdmaQueuePair& pair) {
  if (pair.wire == nullptr) return;
  RdmaWire& wire = *std::exchange(pair.wire, nullptr);
  Choices& choices = world_.choices();
  std::size_t sent = 0;
  while (sent < wire.packets.size() && wire.packets[sent].unsound == IBV_WC_SUCCESS &&
         choices.chance(plan_.sent_per_mille) && capture(wire.packets[sent], pair)) {
    ++sent;
  }
  wire.packets.erase(wire.packets.begin() + static_cast<std::ptrdiff_t>(sent), wire.packets.end());
  if (sent > 0 && choices.chance(plan_.late_per_mille)) {
    const Duration late = up_to(plan_.late_max);
    for (RdmaPacket& packet : wire.packets) packet.due += late;
  }
  for (const RdmaAnswer& answer : wire.answers) {
    const auto send = std::find_if(pair.sends.begin(), pair.sends.end(),
                                   [&](const RdmaSend& one) { return one.number == answer.number; });
    if (answer.data.empty() || send == pair.sends.end() || pair.gone || choices.chance(500)) break;
    if (!knows(pair, send->pieces, IBV_ACCESS_LOCAL_WRITE)) break;
    scatter(send->pieces, answer.data, choices.between(1, answer.data.size()));
    ++counts_.read_ghosts;
  }
  wire.answers.clear();
  wire.source = nullptr;
  reap(wire.id);
}

void RdmaFabric::reap(std::uint64_t id) {
  const auto wire = wires_.find(id);
  if (wire == wires_.end() || wire->second->source != nullptr) return;
  if (wire->second->packets.empty()) wires_.erase(wire);
}

// ---- requests ----

void RdmaFabric::on_packet(RdmaWire& wire) {
  wire.packet_planned = false;
  if (wire.packets.empty()) return;
  RdmaPacket& packet = wire.packets.front();
  if (packet.due > world_.now()) return plan_packet(wire);
  RdmaQueuePair* const source = wire.source;
  const bool ghost = source == nullptr || !source->sends_packets();
  if (source != nullptr) {
    if (packet.unsound == IBV_WC_SUCCESS && !capture(packet, *source)) packet.unsound = IBV_WC_LOC_PROT_ERR;
    if (packet.unsound != IBV_WC_SUCCESS) {
      const RdmaAnswer own{.number = packet.number, .status = packet.unsound, .due = world_.now()};
      wire.packets.clear();
      if (ghost) return;
      wire.answers.push_back(own);
      return plan_answer(wire);
    }
    if (!source->card().up) return lose_packet(wire);
  }
  if (wire.requests_lost && world_.now() < wire.dead_until) return lose_packet(wire);
  RdmaQueuePair* const target = target_of(wire, packet);
  if (target == nullptr) {
    counts_.ghosts_refused += ghost ? 1 : 0;
    return lose_packet(wire);
  }
  RdmaAnswer back{.number = packet.number, .status = IBV_WC_REM_ACCESS_ERR, .target = target->id};
  if (!packet.refuse) back.status = execute(wire, *target, packet, back.data);
  if (back.status == IBV_WC_RNR_RETRY_EXC_ERR) {
    if (ghost) return wire.packets.clear();
    const std::uint8_t most = source->attributes.rnr_retry;
    if (most != k_for_ever && wire.not_ready++ >= most) return give_up(wire, back.status);
    packet.due = world_.now() + std::chrono::microseconds(10) * k_not_ready[target->attributes.min_rnr_timer & 31U];
    return plan_packet(wire);
  }
  if (back.status != IBV_WC_SUCCESS) {
    const bool access = back.status == IBV_WC_REM_ACCESS_ERR;
    tell(*target->device,
         {.type = access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR, .queue_pair = target->number});
    fail_pair(*target);
    wire.packets.clear();
    return answer(wire, std::move(back));
  }
  counts_.ghosts_landed += ghost ? 1 : 0;
  target->expected_psn = (packet.psn + 1) & k_psn_mask;
  wire.tries = wire.not_ready = 0;
  const bool answered = packet.signalled;
  if (packet.last) wire.executed = packet.number;
  wire.packets.pop_front();
  if (answered) answer(wire, std::move(back));
  plan_packet(wire);
}

/// Whoever has that number now, if it waits for just this packet from just there. Numbers are given again, packets go
/// astray: a card looks at all of it.
sim::RdmaQueuePair* RdmaFabric::target_of(const RdmaWire& wire, const RdmaPacket& packet) {
  RdmaCard* const card = card_at(wire.to);
  if (card == nullptr) return nullptr;
  const auto found = card->pairs.find(wire.target_number);
  if (found == card->pairs.end()) return nullptr;
  RdmaQueuePair& target = *found->second;
  const bool expected = target.receives_packets() && target.attributes.dest_qp_num == wire.source_number &&
                        same(target.attributes.ah_attr.grh.dgid, wire.from) && target.expected_psn == packet.psn;
  return expected ? &target : nullptr;
}

void RdmaFabric::lose_packet(RdmaWire& wire) {
  if (wire.source == nullptr || !wire.source->sends_packets()) return wire.packets.clear();  // nobody sends it again
  if (!try_again(wire)) return give_up(wire, IBV_WC_RETRY_EXC_ERR);
  wire.packets.front().due = world_.now() + wait_of(wire.source->attributes.timeout);
  plan_packet(wire);
}

bool RdmaFabric::try_again(RdmaWire& wire) { return wire.tries++ < wire.source->attributes.retry_cnt; }

/// Of the oldest request that has no end yet; those behind it are flushed.
void RdmaFabric::give_up(RdmaWire& wire, Wc status) {
  RdmaQueuePair& source = *wire.source;
  HIXL_ASSERT(!source.sends.empty());
  const RdmaSend send = std::move(source.sends.front());
  source.sends.pop_front();
  complete(source, send, status);
  fail_pair(source);
}

// ---- answers ----

void RdmaFabric::answer(RdmaWire& wire, RdmaAnswer&& answer) {
  if (wire.source == nullptr) return;
  const Instant behind = wire.answers.empty() ? world_.now() : wire.answers.back().due;
  answer.due = std::max(behind, world_.now() + delay());
  wire.answers.push_back(std::move(answer));
  plan_answer(wire);
}

void RdmaFabric::on_answer(RdmaWire& wire) {
  wire.answer_planned = false;
  RdmaQueuePair* const source = wire.source;
  // What comes back to one that has failed waits for its flush: leave_wire().
  if (wire.answers.empty() || source == nullptr || !source->sends_packets()) return;
  RdmaAnswer& first = wire.answers.front();
  if (first.due > world_.now()) return plan_answer(wire);
  if (first.target != 0) {
    const auto target = pairs_.find(first.target);
    const bool again = !first.lost || (target != pairs_.end() && target->second->receives_packets());
    const bool dead = wire.answers_lost && world_.now() < wire.dead_until;
    if (!again || dead || card_at(wire.from) != &source->card()) {
      first.lost = true;
      if (!try_again(wire)) return give_up(wire, IBV_WC_RETRY_EXC_ERR);
      first.due = world_.now() + wait_of(source->attributes.timeout);
      return plan_answer(wire);
    }
  }
  const RdmaAnswer back = std::move(first);
  wire.answers.pop_front();
  wire.tries = 0;
  while (!source->sends.empty() && source->sends.front().number <= back.number) {
    const RdmaSend send = std::move(source->sends.front());
    source->sends.pop_front();
    Wc status = send.number < back.number ? IBV_WC_SUCCESS : back.status;
    if (status == IBV_WC_SUCCESS && send.number == back.number && brings_data(send.opcode)) {
      const bool sound = knows(*source, send.pieces, IBV_ACCESS_LOCAL_WRITE);
      if (sound) scatter(send.pieces, back.data, back.data.size());
      if (!sound) status = IBV_WC_LOC_PROT_ERR;
    }
    complete(*source, send, status);
    if (status != IBV_WC_SUCCESS) return fail_pair(*source);
  }
  plan_answer(wire);
}

}  // namespace hixl::links
