// SPDX-License-Identifier: Apache-2.0
#include "links/hccs/factory.hpp"

#include "links/copy_pool.hpp"
#include "links/hccs/hccs_link.hpp"
#include "links/pidfd.hpp"
#include "memory/window.hpp"

namespace hixl::links {
namespace {

class HccsFactory final : public LinkFactory {
 public:
  explicit HccsFactory(std::shared_ptr<CopyPool> pool) : pool_(std::move(pool)) {}
  [[nodiscard]] const LinkCaps& caps() const noexcept override { return hccs_caps(); }
  [[nodiscard]] Result<void> available() const override {
    if (const auto window = memory::Window::create(1, "probe"); !window) return fail(window.error());
    if (const auto pidfd = own_pidfd(); !pidfd) return fail(pidfd.error());
    return {};
  }
  [[nodiscard]] std::unique_ptr<Link> make(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream,
                                           const LinkServices& services, LinkEvents& events) override {
    return std::make_unique<HccsLink>(identity, std::move(stream), services, events, *pool_);
  }

 private:
  std::shared_ptr<CopyPool> pool_;
};

}  // namespace

std::unique_ptr<LinkFactory> make_hccs_factory(std::shared_ptr<CopyPool> pool) {
  return std::make_unique<HccsFactory>(std::move(pool));
}

std::unique_ptr<LinkFactory> make_hccs_factory(runtime::Loop& loop, std::uint32_t engines) {
  return make_hccs_factory(std::make_shared<CopyPool>(loop, engines));
}

}  // namespace hixl::links
