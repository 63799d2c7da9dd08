// SPDX-License-Identifier: Apache-2.0
//
// Little-endian numbers in byte strings, read and written with bounds. The first overrun sticks.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace hixl {

static_assert(std::endian::native == std::endian::little, "the wire and every supported machine are little-endian");

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

class ByteWriter {
 public:
  explicit ByteWriter(Bytes out) : out_(out) {}

  template <class T>
    requires(std::is_integral_v<T> || std::is_enum_v<T>)
  void put(T value) noexcept {
    put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void put_bytes(ConstBytes bytes) noexcept {
    if (!ok_ || bytes.size() > out_.size() - size_) {
      ok_ = false;
      return;
    }
    if (!bytes.empty()) std::memcpy(out_.data() + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
  }
  /// Length (16 bits), then the characters.
  void put_string(std::string_view text) noexcept {
    if (text.size() > 0xffff) {
      ok_ = false;
      return;
    }
    put(static_cast<std::uint16_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text.data(), text.size())));
  }
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] ConstBytes written() const noexcept { return out_.first(size_); }

 private:
  Bytes out_;
  std::size_t size_ = 0;
  bool ok_ = true;
};

class ByteReader {
 public:
  explicit ByteReader(ConstBytes in) : in_(in) {}

  template <class T>
    requires(std::is_integral_v<T>)
  [[nodiscard]] T get() noexcept {
    T value{};
    const ConstBytes bytes = get_bytes(sizeof(T));
    if (bytes.size() == sizeof(T)) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  [[nodiscard]] ConstBytes get_bytes(std::size_t count) noexcept {
    if (!ok_ || count > in_.size()) {
      ok_ = false;
      return {};
    }
    const ConstBytes bytes = in_.first(count);
    in_ = in_.subspan(count);
    return bytes;
  }
  [[nodiscard]] std::string get_string(std::size_t size_max) {
    const std::size_t size = get<std::uint16_t>();
    if (size > size_max) ok_ = false;
    const ConstBytes bytes = get_bytes(size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::size_t left() const noexcept { return in_.size(); }
  /// True when everything was read and nothing was missing.
  [[nodiscard]] bool complete() const noexcept { return ok_ && in_.empty(); }

 private:
  ConstBytes in_;
  bool ok_ = true;
};

}  // namespace hixl
