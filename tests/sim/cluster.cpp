// SPDX-License-Identifier: Apache-2.0
//
// The cluster's machinery: lives of ranks, their ends, and the clock.
#include "cluster.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/assert.hpp"
#include "cluster_parts.hpp"
#include "links/tcp/factory.hpp"

namespace hixl::sim {

namespace {

/// Turns a core from a virtual port.
class VirtualDriver final : public runtime::Driver {
 public:
  VirtualDriver(runtime::VirtualWorld& world, runtime::EventPort& port) : world_(world), port_(port) {}
  ~VirtualDriver() override { stop({}); }
  runtime::EventPort& port() override { return port_; }
  Result<void> start(runtime::Loop& loop, const runtime::DriverOptions&) override {
    world_.add(loop, port_);
    added_ = true;
    return {};
  }
  void allow_spin(bool) override {}
  void stop(std::function<void()> closed) override {
    if (std::exchange(added_, false) && world_.alive(port_)) world_.remove(port_);
    if (closed) closed();
  }
  void join() override {}
  [[nodiscard]] bool own_thread() const override { return false; }

 private:
  runtime::VirtualWorld& world_;
  runtime::EventPort& port_;
  bool added_ = false;
};

/// Between two starts of a process that finds its rank taken.
constexpr Duration k_restart_pause = std::chrono::seconds(2);

Shape draw_shape(Tape& tape, const Cluster::Settings& settings) {
  Choices choices = tape.lane(Lane::shape);
  Shape shape = Shape::draw(choices);
  for (const std::string& setting : settings.set) {
    const bool known = shape.set(setting).has_value();
    HIXL_ASSERT(known);
  }
  return shape;
}

}  // namespace

std::uint64_t Cluster::first_life(Rank rank) noexcept { return std::uint64_t{rank} << 32U; }

Cluster::Cluster(Tape& tape, const Settings& settings)
    : story_(settings.story),
      random_(tape.lane(Lane::load)),
      trouble_(tape.lane(Lane::trouble)),
      contents_(1),
      shape_(draw_shape(tape, settings)),
      world_(tape.lane(Lane::world), shape_.net),
      taps_{.random = tape.lane(Lane::taps), .rare = rare_},
      corruptor_(taps_.random, rare_) {
  taps_.faults = shape_.control;
  taps_.lie_per_mille = shape_.lie_per_mille;
  corruptor_.set_rate(shape_.flip_per_mille);
  corruptor_.set_payload(shape_.payload_check);
  if (shape_.flip_per_mille > 0) world_.set_editor(&corruptor_);
  world_.set_witness(this);
  if (shape_.with_fabric) fabric_.emplace(world_, shape_.card);
  if (shape_.rails > 0) rdma_ = RdmaCards::make(world_, shape_.rails, shape_.rdma);
  make_store();
  ranks_.resize(shape_.size);
  births_.resize(shape_.size);
  restart_at_.resize(shape_.size);
  for (Rank rank = 0; rank < shape_.size; ++rank) ranks_[rank] = &start(rank);
}

Cluster::~Cluster() {
  take_down();
  world_.set_editor(nullptr);
  world_.set_witness(nullptr);
  store_.reset();
  if (store_port_ != nullptr && world_.alive(*store_port_)) world_.remove(*store_port_);
  store_loop_.reset();
}

void Cluster::make_store() {
  store_port_ = &world_.make_port("store");
  store_loop_ = std::make_unique<runtime::Loop>(*store_port_, world_.draw_seed(), 64);
  auto server = group::StoreServer::listen(*store_loop_, *runtime::Address::parse("127.0.0.1:0"));
  HIXL_ASSERT(server.has_value());
  store_ = std::move(*server);
  store_url_ = "tcp://" + store_->address().text();
  world_.add(*store_loop_, *store_port_);
}

Cluster::Life& Cluster::start(Rank rank) {
  auto life = std::make_unique<Life>();
  life->rank = rank;
  life->port = &world_.make_port(fmt::format("rank{}", rank));
  life->pairs.resize(shape_.size);
  core::Parts parts;
  parts.driver = std::make_unique<VirtualDriver>(world_, *life->port);
  parts.hosted = true;
  const auto now = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(world_.now().time_since_epoch()).count());
  parts.start = {.born = now, .host = 1, .since_boot = now};
  // Every rank of a seed has tcp; with the fabric, that is the better link and tcp the spare.
  for (std::uint32_t i = 0; fabric_ && i < shape_.card_links; ++i) {
    parts.factories.push_back(make_tap(taps_, rank, links::make_sim_factory(*fabric_)));
  }
  parts.factories.push_back(make_tap(taps_, rank, links::make_tcp_factory()));
  if (rdma_ != nullptr) {
    parts.add_factories = [this, rank, port = life->port](auto& factories, runtime::Loop& loop) {
      auto factory = rdma_->make_factory(*port, rank, loop, random_);
      if (factory != nullptr) factories.insert(factories.begin(), make_tap(taps_, rank, std::move(factory)));
    };
  }
  if (shape_.narrow_windows) parts.atomic_window = static_cast<std::uint32_t>(random_.between(1, 6));
  RuntimeOptions options;
  options.rank = rank;
  options.world_size = shape_.size;
  options.store = store_url_;
  options.seed = world_.draw_seed() ^ unique();  // two lives are never the same, whatever is drawn
  options.requests_max = 64;
  options.regions_max = 16;
  options.tx_depth = static_cast<std::uint32_t>(random_.between(1, random_.between(1, shape_.depth_max)));
  options.max_inline = life->inline_max = static_cast<std::uint32_t>(random_.between(0, 256));
  options.chunk_bytes = static_cast<std::uint32_t>(random_.between(4U << 10U, 8U << 10U));
  options.lease = std::chrono::milliseconds(random_.between(500, 3000));
  options.connect_timeout = std::chrono::seconds(600);
  options.tcp_links = shape_.tcp_links;
  options.stall = std::chrono::milliseconds(shape_.stall_ms);
  options.retry.count = static_cast<std::uint32_t>(random_.between(0, 5));
  if (shape_.payload_check) options.payload_check = PayloadCheck::crc32c;
  for (std::uint32_t i = 0; i < std::max(shape_.card_links, shape_.tcp_links); ++i) {
    // From where a chunk takes a tenth of a second to where it takes no time.
    const bool limited = random_.chance(shape_.limited_per_mille);
    options.max_bandwidth.push_back(limited ? random_.between(k_bandwidth_min, k_bandwidth_min << 10U) : 0);
  }
  life->lease = options.lease;
  auto core = core::Core::create(options, std::move(parts));
  HIXL_ASSERT(core.has_value());
  life->core = std::move(*core);
  life->memory = std::make_shared<Memory>(contents_.next());
  life->memory->expect_damage(shape_.payload_check && shape_.flip_per_mille > 0);
  const auto region = life->core->register_memory(life->memory->data(), life->memory->size(), {});
  HIXL_ASSERT(region.has_value());
  life->region = *region;
  life->keys.insert({region->key.id, region->key.generation});
  memories_[life->core->incarnation()] = life->memory;
  if (births_[rank]++ > 0) count(Rare::restarted);
  life->number = first_life(rank) + births_[rank];
  say("rank {} starts, life {:x}, lease {} ms", rank, life->core->incarnation(), options.lease.count());
  lives_.push_back(std::move(life));
  return *lives_.back();
}

/// Nobody asks any more what becomes of that life's operations and memory.
void Cluster::bury(Life& life) {
  ranks_[life.rank] = nullptr;
  life.dead = true;
  life.memory->lose();
  forget_entered(life.rank);
  std::erase_if(open_, [&](Operation* operation) {
    if (operation->life != &life) return false;
    orphan(*operation);
    return true;
  });
}

void Cluster::kill(Rank rank) {
  Life& life = *ranks_[rank];
  count(Rare::killed);
  Duration held{};
  if (faults_ && trouble_.chance(shape_.inherit_per_mille)) {
    held = std::chrono::milliseconds(trouble_.between(1, 5000));
    count(Rare::descriptors_inherited);
  }
  say("rank {} is killed; a child of it lives for {} ms", rank, held / std::chrono::milliseconds(1));
  world_.kill(*life.port, held);
  if (rdma_ != nullptr) rdma_->kill(*life.port, held);
  bury(life);
}

/// The process hangs, and whoever supervises it starts another one. It wakes up later and knows nothing of that.
void Cluster::replace(Rank rank) {
  Life& life = *ranks_[rank];
  const Duration time = std::chrono::milliseconds(trouble_.between(100, 8000));
  count(Rare::replaced);
  say("rank {} hangs for {} us and is replaced", rank, time.count() / 1000);
  world_.pause(*life.port, time);
  world_.reset(*life.port, *store_port_);
  bury(life);
  ranks_[rank] = &start(rank);
}

/// One that woke up before its successor had claimed the rank keeps it: it lives, and nobody has replaced it. It is the
/// supervisor's to end, when the next life finds the rank taken.
void Cluster::end_zombies(Rank rank) {
  for (const auto& life : lives_) {
    if (life->rank != rank || !life->dead || life->left || !world_.alive(*life->port)) continue;
    say("the zombie {:x} of rank {} is killed", life->core->incarnation(), rank);
    world_.kill(*life->port);
    if (rdma_ != nullptr) rdma_->kill(*life->port, {});
  }
}

void Cluster::leave(Rank rank) {
  Life& life = *ranks_[rank];
  life.leaving = true;
  say("rank {} stops", rank);
  const auto asked = life.core->stop(
      std::chrono::milliseconds(trouble_.between(0, 2000)),
      [](void* context, const Result<void>&) {
        auto& gone = *static_cast<Life*>(context);
        gone.left = true;  // the cluster looks at it after this turn
      },
      &life);
  if (!asked) violate("S14", fmt::format("a stop was refused: {}", asked.error().message()));
}

/// A runtime that has stopped leaves nothing open, and nobody touches its memory any more.
void Cluster::on_left(Life& life) {
  ranks_[life.rank] = nullptr;
  life.dead = true;
  count(Rare::left);
  check_left(life);
  forget_entered(life.rank);
  say("rank {} has stopped", life.rank);
  for (const Operation* operation : open_) {
    if (operation->life == &life) {
      violate("S2", fmt::format("rank {} stopped, but its operation {} did not end", life.rank, operation->number));
    }
  }
  for (std::size_t slot = 0; slot < k_slots; ++slot) life.memory->freeze(slot);
}

bool Cluster::drive(Duration time, Load load) {
  const Instant end = world_.now() + time;
  while (world_.now() < end && !violation_) {
    for (Life* life : ranks_) {
      if (life == nullptr) continue;
      if (life->left) {
        on_left(*life);
      } else if (!std::exchange(life->joined, life->joined || life->core->joined().done()) && life->joined &&
                 !life->core->joined().query()) {
        say("rank {} could not join and exits", life->rank);
        count(Rare::rank_taken);
        restart_at_[life->rank] = world_.now() + k_restart_pause;
        world_.kill(*life->port);
        if (rdma_ != nullptr) rdma_->kill(*life->port, {});
        const Rank rank = life->rank;
        bury(*life);
        if (!faults_) end_zombies(rank);
      }
    }
    if (load == Load::none && open_.empty()) return true;
    if (load != Load::none && (!faults_ || operations_.size() < shape_.operations_max)) turn_workload(load);
    if (load != Load::none) turn_barriers();
    if (faults_) {
      inject_faults();
    } else {
      for (Rank rank = 0; rank < shape_.size; ++rank) {
        if (ranks_[rank] == nullptr && world_.now() >= restart_at_[rank]) ranks_[rank] = &start(rank);
      }
    }
    const Instant next = world_.now() + (faults_ ? shape_.look : Duration(std::chrono::milliseconds(5)));
    while (world_.now() < next && !violation_) {
      if (!world_.step()) world_.run_for(next - world_.now());
      check_signals();
      check_fences();
      check_releases();
    }
    check_round();
    note_settled();
  }
  return open_.empty();
}

/// Without stop(): what is open ends now, unfenced, and still exactly once.
void Cluster::take_down() {
  for (const auto& life : lives_) life->closing = true;
  if (fabric_) fabric_->halt();
  if (rdma_ != nullptr) rdma_->halt();
  for (const auto& life : lives_) life->core.reset();
  for (const Operation* operation : std::exchange(open_, {})) {
    if (!operation->ended) violate("S2", fmt::format("operation {} never ended", operation->number));
  }
}

Report Cluster::run() {
  static_cast<void>(drive(shape_.time, Load::full));
  if (!violation_) heal();
  Report report;
  report.events = world_.steps();
  report.operations = operations_.size();
  report.trace_hash = Random(world_.trace_hash() ^ ends_hash_).next();
  report.simulated = world_.now() - Instant{};
  take_down();
  if (fabric_) {
    count(Rare::ghosts_landed, fabric_->ghosts_landed());
    count(Rare::ghosts_refused, fabric_->ghosts_refused());
  }
  if (rdma_ != nullptr) count_cards();
  report.rare = rare_;
  report.shape = shape_;
  report.violation = violation_;
  return report;
}

}  // namespace hixl::sim
