// SPDX-License-Identifier: Apache-2.0
//
// Many BarrierActors, with the FormationActors beside them, on one loop with a clock of their own, joined by a control
// plane that delays, loses and doubles. Beside them an observer who knows what every life of every rank has said (S8).
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "group/formation.hpp"

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
  std::optional<Rank> cut_off{};     // nothing reaches it or comes from it
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
/// One create call of one rank.
struct CreateCall {
  int times_ended = 0;
  Result<std::uint64_t> result = fail(ErrorCode::busy);
  std::shared_ptr<memory::BarrierPage> page;
  [[nodiscard]] bool ended() const { return times_ended > 0; }
};

class BarrierWorld {
 public:
  explicit BarrierWorld(std::size_t ranks, std::uint64_t seed, const Faults& with = {})
      : faults(with), random(seed), loop_(port_, seed, 64) {
    for (Rank rank = 0; rank < ranks; ++rank) {
      nodes_.push_back(std::make_unique<Node>(*this, rank));
      nodes_.back()->born(loop_);
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
  Call& enter_group(Rank rank, std::uint64_t name, Duration time) {
    auto& call = calls_.emplace_back(std::make_unique<OpenCall>());
    call->world = this;
    call->rank = rank;
    call->entered = now();
    nodes_[rank]->actor->enter(name, {now() + time, &BarrierWorld::on_done, call.get()});
    CHECK_FALSE(call->ended);
    return *call;
  }
  CreateCall& create(Rank rank, std::vector<Rank> ranks, Duration time, std::uint64_t options = 0,
                     std::uint32_t tag = 0) {
    auto& call = creates_.emplace_back(std::make_unique<CreateCall>());
    nodes_[rank]->formation->form({std::move(ranks), tag, options, now() + time,
                                   [](void* context, const Result<FormationActor::Formed>& formed) {
                                     auto& ended = *static_cast<CreateCall*>(context);
                                     ++ended.times_ended;
                                     ended.page = formed ? formed->page : nullptr;
                                     ended.result = formed.map([](const auto& made) { return made.name; });
                                   },
                                   call.get(), pages});
    CHECK_FALSE(call->ended());
    return *call;
  }
  /// All ranks of the list make a group; its name.
  std::uint64_t make(const std::vector<Rank>& ranks) {
    std::vector<CreateCall*> calls;
    for (const Rank rank : ranks) calls.push_back(&create(rank, ranks, std::chrono::seconds(60)));
    REQUIRE(run_until([&] { return std::all_of(calls.begin(), calls.end(), [](auto* c) { return c->ended(); }); },
                      std::chrono::seconds(60)));
    for (const CreateCall* call : calls) {
      if (!call->result) FAIL(call->result.error().message());
      REQUIRE(*call->result == *calls.front()->result);
    }
    return *calls.front()->result;
  }
  void close(Rank rank, std::uint64_t name) { nodes_[rank]->actor->close(name); }
  [[nodiscard]] std::size_t groups(Rank rank) const { return nodes_[rank]->actor->groups(); }
  std::vector<Rank> all() const {
    std::vector<Rank> ranks(nodes_.size());
    for (Rank rank = 0; rank < ranks.size(); ++rank) ranks[rank] = rank;
    return ranks;
  }

  /// The rank dies and a new life of it starts. Others learn of it after a while, at the latest with its first note.
  void restart(Rank rank) {
    Node& node = *nodes_[rank];
    ++node.life;
    node.born(loop_);
    for (auto& call : calls_) {
      if (call->rank == rank && !call->ended) call->ended = true;  // died with it
    }
    for (auto& other : nodes_) node.known_life[other->rank] = other->life;
    for (auto& other : nodes_) {
      if (other->rank == rank) continue;
      post({.to = other->rank, .to_life = other->life, .from = rank, .from_life = node.life, .type = {}, .body = {}});
    }
  }
  void stop(Rank rank) {
    nodes_[rank]->formation->stop();
    nodes_[rank]->actor->stop();
  }

  /// One rank alone learns that the present life of another is over.
  void report_death(Rank dead, Rank to, peer::PeerEnd end = peer::PeerEnd::life) {
    nodes_[to]->actor->on_peer_down({dead, nodes_[dead]->life}, end);
  }

  /// A note as if it came from that life.
  void inject(Rank to, peer::PeerLife from, const wire::Barrier& note) { nodes_[to]->actor->on_barrier(from, note); }

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
  FormationActor::Pages pages = FormationActor::Pages::none;

 private:
  struct Node final : peer::ControlPlane {
    Node(BarrierWorld& in, Rank own) : world(in), rank(own) {}
    bool send_control(Rank to, wire::FrameType type, ConstBytes body) override {
      return world.on_send(*this, to, type, body);
    }
    void born(runtime::Loop& loop) {
      formation.reset();
      actor.emplace(loop, *this, rank);
      formation.emplace(loop, *this, *actor, peer::PeerLife{rank, life});
    }
    BarrierWorld& world;
    Rank rank;
    std::uint32_t life = 1;
    std::vector<std::uint32_t> known_life;  // of every rank, as far as this one has heard
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> said;  // (group, own life) → highest number
    std::optional<BarrierActor> actor;
    std::optional<FormationActor> formation;
  };
  struct OpenCall : Call {
    BarrierWorld* world = nullptr;
  };
  struct Parcel {
    Rank to = 0;
    std::uint32_t to_life = 0;
    Rank from = 0;
    std::uint32_t from_life = 0;
    wire::FrameType type{};
    std::vector<std::byte> body{};  // empty: only the news of a new life
  };

  static void on_done(void* context, const Result<void>& result) {
    auto& call = *static_cast<OpenCall*>(context);
    call.ended = true;
    ++call.times_ended;
    call.result = result;
    call.left = call.world->now();
  }

  bool on_send(Node& from, Rank to, wire::FrameType type, ConstBytes body) {
    if (type == wire::FrameType::barrier) {
      wire::Barrier note;
      REQUIRE(wire::decode_body(body, note));
      ++notes_sent;
      using wire::BarrierNote;
      // What a member says it has entered, and what the collector has released, which it has entered too.
      if (note.note == BarrierNote::arrived || note.note == BarrierNote::ask || note.note == BarrierNote::entered ||
          note.note == BarrierNote::released) {
        auto& said = from.said[{note.group, from.life}];
        said = std::max(said, note.number);
      }
    }
    if (random.chance(faults.full_per_mille)) return false;
    if (faults.cut_off == from.rank || faults.cut_off == to) return true;
    // A connection is one between two lives: what was meant for a former life reaches nobody.
    if (from.known_life[to] != nodes_[to]->life || random.chance(faults.drop_per_mille)) return true;
    const Parcel parcel{to, nodes_[to]->life, from.rank, from.life, type, {body.begin(), body.end()}};
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
      const peer::PeerLife dead{parcel.from, std::exchange(to.known_life[parcel.from], parcel.from_life)};
      to.formation->on_peer_down(dead, peer::PeerEnd::life);
      to.actor->on_peer_down(dead, peer::PeerEnd::life);
    }
    const peer::PeerLife from{parcel.from, parcel.from_life};
    if (parcel.type == wire::FrameType::barrier) {
      to.actor->on_barrier(from, decoded<wire::Barrier>(parcel));
    } else if (parcel.type == wire::FrameType::group_join) {
      to.formation->on_join(from, decoded<wire::GroupJoin>(parcel));
    } else if (parcel.type == wire::FrameType::group_answer) {
      to.formation->on_answer(from, decoded<wire::GroupAnswer>(parcel));
    }
  }
  template <class Message>
  static Message decoded(const Parcel& parcel) {
    Message message;
    REQUIRE(wire::decode_body(parcel.body, message));
    return message;
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
  std::vector<std::unique_ptr<CreateCall>> creates_;
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
