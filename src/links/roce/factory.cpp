// SPDX-License-Identifier: Apache-2.0
#include "links/roce/factory.hpp"

#include <utility>

#include "base/assert.hpp"
#include "links/roce/roce_link.hpp"

namespace hixl::links {
namespace {

class RoceFactory final : public LinkFactory {
 public:
  RoceFactory(Result<std::unique_ptr<roce::Rails>> rails, std::uint32_t max_inline)
      : rails_(std::move(rails)), max_inline_(max_inline) {}
  [[nodiscard]] const LinkCaps& caps() const noexcept override { return roce::roce_caps(); }
  [[nodiscard]] Result<void> available() const override {
    if (!rails_) return fail(rails_.error());
    return {};
  }
  [[nodiscard]] std::uint32_t rails() const noexcept override { return rails_ ? (*rails_)->count() : 1; }
  [[nodiscard]] bool ready(std::uint32_t index) override { return rails_ && (*rails_)->ready(index); }
  [[nodiscard]] bool revoke(RegionKey key) override { return !rails_ || (*rails_)->revoke(key); }
  [[nodiscard]] std::unique_ptr<Link> make(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream,
                                           const LinkServices& services, LinkEvents& events) override {
    HIXL_ASSERT(rails_);  // nobody asks one that is not available
    return std::make_unique<roce::RoceLink>(identity, std::move(stream), services, events, **rails_, max_inline_);
  }

 private:
  Result<std::unique_ptr<roce::Rails>> rails_;
  const std::uint32_t max_inline_;
};

}  // namespace

std::unique_ptr<LinkFactory> make_roce_factory(std::shared_ptr<roce::Verbs> verbs, runtime::Loop& loop,
                                               const RoceSetting& setting) {
  return std::make_unique<RoceFactory>(roce::Rails::open(std::move(verbs), loop, setting), setting.max_inline);
}

}  // namespace hixl::links
