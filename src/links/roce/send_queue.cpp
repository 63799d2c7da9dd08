// SPDX-License-Identifier: Apache-2.0
#include "links/roce/send_queue.hpp"

#include "base/assert.hpp"

namespace hixl::links::roce {

SendQueue::SendQueue(QueuePair& pair, const Device::QueuePairOptions& granted)
    : pair_(pair), depth_(granted.send_depth), inline_bytes_(granted.inline_bytes), pieces_max_(granted.send_segments) {
  requests_.reserve(depth_);
  pieces_.reserve(std::size_t{depth_} * pieces_max_);
}

std::uint64_t SendQueue::add(const Request& request, std::span<const ibv_sge> pieces) {
  HIXL_ASSERT(room() > 0 && pieces.size() <= pieces_max_);
  ibv_sge* const first = pieces_.data() + pieces_.size();  // where they will lie: there is room for all
  pieces_.insert(pieces_.end(), pieces.begin(), pieces.end());
  ibv_send_wr& one = requests_.emplace_back();
  one.wr_id = ++chained_;
  one.sg_list = first;
  one.num_sge = static_cast<int>(pieces.size());
  one.opcode = request.opcode;
  one.send_flags =
      (request.signalled ? unsigned{IBV_SEND_SIGNALED} : 0U) | (request.inlined ? unsigned{IBV_SEND_INLINE} : 0U);
  one.wr.rdma.remote_addr = request.address;
  one.wr.rdma.rkey = request.key;
  return chained_;
}

Result<void> SendQueue::ring() {
  if (requests_.empty()) return {};
  for (std::size_t i = 0; i + 1 < requests_.size(); ++i) requests_[i].next = &requests_[i + 1];
  requests_.back().next = nullptr;
  ibv_send_wr* refused = nullptr;
  Result<void> posted = pair_.post_send(requests_.front(), &refused);
  requests_.clear();
  pieces_.clear();
  return posted;
}

void SendQueue::retire(std::uint64_t place) noexcept {
  HIXL_ASSERT(place > retired_ && place <= chained_);
  retired_ = place;
}

}  // namespace hixl::links::roce
