// SPDX-License-Identifier: Apache-2.0
#include "corruptor.hpp"

#include <algorithm>

namespace hixl::sim {

void Corruptor::draw_flip(Place& place, std::uint64_t bytes) {
  place.flip_in = bytes > 0 && choices_.chance(per_mille_) ? choices_.between(1, bytes * 8) : 0;
}

/// Bytes of one part of a frame, in which a bit may be due.
void Corruptor::pass(Place& place, std::span<std::byte> bytes) {
  const std::uint64_t bits = bytes.size() * 8;
  if (place.flip_in == 0) return;
  if (place.flip_in > bits) {
    place.flip_in -= bits;
    return;
  }
  const std::uint64_t bit = std::exchange(place.flip_in, 0) - 1;
  bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  rare_.add(Rare::bits_flipped);
}

void Corruptor::on_bytes(std::uint64_t connection, int direction, std::span<std::byte> bytes) {
  Place& place = places_[{connection, direction}];
  while (!bytes.empty()) {
    if (place.payload_left > 0 && place.body_left == 0 && place.header_have == wire::k_header_bytes) {
      const std::uint64_t part = std::min<std::uint64_t>(place.payload_left, bytes.size());
      pass(place, bytes.first(part));
      place.payload_left -= part;
      bytes = bytes.subspan(part);
    } else if (place.header_have == wire::k_header_bytes && place.body_left > 0) {
      const std::uint64_t part = std::min<std::uint64_t>(place.body_left, bytes.size());
      pass(place, bytes.first(part));
      place.body_left -= part;
      if (place.body_left == 0 && payload_) draw_flip(place, place.payload_left);
      bytes = bytes.subspan(part);
    } else {
      if (place.header_have == wire::k_header_bytes) place.header_have = 0;
      if (place.header_have == 0) draw_flip(place, wire::k_header_bytes);
      const std::uint64_t part = std::min<std::uint64_t>(wire::k_header_bytes - place.header_have, bytes.size());
      std::copy_n(bytes.begin(), part, place.header.begin() + static_cast<std::ptrdiff_t>(place.header_have));
      place.header_have += part;
      pass(place, bytes.first(part));
      bytes = bytes.subspan(part);
      if (place.header_have < wire::k_header_bytes) return;
      const auto header = wire::decode_header(place.header);  // as it was written
      if (!header) return static_cast<void>(places_.erase({connection, direction}));
      place.body_left = header->body_bytes;
      place.payload_left = header->payload_bytes;
      draw_flip(place, header->body_bytes);
      if (header->body_bytes == 0 && payload_) draw_flip(place, place.payload_left);
    }
  }
}

void Corruptor::on_gone(std::uint64_t connection) {
  places_.erase({connection, 0});
  places_.erase({connection, 1});
}

}  // namespace hixl::sim
