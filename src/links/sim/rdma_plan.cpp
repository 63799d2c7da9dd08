// SPDX-License-Identifier: Apache-2.0
#include "links/sim/rdma_plan.hpp"

namespace hixl::links {

RdmaPlan RdmaPlan::draw(Choices& choices) {
  const auto rate = [&](std::uint64_t most) {
    return choices.chance(500) ? static_cast<std::uint32_t>(choices.between(1, most)) : 0U;
  };
  RdmaPlan plan;
  plan.delay_max = plan.delay_min + Duration(choices.between(0, choices.chance(300) ? 10'000'000 : 200'000));
  plan.packet_bytes_max = static_cast<std::uint32_t>(choices.between(256, 4096));
  plan.hidden_per_mille = rate(1000);
  plan.hidden_max = Duration(choices.between(1'000, choices.chance(300) ? 50'000'000 : 200'000));
  plan.drain_max = Duration(choices.between(1, choices.chance(500) ? 20'000 : 10'000'000));
  plan.whim_per_mille = rate(500);
  plan.work_max = Duration(choices.between(1, 20'000'000));
  plan.late_per_mille = rate(500);
  plan.path_per_mille = rate(20);
  plan.rnr_per_mille = rate(50);
  plan.remote_per_mille = rate(10);
  plan.local_per_mille = rate(10);
  plan.overrun_per_mille = rate(5);
  plan.open_per_mille = rate(200);
  plan.create_per_mille = rate(200);
  plan.register_per_mille = rate(200);
  plan.mtu_per_mille = rate(1000);
  plan.overtake_per_mille = rate(1000);
  return plan;
}

}  // namespace hixl::links
