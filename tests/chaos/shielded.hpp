// SPDX-License-Identifier: Apache-2.0
//
// Rank 0 in this process and others in processes of their own, each with a fault proxy before its door.
#pragma once

#include <string>
#include <vector>

#include "../process/home.hpp"
#include "pair.hpp"

namespace hixl::test {

struct ShieldedHome {
  Door door;
  Home home;

  ShieldedHome(std::uint32_t world_size, std::size_t bytes, std::chrono::milliseconds lease = k_long_lease)
      : home(world_size, "tcp", bytes, {.bind = door.bound, .advertise = door.told, .lease = lease}) {
    door.open();
  }
};

/// A driven rank that has met rank 0 when its constructor returns; all through the proxies.
class ShieldedGuest {
 public:
  ShieldedGuest(ShieldedHome& at, Rank rank, std::size_t bytes, std::chrono::milliseconds lease = k_long_lease)
      : child_(settings().rank_program, {"--bytes", std::to_string(bytes), "--lease-ms", std::to_string(lease.count())},
               environment(at.home, rank)) {
    REQUIRE(child_.ask("lost") == "0");  // it has joined
    door_.open();
    child_.tell("exchange 0");
    remote_ = at.home.meet(rank);
    REQUIRE(child_.hear() == "ok");
  }
  Child& operator*() { return child_; }
  Child* operator->() { return &child_; }
  Proxy& door() { return *door_.proxy; }
  [[nodiscard]] const RemoteRegion& remote() const noexcept { return remote_; }

 private:
  std::vector<std::string> environment(const Home& home, Rank rank) const {
    auto variables = home.environment(rank);
    variables.push_back("HIXL_BIND=" + door_.bound);
    variables.push_back("HIXL_ADVERTISE=" + door_.told);
    return variables;
  }
  Door door_;
  Child child_;
  RemoteRegion remote_;
};

}  // namespace hixl::test
