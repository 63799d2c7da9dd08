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
  std::string host;  ///< name or literal, no brackets; or the abstract name
  std::uint16_t port = 0;

  /// "host:port", "[v6]:port", with or without "tcp://"; or "unix:@name". INVALID_ARGUMENT otherwise; ADDRESS_SCOPE for
  /// a link-local address without the interface, and any other with one. IPv4 in IPv6 clothes becomes plain IPv4.
  [[nodiscard]] static Result<Address> parse(std::string_view text);
  [[nodiscard]] static Address abstract(std::string name) { return {Family::unix_abstract, std::move(name), 0}; }
  /// The same from a host alone, name or literal without brackets.
  [[nodiscard]] static Result<Address> of_host(const std::string& host, std::uint16_t port);
  [[nodiscard]] std::string text() const;  ///< "host:port", "[v6]:port" or "unix:@name"
  /// True for 127.0.0.0/8, ::1, "localhost" and abstract names.
  [[nodiscard]] bool loopback() const;
  /// 0.0.0.0 or ::, where one can listen and nobody can call.
  [[nodiscard]] bool wildcard() const;
  /// AF_INET or AF_INET6 of a literal, otherwise 0.
  [[nodiscard]] int literal_family() const;
  /// Writes a literal and its port into an error's detail.
  void name_in(ErrorDetail& detail) const;
};

}  // namespace hixl::runtime
