// SPDX-License-Identifier: Apache-2.0
//
// RdmaFabric: the RDMA cards of all simulated hosts and the switch between them, which keep the rules of reliable
// connections and nothing more. A write is told as complete before its bytes can be seen; what a queue pair has sent
// lands after that has failed, or its process has died; only what the target itself closes stops it. sim_verbs.hpp
// gives each process its way in.
//
// Owner: the test. Bound to the thread of its world; outlives every object that it gave out.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "links/roce/verbs.hpp"
#include "links/sim/rdma_plan.hpp"
#include "runtime/virtual_port.hpp"

namespace hixl::links {

namespace sim {
struct RdmaCard;
struct RdmaDevice;
struct RdmaQueue;
struct RdmaQueuePair;
struct RdmaRegion;
struct RdmaSend;
struct RdmaReceive;
struct RdmaPacket;
struct RdmaAnswer;
struct RdmaWire;
struct RdmaWork;
}  // namespace sim

class RdmaFabric final : private runtime::WorldEvents {
 public:
  /// `rails`: cards of each host.
  RdmaFabric(runtime::VirtualWorld& world, std::uint32_t rails, const RdmaPlan& plan = {});
  ~RdmaFabric();
  RdmaFabric(const RdmaFabric&) = delete;
  RdmaFabric& operator=(const RdmaFabric&) = delete;

  /// Changes the faults of everything that happens from now on.
  void set_plan(const RdmaPlan& plan) { plan_ = plan; }
  [[nodiscard]] const RdmaPlan& plan() const noexcept { return plan_; }
  [[nodiscard]] const RdmaCounts& counts() const noexcept { return counts_; }
  [[nodiscard]] std::uint32_t rails() const noexcept { return rails_; }

  /// The process has died: its queue pairs are gone, after `held` if a child holds its descriptors. What it has sent
  /// already goes on. To be called beside VirtualWorld::kill().
  void kill(runtime::EventPort& process, Duration held = {});
  /// A port goes down, and up again after that time, perhaps with another address.
  void flap(std::uint32_t host, std::uint32_t rail, Duration down);
  /// A card is pulled, and another one put in its place after that time.
  void remove(std::uint32_t host, std::uint32_t rail, Duration away);
  /// The end of the world: nothing lands any more.
  void halt();
  /// What a process holds of the cards.
  struct Holdings {
    std::size_t regions = 0;
    std::size_t queue_pairs = 0;
    std::size_t queues = 0;
    std::size_t devices = 0;
  };
  [[nodiscard]] Holdings holdings(runtime::EventPort& process) const;

  // ---- for the objects that processes hold (sim_verbs.cpp) ----
  [[nodiscard]] runtime::VirtualWorld& world() noexcept { return world_; }
  /// A process takes its place at a host; its number.
  [[nodiscard]] std::size_t seat(runtime::EventPort& port, std::uint32_t host);
  [[nodiscard]] std::vector<std::string> cards_of(std::size_t process);
  [[nodiscard]] Result<sim::RdmaDevice*> open(std::size_t process, const std::string& name);
  void close(sim::RdmaDevice& device);
  [[nodiscard]] std::optional<roce::DeviceEvent> take_event(sim::RdmaDevice& device);
  [[nodiscard]] Result<sim::RdmaRegion*> register_region(sim::RdmaDevice& device, void* data, std::size_t size,
                                                         int access);
  void deregister(sim::RdmaRegion& region);
  [[nodiscard]] Result<sim::RdmaQueue*> create_queue(sim::RdmaDevice& device, std::uint32_t depth);
  void destroy(sim::RdmaQueue& queue);
  [[nodiscard]] Result<std::size_t> take(sim::RdmaQueue& queue, std::span<ibv_wc> out);
  void arm(sim::RdmaQueue& queue);
  [[nodiscard]] Result<sim::RdmaQueuePair*> create(sim::RdmaDevice& device, sim::RdmaQueue& queue,
                                                   const roce::Device::QueuePairOptions& options);
  [[nodiscard]] Result<void> modify(sim::RdmaQueuePair& pair, const ibv_qp_attr& attributes, int mask);
  [[nodiscard]] Result<void> post_send(sim::RdmaQueuePair& pair, ibv_send_wr& chain, ibv_send_wr** refused);
  [[nodiscard]] Result<void> post_receive(sim::RdmaQueuePair& pair, const ibv_recv_wr& chain);
  void destroy(sim::RdmaQueuePair& pair);
  /// `work` is ready after a while; its number, with which it can be forgotten.
  [[nodiscard]] std::uint64_t begin_work(sim::RdmaWork& work);
  void forget_work(std::uint64_t number) { works_.erase(number); }

 private:
  enum class Token : std::uint8_t { packet, answer, landing, flush, notice, port_up, card_back, death, work };
  using Wc = ibv_wc_status;

  // ---- cards, processes (rdma_fabric.cpp) ----
  struct Process {
    runtime::EventPort* port;
    std::uint32_t host;
    bool dead = false;
  };
  [[nodiscard]] sim::RdmaCard& card(std::uint32_t host, std::uint32_t rail);
  [[nodiscard]] sim::RdmaCard* card_at(const ibv_gid& gid);
  void on_world_event(std::uint64_t token) override;
  void schedule(Duration delay, Token token, std::uint64_t id);
  [[nodiscard]] Duration delay();
  [[nodiscard]] Duration up_to(Duration most);
  void tell(sim::RdmaCard& card, const roce::DeviceEvent& event);
  void tell(sim::RdmaDevice& device, const roce::DeviceEvent& event);
  void port_up(sim::RdmaCard& card);
  void vanish(std::size_t process);
  [[nodiscard]] static ibv_gid gid_of(const sim::RdmaCard& card);

  // ---- completions (rdma_fabric.cpp) ----
  void push(const sim::RdmaQueuePair& pair, const ibv_wc& wc, std::uint64_t number, bool receive);
  void overrun(sim::RdmaQueue& queue);
  void notify(sim::RdmaQueue& queue);

  // ---- queue pairs (rdma_queue_pair.cpp) ----
  [[nodiscard]] std::uint32_t take_number(sim::RdmaCard& card);
  [[nodiscard]] int enter(sim::RdmaQueuePair& pair, ibv_qp_state to, const ibv_qp_attr& attributes, int mask);
  [[nodiscard]] int post_one(sim::RdmaQueuePair& pair, const ibv_send_wr& request);
  void fail_pair(sim::RdmaQueuePair& pair);
  void flush(sim::RdmaQueuePair& pair);
  void reset(sim::RdmaQueuePair& pair);
  void complete(sim::RdmaQueuePair& pair, const sim::RdmaSend& send, Wc status);
  void flush_receive(sim::RdmaQueuePair& pair);
  void count_failure(Wc status);

  // ---- the wire (rdma_wire.cpp) ----
  void open_wire(sim::RdmaQueuePair& pair);
  void transmit(sim::RdmaQueuePair& pair, const sim::RdmaSend& send);
  void plan_packet(sim::RdmaWire& wire);
  void plan_answer(sim::RdmaWire& wire);
  [[nodiscard]] static bool capture(sim::RdmaPacket& packet, const sim::RdmaQueuePair& source);
  void leave_wire(sim::RdmaQueuePair& pair);
  void on_packet(sim::RdmaWire& wire);
  [[nodiscard]] sim::RdmaQueuePair* target_of(const sim::RdmaWire& wire, const sim::RdmaPacket& packet);
  void lose_packet(sim::RdmaWire& wire);
  [[nodiscard]] static bool try_again(sim::RdmaWire& wire);
  void give_up(sim::RdmaWire& wire, Wc status);
  void answer(sim::RdmaWire& wire, sim::RdmaAnswer&& answer);
  void on_answer(sim::RdmaWire& wire);
  void reap(std::uint64_t id);

  // ---- the target (rdma_target.cpp) ----
  [[nodiscard]] Wc execute(const sim::RdmaWire& wire, sim::RdmaQueuePair& target, const sim::RdmaPacket& packet,
                           std::vector<std::byte>& back);
  [[nodiscard]] static Wc admit(const sim::RdmaWire& wire, const sim::RdmaQueuePair& target,
                                const sim::RdmaPacket& packet);
  [[nodiscard]] Wc take_receive(sim::RdmaQueuePair& target, const sim::RdmaPacket& packet);
  void write(sim::RdmaQueuePair& target, const sim::RdmaPacket& packet);
  static void show(sim::RdmaQueuePair& target);
  static void show_range(sim::RdmaQueuePair& target, const std::byte* data, std::size_t size);
  void on_landing(sim::RdmaQueuePair& target);
  [[nodiscard]] static std::uint64_t apply(const sim::RdmaPacket& packet);

  runtime::VirtualWorld& world_;
  const std::uint32_t rails_;
  RdmaPlan plan_;
  RdmaCounts counts_;
  bool halted_ = false;
  std::uint64_t next_id_ = 1;
  std::vector<Process> processes_;
  // By numbers that were given in order: walking them must not depend on addresses.
  std::map<std::uint64_t, std::unique_ptr<sim::RdmaCard>> cards_;
  std::map<std::uint64_t, std::unique_ptr<sim::RdmaDevice>> devices_;
  std::map<std::uint64_t, std::unique_ptr<sim::RdmaQueue>> queues_;
  std::map<std::uint64_t, std::unique_ptr<sim::RdmaQueuePair>> pairs_;
  std::map<std::uint64_t, std::unique_ptr<sim::RdmaRegion>> regions_;
  std::map<std::uint64_t, std::unique_ptr<sim::RdmaWire>> wires_;
  std::map<std::uint64_t, sim::RdmaWork*> works_;
};

}  // namespace hixl::links
