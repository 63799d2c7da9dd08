// SPDX-License-Identifier: Apache-2.0
//
// Many BarrierActors on one loop with a clock of their own, joined by a control plane that delays, loses and doubles.
// Beside them an observer who knows what every life of every rank has said (invariant S8).
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "group/barrier.hpp"

namespace hixl::group::test {

class ClockPort final : public runtime::EventPort {
 public:
  Instant now() override { return time; }
  void wake() noexcept override {}
  Result<std::unique_ptr<runtime::Listener>> listen(const runtime::Address&, runtime::ListenerEvents&) override {
    return fail(ErrorCode::unsupported);
  }
  Result<std::unique_ptr<runtime::Stream>> connect(const runtime::Address&, Duration, runtime::StreamEvents&) override {
    return fail(ErrorCode::unsupported);
  }
  Result<std::unique_ptr<runtime::Watch>> watch(int, runtime::WatchEvents&) override {
    return fail(ErrorCode::unsupported);
  }
  Instant time{std::chrono::seconds(1)};
};

struct Faults {
  Duration delay_max{1'000'000};
  std::uint32_t drop_per_mille = 0;
  std::uint32_t double_per_mille = 0;
  std::uint32_t full_per_mille = 0;  // send_control answers false
};

/// One barrier call of one rank.
struct Call {
  Rank rank = 0;
  Instant entered{};
  Instant left{};
  bool ended = false;
  int times_ended = 0;
  Result<void> result{};
};

class BarrierWorld {
 public:
  explicit BarrierWorld(std::size_t ranks, std::uint64_t seed, const Faults& with = {})
      : faults(with), random(seed), loop_(port_, seed, 64) {
    for (Rank rank = 0; rank < ranks; ++rank) {
      nodes_.push_back(std::make_unique<Node>(*this, rank));
      nodes_.back()->actor.emplace(loop_, *nodes_.back(), rank);
      nodes_.back()->known_life.assign(ranks, 1);
    }
  }

  [[nodiscard]] Instant now() const { return port_.time; }
  Call& enter(Rank rank, std::vector<Rank> ranks, Duration time) {
    auto& call = calls_.emplace_back(std::make_unique<OpenCall>());
    call->world = this;
    call->rank = rank;
    call->entered = now();
    nodes_[rank]->actor->enter({std::move(ranks), now() + time, &BarrierWorld::on_done, call.get()});
    CHECK_FALSE(call->ended);  // never inline
    return *call;
  }
  std::vector<Rank> all() const {
    std::vector<Rank> ranks(nodes_.size());
    for (Rank rank = 0; rank < ranks.size(); ++rank) ranks[rank] = rank;
    return ranks;
  }

  /// The rank dies and a new life of it starts. Others learn of it after a while, at the latest with its first note.
  void restart(Rank rank) {
    Node& node = *nodes_[rank];
    ++node.life;
    node.actor.emplace(loop_, node, rank);
    for (auto& call : calls_) {
      if (call->rank == rank && !call->ended) call->ended = true;  // died with it
    }
    for (auto& other : nodes_) node.known_life[other->rank] = other->life;
    for (auto& other : nodes_) {
      if (other->rank == rank) continue;
      post({.to = other->rank, .to_life = other->life, .from = rank, .from_life = node.life, .note = {}});
    }
  }
  void stop(Rank rank) { nodes_[rank]->actor->stop(); }

  template <class Predicate>
  bool run_until(Predicate&& until, Duration time) {
    const Instant end = now() + time;
    while (!until()) {
      if (!step(end)) return until();
    }
    return true;
  }
  void run_for(Duration time) {
    const Instant end = now() + time;
    while (step(end)) {
    }
  }

  Faults faults;
  Random random;
  std::uint64_t notes_sent = 0;

 private:
  struct Node final : peer::ControlPlane {
    Node(BarrierWorld& in, Rank own) : world(in), rank(own) {}
    bool send_control(Rank to, wire::FrameType type, ConstBytes body) override {
      CHECK(type == wire::FrameType::barrier);
      return world.on_send(*this, to, body);
    }
    BarrierWorld& world;
    Rank rank;
    std::uint32_t life = 1;
    std::vector<std::uint32_t> known_life;  // of every rank, as far as this one has heard
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> said;  // (group, own life) → highest number
    std::optional<BarrierActor> actor;
  };
  struct OpenCall : Call {
    BarrierWorld* world = nullptr;
  };
  struct Parcel {
    Rank to = 0;
    std::uint32_t to_life = 0;
    Rank from = 0;
    std::uint32_t from_life = 0;
    std::optional<wire::Barrier> note;  // none: only the news of a new life
  };

  static void on_done(void* context, const Result<void>& result) {
    auto& call = *static_cast<OpenCall*>(context);
    call.ended = true;
    ++call.times_ended;
    call.result = result;
    call.left = call.world->now();
  }

  bool on_send(Node& from, Rank to, ConstBytes body) {
    wire::Barrier note;
    REQUIRE(wire::decode_body(body, note));
    ++notes_sent;
    auto& said = from.said[{note.group, from.life}];
    said = std::max(said, note.number);
    if (random.chance(faults.full_per_mille)) return false;
    // A connection is one between two lives: what was meant for a former life reaches nobody.
    if (from.known_life[to] != nodes_[to]->life || random.chance(faults.drop_per_mille)) return true;
    const Parcel parcel{to, nodes_[to]->life, from.rank, from.life, note};
    post(parcel);
    if (random.chance(faults.double_per_mille)) post(parcel);
    return true;
  }
  void post(const Parcel& parcel) {
    const auto delay = random.between(1, static_cast<std::uint64_t>(faults.delay_max.count()));
    parcels_.emplace(now() + Duration(static_cast<std::int64_t>(delay)), parcel);
  }
  void deliver(const Parcel& parcel) {
    Node& to = *nodes_[parcel.to];
    if (to.life != parcel.to_life || nodes_[parcel.from]->life != parcel.from_life) return;
    if (to.known_life[parcel.from] < parcel.from_life) {
      to.known_life[parcel.from] = parcel.from_life;
      to.actor->on_peer_down(parcel.from);
    }
    if (parcel.note) to.actor->on_barrier(parcel.from, *parcel.note);
  }
  bool step(Instant end) {
    const Instant parcel_at = parcels_.empty() ? k_never : parcels_.begin()->first;
    // The user looks in every 10 ms, also when nothing happens.
    const Instant at = std::max(std::min({parcel_at, loop_.next_due(), now() + std::chrono::milliseconds(10)}), now());
    const bool idle = loop_.prepare_sleep();
    loop_.awake();
    if (idle) {
      if (at > end) {
        port_.time = end;
        return false;
      }
      port_.time = at;
    }
    if (parcel_at <= now()) {
      const Parcel parcel = parcels_.begin()->second;
      parcels_.erase(parcels_.begin());
      deliver(parcel);
    }
    loop_.turn();
    return true;
  }

  ClockPort port_;
  runtime::Loop loop_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<OpenCall>> calls_;
  std::multimap<Instant, Parcel> parcels_;

 public:
  /// Highest number that any life of `rank` has said in the group, and its present life.
  struct Said {
    std::uint64_t ever = 0;
    std::uint64_t now = 0;
  };
  [[nodiscard]] Said said(Rank rank, std::uint64_t group) const {
    Said result;
    for (const auto& [key, number] : nodes_[rank]->said) {
      if (key.first != group) continue;
      result.ever = std::max(result.ever, number);
      if (key.second == nodes_[rank]->life) result.now = number;
    }
    return result;
  }
  /// The only group that the rank has said anything in.
  [[nodiscard]] std::uint64_t group_of(Rank rank) const {
    REQUIRE_FALSE(nodes_[rank]->said.empty());
    return nodes_[rank]->said.begin()->first.first;
  }
};

}  // namespace hixl::group::test
