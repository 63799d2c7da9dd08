// SPDX-License-Identifier: Apache-2.0
//
// Staging: host memory through which payload passes between a socket and memory that no socket can use, because the CPU
// cannot address it. Bounded: one buffer for what comes in, two each for our posts and for our answers, so that one is
// filled while the other leaves; posts and answers apart, so that neither side's posts can keep it from answering.
//
// Loop-bound. Takes no memory before it is needed, and keeps it until the link ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "memory/device.hpp"
#include "memory/private_pages.hpp"

namespace hixl::links::tcp {

class Staging {
 public:
  // ---- incoming ----
  /// Where the next at most `bytes` payload bytes are to be read; empty when the system has no memory.
  [[nodiscard]] Bytes incoming(std::size_t bytes);
  /// Moves the next of them, in order, to where they belong; begins anew with each incoming().
  void deliver(memory::Device& device, std::byte* to, std::size_t bytes) noexcept;

  // ---- outgoing ----
  enum class Use : std::uint8_t { post, answer };
  /// One payload on its way out.
  struct Outgoing {
    memory::PrivatePages pages;
    std::uint64_t ticket = 0;  ///< of the frame that it belongs to; 0: free
    std::size_t filled = 0;
  };
  /// A free buffer, emptied; null: all are on their way, on_sent() follows. Its pages are fewer than `bytes` when the
  /// system has no memory. Taken by setting the ticket.
  [[nodiscard]] Outgoing* free_buffer(Use use, std::size_t bytes);
  /// Appends.
  void fetch(Outgoing& buffer, memory::Device& device, const std::byte* from, std::size_t bytes) noexcept;
  /// The frame with this ticket has left. True: a buffer is free again.
  bool on_sent(std::uint64_t ticket) noexcept;

  [[nodiscard]] std::uint64_t copies() const noexcept { return copies_; }  ///< pieces that passed through here
  [[nodiscard]] std::uint64_t bytes() const noexcept;                      ///< memory kept now

 private:
  static constexpr std::size_t k_buffers_a_use = 2;
  memory::PrivatePages incoming_;
  std::size_t delivered_ = 0;
  std::array<std::array<Outgoing, k_buffers_a_use>, 2> outgoing_;
  std::uint64_t copies_ = 0;
};

}  // namespace hixl::links::tcp
