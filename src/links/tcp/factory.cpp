// SPDX-License-Identifier: Apache-2.0
#include "links/tcp/factory.hpp"

#include <utility>

#include "links/tcp/tcp_link.hpp"

namespace hixl::links {
namespace {

// Behind every kind that has hardware or shared memory, before none.
constexpr std::uint32_t k_rank_of_choice = 50;
// One frame a chunk: 1 MiB makes the cost of headers and acknowledgements vanish, and 8 in flight replay 8 MiB at most.
constexpr std::uint32_t k_chunk_bytes = 1U << 20U;

class TcpFactory final : public LinkFactory {
 public:
  [[nodiscard]] const LinkCaps& caps() const noexcept override { return caps_; }
  [[nodiscard]] Result<void> available() const override { return {}; }
  [[nodiscard]] std::unique_ptr<Link> make(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream,
                                           const LinkServices& services, LinkEvents& events) override {
    return std::make_unique<tcp::TcpLink>(caps_, identity, std::move(stream), services, events);
  }

 private:
  const LinkCaps caps_{.kind = LinkKind::tcp, .rank_of_choice = k_rank_of_choice, .chunk_bytes = k_chunk_bytes};
};

}  // namespace

std::unique_ptr<LinkFactory> make_tcp_factory() { return std::make_unique<TcpFactory>(); }

}  // namespace hixl::links
