// SPDX-License-Identifier: Apache-2.0
//
// Each completion queue has a channel of its own, so that one link's events wake nobody else. A queue pair's depth and
// inline size are asked for and come back as the card grants them.
#include "links/roce/ibv_queues.hpp"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "base/log.hpp"

namespace hixl::links::roce {
namespace {

tl::unexpected<Error> queue_failure(ErrorCode code, int number) {
  return fail(code, {.stage = Stage::connect, .os_error = number});
}

class IbvCompletionQueue final : public CompletionQueue {
 public:
  IbvCompletionQueue(ibv_comp_channel* channel, ibv_cq* queue) noexcept : channel_(channel), queue_(queue) {}
  IbvCompletionQueue(const IbvCompletionQueue&) = delete;
  IbvCompletionQueue& operator=(const IbvCompletionQueue&) = delete;
  ~IbvCompletionQueue() override {
    acknowledge();  // the destruction of a queue waits for those that were taken and not acknowledged
    if (const int error = ibv_destroy_cq(queue_); error != 0) log::debug("ibv_destroy_cq: errno {}", error);
    ibv_destroy_comp_channel(channel_);
  }
  [[nodiscard]] Result<std::size_t> poll(std::span<ibv_wc> out) override {
    const int count = ibv_poll_cq(queue_, static_cast<int>(out.size()), out.data());
    if (count < 0) return queue_failure(ErrorCode::link_failed, EIO);
    return static_cast<std::size_t>(count);
  }
  [[nodiscard]] Result<void> arm() override {
    if (const int error = ibv_req_notify_cq(queue_, 0); error != 0) {
      return queue_failure(ErrorCode::link_failed, error);
    }
    return {};
  }
  void acknowledge() override {
    unsigned count = 0;
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(channel_, &queue, &context) == 0) ++count;
    if (count != 0) ibv_ack_cq_events(queue_, count);
  }
  [[nodiscard]] Result<std::unique_ptr<runtime::Watch>> watch_completions(runtime::EventPort& port,
                                                                          runtime::WatchEvents& events) override {
    return port.watch(channel_->fd, events);
  }
  [[nodiscard]] ibv_cq* queue() const noexcept { return queue_; }

 private:
  ibv_comp_channel* channel_;
  ibv_cq* queue_;
};

class IbvQueuePair final : public QueuePair {
 public:
  explicit IbvQueuePair(ibv_qp* pair) noexcept : pair_(pair) {}
  IbvQueuePair(const IbvQueuePair&) = delete;
  IbvQueuePair& operator=(const IbvQueuePair&) = delete;
  /// Fails only when the device is gone, and then the kernel has let go of it.
  ~IbvQueuePair() override {
    if (const int error = ibv_destroy_qp(pair_); error != 0) log::debug("ibv_destroy_qp: errno {}", error);
  }
  [[nodiscard]] std::uint32_t number() const noexcept override { return pair_->qp_num; }
  [[nodiscard]] Result<void> modify(ibv_qp_attr attributes, int mask) override {
    if (const int error = ibv_modify_qp(pair_, &attributes, mask); error != 0) {
      return queue_failure(ErrorCode::os_error, error);
    }
    return {};
  }
  [[nodiscard]] Result<void> post_send(ibv_send_wr& chain, ibv_send_wr** refused) override {
    if (const int error = ibv_post_send(pair_, &chain, refused); error != 0) {
      return queue_failure(error == ENOMEM ? ErrorCode::limit_reached : ErrorCode::os_error, error);
    }
    return {};
  }
  [[nodiscard]] Result<void> post_receive(ibv_recv_wr& chain) override {
    ibv_recv_wr* refused = nullptr;
    if (const int error = ibv_post_recv(pair_, &chain, &refused); error != 0) {
      return queue_failure(error == ENOMEM ? ErrorCode::limit_reached : ErrorCode::os_error, error);
    }
    return {};
  }
  [[nodiscard]] Result<ibv_qp_state> state() override {
    ibv_qp_attr attributes{};
    ibv_qp_init_attr initial{};
    if (const int error = ibv_query_qp(pair_, &attributes, IBV_QP_STATE, &initial); error != 0) {
      return queue_failure(ErrorCode::os_error, error);
    }
    return attributes.qp_state;
  }

 private:
  ibv_qp* pair_;
};

}  // namespace

Result<std::unique_ptr<CompletionQueue>> create_ibv_completion_queue(ibv_context* context, std::uint32_t depth) {
  ibv_comp_channel* const channel = ibv_create_comp_channel(context);
  if (channel == nullptr) return queue_failure(errno == EMFILE ? ErrorCode::fd_limit : ErrorCode::os_error, errno);
  const int flags = ::fcntl(channel->fd, F_GETFL);
  static_cast<void>(::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK));
  ibv_cq* const queue = ibv_create_cq(context, static_cast<int>(depth), nullptr, channel, 0);
  if (queue == nullptr) {
    const int error = errno;
    ibv_destroy_comp_channel(channel);
    return queue_failure(error == ENOMEM ? ErrorCode::no_memory : ErrorCode::os_error, error);
  }
  return std::unique_ptr<CompletionQueue>(std::make_unique<IbvCompletionQueue>(channel, queue));
}

Result<std::unique_ptr<QueuePair>> create_ibv_queue_pair(ibv_pd* domain, CompletionQueue& completions,
                                                         Device::QueuePairOptions& options) {
  ibv_cq* const queue = static_cast<IbvCompletionQueue&>(completions).queue();
  ibv_qp_init_attr attributes{};
  // A card that grants no room of that size for inline data says EINVAL: 64 bytes is what nearly all have.
  for (const std::uint32_t inline_bytes : {options.inline_bytes, 64U, 8U, 0U}) {
    if (inline_bytes > options.inline_bytes) continue;
    attributes = {};
    attributes.send_cq = attributes.recv_cq = queue;
    attributes.qp_type = IBV_QPT_RC;
    attributes.cap = {.max_send_wr = options.send_depth,
                      .max_recv_wr = options.receive_depth,
                      .max_send_sge = options.send_segments,
                      .max_recv_sge = 1,
                      .max_inline_data = inline_bytes};
    ibv_qp* const pair = ibv_create_qp(domain, &attributes);
    if (pair != nullptr) {
      options.send_depth = attributes.cap.max_send_wr;
      options.receive_depth = attributes.cap.max_recv_wr;
      options.send_segments = attributes.cap.max_send_sge;
      options.inline_bytes = attributes.cap.max_inline_data;
      return std::unique_ptr<QueuePair>(std::make_unique<IbvQueuePair>(pair));
    }
    if (errno != EINVAL && errno != ENOMEM) break;
  }
  const int error = errno;
  return queue_failure(error == ENOMEM ? ErrorCode::no_memory : ErrorCode::os_error, error);
}

}  // namespace hixl::links::roce
