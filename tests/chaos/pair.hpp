// SPDX-License-Identifier: Apache-2.0
//
// Two ranks on tcp with a fault proxy before the door of each, so that every connection between them, whoever dials,
// goes through one that the test commands. Each rank listens at a loopback address of its own, and tells others the
// address of its proxy, which has the same port at another one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "../api/world.hpp"
#include "../process/proc.hpp"
#include "proxy.hpp"

namespace hixl::test {

/// An address in 127.0.0.0/8 that nobody else has: not in this process, and very likely in no other.
inline std::string own_loopback_address() {
  static std::atomic<std::uint32_t> next{std::random_device{}() % (1U << 23U)};
  // 127.64.0.0 and up, since programs like the addresses below; never 0 or 255 at the end.
  const std::uint32_t number = next.fetch_add(1) % (1U << 21U);
  return "127." + std::to_string(64 + (number >> 15U)) + "." + std::to_string((number >> 7U) & 0xffU) + "." +
         std::to_string(1 + (number & 0x7fU));
}

/// Where a rank listens, and where others are told that it does.
struct Door {
  std::string bound = own_loopback_address();
  std::string told = own_loopback_address();
  std::unique_ptr<Proxy> proxy;

  /// When the rank listens.
  void open() { proxy = std::make_unique<Proxy>(told, bound, listening_port_at(bound)); }
};

struct PairOptions {
  std::chrono::milliseconds lease = std::chrono::seconds(30);
  std::size_t links = 1;
  PayloadCheck check = PayloadCheck::off;
};

/// Both ranks in this process.
class Pair {
 public:
  explicit Pair(std::size_t bytes, const PairOptions& chosen = {}) {
    auto store = Store::create("tcp://127.0.0.1:0");
    require_ok(store);
    store_ = std::move(*store);
    for (Rank rank = 0; rank < 2; ++rank) {
      RuntimeOptions options = options_for(rank, 2, store_->url(), {LinkKind::tcp});
      doors_[rank].resize(chosen.links);
      options.bind.clear();
      for (const Door& door : doors_[rank]) {
        const std::string comma = options.bind.empty() ? "" : ",";
        options.bind += comma + door.bound;
        options.advertise += comma + door.told;
      }
      options.lease = chosen.lease;
      options.payload_check = chosen.check;
      auto runtime = Runtime::create(options);
      require_ok(runtime);
      ranks_[rank] = std::move(*runtime);
      for (Door& door : doors_[rank]) door.open();
      auto region = ranks_[rank]->allocate(bytes);
      require_ok(region);
      regions_[rank] = *region;
    }
  }
  Runtime& operator[](std::size_t rank) { return *ranks_[rank]; }
  Proxy& door(std::size_t rank, std::size_t link = 0) { return *doors_[rank][link].proxy; }
  [[nodiscard]] const Region& region(std::size_t rank) const { return regions_[rank]; }
  /// The region of the other rank, as this one knows it.
  [[nodiscard]] const RemoteRegion& seen_by(std::size_t rank) const { return seen_[rank]; }
  void plan(const std::vector<Fate>& next, std::size_t link = 0) {
    for (auto& doors : doors_) doors[link].proxy->plan(next);
  }
  /// Of that link, at whichever door and whichever way.
  void strike(Fate::Kind kind, std::uint64_t after, std::size_t link = 0) {
    for (auto& doors : doors_) {
      for (const Way way : {Way::there, Way::back}) {
        doors[link].proxy->strike({.kind = kind, .way = way, .after = after});
      }
    }
  }
  void heal(std::size_t link = 0) {
    for (auto& doors : doors_) doors[link].proxy->heal();
  }
  /// All links of both stand.
  [[nodiscard]] bool stands() {
    for (auto& rank : ranks_) {
      for (const LinkInfo& link : rank->links()) {
        if (link.kind == LinkKind::tcp && link.state != "UP") return false;
      }
    }
    return true;
  }

  /// Both exchange: empty, or the first error.
  [[nodiscard]] std::string meet() {
    struct Wait {
      PeerAddresses answer;
      std::atomic<bool> here{false};
    };
    std::array<Wait, 2> waits;
    for (Rank rank = 0; rank < 2; ++rank) {
      const Rank other = 1 - rank;
      const auto asked = ranks_[rank]->exchange_async(
          std::span(&regions_[rank], 1), std::span(&other, 1), k_patience,
          [](void* context, std::vector<PeerAddresses>&& answers) {
            auto& wait = *static_cast<Wait*>(context);
            wait.answer = std::move(answers.front());
            wait.here.store(true);
            wait.here.notify_all();
          },
          &waits[rank]);
      if (!asked) return asked.error().message();
    }
    std::string fault;
    for (Rank rank = 0; rank < 2; ++rank) {
      waits[rank].here.wait(false);
      if (!waits[rank].answer.result) fault = waits[rank].answer.result.error().message();
      if (fault.empty()) seen_[rank] = waits[rank].answer.regions.front();
    }
    return fault;
  }

 private:
  std::unique_ptr<Store> store_;
  std::array<std::vector<Door>, 2> doors_;
  std::array<std::unique_ptr<Runtime>, 2> ranks_;
  std::array<Region, 2> regions_;
  std::array<RemoteRegion, 2> seen_;
};

}  // namespace hixl::test
