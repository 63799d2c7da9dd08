// SPDX-License-Identifier: Apache-2.0
//
// "Hosts" with networks of their own: namespaces that a test makes, joins by virtual cables, and that vanish with the
// processes in them. They have no names, so that nothing can collide. Needs root; see permitted().
#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "child.hpp"
#include "settings.hpp"

namespace hixl::test {

/// A process that keeps network and mounts of its own until the test ends or dies.
class Host {
 public:
  Host() : keeper_("/usr/bin/unshare", {"-n", "-m", "/bin/sh", "-c", "ip link set lo up && echo ready; exec cat"}) {
    REQUIRE(keeper_.hear() == "ready");
  }
  [[nodiscard]] std::string pid() const { return std::to_string(keeper_.pid()); }
  [[nodiscard]] std::vector<std::string> inside(std::vector<std::string> command) const {
    std::vector<std::string> words{"-t", pid(), "-n", "-m"};
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  void run(const std::string& script) const {
    Child child("/usr/bin/nsenter", inside({"/bin/sh", "-ec", script}));
    const int code = child.wait();
    REQUIRE_MESSAGE(code == 0, script << "\n" << child.log());
  }
  /// A cable to another host; interfaces of one name at both ends.
  void connect(const Host& other, const std::string& interface) const {
    run("ip link add name " + interface + " type veth peer name " + interface + " netns " + other.pid());
    for (const Host* end : {this, &other}) end->run("ip link set " + interface + " up");
  }

 private:
  Child keeper_;
};

inline bool permitted() {
  for (const char* program : {"/usr/bin/unshare", "/usr/bin/nsenter"}) {
    if (::access(program, X_OK) == 0) continue;
    MESSAGE("skipped: no " << program);
    return false;
  }
  Child probe("/usr/bin/unshare", {"-n", "-m", "/bin/sh", "-c",
                                   "ip link set lo up && ip link add name hx0 type veth peer name hx1 && "
                                   "mount --bind /etc/hosts /etc/hosts"});
  if (probe.wait() == 0) return true;
  MESSAGE("skipped: network namespaces are not permitted here: " << probe.log());
  return false;
}

struct Place {
  Rank rank;
  std::string store_host;  ///< as this host writes it
  std::string bind;
  std::string advertise;
  std::uint32_t world = 4;
  long lease_ms = 500;
  std::size_t bytes = 2U << 20U;
  std::vector<std::string> environment{};  ///< on top
};

/// A driven rank of torchrun's kind on a host. Its only network is tcp; the store is at rank 0.
inline std::unique_ptr<Child> start(const Host& host, const Place& place, int connect_timeout_ms = 10'000) {
  std::vector<std::string> variables = {"RANK=" + std::to_string(place.rank),
                                        "WORLD_SIZE=" + std::to_string(place.world),
                                        "MASTER_ADDR=" + place.store_host,
                                        "MASTER_PORT=29500",
                                        "HIXL_JOB=test",
                                        "HIXL_STORE=",
                                        "HIXL_BIND=" + place.bind,
                                        "HIXL_ADVERTISE=" + place.advertise,
                                        "HIXL_INSECURE=1",
                                        "HIXL_LINKS=tcp"};
  variables.insert(variables.end(), place.environment.begin(), place.environment.end());
  return std::make_unique<Child>(
      "/usr/bin/nsenter",
      host.inside({settings().rank_program, "--bytes", std::to_string(place.bytes), "--lease-ms",
                   std::to_string(place.lease_ms), "--connect-timeout-ms", std::to_string(connect_timeout_ms)}),
      variables);
}

inline void require_meeting(Child& a, Rank rank_a, Child& b, Rank rank_b) {
  a.tell("exchange " + std::to_string(rank_b));
  b.tell("exchange " + std::to_string(rank_a));
  REQUIRE_MESSAGE(a.hear() == "ok", a.log());
  REQUIRE_MESSAGE(b.hear() == "ok", b.log());
}
inline void require_traffic(Child& from, Child& to, Rank rank_to, int seed) {
  const std::string what = " 64 1048593 " + std::to_string(seed);
  REQUIRE_MESSAGE(from.ask("put " + std::to_string(rank_to) + what) == "ok", from.log());
  REQUIRE(to.ask("check" + what) == "ok");
}
inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace hixl::test
