// SPDX-License-Identifier: Apache-2.0
#include "runtime/address.hpp"

#include <sys/socket.h>

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

using hixl::ErrorCode;
using hixl::runtime::Address;

TEST_CASE("P27 address: what is accepted, and how it reads back") {
  struct Row {
    std::string_view text;
    std::string_view host;
    std::uint16_t port;
    std::string_view back;
  };
  const std::vector<Row> rows = {
      {"127.0.0.1:0", "127.0.0.1", 0, "127.0.0.1:0"},
      {"tcp://127.0.0.1:65535", "127.0.0.1", 65535, "127.0.0.1:65535"},
      {"localhost:1", "localhost", 1, "localhost:1"},
      {"node-7.rack_3.example.org:29500", "node-7.rack_3.example.org", 29500, "node-7.rack_3.example.org:29500"},
      {"host.example.:80", "host.example.", 80, "host.example.:80"},
      {"0f3a2b1c4d5e:80", "0f3a2b1c4d5e", 80, "0f3a2b1c4d5e:80"},
      {"3com.example:80", "3com.example", 80, "3com.example:80"},
      {"[::1]:4711", "::1", 4711, "[::1]:4711"},
      {"tcp://[::]:5", "::", 5, "[::]:5"},
      {"[fe80::1%eth0]:6", "fe80::1%eth0", 6, "[fe80::1%eth0]:6"},
      {"[fe80::1%2]:6", "fe80::1%2", 6, "[fe80::1%2]:6"},
      {"[febf::1%lo]:6", "febf::1%lo", 6, "[febf::1%lo]:6"},
      {"[fec0::1]:6", "fec0::1", 6, "[fec0::1]:6"},
      {"[::ffff:10.0.0.1]:7", "10.0.0.1", 7, "10.0.0.1:7"},
      {"[0:0:0:0:0:ffff:7f00:1]:7", "127.0.0.1", 7, "127.0.0.1:7"},
      {"a:00080", "a", 80, "a:80"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    const auto address = Address::parse(row.text);
    REQUIRE(address.has_value());
    CHECK(address->family == Address::Family::tcp);
    CHECK(address->host == row.host);
    CHECK(address->port == row.port);
    CHECK(address->text() == row.back);
    CHECK(Address::parse(address->text())->text() == row.back);
  }
}

TEST_CASE("P27 address: a scope where none belongs, or none where one is needed, has an error of its own") {
  for (const char* text : {"[fe80::1]:6", "[febf:ffff::]:6", "[2001:db8::1%eth0]:6", "[::1%lo]:6", "[::%1]:6",
                           "[::ffff:10.0.0.1%lo]:6", "tcp://[fd00::2%2]:6"}) {
    CAPTURE(text);
    const auto address = Address::parse(text);
    REQUIRE_FALSE(address.has_value());
    CHECK(address.error().code == ErrorCode::address_scope);
    CHECK(address.error().detail.port == 6);
    CHECK(address.error().message().find(":6)") != std::string::npos);
  }
  CHECK(Address::of_host("fe80::1", 0).error().code == ErrorCode::address_scope);
}

TEST_CASE("address: a host alone, and local names") {
  CHECK(Address::of_host("::1", 5)->text() == "[::1]:5");
  CHECK(Address::of_host("10.0.0.1", 5)->text() == "10.0.0.1:5");
  CHECK(Address::of_host("node-7", 5)->text() == "node-7:5");
  for (const char* host : {"", "a:1", "[::1]", "::1:x", "10.0.0", "tcp://a"}) {
    CAPTURE(host);
    CHECK_FALSE(Address::of_host(host, 5).has_value());
  }
  const auto local = Address::parse("unix:@hixl-store-0-ompi/1");
  REQUIRE(local.has_value());
  CHECK(local->family == Address::Family::unix_abstract);
  CHECK(local->text() == "unix:@hixl-store-0-ompi/1");
  CHECK(local->loopback());
  CHECK(Address::parse("unix:@" + std::string(107, 'x')).has_value());
  for (const std::string& text : {std::string("unix:@"), "unix:@" + std::string(108, 'x'), std::string("unix:/a"),
                                  std::string("unix:name"), std::string("unix:@a\0b", 9)}) {
    CAPTURE(text);
    CHECK_FALSE(Address::parse(text).has_value());
  }
}

TEST_CASE("address: wildcards, families, and what an error says of them") {
  const auto at = [](const char* host) { return Address{Address::Family::tcp, host, 80}; };
  for (const char* host : {"0.0.0.0", "::", "0:0::0"}) CHECK(at(host).wildcard());
  for (const char* host : {"127.0.0.1", "::1", "localhost", "0.0.0.1"}) CHECK_FALSE(at(host).wildcard());
  CHECK_FALSE(Address::abstract("::").wildcard());
  CHECK(at("10.0.0.1").literal_family() == AF_INET);
  CHECK(at("fe80::1%eth0").literal_family() == AF_INET6);
  CHECK(at("localhost").literal_family() == 0);
  const auto said = [](const Address& address) {
    hixl::ErrorDetail detail;
    address.name_in(detail);
    return hixl::Error(ErrorCode::connect_refused, detail).message();
  };
  CHECK(said(at("10.0.0.1")).find("(at 10.0.0.1:80)") != std::string::npos);
  CHECK(said(at("fd00::2")).find("(at [fd00::2]:80)") != std::string::npos);
  CHECK(said(at("localhost")).find("(at ") == std::string::npos);
}

TEST_CASE("P27 address: what is refused") {
  const std::string long_label(64, 'a');
  const std::string long_name = std::string(63, 'a') + "." + std::string(63, 'b') + "." + std::string(63, 'c') + "." +
                                std::string(63, 'd') + ".e";
  using namespace std::string_view_literals;
  const std::vector<std::string> rows = {
      "",
      "tcp://",
      ":80",
      "tcp://:80",
      "host",
      "host:",
      "127.0.0.1",
      "[::1]",
      "[::1]:",
      "[::1]80",
      "[]:80",
      "[:80",
      "::1:80",
      "fe80::1:80",
      "::1",
      "[127.0.0.1]:80",
      "[host]:80",
      "[::1]x:80",
      "[[::1]]:80",
      "[fe80::1%]:80",
      "[fe80::1%a b]:80",
      "[fe80::1%0123456789abcdef]:80",
      "[fe80::1%eth0%1]:80",
      "[::g]:80",
      "host:65536",
      "host:99999",
      "host:100000",
      "host:000080",
      "host:-1",
      "host:+1",
      "host: 1",
      "host:1 ",
      "host:0x1",
      "host:1:2",
      "host:http",
      "host:80/",
      " host:80",
      "ho st:80",
      "host\n:80",
      "user@host:80",
      "a/b:80",
      "a..b:80",
      ".a:80",
      "-a:80",
      "a-:80",
      ".:80",
      "a%eth0:80",
      "h\xc3\xb6st:80",
      "127.1:80",
      "2130706433:80",
      "0x7f.1:80",
      "0177.0.0.1:80",
      "256.1.1.1:80",
      "1.2.3:80",
      "1.2.3.4.5:80",
      "1.2.3.4.:80",
      "udp://host:80",
      "TCP://host:80",
      "tcp:/host:80",
      "tcp://tcp://host:80",
      "tcp://unix:@name",
      long_label + ":80",
      long_name + ":80",
      std::string("127.0.0.1\0:80"sv),
      std::string("h\0st:80"sv),
      std::string("[::1\0]:80"sv),
      std::string("host:80\0"sv),
  };
  for (const std::string& row : rows) {
    CAPTURE(row);
    const auto address = Address::parse(row);
    CHECK_FALSE(address.has_value());
    if (!address) CHECK(address.error().code == ErrorCode::invalid_argument);
  }
}

TEST_CASE("address: loopback is decided by what the address is, not by how it begins") {
  for (const char* host : {"127.0.0.1", "127.255.3.4", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "localhost"}) {
    CAPTURE(host);
    CHECK(Address{Address::Family::tcp, host, 1}.loopback());
  }
  for (const char* host : {"0.0.0.0", "128.0.0.1", "126.255.255.255", "::", "::2", "fe80::1", "127.0.0.1.example.org",
                           "localhost.example.org", "127.1", "10.0.0.127", ""}) {
    CAPTURE(host);
    CHECK_FALSE(Address{Address::Family::tcp, host, 1}.loopback());
  }
  CHECK(Address::abstract("hixl-x").loopback());
  CHECK(Address::abstract("hixl-x").text() == "unix:@hixl-x");
}
