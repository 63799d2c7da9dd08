// SPDX-License-Identifier: Apache-2.0
//
// Corruptor: flips single bits of frames on their way, in the header or the body, which the library checks always, and
// in what puts and gets carry when the ranks have asked for a checksum of that as well.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "base/choices.hpp"
#include "rare.hpp"
#include "runtime/virtual_port.hpp"
#include "wire/frame.hpp"

namespace hixl::sim {

class Corruptor final : public runtime::WireEditor {
 public:
  Corruptor(Choices& choices, RareCounts& rare) : choices_(choices), rare_(rare) {}
  /// Of frames.
  void set_rate(std::uint32_t per_mille) noexcept { per_mille_ = per_mille; }
  void set_payload(bool on) noexcept { payload_ = on; }

  void on_bytes(std::uint64_t connection, int direction, std::span<std::byte> bytes) override;
  void on_gone(std::uint64_t connection) override;

 private:
  /// Where one direction of a connection is.
  struct Place {
    std::array<std::byte, wire::k_header_bytes> header{};
    std::uint64_t header_have = 0;
    std::uint64_t body_left = 0;
    std::uint64_t payload_left = 0;
    std::uint64_t flip_in = 0;  ///< bits from here, in the part of the frame at hand; 0: none
  };
  void draw_flip(Place& place, std::uint64_t bytes);
  void pass(Place& place, std::span<std::byte> bytes);

  Choices& choices_;
  RareCounts& rare_;
  std::uint32_t per_mille_ = 0;
  bool payload_ = false;
  std::map<std::pair<std::uint64_t, int>, Place> places_;
};

}  // namespace hixl::sim
