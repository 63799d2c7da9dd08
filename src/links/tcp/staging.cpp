// SPDX-License-Identifier: Apache-2.0
#include "links/tcp/staging.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace hixl::links::tcp {
namespace {

/// What one read of a socket brings at most; more would only be idle memory for each link.
constexpr std::size_t k_incoming_bytes = 256U << 10U;

}  // namespace

Bytes Staging::incoming(std::size_t bytes) {
  if (incoming_.size() == 0) incoming_ = memory::PrivatePages(k_incoming_bytes);
  delivered_ = 0;
  return {incoming_.data(), std::min(bytes, incoming_.size())};
}

void Staging::deliver(memory::Device& device, std::byte* to, std::size_t bytes) noexcept {
  HIXL_ASSERT(bytes <= incoming_.size() - delivered_);
  memory::copy(device, to, memory::host_device(), incoming_.data() + delivered_, bytes);
  delivered_ += bytes;
  copies_ += 1;
}

Staging::Outgoing* Staging::free_buffer(Use use, std::size_t bytes) {
  for (Outgoing& buffer : outgoing_[static_cast<std::size_t>(use)]) {
    if (buffer.ticket != 0) continue;
    if (buffer.pages.size() < bytes) buffer.pages = memory::PrivatePages(bytes);
    buffer.filled = 0;
    return &buffer;
  }
  return nullptr;
}

void Staging::fetch(Outgoing& buffer, memory::Device& device, const std::byte* from, std::size_t bytes) noexcept {
  HIXL_ASSERT(bytes <= buffer.pages.size() - buffer.filled);
  memory::copy(memory::host_device(), buffer.pages.data() + buffer.filled, device, from, bytes);
  buffer.filled += bytes;
  copies_ += 1;
}

bool Staging::on_sent(std::uint64_t ticket) noexcept {
  for (auto& buffers : outgoing_) {
    for (Outgoing& buffer : buffers) {
      if (buffer.ticket != ticket) continue;
      buffer.ticket = 0;
      return true;
    }
  }
  return false;
}

std::uint64_t Staging::bytes() const noexcept {
  std::uint64_t sum = incoming_.size();
  for (const auto& buffers : outgoing_) {
    for (const Outgoing& buffer : buffers) sum += buffer.pages.size();
  }
  return sum;
}

}  // namespace hixl::links::tcp
