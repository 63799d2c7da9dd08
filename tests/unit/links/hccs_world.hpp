// SPDX-License-Identifier: Apache-2.0
//
// Two ranks with a window link between them, turned by the test in one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include "base/random.hpp"
#include "links/hccs/factory.hpp"
#include "links/link.hpp"
#include "record.hpp"
#include "socket_port.hpp"

namespace hixl::hccs_test {

using test::Record;

inline constexpr SessionId k_session = 4;
inline constexpr LinkId k_link_id = 2;
inline constexpr LinkGen k_link_gen = 7;

/// One rank: its memory, its loop, and at most one link.
struct Side {
  SocketPort port;
  runtime::Loop loop;
  std::unique_ptr<memory::RegionTable> regions;
  memory::RemoteTable remotes{64};
  std::unique_ptr<memory::SignalPage> signals;
  std::unique_ptr<links::LinkFactory> factory;
  Record record;
  std::unique_ptr<links::Link> link;
  Rank peer;

  Side(Rank self, std::uint64_t seed)
      : loop(port, seed, 256),
        regions(std::move(*memory::RegionTable::create(64, seed))),
        signals(std::move(*memory::SignalPage::create(std::chrono::hours(1)))),  // only a bell wakes
        factory(links::make_hccs_factory(loop, 1)),
        peer(1 - self) {}

  void connect(runtime::Fd fd, std::uint32_t tx_depth = 32, std::uint32_t rx_depth = 32) {
    auto stream = std::make_unique<links::FrameStream>(port.adopt(std::move(fd)), loop);
    const links::LinkServices services{loop, *regions, remotes, *signals, tx_depth, rx_depth};
    link = factory->make({peer, k_session, k_link_id, k_link_gen, peer == 0}, std::move(stream), services, record);
    record.link = link.get();
  }
  bool turn() {
    const bool told = port.dispatch();
    return loop.turn() || told;
  }
  /// Tells the other side of a region of ours: what the exchange of the peer room does.
  [[nodiscard]] wire::RegionDescriptor publish(const memory::RegionInfo& info, Side& to, Rank self) const {
    const auto base = reinterpret_cast<std::uint64_t>(info.data);
    REQUIRE(to.remotes.add({self, 1, info.key, info.token, base, info.size, info.rights, info.tag}));
    return {info.key, info.token, base, info.size, info.rights, info.tag, info.window_id, info.window_offset};
  }
};

/// Turns the sides until `done()`; false when nothing more happens or after far too many turns.
template <class Done>
[[nodiscard]] bool drive(std::span<Side* const> sides, Done&& done) {
  constexpr int k_turns_max = 200'000;
  constexpr int k_patience_ms = 20;  // for an engine's bell; a busy machine may need several
  int idle = 0;
  for (int turn = 0; turn < k_turns_max && idle < 500; ++turn) {
    if (done()) return true;
    bool any = false;
    for (Side* side : sides) any |= side->turn();
    if (any) {
      idle = 0;
      continue;
    }
    bool sleepy = true;
    for (Side* side : sides) sleepy &= side->loop.prepare_sleep();
    if (sleepy) {
      std::vector<pollfd> queries;
      for (Side* side : sides) {
        for (const int fd : side->port.descriptors()) queries.push_back({fd, POLLIN, 0});
      }
      idle += ::poll(queries.data(), queries.size(), k_patience_ms) == 0 ? 1 : 0;
    }
    for (Side* side : sides) side->loop.awake();
  }
  return done();
}

struct World {
  Side a{0, 11};
  Side b{1, 12};

  explicit World(std::uint32_t tx_depth = 32, std::uint32_t rx_depth = 32) {
    auto pair = socket_pair();
    a.connect(std::move(pair[0]), tx_depth, rx_depth);
    b.connect(std::move(pair[1]), tx_depth, rx_depth);
    REQUIRE(until([&] { return a.record.up == 1 && b.record.up == 1; }));
  }
  template <class Done>
  [[nodiscard]] bool until(Done&& done) {
    Side* const sides[] = {&a, &b};
    return drive(sides, done);
  }
  /// A window of b that a has attached.
  [[nodiscard]] memory::RegionInfo shared(std::size_t bytes) {
    const auto info = b.regions->allocate(bytes, {});
    REQUIRE(info);
    const auto descriptor = b.publish(*info, a, 1);
    const std::size_t before = a.record.attached.size();
    if (a.link->attach(descriptor) == links::Answer::posted) {
      REQUIRE(until([&] { return a.record.attached.size() > before; }));
      REQUIRE(a.record.attached.back().second);
    }
    REQUIRE(a.remotes.mapping(info->key) != nullptr);
    return *info;
  }
  /// Posts and waits for the end.
  [[nodiscard]] ErrorCode run(links::Post post) {
    post.cookie = ++cookie;
    const links::Answer answer = a.link->post(post);
    if (answer == links::Answer::busy) return ErrorCode::busy;
    if (answer == links::Answer::done) return ErrorCode::ok;
    REQUIRE(until([&] { return a.record.completion(cookie) != nullptr; }));
    return a.record.completion(cookie)->error.code;
  }
  std::uint64_t cookie = 0;
};

[[nodiscard]] inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> data(bytes);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random.next());
  return data;
}

}  // namespace hixl::hccs_test
