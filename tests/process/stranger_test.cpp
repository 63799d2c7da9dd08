// SPDX-License-Identifier: Apache-2.0
//
// Strangers at a rank's tcp port: noise, half a header, another version, silence, crowds. The rank goes on, says little
// about it, serves its peers as before and gives every descriptor back.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "home.hpp"
#include "wire/frame.hpp"
#include "wire/messages.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

class Stranger {
 public:
  explicit Stranger(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    REQUIRE(fd_ >= 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  ~Stranger() {
    if (fd_ >= 0) ::close(fd_);
  }
  Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)), heard_(std::move(other.heard_)) {}
  Stranger& operator=(Stranger&&) = delete;

  void send(ConstBytes bytes) { static_cast<void>(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL)); }
  /// True when the rank has ended the connection, within k_patience. What it sends before is heard().
  [[nodiscard]] const std::vector<std::byte>& heard() const noexcept { return heard_; }
  [[nodiscard]] bool is_turned_away() {
    return eventually([this] {
      std::byte buffer[512];
      const ssize_t count = ::recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT);
      if (count > 0) heard_.insert(heard_.end(), buffer, buffer + count);
      return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
    });
  }

 private:
  int fd_;
  std::vector<std::byte> heard_;
};

std::vector<std::byte> noise(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  fill_pattern(bytes.data(), size, seed);
  return bytes;
}

std::vector<std::byte> hello_of_version(std::uint8_t version) {
  wire::Hello hello;
  hello.incarnation = hello.link_gen = 1;
  hello.world_size = 2;
  hello.tx_depth = hello.rx_depth = 32;
  hello.lease_ms = 500;
  std::vector<std::byte> frame(wire::k_header_bytes + wire::k_body_bytes_max);
  ByteWriter writer(std::span<std::byte>(frame).subspan(wire::k_header_bytes));
  encode(hello, writer);
  const std::size_t body_bytes = writer.written().size();
  wire::FrameHeader header;
  header.version = version;
  header.type = wire::FrameType::hello;
  header.body_bytes = static_cast<std::uint32_t>(body_bytes);
  header.body_crc = wire::crc32c(writer.written());
  encode(header, std::span<std::byte>(frame).first<wire::k_header_bytes>());
  frame.resize(wire::k_header_bytes + body_bytes);
  return frame;
}

/// Good frames, but no hello.
std::vector<std::byte> pings(std::size_t count) {
  std::vector<std::byte> frames(count * wire::k_header_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    encode(wire::FrameHeader{},
           std::span<std::byte>(frames).subspan(i * wire::k_header_bytes).first<wire::k_header_bytes>());
  }
  return frames;
}

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// A rank on tcp with strangers at its door, while `home` keeps talking to it.
struct Besieged {
  Home home{2, "tcp"};
  Guest guest{home, 1};
  std::uint16_t port = listening_port(guest->pid());
  std::size_t descriptors = 0;

  Besieged() {
    REQUIRE(port != 0);
    require_traffic_both_ways(home, guest, 1);
    descriptors = open_descriptors(guest->pid());
  }
  void require_unmoved() {
    require_traffic_both_ways(home, guest, 2);
    CHECK(eventually([&] { return open_descriptors(guest->pid()) == descriptors; }));
    CHECK(home->counters().failed == 0);
    CHECK(home->counters().link_failures == 0);
    guest->tell("quit");
    CHECK(guest->wait() == 0);
  }
};

}  // namespace

TEST_CASE("P66 S10 noise of any length is turned away") {
  Besieged siege;
  std::vector<Stranger> strangers;
  for (const std::size_t size : {1U, 63U, 64U, 65U, 1000U, 100'000U}) {
    strangers.emplace_back(siege.port);
    strangers.back().send(noise(size, size));
    require_ok(siege.home->put_sync(siege.home.data(), siege.guest.remote().at(0), 70'000, k_patience));
  }
  for (Stranger& stranger : strangers) CHECK(stranger.is_turned_away());
  siege.require_unmoved();
}

TEST_CASE("P66 half a header, and then nothing, is turned away") {
  Besieged siege;
  std::vector<Stranger> strangers;
  const std::vector<std::byte> hello = hello_of_version(wire::k_version);
  for (const std::size_t size : {std::size_t{1}, wire::k_header_bytes / 2, wire::k_header_bytes, hello.size() - 1}) {
    strangers.emplace_back(siege.port);
    strangers.back().send(ConstBytes(hello).first(size));
  }
  for (Stranger& stranger : strangers) CHECK(stranger.is_turned_away());
  siege.require_unmoved();
}

TEST_CASE("S64 a hello of another version, and one for somebody else, are turned away") {
  Besieged siege;
  std::vector<Stranger> strangers;
  for (const std::uint8_t version : {0, 1, 2, 255}) {
    strangers.emplace_back(siege.port);
    strangers.back().send(hello_of_version(version));
  }
  for (Stranger& stranger : strangers) CHECK(stranger.is_turned_away());
  // One of another version is told ours in a header, so that it can say VERSION_MISMATCH and not just "hung up".
  for (const std::size_t other : {0, 2, 3}) {
    const std::vector<std::byte>& heard = strangers[other].heard();
    REQUIRE(heard.size() == wire::k_header_bytes);
    CHECK(heard[4] == std::byte{wire::k_version});
  }
  siege.require_unmoved();
}

TEST_CASE("S10 seventy silent connections keep nobody out for long") {
  Besieged siege;
  std::vector<Stranger> strangers;
  for (int i = 0; i < 70; ++i) strangers.emplace_back(siege.port);
  require_traffic_both_ways(siege.home, siege.guest, 5);
  for (Stranger& stranger : strangers) CHECK(stranger.is_turned_away());
  // The door is free again: a peer can come by tcp.
  siege.require_unmoved();
}

TEST_CASE("S39 L4 another user of the host who knocks at the local socket all the time does not fill the log") {
  if (geteuid() != 0) {
    MESSAGE("skipped: only root can become another user");
    return;
  }
  Home home(2, "hccs");
  Guest guest(home, 1);
  const std::string name = listening_name(guest->pid());
  REQUIRE_FALSE(name.empty());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  constexpr int k_knocks = 300;
  const pid_t other = fork();
  if (other == 0) {  // only what a forked child of a program with threads may call
    constexpr uid_t k_nobody = 65534;
    if (setresuid(k_nobody, k_nobody, k_nobody) != 0) _exit(2);
    for (int i = 0; i < k_knocks; ++i) {
      const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0) _exit(3);
      char byte = 0;
      if (recv(fd, &byte, 1, 0) > 0) _exit(4);  // until it is turned away
      close(fd);
    }
    _exit(0);
  }
  int status = -1;
  REQUIRE(eventually([&] { return waitpid(other, &status, WNOHANG) == other; }));
  REQUIRE(status == 0);
  require_traffic_both_ways(home, guest, 3);
  guest->tell("quit");
  CHECK(guest->wait() == 0);
  const std::string log = guest->log();
  constexpr std::size_t k_lines_a_period = 6;
  constexpr std::size_t k_periods_max = 3;  // as long as eventually() waits, and the one that began before
  CHECK_MESSAGE(lines_of(log) <= k_lines_a_period * k_periods_max, lines_of(log) << " lines");
  CHECK(log.find("a process of user 65534 was turned away from the local socket") != std::string::npos);
  CHECK(log.find("processes of user 65534: ") != std::string::npos);
  CHECK(log.find(" more suppressed") != std::string::npos);
}

TEST_CASE("S39 L4 a crowd of strangers does not fill the log") {
  Besieged siege;
  constexpr int k_crowd = 500;
  // Five lines of a kind in ten seconds, and one that says how many more.
  constexpr std::size_t k_lines_a_period = 6;
  constexpr std::chrono::seconds k_period{10};
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < k_crowd; ++i) {
    Stranger stranger(siege.port);
    switch (i % 3) {
      case 0:
        stranger.send(noise(200, 9));
        break;
      case 1:
        stranger.send(hello_of_version(2));
        break;
      default:
        stranger.send(pings(100));
        break;
    }
    CHECK(stranger.is_turned_away());
  }
  const std::string log = siege.guest->log();
  const auto periods = static_cast<std::size_t>((std::chrono::steady_clock::now() - begun) / k_period) + 1;
  CHECK_MESSAGE(lines_of(log) <= periods * k_lines_a_period, lines_of(log)
                                                                 << " lines, the first: " << log.substr(0, 200));
  CHECK_MESSAGE(lines_of(log) > 0, "strangers are not mentioned at all");
  siege.require_unmoved();
  CHECK(siege.guest->log().find("connections that are no peers: ") != std::string::npos);
  CHECK(siege.guest->log().find(" more suppressed") != std::string::npos);
}
