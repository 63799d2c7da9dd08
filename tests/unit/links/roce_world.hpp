// SPDX-License-Identifier: Apache-2.0
//
// Two ranks in the simulated world, each with a card, and what a test needs to put RDMA links on them.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "links/link.hpp"
#include "links/roce/factory.hpp"
#include "record.hpp"
#include "verbs_world.hpp"

namespace hixl::roce_test {

using test::k_steps_max;
using test::Record;

inline constexpr links::LinkIdentity k_identity{.rank = 1, .session = 4, .link_id = 2, .link_gen = 7, .dialled = true};

/// One rank: its memory, its loop, its card, and at most one link.
struct Side {
  /// `through`: what the card is seen through; null: nothing.
  using Through = std::shared_ptr<links::roce::Verbs> (*)(std::unique_ptr<links::roce::Verbs> verbs);
  Side(runtime::VirtualWorld& in, links::RdmaFabric& fabric, const char* name, Rank self_in, Through through = nullptr)
      : self(self_in),
        world(in),
        port(in.make_port(name)),
        loop(port, in.draw_seed(), 256),
        regions(std::move(*memory::RegionTable::create(64, self_in + 1))),
        signals(std::move(*memory::SignalPage::create())),
        verbs(through != nullptr ? through(links::make_sim_verbs(fabric, port, self_in))
                                 : links::make_sim_verbs(fabric, port, self_in)),
        factory(links::make_roce_factory(verbs, loop, {})) {
    world.add(loop, port);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  ~Side() {
    link.reset();
    factory.reset();
    world.remove(port);
  }
  void connect(std::unique_ptr<runtime::Stream> stream, bool dialled, std::uint32_t tx_depth) {
    link = make(std::move(stream), dialled, tx_depth, record);
  }
  [[nodiscard]] std::unique_ptr<links::Link> make(std::unique_ptr<runtime::Stream> stream, bool dialled,
                                                  std::uint32_t tx_depth, Record& to) {
    links::LinkIdentity identity = k_identity;
    identity.rank = 1 - self;
    identity.dialled = dialled;
    const links::LinkServices services{
        .loop = loop, .regions = *regions, .remotes = remotes, .signals = *signals, .tx_depth = tx_depth};
    auto made = factory->make(identity, std::make_unique<links::FrameStream>(std::move(stream), loop), services, to);
    to.link = made.get();
    return made;
  }
  /// A region of a peer, as it would have been told.
  void learn(const memory::RegionInfo& info, Rank of) {
    const auto base = reinterpret_cast<std::uint64_t>(info.data);
    REQUIRE(remotes.add({of, 1, info.key, info.token, base, info.size, info.rights, info.tag}));
  }
  [[nodiscard]] memory::RegionInfo add(std::span<std::byte> bytes) {
    return *regions->add(bytes.data(), bytes.size(), {.rights = Rights::all});
  }

  const Rank self;
  runtime::VirtualWorld& world;
  runtime::EventPort& port;
  runtime::Loop loop;
  std::unique_ptr<memory::RegionTable> regions;
  memory::RemoteTable remotes{64};
  std::unique_ptr<memory::SignalPage> signals;
  std::shared_ptr<links::roce::Verbs> verbs;
  std::unique_ptr<links::LinkFactory> factory;
  Record record;
  std::unique_ptr<links::Link> link;
};

/// Both ends of one connection.
struct Meeting final : runtime::ListenerEvents, runtime::StreamEvents {
  void on_accept(std::unique_ptr<runtime::Stream> stream) override { accepted = std::move(stream); }
  void on_connected(const Result<void>& result) override { connected = result.has_value(); }
  void on_readable() override {}
  void on_writable() override {}

  Meeting(Side& from, Side& to) {
    listener = std::move(*to.port.listen({runtime::Address::Family::tcp, "127.0.0.1", 0}, *this));
    dialled = std::move(*from.port.connect(listener->address(), std::chrono::seconds(10), *this));
    REQUIRE(from.world.run_until([&] { return connected && accepted != nullptr; }, k_steps_max));
    dialled->set_events(nullptr);
  }
  bool connected = false;
  std::unique_ptr<runtime::Stream> dialled, accepted;
  std::unique_ptr<runtime::Listener> listener;
};

/// The world; ranks 0 and 1 come and go before it does.
struct Cards {
  explicit Cards(std::uint64_t seed = 1) : world(seed), fabric(world, 1, test::calm()) {}
  template <class Done>
  [[nodiscard]] bool until(Done&& done) {
    return world.run_until(done, k_steps_max);
  }
  runtime::VirtualWorld world;
  links::RdmaFabric fabric;
};

/// Two links that are up; rank 0 has dialled.
struct Linked : Cards {
  explicit Linked(std::uint32_t tx_depth = 32, Side::Through through = nullptr) : a(world, fabric, "a", 0, through) {
    Meeting meeting(a, b);
    a.connect(std::move(meeting.dialled), true, tx_depth);
    b.connect(std::move(meeting.accepted), false, tx_depth);
    REQUIRE(until([&] { return a.record.up == 1 && b.record.up == 1; }));
  }
  /// Posts at rank 0 and waits for the end; its code.
  [[nodiscard]] ErrorCode run(const links::Post& post) {
    const std::size_t before = a.record.completions.size();
    REQUIRE(a.link->post(post) == links::Answer::posted);
    REQUIRE(until([&] { return a.record.completions.size() > before; }));
    return a.record.completions.back().error.code;
  }
  Side a;
  Side b{world, fabric, "b", 1};
};

}  // namespace hixl::roce_test
