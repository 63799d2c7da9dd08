// SPDX-License-Identifier: Apache-2.0
//
// A message as a program without a one-sided library makes it: what it is (name, shape, type) and the bytes, put into
// one buffer, and taken apart and copied to its place at the other side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hixl::bench {

struct Frame {
  std::string name;
  std::uint32_t shape[3] = {};
  const std::byte* data = nullptr;  ///< when parsed: inside the message
  std::uint64_t size = 0;
};

/// A length of eight bytes that counts what follows, then the rest. `message` is overwritten.
void serialise(const Frame& frame, std::vector<std::byte>& message);
/// What follows the length. False if it is no frame, or cut short.
[[nodiscard]] bool parse(const std::vector<std::byte>& message, Frame& frame);

}  // namespace hixl::bench
