// SPDX-License-Identifier: Apache-2.0
//
// PcieLink: cross-memory attach. The kernel copies between this side's memory and the peer's at the addresses that the
// peer published; nothing is mapped. The target cannot check such an access, so this side checks range, rights and
// token against what the peer told, and generation and link against board and gate, under an announcement in the lane,
// as a window link does.
//
// Set-up: offer and ready as in host_link.hpp; then each side really reads and writes two words of the other and tells
// how that went. Where policy, namespaces or a filter forbid it, both sides hear TRANSPORT_UNAVAILABLE with the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "links/host_link.hpp"
#include "memory/foreign_memory.hpp"

namespace hixl::links {

[[nodiscard]] const LinkCaps& pcie_caps() noexcept;

class PcieLink final : public HostLink {
 public:
  PcieLink(const LinkIdentity& identity, std::unique_ptr<FrameStream> stream, const LinkServices& services,
           LinkEvents& events, CopyPool& pool);
  ~PcieLink() override;

  [[nodiscard]] const LinkCaps& caps() const noexcept override { return pcie_caps(); }
  /// Signals end with UNSUPPORTED: caps().words says so.
  [[nodiscard]] Answer post(const Post& post) override;
  [[nodiscard]] Answer attach(const wire::RegionDescriptor&) override { return Answer::done; }  // addresses will do

 private:
  /// What the peer reads and writes to prove itself. The kernel writes it on the peer's behalf, under the gate of the
  /// lane: once this side has closed and drained, nobody does.
  struct Words {
    std::uint64_t question;
    std::uint64_t answer = 0;
  };

  // ---- set-up (pcie_frames.cpp) ----
  [[nodiscard]] bool send_order(const Order& order) override;
  [[nodiscard]] Result<void> on_offer(ConstBytes body, std::vector<runtime::Fd>& fds) override;
  [[nodiscard]] Result<void> on_ready(ConstBytes body) override;
  [[nodiscard]] bool proved() const noexcept override { return proof_given_ && proof_seen_; }
  [[nodiscard]] std::optional<Result<void>> handle_own(wire::FrameType type, ConstBytes body,
                                                       std::vector<runtime::Fd>& fds) override;
  [[nodiscard]] Result<void> find_process(int pidfd);
  [[nodiscard]] Result<bool> try_words();
  [[nodiscard]] Result<void> on_proof(ConstBytes body);

  // ---- posts ----
  [[nodiscard]] Answer post_short(const Post& post, std::uint64_t base, std::uint64_t bytes);
  [[nodiscard]] Answer post_long(const Post& post, std::uint64_t base);
  [[nodiscard]] Error error_of(const memory::CopyJob& job) override;
  [[nodiscard]] Error error_of(const memory::ForeignMemory::Moved& moved, RegionKey region);

  Words words_;
  std::uint64_t their_words_ = 0;  // the address
  std::optional<memory::ForeignMemory> foreign_;
  bool proof_given_ = false;
  bool proof_seen_ = false;
  std::int32_t refusal_ = 0;  // error number of our try, for the peer
};

}  // namespace hixl::links
