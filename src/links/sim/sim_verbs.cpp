// SPDX-License-Identifier: Apache-2.0
//
// The objects that a simulated process holds: handles on state of the fabric, and nothing of their own. A job of a
// worker is done on the loop, after the time that it would have taken elsewhere.
#include "links/sim/sim_verbs.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "links/sim/rdma_parts.hpp"

namespace hixl::links {
namespace {

class SimRegion final : public roce::MemoryRegion {
 public:
  SimRegion(RdmaFabric& fabric, sim::RdmaRegion& region) : fabric_(fabric), region_(region) {}
  SimRegion(const SimRegion&) = delete;
  SimRegion& operator=(const SimRegion&) = delete;
  ~SimRegion() override { fabric_.deregister(region_); }
  [[nodiscard]] std::uint32_t local_key() const noexcept override { return region_.local_key; }
  [[nodiscard]] std::uint32_t remote_key() const noexcept override { return region_.remote_key; }

 private:
  RdmaFabric& fabric_;
  sim::RdmaRegion& region_;
};

class SimQueue final : public roce::CompletionQueue {
 public:
  SimQueue(RdmaFabric& fabric, sim::RdmaQueue& queue) : fabric_(fabric), queue_(queue) {}
  SimQueue(const SimQueue&) = delete;
  SimQueue& operator=(const SimQueue&) = delete;
  ~SimQueue() override { fabric_.destroy(queue_); }
  [[nodiscard]] Result<std::size_t> poll(std::span<ibv_wc> out) override { return fabric_.take(queue_, out); }
  [[nodiscard]] Result<void> arm() override {
    if (queue_.device->gone) return fail(ErrorCode::os_error, {.os_error = EIO});
    fabric_.arm(queue_);
    return {};
  }
  void acknowledge() override { fabric_.world().set_ready(queue_.descriptor, false); }
  [[nodiscard]] Result<std::unique_ptr<runtime::Watch>> watch_completions(runtime::EventPort& port,
                                                                          runtime::WatchEvents& events) override {
    return port.watch(queue_.descriptor, events);
  }
  [[nodiscard]] sim::RdmaQueue& queue() noexcept { return queue_; }

 private:
  RdmaFabric& fabric_;
  sim::RdmaQueue& queue_;
};

class SimQueuePair final : public roce::QueuePair {
 public:
  SimQueuePair(RdmaFabric& fabric, sim::RdmaQueuePair& pair) : fabric_(fabric), pair_(pair) {}
  SimQueuePair(const SimQueuePair&) = delete;
  SimQueuePair& operator=(const SimQueuePair&) = delete;
  ~SimQueuePair() override { fabric_.destroy(pair_); }
  [[nodiscard]] std::uint32_t number() const noexcept override { return pair_.number; }
  [[nodiscard]] Result<void> modify(ibv_qp_attr attributes, int mask) override {
    return fabric_.modify(pair_, attributes, mask);
  }
  [[nodiscard]] Result<void> post_send(ibv_send_wr& chain, ibv_send_wr** refused) override {
    return fabric_.post_send(pair_, chain, refused);
  }
  [[nodiscard]] Result<void> post_receive(ibv_recv_wr& chain) override { return fabric_.post_receive(pair_, chain); }
  [[nodiscard]] Result<ibv_qp_state> state() override {
    if (pair_.device->gone) return fail(ErrorCode::os_error, {.os_error = EIO});
    return pair_.state;
  }

 private:
  RdmaFabric& fabric_;
  sim::RdmaQueuePair& pair_;
};

/// What the cards say of themselves; RdmaFabric keeps to it.
ibv_device_attr make_limits() {
  ibv_device_attr limits{};
  limits.max_mr_size = sim::k_region_max;
  limits.max_qp = static_cast<int>(sim::k_pairs_max);
  limits.max_qp_wr = static_cast<int>(sim::k_depth_max);
  limits.max_sge = static_cast<int>(sim::k_pieces_max);
  limits.max_sge_rd = static_cast<int>(sim::k_pieces_max);
  limits.max_cq = 4096;
  limits.max_cqe = static_cast<int>(sim::k_queue_max);
  limits.max_mr = 1 << 20;
  limits.max_pd = 4096;
  limits.max_qp_rd_atom = sim::k_reads_max;
  limits.max_qp_init_rd_atom = sim::k_reads_max;
  limits.atomic_cap = IBV_ATOMIC_HCA;
  limits.phys_port_cnt = 1;
  return limits;
}

class SimDevice final : public roce::Device {
 public:
  SimDevice(RdmaFabric& fabric, sim::RdmaDevice& device)
      : fabric_(fabric), device_(device), name_(device.card->name), limits_(make_limits()) {}
  SimDevice(const SimDevice&) = delete;
  SimDevice& operator=(const SimDevice&) = delete;
  ~SimDevice() override { fabric_.close(device_); }
  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] const ibv_device_attr& limits() const noexcept override { return limits_; }
  [[nodiscard]] int numa_node() const noexcept override { return -1; }
  [[nodiscard]] Result<ibv_port_attr> port(std::uint32_t number) override;
  [[nodiscard]] Result<std::vector<roce::Gid>> gids(std::uint32_t port) override;
  [[nodiscard]] Result<std::unique_ptr<roce::MemoryRegion>> register_memory(void* data, std::size_t size,
                                                                            int access) override {
    const auto region = fabric_.register_region(device_, data, size, access);
    if (!region) return tl::unexpected(region.error());
    return std::make_unique<SimRegion>(fabric_, **region);
  }
  [[nodiscard]] Result<std::unique_ptr<roce::CompletionQueue>> create_completion_queue(std::uint32_t depth) override {
    const auto queue = fabric_.create_queue(device_, depth);
    if (!queue) return tl::unexpected(queue.error());
    return std::make_unique<SimQueue>(fabric_, **queue);
  }
  [[nodiscard]] Result<std::unique_ptr<roce::QueuePair>> create_queue_pair(roce::CompletionQueue& completions,
                                                                           QueuePairOptions& options) override {
    const auto pair = fabric_.create(device_, static_cast<SimQueue&>(completions).queue(), options);
    if (!pair) return tl::unexpected(pair.error());
    return std::make_unique<SimQueuePair>(fabric_, **pair);
  }
  [[nodiscard]] bool gone() override { return device_.gone; }
  [[nodiscard]] std::optional<roce::DeviceEvent> next_event() override { return fabric_.take_event(device_); }
  [[nodiscard]] Result<std::unique_ptr<runtime::Watch>> watch_events(runtime::EventPort& port,
                                                                     runtime::WatchEvents& events) override {
    return port.watch(device_.descriptor, events);
  }

 private:
  RdmaFabric& fabric_;
  sim::RdmaDevice& device_;
  const std::string name_;
  const ibv_device_attr limits_;
};

Result<ibv_port_attr> SimDevice::port(std::uint32_t number) {
  if (device_.gone || number != 1) return fail(ErrorCode::os_error, {.os_error = device_.gone ? EIO : EINVAL});
  const sim::RdmaCard& card = *device_.card;
  ibv_port_attr port{};
  port.state = card.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  port.max_mtu = IBV_MTU_4096;
  port.active_mtu = card.mtu;
  port.gid_tbl_len = 2;
  port.pkey_tbl_len = 1;
  port.max_msg_sz = 1U << 30U;
  port.phys_state = card.up ? 5 : 3;  // LinkUp, Disabled
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  return port;
}

/// A port that is down has no addresses.
Result<std::vector<roce::Gid>> SimDevice::gids(std::uint32_t port) {
  if (device_.gone || port != 1) return fail(ErrorCode::os_error, {.os_error = device_.gone ? EIO : EINVAL});
  const sim::RdmaCard& card = *device_.card;
  std::vector<roce::Gid> gids;
  if (!card.up) return gids;
  gids.push_back({.value = card.gid, .index = 0, .v2 = false});
  gids.push_back({.value = card.gid, .index = 1, .v2 = true});
  return gids;
}

class SimWorker final : public roce::Worker, private runtime::Poller {
 public:
  SimWorker(RdmaFabric& fabric, runtime::Loop& loop) : fabric_(fabric), loop_(loop) { loop_.attach(*this); }
  SimWorker(const SimWorker&) = delete;
  SimWorker& operator=(const SimWorker&) = delete;
  ~SimWorker() override {
    while (!works_.empty()) finish(works_.begin());
  }
  void run(roce::Job& job) override {
    auto work = std::make_unique<sim::RdmaWork>();
    work->job = &job;
    work->wakeup = &loop_.mailbox().wakeup();
    const std::uint64_t number = fabric_.begin_work(*work);
    works_.emplace(number, std::move(work));
  }

 private:
  using Works = std::map<std::uint64_t, std::unique_ptr<sim::RdmaWork>>;
  [[nodiscard]] Works::iterator find_ready() {
    return std::find_if(works_.begin(), works_.end(), [](const auto& entry) { return entry.second->ready; });
  }
  bool poll() override {
    const auto found = find_ready();
    if (found == works_.end()) return false;
    finish(found);
    return true;
  }
  void finish(Works::iterator which) {
    roce::Job& job = *which->second->job;
    fabric_.forget_work(which->first);
    works_.erase(which);
    job.work();
    job.done();
  }
  [[nodiscard]] bool can_sleep() override { return find_ready() == works_.end(); }

  RdmaFabric& fabric_;
  runtime::Loop& loop_;
  Works works_;
};

class SimVerbs final : public roce::Verbs {
 public:
  SimVerbs(RdmaFabric& fabric, runtime::EventPort& port, std::uint32_t host)
      : fabric_(fabric), process_(fabric.seat(port, host)) {}
  [[nodiscard]] Result<std::vector<std::string>> device_names() override { return fabric_.cards_of(process_); }
  [[nodiscard]] Result<std::unique_ptr<roce::Device>> open(const std::string& name) override {
    const auto device = fabric_.open(process_, name);
    if (!device) return tl::unexpected(device.error());
    return std::make_unique<SimDevice>(fabric_, **device);
  }
  [[nodiscard]] Result<std::unique_ptr<roce::Worker>> make_worker(runtime::Loop& loop, std::uint32_t) override {
    return std::make_unique<SimWorker>(fabric_, loop);
  }

 private:
  RdmaFabric& fabric_;
  const std::size_t process_;
};

}  // namespace

std::unique_ptr<roce::Verbs> make_sim_verbs(RdmaFabric& fabric, runtime::EventPort& port, std::uint32_t host) {
  return std::make_unique<SimVerbs>(fabric, port, host);
}

}  // namespace hixl::links
