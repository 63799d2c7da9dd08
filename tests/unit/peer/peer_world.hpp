// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are nothing but a Directory on a virtual port, with an address book that knows everything at once. The
// test plays the runtime above them: it posts operations, exchanges, and writes down what it is told.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "links/sim/factory.hpp"
#include "links/tcp/factory.hpp"
#include "peer/directory.hpp"
#include "runtime/virtual_port.hpp"

namespace hixl::peer::test {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t k_memory_bytes = 1U << 20U;

class PeerWorld;

/// The tcp links of each pair.
struct Pool {
  std::uint32_t tcp_links = 1;
  std::vector<std::uint64_t> max_bandwidth{};  ///< of the i-th; 0, or behind the end: no limit
  RetryPolicy retry{};
  bool ask = false;  ///< Life::degrade
  Pooling pooling = Pooling::best_kind;
  Duration stall = milliseconds(200);
};

/// A process's port that counts how often it connects.
class CountingPort final : public runtime::EventPort {
 public:
  explicit CountingPort(runtime::EventPort& real) : real_(real) {}
  Instant now() override { return real_.now(); }
  void wake() noexcept override { real_.wake(); }
  Result<std::unique_ptr<runtime::Listener>> listen(const runtime::Address& at, runtime::ListenerEvents& to) override {
    return real_.listen(at, to);
  }
  Result<std::unique_ptr<runtime::Stream>> connect(const runtime::Address& at, Duration timeout,
                                                   runtime::StreamEvents& to) override {
    connects += 1;
    auto stream = real_.connect(at, timeout, to);
    if (stream && wrap) *stream = wrap(std::move(*stream));
    return stream;
  }
  Result<std::unique_ptr<runtime::Watch>> watch(int fd, runtime::WatchEvents& to) override {
    return real_.watch(fd, to);
  }
  std::uint32_t connects = 0;
  std::function<std::unique_ptr<runtime::Stream>(std::unique_ptr<runtime::Stream>)> wrap;  ///< of what it dials

 private:
  runtime::EventPort& real_;
};

/// One posted operation and what became of it.
struct Job {
  Operation operation;
  int ends = 0;
  ErrorCode code = ErrorCode::ok;
  Error error{};
  Instant ended_at{};
  std::uint64_t order = 0;   ///< among all ends of this rank
  std::uint64_t before = 0;  ///< an atomic's answer
  std::array<ByteRange, k_written_ranges> written{};
  [[nodiscard]] bool ended() const { return ends > 0; }
};

struct ExchangeJob {
  int ends = 0;
  PeerAddresses answer;
  Instant ended_at{};
  class Life* life = nullptr;
};

/// One life of a rank.
class Life final : private PeerListener, private AddressBook, private runtime::Task {
 public:
  Life(PeerWorld& world, Rank rank, bool fabric_too);
  ~Life();

  PeerActor& to(Rank other) {
    PeerActor* actor = directory->peer(other);
    REQUIRE(actor != nullptr);
    return *actor;
  }
  Job& post(TransferVerb verb, const Life& other, std::uint64_t local, std::uint64_t remote, std::uint64_t size,
            Duration time = seconds(30), std::uint64_t add = 0);
  Job& put(const Life& other, std::uint64_t at, std::uint64_t size, Duration time = seconds(30),
           std::uint64_t add = 0) {
    return post(TransferVerb::put, other, at, at, size, time, add);
  }
  Job& get(const Life& other, std::uint64_t at, std::uint64_t size, Duration time = seconds(30)) {
    return post(TransferVerb::get, other, at, at, size, time);
  }
  Job& flush(const Life& other, Duration time = seconds(30)) { return order(Operation::Kind::flush, other, time); }
  Job& fence(const Life& other, Duration time = seconds(30)) { return order(Operation::Kind::fence, other, time); }
  /// `over`: it has ended before it begins.
  Job& order(Operation::Kind kind, const Life& other, Duration time, const Error* over = nullptr);
  /// fetch_add on the other's word at `at`.
  Job& add(const Life& other, std::uint64_t at, std::uint64_t value = 1, Duration time = seconds(30));
  memory::PeerMemory& known(const Life& other) { return *directory->memory(other.rank); }
  ExchangeJob& exchange(const Life& other, std::vector<wire::RegionDescriptor> mine, Duration time = seconds(30),
                        std::uint64_t group = 0) {
    return exchange(other, std::move(mine), time, ExchangeStream{.group = group});
  }
  ExchangeJob& exchange(const Life& other, Duration time = seconds(30)) { return exchange(other, {region}, time); }
  ExchangeJob& exchange(const Life& other, std::vector<wire::RegionDescriptor> mine, Duration time,
                        const ExchangeStream& stream);
  ExchangeJob& ask(const Life& other, std::uint32_t tag, Duration time = seconds(30)) {
    return exchange(other, {}, time, {.note = wire::ExchangeNote::question, .group = tag});
  }
  /// The own region, from now on under this tag.
  void offer(std::uint32_t tag);
  [[nodiscard]] std::vector<LinkInfo> links(Rank other) {
    std::vector<LinkInfo> all;
    to(other).describe(all);
    return all;
  }
  [[nodiscard]] std::size_t links_up(Rank other) {
    std::size_t count = 0;
    for (const LinkInfo& link : links(other)) count += link.up ? 1 : 0;
    return count;
  }
  [[nodiscard]] std::uint64_t word(std::uint64_t at) const {
    std::uint64_t value = 0;
    std::memcpy(&value, memory.data() + at, sizeof(value));
    return value;
  }
  /// The book says, however wrongly, that `other` is the life of that rank.
  void told(Rank rank_of, const Life& other);
  void wake() { port.wake(); }
  [[nodiscard]] std::uint32_t dials() const { return counting.connects; }

  PeerWorld& world;
  const Rank rank;
  runtime::EventPort& port;
  CountingPort counting{port};
  std::vector<std::byte> memory = std::vector<std::byte>(k_memory_bytes);
  wire::Endpoints endpoints;
  Counters counters;
  wire::RegionDescriptor region;
  std::unique_ptr<memory::RegionTable> regions;
  std::unique_ptr<memory::SignalPage> signals;
  std::unique_ptr<runtime::Loop> loop;
  std::vector<std::unique_ptr<links::LinkFactory>> factories;
  std::optional<PeerServices> services;
  std::unique_ptr<Directory> directory;
  std::unique_ptr<runtime::Listener> listener;
  std::deque<std::unique_ptr<Job>> jobs;
  std::deque<std::unique_ptr<ExchangeJob>> exchanges;
  std::vector<ErrorCode> downs;
  std::set<std::uint64_t> groups;
  std::map<Rank, AddressWatcher*> watchers;
  std::function<void(Job&)> on_end;
  std::function<Degrade(const FailedPiece&)> degrade = [](const FailedPiece&) { return Degrade::next_link; };
  std::uint64_t ends = 0;

 private:
  friend class PeerWorld;
  void on_operation_end(Operation& operation, const Result<void>& result) override;
  Degrade on_degrade(FailedPiece piece, const Operation&) override { return degrade(piece); }
  void on_barrier(PeerLife, const wire::Barrier&) override {}
  void on_group_join(PeerLife, const wire::GroupJoin&) override {}
  void on_group_answer(PeerLife, const wire::GroupAnswer&) override {}
  bool has_group(std::uint64_t name) const noexcept override { return groups.contains(name); }
  void on_peer_down(PeerLife, PeerEnd, const Error& why) override { downs.push_back(why.code); }
  void on_same_host_count(std::size_t) override {}
  void watch(Rank other, AddressWatcher& watcher) override;
  void run() override;  // tells the watchers what they do not know yet
  std::map<Rank, Incarnation> told_;
};

class PeerWorld {
 public:
  /// `vacant`: further ranks of which the book knows nobody, for strangers to play.
  explicit PeerWorld(std::uint64_t seed, std::size_t ranks = 2, bool fabric_too = false, std::size_t vacant = 0,
                     const Pool& pooled = {})
      : world(seed), fabric(world), with_fabric(fabric_too), pool(pooled) {
    lives.resize(ranks + vacant);
    for (Rank rank = 0; rank < ranks; ++rank) born(rank);
  }
  ~PeerWorld() {
    // Fabric links end only at rest; the clock stands still from now on.
    fabric.halt();
    lives.clear();
    dead.clear();
  }
  Life& born(Rank rank) {
    lives[rank] = std::make_unique<Life>(*this, rank, with_fabric);
    announce();
    return *lives[rank];
  }
  void announce() {
    for (auto& life : lives) {
      if (life == nullptr) continue;
      life->loop->defer(*life);
      life->wake();
    }
  }
  void kill(Rank rank) {
    world.kill(lives[rank]->port);
    dead.push_back(std::move(lives[rank]));
  }
  Life& operator[](Rank rank) { return *lives[rank]; }
  /// Of sessions to come.
  void lease(Duration time) {
    for (auto& life : lives) life->services->timing.lease = time;
  }
  template <class Until>
  bool run(Until&& until, Duration time = seconds(60)) {
    const Instant end = world.now() + time;
    while (!until()) {
      if (world.now() >= end || !world.step()) return until();
    }
    return true;
  }
  /// Both know each other's region.
  void meet(Rank a, Rank b) {
    auto& one = lives[a]->exchange(*lives[b]);
    auto& other = lives[b]->exchange(*lives[a]);
    REQUIRE(run([&] { return one.ends > 0 && other.ends > 0; }));
    REQUIRE(one.answer.result.has_value());
    REQUIRE(other.answer.result.has_value());
  }

  runtime::VirtualWorld world;
  links::SimFabric fabric;
  bool with_fabric;
  Pool pool;
  bool book_open = true;  ///< false: changes are not told
  std::vector<std::unique_ptr<Life>> lives;
  std::vector<std::unique_ptr<Life>> dead;
  std::map<Rank, Birth> births;
};

}  // namespace hixl::peer::test
