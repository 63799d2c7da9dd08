// SPDX-License-Identifier: Apache-2.0
//
// One list of fields a message, walked by a FieldWriter to encode and by a FieldReader to decode, so that the two
// cannot drift apart. What a field may hold stands in the message's valid().
//
// To add a message: `fields(code, message)`, a static `valid(message)`, HIXL_WIRE_DEFINE(Message). They stand in this
// namespace itself, where the templates below find them by argument-dependent lookup. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <hixl/types.hpp>

#include "base/assert.hpp"
#include "base/bytes.hpp"
#include "base/ids.hpp"

namespace hixl::wire {

template <class T>
concept Scalar = std::is_integral_v<T> || std::is_enum_v<T>;

class FieldWriter {
 public:
  template <class T>
  using Field = const T;

  explicit FieldWriter(ByteWriter& out) : out_(out) {}
  template <class... Values>
  void operator()(const Values&... values) noexcept {
    (put(values), ...);
  }
  /// A count, to loop over. A longer one would be our own bug: the sender splits before it encodes.
  std::uint32_t count(std::uint32_t value, std::size_t max) noexcept {
    HIXL_ASSERT(value <= max);
    put(value);
    return value;
  }
  /// Count, then the elements of `element_bytes` each.
  template <class T>
  void list(const std::vector<T>& elements, std::size_t max, std::size_t element_bytes) noexcept {
    count(static_cast<std::uint32_t>(elements.size()), max);
    for (const T& element : elements) {
      [[maybe_unused]] const std::size_t before = out_.size();
      put(element);
      HIXL_ASSERT(!out_.ok() || out_.size() - before == element_bytes);
    }
  }
  void text(const std::string& value, std::size_t size_max) noexcept {
    HIXL_ASSERT(value.size() <= size_max);
    out_.put_string(value);
  }
  void texts(const std::vector<std::string>& values, std::size_t max, std::size_t size_max) noexcept {
    count(static_cast<std::uint32_t>(values.size()), max);
    for (const std::string& value : values) text(value, size_max);
  }

 private:
  template <class T>
  void put(const T& value) noexcept {
    if constexpr (Scalar<T>) {
      out_.put(value);
    } else {
      fields(*this, value);
    }
  }
  ByteWriter& out_;
};

class FieldReader {
 public:
  template <class T>
  using Field = T;

  explicit FieldReader(ByteReader& in) : in_(in) {}
  template <class... Values>
  void operator()(Values&... values) {
    (get(values), ...);
  }
  /// Sets `value`; gives 0 to loop over, and marks the message as bad, when it is over the limit.
  std::uint32_t count(std::uint32_t& value, std::size_t max) noexcept {
    get(value);
    return check_count(value, max);
  }
  /// Allocates only what the bytes at hand can fill.
  template <class T>
  void list(std::vector<T>& elements, std::size_t max, std::size_t element_bytes) {
    std::uint32_t size = 0;
    count(size, max);
    if (!ok() || size > in_.left() / element_bytes) {
      ok_ = false;
      return;
    }
    elements.resize(size);
    for (T& element : elements) get(element);
  }
  void text(std::string& value, std::size_t size_max) { value = in_.get_string(size_max); }
  void texts(std::vector<std::string>& values, std::size_t max, std::size_t size_max) {
    std::uint32_t size = 0;
    count(size, max);
    values.clear();
    for (std::uint32_t i = 0; i < size && ok(); ++i) values.push_back(in_.get_string(size_max));
  }
  [[nodiscard]] bool ok() const noexcept { return ok_ && in_.ok(); }

 private:
  template <class T>
  void get(T& value) {
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(in_.get<std::underlying_type_t<T>>());
    } else if constexpr (std::is_integral_v<T>) {
      value = in_.get<T>();
    } else {
      fields(*this, value);
    }
  }
  std::uint32_t check_count(std::uint32_t value, std::size_t max) noexcept {
    if (ok() && value <= max) return value;
    ok_ = false;
    return 0;
  }
  ByteReader& in_;
  bool ok_ = true;
};

template <class Code>
void fields(Code& code, typename Code::template Field<PeerId>& id) {
  code(id.high, id.low);
}
template <class Code>
void fields(Code& code, typename Code::template Field<RegionKey>& key) {
  code(key.id, key.generation);
}
template <class Code>
void fields(Code& code, typename Code::template Field<Token>& token) {
  code(token.high, token.low);
}

/// True for the numbers of the list in hixl/error.hpp.
[[nodiscard]] constexpr bool known_error_code(std::uint16_t code) noexcept {
  switch (static_cast<ErrorCode>(code)) {
#define HIXL_CODE(id, number, kind, what, remedy) case ErrorCode::id:
    HIXL_ERROR_CODES(HIXL_CODE)
#undef HIXL_CODE
    return true;
  }
  return false;
}

template <class Message>
[[nodiscard]] bool read_message(ByteReader& in, Message& message) {
  FieldReader code(in);
  fields(code, message);
  if (code.ok() && valid(message)) return true;
  message = Message{};
  return false;
}

#define HIXL_WIRE_DEFINE(Message)                                    \
  void encode(const Message& message, ByteWriter& out) noexcept {    \
    FieldWriter code(out);                                           \
    fields(code, message);                                           \
  }                                                                  \
  bool decode(ByteReader& in, Message& message) { return read_message(in, message); }

}  // namespace hixl::wire
