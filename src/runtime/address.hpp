// SPDX-License-Identifier: Apache-2.0
//
// A socket address as text and number: tcp host and port, or an abstract unix name (leaves nothing on disk).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <hixl/result.hpp>

namespace hixl::runtime {

struct Address {
  enum class Family : std::uint8_t { tcp, unix_abstract };
  Family family = Family::tcp;
  std::string host;        ///< name or literal, no brackets; or the abstract name
  std::uint16_t port = 0;

  /// "host:port", "[v6]:port", with or without "tcp://". INVALID_ARGUMENT otherwise.
  [[nodiscard]] static Result<Address> parse(std::string_view text);
  [[nodiscard]] static Address abstract(std::string name) { return {Family::unix_abstract, std::move(name), 0}; }
  [[nodiscard]] std::string text() const;  ///< "host:port", "[v6]:port" or "unix:@name"
  /// True for 127.0.0.0/8, ::1, "localhost" and abstract names.
  [[nodiscard]] bool loopback() const;
};

}  // namespace hixl::runtime
