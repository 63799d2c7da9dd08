// SPDX-License-Identifier: Apache-2.0
#include "peer_world.hpp"

namespace hixl::peer::test {

Life::Life(PeerWorld& in, Rank own, bool fabric_too)
    : world(in), rank(own), port(in.world.make_port("rank" + std::to_string(own))) {
  Random random(in.world.draw_seed());
  for (std::byte& byte : memory) byte = static_cast<std::byte>(random.next());
  regions = *memory::RegionTable::create(8192, random.next());
  signals = *memory::SignalPage::create();
  loop = std::make_unique<runtime::Loop>(counting, random.next(), 256);
  const auto info = regions->add(memory.data(), memory.size(), {});
  REQUIRE(info.has_value());
  region = {.key = info->key,
            .token = info->token,
            .base = reinterpret_cast<std::uint64_t>(memory.data()),
            .length = memory.size(),
            .rights = info->rights,
            .tag = 1};
  services.emplace(PeerServices{.loop = *loop,
                                .regions = *regions,
                                .signals = *signals,
                                .book = *this,
                                .listener = *this,
                                .counters = counters,
                                .links = {}});
  if (fabric_too) factories.push_back(links::make_sim_factory(in.fabric));
  factories.push_back(links::make_tcp_factory());
  for (std::size_t i = 0; i < factories.size(); ++i) {
    const bool tcp = factories[i]->caps().kind == LinkKind::tcp;
    const std::uint32_t siblings = tcp ? in.pool.tcp_links : 1;
    for (std::uint32_t index = 0; index < siblings; ++index) {
      const auto& limits = in.pool.max_bandwidth;
      services->links.push_back({.factory = factories[i].get(),
                                 .id = static_cast<LinkId>(10 + i + index),
                                 .index = index,
                                 .siblings = siblings,
                                 .shares = siblings > 1 || in.pool.pooling == Pooling::all_kinds,
                                 .max_bandwidth = tcp && index < limits.size() ? limits[index] : 0});
    }
  }
  services->retry = in.pool.retry;
  services->pooling = in.pool.pooling;
  // Only that there is one counts: we are asked (on_degrade).
  if (in.pool.ask) services->retry.degrade.function = [](void*, const FailedPiece&) { return Degrade::fail; };
  services->timing.stall = in.pool.stall;
  services->peer_id = {.high = 7, .low = own + 1U};
  services->incarnation = random.identity();
  services->birth = ++in.births[own];
  services->rank = own;
  services->world_size = static_cast<std::uint32_t>(in.lives.size());
  services->chunk_bytes = 64U << 10U;
  services->regions_max = 8192;
  services->timing.lease = seconds(2);
  services->timing.heartbeat = milliseconds(200);
  directory = std::make_unique<Directory>(*services, 64);
  auto listening = port.listen(*runtime::Address::parse("127.0.0.1:0"), *directory);
  REQUIRE(listening.has_value());
  listener = std::move(*listening);
  endpoints = {.peer_id = services->peer_id,
               .incarnation = services->incarnation,
               .rank = own,
               .birth = services->birth,
               .unix_name = {},
               .addresses = {listener->address().text()}};
  in.world.add(*loop, port);
}

Life::~Life() {
  if (world.world.alive(port)) world.world.remove(port);
  directory->abort();
  directory->release();
}

Job& Life::post(TransferVerb verb, const Life& other, std::uint64_t local, std::uint64_t remote, std::uint64_t size,
                Duration time, std::uint64_t add) {
  Job& job = *jobs.emplace_back(std::make_unique<Job>());
  job.operation.slot = static_cast<std::uint32_t>(jobs.size() - 1);
  job.operation.rank = other.rank;
  job.operation.single = {.verb = verb,
                          .local = memory.data() + local,
                          .device = &memory::host_device(),
                          .region = other.region.key,
                          .token = other.region.token,
                          .offset = remote,
                          .size = size};
  if (add != 0) {
    job.operation.signal = {.wanted = true,
                            .verb = links::Verb::signal_add,
                            .region = other.region.key,
                            .token = other.region.token,
                            .offset = 0,
                            .value = add};
  }
  job.operation.deadline = world.world.now() + time;
  PeerActor& actor = to(other.rank);
  job.operation.place = known(other).order.place_of_transfer();
  actor.post(job.operation);
  CHECK_FALSE(job.ended());  // never inline
  wake();
  return job;
}

Job& Life::order(Operation::Kind kind, const Life& other, Duration time, const Error* over) {
  Job& job = *jobs.emplace_back(std::make_unique<Job>());
  job.operation.slot = static_cast<std::uint32_t>(jobs.size() - 1);
  job.operation.kind = kind;
  job.operation.deadline = world.world.now() + time;
  PeerActor& actor = to(other.rank);
  REQUIRE(known(other).gate.begin_order(1000));
  job.operation.place = known(other).order.begin();
  known(other).order.sent();
  actor.post(job.operation, over);
  CHECK_FALSE(job.ended());
  wake();
  return job;
}

Job& Life::add(const Life& other, std::uint64_t at, std::uint64_t value, Duration time) {
  Job& job = *jobs.emplace_back(std::make_unique<Job>());
  job.operation.slot = static_cast<std::uint32_t>(jobs.size() - 1);
  job.operation.kind = Operation::Kind::atomic;
  job.operation.rank = other.rank;
  job.operation.atomic.region = other.region.key;
  job.operation.atomic.token = other.region.token;
  job.operation.atomic.offset = at;
  job.operation.atomic.value = value;
  job.operation.deadline = world.world.now() + time;
  PeerActor& actor = to(other.rank);
  job.operation.place = known(other).order.place_of_transfer();
  actor.post(job.operation);
  CHECK_FALSE(job.ended());  // never inline
  wake();
  return job;
}

void Life::offer(std::uint32_t tag) {
  region.tag = tag;
  services->offered.insert_or_assign(region.key.id, region);
  for (const auto& actor : directory->peers()) actor->serve_questions();
  wake();
}

ExchangeJob& Life::exchange(const Life& other, std::vector<wire::RegionDescriptor> mine, Duration time,
                            const ExchangeStream& stream) {
  ExchangeJob& job = *exchanges.emplace_back(std::make_unique<ExchangeJob>());
  job.life = this;
  to(other.rank)
      .exchange(std::move(mine), {.deadline = world.world.now() + time,
                                  .done =
                                      [](void* context, PeerAddresses&& answer) {
                                        auto& at = *static_cast<ExchangeJob*>(context);
                                        at.ends += 1;
                                        at.answer = std::move(answer);
                                        at.ended_at = at.life->world.world.now();
                                      },
                                  .context = &job,
                                  .stream = stream});
  CHECK(job.ends == 0);  // never inline
  wake();
  return job;
}

void Life::on_operation_end(Operation& operation, const Result<void>& result) {
  Job& job = *jobs[operation.slot];
  job.ends += 1;
  CHECK(job.ends == 1);  // exactly one end (S2)
  CHECK(operation.live == 0);
  if (!result) job.error = result.error();
  job.code = job.error.code;
  job.before = operation.atomic.before;
  job.written = operation.written.list();
  job.ended_at = world.world.now();
  job.order = ++ends;
  if (on_end) on_end(job);
}

void Life::watch(Rank other, AddressWatcher& watcher) {
  watchers[other] = &watcher;
  loop->defer(*this);
}

void Life::told(Rank rank_of, const Life& other) {
  static_cast<void>(to(rank_of));
  const auto watcher = watchers.find(rank_of);
  if (watcher != watchers.end()) watcher->second->on_address(other.endpoints);
  wake();
}

void Life::run() {
  if (!world.book_open) return;
  for (const auto& [other, watcher] : watchers) {
    const auto& life = world.lives[other];
    if (life == nullptr || told_[other] == life->endpoints.incarnation) continue;
    told_[other] = life->endpoints.incarnation;
    watcher->on_address(life->endpoints);
  }
}

}  // namespace hixl::peer::test
