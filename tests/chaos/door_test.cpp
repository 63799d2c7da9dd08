// SPDX-License-Identifier: Apache-2.0
//
// Crowds at a rank's door that never come in: half a hello and then nothing, a byte a second, for as long as the test
// goes on. The rank's memory, descriptors and log stay within bounds, its peers do not notice, and newcomers get in.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include <doctest/doctest.h>

#include "bystander.hpp"
#include "impostor.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

using Clock = std::chrono::steady_clock;

/// What a rank may keep for strangers: greetings (64), each with the buffers of one connection.
constexpr std::size_t k_greetings = 64;
constexpr std::size_t k_memory_bytes_max = 32U << 20U;

std::size_t resident_bytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// Holds so many connections, and makes a new one for each that is ended. Each says a part of a hello: at once, or a
/// byte a second.
class Crowd {
 public:
  Crowd(std::uint16_t port, std::size_t size, bool byte_by_byte)
      : port_(port), byte_by_byte_(byte_by_byte), members_(size), thread_([this] { run(); }) {}
  ~Crowd() {
    stop_.store(true);
    thread_.join();
    for (const Member& member : members_) {
      if (member.fd >= 0) ::close(member.fd);
    }
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;
  /// Connections made so far.
  [[nodiscard]] std::uint64_t came() const noexcept { return came_.load(); }
  [[nodiscard]] std::uint64_t turned_away() const noexcept { return turned_away_.load(); }

 private:
  static constexpr std::uint64_t k_came_max = 20'000;  // so that no machine runs out of ports
  struct Member {
    int fd = -1;
    std::size_t said = 0;
    Clock::time_point next{};
  };

  void run() {
    wire::Hello hello;
    hello.incarnation = hello.link_gen = 1;
    hello.world_size = 3;
    hello.tx_depth = hello.rx_depth = 32;
    const ByteVector bytes = Impostor::bytes_of(hello);
    while (!stop_.load()) {
      for (std::size_t i = 0; i < members_.size(); ++i) keep(members_[i], bytes, 1 + i * 7 % (bytes.size() - 1));
      static_cast<void>(::poll(nullptr, 0, 5));  // the pace of the crowd, not of the test
    }
  }
  void keep(Member& member, const ByteVector& bytes, std::size_t part) {
    char byte = 0;
    const bool there = member.fd >= 0;
    const ssize_t heard = there ? ::recv(member.fd, &byte, 1, MSG_DONTWAIT) : 0;
    if (there && heard < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!byte_by_byte_ || Clock::now() < member.next || member.said == bytes.size()) return;
      static_cast<void>(::send(member.fd, bytes.data() + member.said++, 1, MSG_NOSIGNAL | MSG_DONTWAIT));
      member.next = Clock::now() + std::chrono::seconds(1);
      return;
    }
    if (there) {
      ::close(member.fd);
      turned_away_ += 1;
    }
    member = {};
    if (came_.load() >= k_came_max) return;
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      ::close(fd);
      return;
    }
    came_ += 1;
    member.fd = fd;
    if (!byte_by_byte_) static_cast<void>(::send(fd, bytes.data(), part, MSG_NOSIGNAL));
  }

  const std::uint16_t port_;
  const bool byte_by_byte_;
  std::vector<Member> members_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> came_{0};
  std::atomic<std::uint64_t> turned_away_{0};
  std::thread thread_;
};

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

void require_siege_is_harmless(std::size_t size, bool byte_by_byte) {
  const auto begun = Clock::now();
  Home home(4, "tcp", 2 * Bystander::k_room, {.lease = k_long_lease});
  Guest besieged(home, 1, {"--bytes", std::to_string(2 * Bystander::k_room)}, k_long_lease);
  require_traffic_both_ways(home, besieged, 1);
  Bystander bystander(*home, home.region(), *besieged, besieged.remote(), Bystander::k_room);
  const pid_t pid = besieged->pid();
  const std::uint16_t port = listening_port(pid);
  REQUIRE(port != 0);
  const std::size_t descriptors = open_descriptors(pid);
  const std::size_t memory = resident_bytes(pid);
  std::size_t descriptors_most = 0;
  std::size_t memory_most = 0;
  const auto look = [&] {
    descriptors_most = std::max(descriptors_most, open_descriptors(pid));
    memory_most = std::max(memory_most, resident_bytes(pid));
  };
  {
    Crowd crowd(port, size, byte_by_byte);
    // Three times over: whoever was held has been turned away, and others are held in their place.
    REQUIRE(eventually([&] {
      look();
      return crowd.turned_away() >= 3 * std::min(size, k_greetings);
    }));
    bystander.require_going_on();
    // A rank that comes now, and has to be let in by the besieged one.
    Child newcomer(settings().rank_program, {"--bytes", "8388608", "--lease-ms", "30000"}, home.environment(2));
    REQUIRE(newcomer.ask("lost") == "0");
    REQUIRE(bystander.finish() == "ok");
    Crowd another(listening_port(newcomer.pid()), size, byte_by_byte);  // so that neither may just dial the other
    REQUIRE(eventually([&] { return another.turned_away() >= std::min(size, k_greetings); }));
    besieged->tell("exchange 2");
    CHECK(newcomer.ask("exchange 1") == "ok");
    CHECK(besieged->hear() == "ok");
    CHECK(newcomer.ask("put 1 0 70000 5") == "ok");
    CHECK(besieged->ask("check 0 70000 5") == "ok");
    look();
    MESSAGE(crowd.came() << " came, " << crowd.turned_away() << " were turned away; descriptors " << descriptors
                         << " -> " << descriptors_most << ", memory +" << (memory_most - memory) / 1024 << " KiB");
  }
  require_traffic_both_ways(home, besieged, 2);
  CHECK(descriptors_most <= descriptors + k_greetings + 4);  // one being accepted, the newcomer's, and its dials
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("skipped: a sanitizer keeps what was given back, and more beside it");
#else
  CHECK(memory_most <= memory + k_memory_bytes_max);
#endif
  CHECK(eventually([&] { return open_descriptors(pid) <= descriptors + 1; }));
  CHECK(home->counters().failed == 0);
  CHECK(home->counters().link_failures == 0);
  besieged->tell("quit");
  CHECK(besieged->wait() == 0);
  // Five lines of a kind in ten seconds, and one that says how many more; two kinds.
  const auto periods = static_cast<std::size_t>((Clock::now() - begun) / std::chrono::seconds(10)) + 1;
  CHECK_MESSAGE(lines_of(besieged->log()) <= periods * 12, besieged->log().substr(0, 2000));
}

}  // namespace

TEST_CASE("S10 half-open handshakes without end, more than there is room for: peers go on, newcomers get in") {
  require_siege_is_harmless(80, false);
}

TEST_CASE("S10 writers of one byte a second at the door: peers go on, newcomers get in") {
  require_siege_is_harmless(40, true);
}
