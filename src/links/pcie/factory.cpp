// SPDX-License-Identifier: Apache-2.0
#include "links/pcie/factory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "links/pcie/pcie_link.hpp"
#include "links/pidfd.hpp"

namespace hixl::links {
namespace {

class PcieFactory final : public LinkFactory {
 public:
  explicit PcieFactory(std::shared_ptr<CopyPool> pool) : pool_(std::move(pool)) {}
  [[nodiscard]] const LinkCaps& caps() const noexcept override { return pcie_caps(); }
  /// Whether the kernel has the calls and lets this process make them at all, tried on this process. Whether a peer may
  /// be reached is found out with that peer.
  [[nodiscard]] Result<void> available() const override {
    if (const auto pidfd = own_pidfd(); !pidfd) return fail(pidfd.error());
    std::byte from{1}, to{};
    const iovec here{&to, 1}, there{&from, 1};
    if (::process_vm_readv(::getpid(), &here, 1, &there, 1, 0) == 1) return {};
    return fail(ErrorCode::transport_unavailable, {.stage = Stage::options, .os_error = errno});
  }
  [[nodiscard]] std::unique_ptr<Link> make(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream,
                                           const LinkServices& services, LinkEvents& events) override {
    return std::make_unique<PcieLink>(identity, std::move(stream), services, events, *pool_);
  }

 private:
  std::shared_ptr<CopyPool> pool_;
};

}  // namespace

std::unique_ptr<LinkFactory> make_pcie_factory(std::shared_ptr<CopyPool> pool) {
  return std::make_unique<PcieFactory>(std::move(pool));
}

}  // namespace hixl::links
