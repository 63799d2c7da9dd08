// SPDX-License-Identifier: Apache-2.0
//
// SendQueue: the requests of one queue pair. They are collected into a chain and posted with one doorbell. A request's
// place is its count from the start; completions come in that order, so that one completion ends all before it and few
// requests need one of their own.
//
// Loop-bound. Allocates at the start only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "links/roce/verbs.hpp"

namespace hixl::links::roce {

class SendQueue {
 public:
  SendQueue(QueuePair& pair, const Device::QueuePairOptions& granted);

  /// How many more requests there is room for.
  [[nodiscard]] std::uint32_t room() const noexcept { return depth_ - static_cast<std::uint32_t>(chained_ - retired_); }
  [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
  [[nodiscard]] std::uint32_t inline_bytes() const noexcept { return inline_bytes_; }
  [[nodiscard]] std::uint32_t pieces_max() const noexcept { return pieces_max_; }
  /// Requests that were posted, or wait in the chain, and are not known to be over.
  [[nodiscard]] bool busy() const noexcept { return chained_ != retired_; }

  struct Request {
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    std::uint64_t address = 0;  ///< at the peer
    std::uint32_t key = 0;
    bool inlined = false;    ///< the pieces' bytes go along with the request; until ring() they stay where they are
    bool signalled = false;  ///< has a completion of its own, with its place as wr_id
  };
  /// Into the chain; its place, from 1. There is room(), and `pieces` are at most pieces_max().
  std::uint64_t add(const Request& request, std::span<const ibv_sge> pieces);
  /// Posts the chain.
  [[nodiscard]] Result<void> ring();
  /// Everything up to this place is over.
  void retire(std::uint64_t place) noexcept;

 private:
  QueuePair& pair_;
  const std::uint32_t depth_;
  const std::uint32_t inline_bytes_;
  const std::uint32_t pieces_max_;
  std::uint64_t chained_ = 0;  ///< the newest place
  std::uint64_t retired_ = 0;
  std::vector<ibv_send_wr> requests_;  ///< the chain; never grows beyond what was reserved
  std::vector<ibv_sge> pieces_;
};

}  // namespace hixl::links::roce
