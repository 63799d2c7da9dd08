// SPDX-License-Identifier: Apache-2.0
#include "links/sim/factory.hpp"

#include <utility>

#include "links/sim/sim_link.hpp"

namespace hixl::links {
namespace {

class SimFactory final : public LinkFactory {
 public:
  explicit SimFactory(SimFabric& fabric) : fabric_(fabric) {}
  [[nodiscard]] const LinkCaps& caps() const noexcept override { return caps_; }
  [[nodiscard]] Result<void> available() const override { return {}; }
  [[nodiscard]] std::unique_ptr<Link> make(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream,
                                           const LinkServices& services, LinkEvents& events) override {
    return std::make_unique<sim::SimLink>(caps_, fabric_, identity, std::move(stream), services, events);
  }

 private:
  SimFabric& fabric_;
  const LinkCaps caps_{
      .kind = LinkKind::sim,
      .rank_of_choice = 200,      // behind every real kind
      .chunk_bytes = 64U << 10U,  // small, so that small tests have several chunks
      .target_passive = true,
  };
};

}  // namespace

std::unique_ptr<LinkFactory> make_sim_factory(SimFabric& fabric) { return std::make_unique<SimFactory>(fabric); }

}  // namespace hixl::links
