// SPDX-License-Identifier: Apache-2.0
#include "frame.hpp"

#include <algorithm>
#include <cstring>

namespace hixl::bench {

namespace {

constexpr std::uint32_t k_magic = 0x4b564d31;

/// Reads pieces of a message, never beyond its end.
class Reader {
 public:
  explicit Reader(const std::vector<std::byte>& message) : at_(message.data()), left_(message.size()) {}
  bool take(void* to, std::size_t size) {
    if (size > left_) return false;
    std::memcpy(to, at_, size);
    return pass(size);
  }
  bool pass(std::size_t size) {
    if (size > left_) return false;
    at_ += size;
    left_ -= size;
    return true;
  }
  [[nodiscard]] const std::byte* at() const { return at_; }

 private:
  const std::byte* at_;
  std::size_t left_;
};

}  // namespace

void serialise(const Frame& frame, std::vector<std::byte>& message) {
  const auto name_bytes = static_cast<std::uint32_t>(frame.name.size());
  const std::uint64_t body =
      sizeof k_magic + sizeof name_bytes + name_bytes + sizeof frame.shape + sizeof frame.size + frame.size;
  message.resize(sizeof body + body);
  std::byte* at = message.data();
  const auto put = [&at](const void* data, std::size_t size) {
    at = std::copy_n(static_cast<const std::byte*>(data), size, at);
  };
  put(&body, sizeof body);
  put(&k_magic, sizeof k_magic);
  put(&name_bytes, sizeof name_bytes);
  put(frame.name.data(), name_bytes);
  put(frame.shape, sizeof frame.shape);
  put(&frame.size, sizeof frame.size);
  put(frame.data, frame.size);
}

bool parse(const std::vector<std::byte>& message, Frame& frame) {
  Reader reader(message);
  std::uint32_t magic = 0, name_bytes = 0;
  if (!reader.take(&magic, sizeof magic) || magic != k_magic || !reader.take(&name_bytes, sizeof name_bytes))
    return false;
  const auto* const name = reinterpret_cast<const char*>(reader.at());
  if (!reader.pass(name_bytes)) return false;
  frame.name.assign(name, name_bytes);
  if (!reader.take(frame.shape, sizeof frame.shape) || !reader.take(&frame.size, sizeof frame.size)) return false;
  frame.data = reader.at();
  return reader.pass(frame.size);
}

}  // namespace hixl::bench
