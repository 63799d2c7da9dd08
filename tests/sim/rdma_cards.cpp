// SPDX-License-Identifier: Apache-2.0
#include "rdma_cards.hpp"

#include <utility>

#include "links/roce/factory.hpp"
#include "links/sim/sim_verbs.hpp"

namespace hixl::sim {

namespace {

class Cards final : public RdmaCards {
 public:
  Cards(runtime::VirtualWorld& world, std::uint32_t rails, const links::RdmaPlan& plan) : fabric_(world, rails, plan) {}
  [[nodiscard]] std::unique_ptr<links::LinkFactory> make_factory(runtime::EventPort& port, Rank host,
                                                                 runtime::Loop& loop, Choices& choices) override {
    links::RoceSetting setting;
    // A try of 0.1 … 70 ms, up to eight of them: from before a stall is noticed to beyond most leases.
    setting.rdma.timeout = static_cast<std::uint8_t>(choices.between(5, 14));
    setting.rdma.retry = static_cast<std::uint8_t>(choices.between(0, 7));
    setting.rdma.visibility = RdmaVisibility::read;
    for (std::uint32_t rail = 0; rail < fabric_.rails(); ++rail) {
      setting.rdma.devices += (rail == 0 ? "sim" : ",sim") + std::to_string(rail);
    }
    setting.buffer_bytes = k_buffer_bytes;
    setting.max_inline = static_cast<std::uint32_t>(choices.between(0, 256));
    auto factory = links::make_roce_factory(links::make_sim_verbs(fabric_, port, host), loop, setting);
    if (!factory->available()) return nullptr;
    return factory;
  }
  void kill(runtime::EventPort& port, Duration held) override { fabric_.kill(port, held); }
  void flap(Rank host, std::uint32_t rail, Duration down) override { fabric_.flap(host, rail, down); }
  void pull(Rank host, std::uint32_t rail, Duration away) override { fabric_.remove(host, rail, away); }
  void heal() override { fabric_.set_plan(links::RdmaPlan{}); }
  void halt() override { fabric_.halt(); }
  [[nodiscard]] CardHoldings holdings(runtime::EventPort& port) const override {
    const auto held = fabric_.holdings(port);
    return {held.regions, held.queue_pairs, held.queues, held.devices};
  }
  [[nodiscard]] const links::RdmaCounts& counts() const override { return fabric_.counts(); }

 private:
  static constexpr std::size_t k_buffer_bytes = 8U << 10U;  // the largest chunk of the workload
  links::RdmaFabric fabric_;
};

}  // namespace

bool RdmaCards::supported() noexcept { return true; }

std::unique_ptr<RdmaCards> RdmaCards::make(runtime::VirtualWorld& world, std::uint32_t rails,
                                           const links::RdmaPlan& plan) {
  return std::make_unique<Cards>(world, rails, plan);
}

}  // namespace hixl::sim
