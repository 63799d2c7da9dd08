// SPDX-License-Identifier: Apache-2.0
//
// Two hosts with one simulated RDMA card each, and what a test needs to connect them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "links/sim/sim_verbs.hpp"
#include "runtime/virtual_port.hpp"

namespace hixl::test {

namespace roce = links::roce;

using links::RdmaFabric;
using links::RdmaPlan;

constexpr std::uint64_t k_steps_max = 200'000;
constexpr int k_everything =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// Cards that keep the rules and do nothing odd: a test switches on what it is about.
inline RdmaPlan calm() {
  RdmaPlan plan;
  plan.hidden_per_mille = plan.whim_per_mille = plan.sent_per_mille = plan.new_gid_per_mille = 0;
  plan.early_per_mille = 0;
  return plan;
}

/// One end of a connection: a device, a queue, a queue pair and 64 KiB of memory.
struct VerbsEnd {
  struct Wish {
    std::uint32_t depth = 64;
    std::uint32_t queue_depth = 256;
    int access = k_everything;
    unsigned pair_access = k_everything;
    ibv_mtu mtu = IBV_MTU_1024;
    std::uint32_t psn = 100;  ///< of what this end sends
    std::uint8_t retry = 7;
    std::uint8_t timeout = 8;  ///< about a millisecond a try
    std::uint8_t rnr_retry = 2;
  };
  VerbsEnd(roce::Verbs& verbs, const char* name) : memory(64U << 10U), device(std::move(verbs.open(name).value())) {}
  void make(const Wish& given) {
    wish = given;
    region = std::move(device->register_memory(memory.data(), memory.size(), wish.access).value());
    queue = std::move(device->create_completion_queue(wish.queue_depth).value());
    make_pair();
  }
  void make_pair() {
    roce::Device::QueuePairOptions options{
        .send_depth = wish.depth, .receive_depth = wish.depth, .inline_bytes = 64, .send_segments = 4};
    pair = std::move(device->create_queue_pair(*queue, options).value());
  }
  [[nodiscard]] ibv_gid gid() const { return device->gids(1).value().at(1).value; }

  [[nodiscard]] static ibv_qp_attr init_attributes(unsigned access) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    attributes.qp_access_flags = access;
    return attributes;
  }
  static constexpr int k_init_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  [[nodiscard]] ibv_qp_attr receive_attributes(const VerbsEnd& peer) const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = 1;
    attributes.ah_attr.grh.dgid = peer.gid();
    attributes.ah_attr.grh.sgid_index = 1;
    attributes.path_mtu = wish.mtu;
    attributes.dest_qp_num = peer.pair->number();
    attributes.rq_psn = peer.wish.psn;
    attributes.max_dest_rd_atomic = 4;
    attributes.min_rnr_timer = 1;
    return attributes;
  }
  static constexpr int k_receive_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  [[nodiscard]] ibv_qp_attr send_attributes() const {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = wish.psn;
    attributes.timeout = wish.timeout;
    attributes.retry_cnt = wish.retry;
    attributes.rnr_retry = wish.rnr_retry;
    attributes.max_rd_atomic = 4;
    return attributes;
  }
  static constexpr int k_send_mask =
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  void connect(const VerbsEnd& peer) {
    REQUIRE(pair->modify(init_attributes(wish.pair_access), k_init_mask).has_value());
    REQUIRE(pair->modify(receive_attributes(peer), k_receive_mask).has_value());
    REQUIRE(pair->modify(send_attributes(), k_send_mask).has_value());
  }
  void fail() {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    REQUIRE(pair->modify(attributes, IBV_QP_STATE).has_value());
  }

  struct Ask {
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    std::size_t from = 0;  ///< in the own memory
    std::size_t size = 8;
    std::uint64_t to = 0;  ///< address
    std::uint32_t key = 0;
    unsigned flags = IBV_SEND_SIGNALED;
    std::uint64_t compare_add = 0;
    std::uint64_t swap = 0;
  };
  /// Posts one request; its number is the wr_id, from 1.
  Result<void> ask(const Ask& what) {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(memory.data() + what.from), static_cast<std::uint32_t>(what.size),
                  region->local_key()};
    ibv_send_wr request{};
    request.wr_id = ++asked;
    request.sg_list = &piece;
    request.num_sge = what.size > 0 ? 1 : 0;
    request.opcode = what.opcode;
    request.send_flags = what.flags;
    if (what.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || what.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      request.wr.atomic = {what.to, what.compare_add, what.swap, what.key};
    } else {
      request.wr.rdma = {what.to, what.key};
    }
    ibv_send_wr* refused = nullptr;
    return pair->post_send(request, &refused);
  }
  Result<void> want(std::uint64_t wr_id, std::size_t at = 0, std::size_t size = 0) {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(memory.data() + at), static_cast<std::uint32_t>(size),
                  region->local_key()};
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &piece;
    request.num_sge = size > 0 ? 1 : 0;
    return pair->post_receive(request);
  }
  /// Takes what is there; false when the queue is no more.
  bool poll() {
    std::array<ibv_wc, 8> some{};
    const auto count = queue->poll(some);
    if (!count) return false;
    ends.insert(ends.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(*count));
    return true;
  }
  [[nodiscard]] std::uint64_t address(std::size_t at) const {
    return reinterpret_cast<std::uint64_t>(memory.data() + at);
  }

  std::vector<std::byte> memory;
  std::unique_ptr<roce::Device> device;
  std::unique_ptr<roce::MemoryRegion> region;
  std::unique_ptr<roce::CompletionQueue> queue;
  std::unique_ptr<roce::QueuePair> pair;
  Wish wish;
  std::uint64_t asked = 0;
  std::vector<ibv_wc> ends;
};

struct VerbsWorld {
  explicit VerbsWorld(const RdmaPlan& plan = calm(), std::uint64_t seed = 1)
      : world(seed), fabric(world, 1, plan), ports{&world.make_port("left"), &world.make_port("right")} {
    for (std::size_t i = 0; i < 2; ++i) {
      verbs[i] = make_sim_verbs(fabric, *ports[i], static_cast<std::uint32_t>(i));
      end[i].emplace(*verbs[i], "sim0");
      for (std::size_t at = 0; at < end[i]->memory.size(); ++at) {
        end[i]->memory[at] = static_cast<std::byte>((at * 131 + at / 256 + i * 77) % 251);
      }
    }
  }
  void connect(const VerbsEnd::Wish& left = {}, const VerbsEnd::Wish& right = {}) {
    this->left().make(left);
    this->right().make(right);
    this->left().connect(this->right());
    this->right().connect(this->left());
  }
  VerbsEnd& left() { return *end[0]; }
  VerbsEnd& right() { return *end[1]; }
  /// The left end asks for `size` bytes at `at`, the same place on both sides.
  VerbsEnd::Ask ask(ibv_wr_opcode opcode, std::size_t at, std::size_t size) {
    return {.opcode = opcode, .from = at, .size = size, .to = right().address(at), .key = right().region->remote_key()};
  }
  void write(std::size_t at, std::size_t size) { REQUIRE(left().ask(ask(IBV_WR_RDMA_WRITE, at, size)).has_value()); }
  /// Until the left end has so many completions.
  bool ended(std::size_t count) {
    return world.run_until(
        [&] {
          static_cast<void>(left().poll());
          return left().ends.size() >= count;
        },
        k_steps_max);
  }
  [[nodiscard]] bool equal(std::size_t at, std::size_t size) {
    return std::memcmp(left().memory.data() + at, right().memory.data() + at, size) == 0;
  }

  runtime::VirtualWorld world;
  RdmaFabric fabric;
  std::array<runtime::EventPort*, 2> ports;
  std::array<std::unique_ptr<roce::Verbs>, 2> verbs;
  std::array<std::optional<VerbsEnd>, 2> end;
};

}  // namespace hixl::test
