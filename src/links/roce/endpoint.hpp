// SPDX-License-Identifier: Apache-2.0
//
// Endpoint: one queue pair with its completion queue and the page that it shows to the peer. Destroying it is the
// fence of this side: afterwards nothing of it reaches memory, here or there.
//
//   the page   0 progress word: the peer stores the number of its newest write behind that write
//             64 where our own reads of the peer's word come to
//            128 challenge: who reads it through the network has reached this process
//   4096 … 8191 where our probe comes to
//
// Loop-bound, but for connect().
#pragma once

#include <cstdint>
#include <memory>

#include "base/random.hpp"
#include "links/roce/rails.hpp"
#include "memory/private_pages.hpp"

namespace hixl::links::roce {

inline constexpr std::size_t k_page_seen = 64;
inline constexpr std::size_t k_page_challenge = 128;
inline constexpr std::size_t k_page_probe = 4096;
inline constexpr std::size_t k_page_bytes = 8192;
inline constexpr std::uint32_t k_word_bytes = 8;

[[nodiscard]] constexpr std::uint32_t bytes_of(ibv_mtu mtu) noexcept { return 128U << static_cast<unsigned>(mtu); }

class Endpoint {
 public:
  struct Wishes {
    std::uint32_t send_depth = 128;
    std::uint32_t inline_bytes = 64;
  };
  /// Makes all of it, in state INIT. UNSUPPORTED: the card grants no 8 inline bytes. NO_MEMORY, MEMLOCK_LIMIT,
  /// OS_ERROR.
  [[nodiscard]] static Result<std::unique_ptr<Endpoint>> create(const Rails::Path& path, const Wishes& wishes,
                                                                Random& random);
  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint();

  /// What this side tells of itself; the addresses are the caller's.
  [[nodiscard]] wire::RoceOffer offer() const;
  struct Peer {
    wire::RoceOffer offer;  ///< the peer's
    ibv_gid gid{};          ///< its address that is used
    Gid ours{};
    RdmaOptions options{};
  };
  /// To RTR and RTS. From a worker's thread, while nobody else touches it: the kernel may ask the network for the
  /// peer's hardware address, and waits a second for the answer. NO_ROUTE, OS_ERROR.
  [[nodiscard]] Result<void> connect(const Peer& peer);
  /// No more of it in either direction. The card may be gone, so nothing is told of it.
  void stop() noexcept;
  /// Destroys the queues. The peer's word, which is final now.
  [[nodiscard]] std::uint64_t end() noexcept;

  [[nodiscard]] QueuePair& pair() noexcept { return *pair_; }
  [[nodiscard]] CompletionQueue& completions() noexcept { return *completions_; }
  [[nodiscard]] const Device::QueuePairOptions& granted() const noexcept { return granted_; }
  [[nodiscard]] std::byte* page() const noexcept { return pages_.data(); }
  [[nodiscard]] std::uint32_t page_key() const noexcept { return memory_->local_key(); }
  [[nodiscard]] ibv_mtu mtu() const noexcept { return mtu_; }
  void set_mtu(ibv_mtu mtu) noexcept { mtu_ = mtu; }

 private:
  memory::PrivatePages pages_;
  std::unique_ptr<MemoryRegion> memory_;
  std::unique_ptr<CompletionQueue> completions_;
  std::unique_ptr<QueuePair> pair_;
  Device::QueuePairOptions granted_{};
  std::string name_;
  std::uint32_t port_ = 0;
  ibv_mtu mtu_ = IBV_MTU_1024;
  std::uint32_t packet_number_ = 0;
  std::uint64_t challenge_ = 0;
  std::uint8_t reads_out_ = 1;
  std::uint8_t reads_in_ = 1;
};

}  // namespace hixl::links::roce
