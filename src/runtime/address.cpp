// SPDX-License-Identifier: Apache-2.0
//
// The address grammar. Strict: an address that means something else to the resolver than to its reader ("127.1",
// "0x7f.1", "host:80:90") is refused rather than guessed.
#include "runtime/address.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>

namespace hixl::runtime {
namespace {

constexpr std::size_t k_host_chars_max = 253;  // RFC 1035: 255 octets on the wire, less length and root
constexpr std::size_t k_label_chars_max = 63;  // RFC 1035
constexpr std::size_t k_port_digits_max = 5;   // 65535
constexpr std::size_t k_unix_chars_max = 107;  // sun_path without the leading NUL

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_v4(const std::string& host) {
  in_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1;
}

/// A v6 literal, with or without a scope: the name or number of an interface.
std::optional<in6_addr> v6_of(std::string_view host) {
  if (const std::size_t percent = host.find('%'); percent != std::string_view::npos) {
    const std::string_view scope = host.substr(percent + 1);
    const auto good = [](char c) { return is_alnum(c) || c == '.' || c == '-' || c == '_'; };
    if (scope.empty() || scope.size() >= IFNAMSIZ || !std::all_of(scope.begin(), scope.end(), good)) return {};
    host = host.substr(0, percent);
  }
  in6_addr address{};
  if (::inet_pton(AF_INET6, std::string(host).c_str(), &address) != 1) return {};
  return address;
}

/// The sixteen bytes of a literal of either family.
std::optional<in6_addr> literal(const std::string& host) {
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) != 1) return v6_of(host);
  in6_addr mapped{};
  mapped.s6_addr[10] = mapped.s6_addr[11] = 0xff;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&v4.s_addr);
  std::copy_n(bytes, sizeof(v4.s_addr), &mapped.s6_addr[12]);
  return mapped;
}

/// ::ffff:10.0.0.1 is 10.0.0.1: a v6 socket that listens for v6 alone could neither be bound to it nor called by it.
std::string plain_v4(const in6_addr& mapped) {
  char text[INET_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET, &mapped.s6_addr[12], text, sizeof(text));
  return text;
}

bool is_label(std::string_view label) {
  const auto good = [](char c) { return is_alnum(c) || c == '-' || c == '_'; };
  return !label.empty() && label.size() <= k_label_chars_max && label.front() != '-' && label.back() != '-' &&
         std::all_of(label.begin(), label.end(), good);
}

/// A dotted name, or a full v4 literal. Other spellings of numbers are refused, since the resolver would read "127.1",
/// "0x7f.1" and "2130706433" as addresses; "0f3a2b1c4d5e", the name of a container, is a name to it as well.
bool is_name_or_v4(const std::string& host) {
  if (host.empty() || host.size() > k_host_chars_max) return false;
  const auto numeric = [](char c) { return is_digit(c) || c == '.'; };
  const bool dotted_numbers = host.find('.') != std::string::npos && std::all_of(host.begin(), host.end(), numeric);
  in_addr number{};
  if (dotted_numbers || ::inet_aton(host.c_str(), &number) != 0) return is_v4(host);
  std::string_view left = host;
  if (left.back() == '.') left.remove_suffix(1);  // "host.example." is absolute
  for (;;) {
    const std::size_t dot = left.find('.');
    if (!is_label(left.substr(0, dot))) return false;
    if (dot == std::string_view::npos) return true;
    left.remove_prefix(dot + 1);
  }
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  if (text.empty() || text.size() > k_port_digits_max || !std::all_of(text.begin(), text.end(), is_digit)) return {};
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return port;
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  constexpr std::string_view k_scheme = "tcp://";
  constexpr std::string_view k_unix = "unix:@";
  const auto refuse = [] { return fail(ErrorCode::invalid_argument, {.stage = Stage::options}); };
  if (text.find('\0') != std::string_view::npos) return refuse();  // the C functions below would stop there
  if (text.starts_with(k_unix)) {
    text.remove_prefix(k_unix.size());
    if (text.empty() || text.size() > k_unix_chars_max) return refuse();
    return abstract(std::string(text));
  }
  if (text.starts_with(k_scheme)) text.remove_prefix(k_scheme.size());

  std::string_view host;
  std::optional<in6_addr> v6;
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return refuse();
    host = text.substr(1, close - 1);
    text.remove_prefix(close + 1);
    v6 = v6_of(host);
    if (!v6 || !text.starts_with(':')) return refuse();
    text.remove_prefix(1);
  } else {
    const std::size_t colon = text.find(':');
    if (colon == std::string_view::npos) return refuse();
    host = text.substr(0, colon);
    text.remove_prefix(colon + 1);  // a second colon (an unbracketed v6 literal) is no port
    if (!is_name_or_v4(std::string(host))) return refuse();
  }
  const std::optional<std::uint16_t> port = parse_port(text);
  if (!port) return refuse();
  Address address{Family::tcp, std::string(host), *port};
  if (v6 && IN6_IS_ADDR_LINKLOCAL(&*v6) != (host.find('%') != std::string_view::npos)) {
    ErrorDetail detail{.stage = Stage::options};
    address.name_in(detail);
    return fail(ErrorCode::address_scope, detail);
  }
  if (v6 && IN6_IS_ADDR_V4MAPPED(&*v6)) address.host = plain_v4(*v6);
  return address;
}

Result<Address> Address::of_host(const std::string& host, std::uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return parse((v6 ? "[" + host + "]" : host) + ":" + std::to_string(port));
}

std::string Address::text() const {
  if (family == Family::unix_abstract) return "unix:@" + host;
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool Address::loopback() const {
  if (family == Family::unix_abstract || host == "localhost") return true;
  const auto bytes = literal(host);
  if (!bytes) return false;
  return IN6_IS_ADDR_V4MAPPED(&*bytes) ? bytes->s6_addr[12] == 127 : IN6_IS_ADDR_LOOPBACK(&*bytes);
}

bool Address::wildcard() const {
  const auto bytes = family == Family::tcp ? literal(host) : std::nullopt;
  if (!bytes) return false;
  return IN6_IS_ADDR_V4MAPPED(&*bytes) ? host == "0.0.0.0" : IN6_IS_ADDR_UNSPECIFIED(&*bytes) != 0;
}

int Address::literal_family() const {
  const auto bytes = family == Family::tcp ? literal(host) : std::nullopt;
  if (!bytes) return 0;
  return IN6_IS_ADDR_V4MAPPED(&*bytes) ? AF_INET : AF_INET6;
}

void Address::name_in(ErrorDetail& detail) const {
  const auto bytes = family == Family::tcp ? literal(host) : std::nullopt;
  if (!bytes) return;
  std::copy(std::begin(bytes->s6_addr), std::end(bytes->s6_addr), detail.host.begin());
  detail.port = port;
}

}  // namespace hixl::runtime
