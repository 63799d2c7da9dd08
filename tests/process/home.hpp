// SPDX-License-Identifier: Apache-2.0
//
// Home: rank 0 and the store, in the test's own process. Guest: another rank, in a process of its own, driven by lines
// (rank_program.cpp says which).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../api/world.hpp"
#include "child.hpp"
#include "proc.hpp"
#include "settings.hpp"

namespace hixl::test {

/// Lease of every rank here: the shortest that is allowed.
inline constexpr std::chrono::milliseconds k_lease{500};
/// Long enough that nothing that a test does, and no crowded machine, is taken for a death.
inline constexpr std::chrono::milliseconds k_long_lease{30'000};

/// What few tests want otherwise.
struct HomeOptions {
  std::string bind = "127.0.0.1";
  std::string advertise{};
  std::chrono::milliseconds lease = k_lease;
};

class Home {
 public:
  explicit Home(std::uint32_t world_size, std::string links = "", std::size_t bytes = 8U << 20U,
                const HomeOptions& own = {})
      : world_size_(world_size), links_(std::move(links)) {
    auto store = Store::create("tcp://127.0.0.1:0");
    require_ok(store);
    store_ = std::move(*store);
    std::vector<LinkKind> kinds;
    for (const LinkKind kind : {LinkKind::tcp, LinkKind::hccs, LinkKind::pcie}) {
      if (links_.find(name(kind)) != std::string::npos) kinds.push_back(kind);
    }
    RuntimeOptions options = options_for(0, world_size_, store_->url(), kinds);
    options.lease = own.lease;
    options.bind = own.bind;
    options.advertise = own.advertise;
    auto runtime = Runtime::create(options);
    require_ok(runtime);
    runtime_ = std::move(*runtime);
    auto region = runtime_->allocate(bytes);
    require_ok(region);
    region_ = *region;
  }
  Runtime& operator*() { return *runtime_; }
  Runtime* operator->() { return runtime_.get(); }
  [[nodiscard]] const Region& region() const noexcept { return region_; }
  [[nodiscard]] std::byte* data() const noexcept { return region_.data; }

  /// The environment of another rank of this world.
  [[nodiscard]] std::vector<std::string> environment(Rank rank) const {
    return {"HIXL_RANK=" + std::to_string(rank), "HIXL_WORLD_SIZE=" + std::to_string(world_size_),
            "HIXL_STORE=" + store_->url(), "HIXL_LINKS=" + links_};
  }
  /// Exchanges with one rank, which does the same; its first region.
  RemoteRegion meet(Rank rank) { return meet(rank, region_); }
  RemoteRegion meet(Rank rank, const Region& mine) {
    auto answers = runtime_->exchange(std::span(&mine, 1), std::span(&rank, 1), k_patience);
    REQUIRE(answers.size() == 1);
    // The death of an earlier life that had not been noticed yet may end the first try, and no other (P6).
    if (code_of(answers.front().result) == ErrorCode::peer_lost) {
      answers = runtime_->exchange(std::span(&mine, 1), std::span(&rank, 1), k_patience);
      REQUIRE(answers.size() == 1);
    }
    require_ok(answers.front().result);
    REQUIRE(answers.front().regions.size() == 1);
    return answers.front().regions.front();
  }

 private:
  std::uint32_t world_size_;
  std::string links_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Runtime> runtime_;
  Region region_;
};

/// A driven rank that has met rank 0 when its constructor returns.
class Guest {
 public:
  Guest(Home& home, Rank rank, std::vector<std::string> arguments = {}, std::chrono::milliseconds lease = k_lease)
      : rank_(rank), child_(settings().rank_program, with_lease(std::move(arguments), lease), home.environment(rank)) {
    child_.tell("exchange 0");
    remote_ = home.meet(rank);
    REQUIRE(child_.hear() == "ok");
  }
  Child& operator*() { return child_; }
  Child* operator->() { return &child_; }
  [[nodiscard]] Rank rank() const noexcept { return rank_; }
  [[nodiscard]] const RemoteRegion& remote() const noexcept { return remote_; }

 private:
  static std::vector<std::string> with_lease(std::vector<std::string> arguments, std::chrono::milliseconds lease) {
    arguments.push_back("--lease-ms");
    arguments.push_back(std::to_string(lease.count()));
    return arguments;
  }
  Rank rank_;
  Child child_;
  RemoteRegion remote_;
};

/// Each side puts into the other's region and gets its own bytes back: everything works, with the addresses at hand.
inline void require_traffic_both_ways(Home& home, Guest& guest, std::uint64_t seed) {
  CAPTURE(guest.rank());
  constexpr std::size_t k_bytes = (1U << 20U) + 17;
  fill_pattern(home.data(), k_bytes, seed);
  require_ok(home->put_sync(home.data(), guest.remote().at(64), k_bytes, k_patience));
  REQUIRE(guest->ask("check 64 " + std::to_string(k_bytes) + " " + std::to_string(seed)) == "ok");
  std::memset(home.data(), 0, k_bytes);
  require_ok(home->get_sync(home.data(), guest.remote().at(64), k_bytes, k_patience));
  REQUIRE(holds_pattern(home.data(), k_bytes, seed));
  // For TSan, which does not see that the other process' bytes come after ours and before what follows: our loop, which
  // writes them, and this thread wait for each other.
  static_cast<void>(home->counters());
  REQUIRE(guest->ask("put 0 64 " + std::to_string(k_bytes) + " " + std::to_string(seed + 1)) == "ok");
  static_cast<void>(home->counters());
  REQUIRE(holds_pattern(home.data() + 64, k_bytes, seed + 1));
}

}  // namespace hixl::test
