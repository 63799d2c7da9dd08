// SPDX-License-Identifier: Apache-2.0
#include "runtime/virtual_port.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/assert.hpp"
#include "runtime/virtual_net.hpp"

namespace hixl::runtime {

namespace {

using Kind = VirtualEvent::Kind;

/// Death descriptors are numbers far above any real descriptor (the kernel's fs.nr_open default is 2^20).
constexpr int k_death_fd_base = 1 << 30;
/// The same for what make_descriptor() gives; as many processes there never are.
constexpr int k_card_fd_base = k_death_fd_base + (1 << 29);
/// A turn costs at least this, so that a loop which spins makes time pass.
constexpr Duration k_turn_min{100};

}  // namespace

FaultPlan FaultPlan::draw(Choices& choices) {
  // Rates: a run makes some thousand writes, so 1 … 20 per mille gives a few to a hundred faults of that kind.
  const auto rate = [&](std::uint64_t most) {
    return choices.chance(500) ? static_cast<std::uint32_t>(choices.between(1, most)) : 0U;
  };
  FaultPlan plan;
  plan.delay_max = plan.delay_min + Duration(choices.chance(500) ? choices.between(0, 2'000'000) : 0);
  plan.long_delay_per_mille = rate(20);
  plan.short_read_per_mille = rate(500);
  plan.short_write_per_mille = rate(500);
  plan.no_room_per_mille = rate(200);
  plan.reset_per_mille = rate(10);
  plan.one_sided_per_mille = rate(500);
  plan.half_close_per_mille = rate(5);
  plan.clog_per_mille = rate(5);
  plan.abort_per_mille = rate(500);
  plan.refuse_per_mille = rate(200);
  plan.connect_lost_per_mille = rate(100);
  if (choices.chance(250)) plan.pipe_bytes = choices.between(256, 8192);
  plan.turn_max = Duration(choices.between(100, 50'000));
  plan.stall_per_mille = rate(5);
  plan.truncate_per_mille = rate(5);
  plan.squeeze_per_mille = rate(5);
  plan.squeeze_bytes_per_ms = choices.between(16, 1024);
  plan.fd_limit_per_mille = rate(50);
  plan.port_again_per_mille = rate(500);
  plan.late_timer_per_mille = rate(20);
  plan.slow_reader_per_mille = rate(20);
  return plan;
}

struct VirtualWorld::Impl {
  class Port;
  class PlannedWatch;
  struct Process {
    ProcessId id = 0;
    std::string name;
    std::unique_ptr<Port> port;
    Loop* loop = nullptr;
    bool alive = true;
    bool woken = true;  ///< wake() was called, or the loop has never turned
    bool turn_planned = false;
    Instant turn_at{};
    Duration timers_late{};  ///< this time
    Instant paused_until{};
  };
  struct WatchEntry {
    ProcessId owner = k_no_process;
    ProcessId watched = k_no_process;  ///< its death; or
    int descriptor = -1;               ///< this one
    WatchEvents* events = nullptr;
    bool planned = false;
  };

  Impl(const Choices& choices, const FaultPlan& plan) : agenda(choices, plan), net(agenda) {}

  [[nodiscard]] Process& of(EventPort& port);
  [[nodiscard]] Instant turn_due(Process& process);
  void turn(Process& process);
  void handle(const VirtualEvent& event);
  [[nodiscard]] std::optional<ProcessId> process_of(const VirtualEvent& event) const;
  void plan_watch(std::uint64_t id) {
    if (!std::exchange(watches.at(id).planned, true)) agenda.push({.kind = Kind::watch, .id = id}, agenda.delay());
  }
  [[nodiscard]] bool ready(const WatchEntry& entry) const {
    const auto found = descriptors.find(entry.descriptor);
    return entry.watched != k_no_process || (found != descriptors.end() && found->second);
  }
  void on_watch(std::uint64_t id);

  VirtualAgenda agenda;
  VirtualNet net;
  std::vector<std::unique_ptr<Process>> processes;
  std::map<std::uint64_t, WatchEntry> watches;
  std::map<int, bool> descriptors;  // whether they are ready
  int next_descriptor = k_card_fd_base;
  std::uint64_t next_watch = 1;
  std::uint64_t steps = 0;
};

class VirtualWorld::Impl::PlannedWatch final : public Watch {
 public:
  PlannedWatch(Impl& world, std::uint64_t id) : world_(world), id_(id) {}
  PlannedWatch(const PlannedWatch&) = delete;
  PlannedWatch& operator=(const PlannedWatch&) = delete;
  ~PlannedWatch() override { world_.watches.erase(id_); }

 private:
  Impl& world_;
  std::uint64_t id_;
};

class VirtualWorld::Impl::Port final : public EventPort {
 public:
  Port(Impl& world, Process& process) : world_(world), process_(process) {}

  [[nodiscard]] Instant now() override { return world_.agenda.now; }
  void wake() noexcept override { process_.woken = true; }
  [[nodiscard]] Result<std::unique_ptr<Listener>> listen(const Address& address, ListenerEvents& events) override {
    if (!process_.alive) return fail(ErrorCode::os_error, {.stage = Stage::bind, .os_error = ESRCH});
    return world_.net.listen(process_.id, address, events);
  }
  [[nodiscard]] Result<std::unique_ptr<Stream>> connect(const Address& address, Duration timeout,
                                                        StreamEvents& events) override {
    if (!process_.alive) return fail(ErrorCode::os_error, {.stage = Stage::connect, .os_error = ESRCH});
    if (world_.agenda.strikes(world_.agenda.plan.fd_limit_per_mille, "no descriptor to connect with", 0)) {
      return fail(ErrorCode::fd_limit, {.stage = Stage::connect, .os_error = EMFILE});
    }
    return world_.net.connect(process_.id, address, timeout, events);
  }
  [[nodiscard]] Result<std::unique_ptr<Watch>> watch(int fd, WatchEvents& events) override {
    WatchEntry entry{.owner = process_.id, .descriptor = fd, .events = &events};
    const auto index = static_cast<std::size_t>(fd - k_death_fd_base);
    if (world_.descriptors.count(fd) == 0) {
      if (fd < k_death_fd_base || index >= world_.processes.size()) {
        return fail(ErrorCode::os_error, {.os_error = EBADF});
      }
      entry.watched = static_cast<ProcessId>(index);
    }
    const std::uint64_t id = world_.next_watch++;
    const bool ready = entry.watched == k_no_process ? world_.ready(entry) : !world_.processes[index]->alive;
    world_.watches.emplace(id, entry);
    if (ready) world_.plan_watch(id);
    return std::make_unique<PlannedWatch>(world_, id);
  }

  Process& process() noexcept { return process_; }

 private:
  Impl& world_;
  Process& process_;
};

VirtualWorld::Impl::Process& VirtualWorld::Impl::of(EventPort& port) {
  auto* ours = dynamic_cast<Port*>(&port);
  HIXL_ASSERT(ours != nullptr);
  return ours->process();
}

/// When the loop turns next. Mail, tasks and timers may have come from outside a turn (a test that plays the user),
/// so the loop is asked each time.
Instant VirtualWorld::Impl::turn_due(Process& process) {
  if (!process.turn_planned && (process.woken || !process.loop->prepare_sleep())) {
    process.turn_planned = true;
    const Duration wait = agenda.choices.chance(agenda.plan.stall_per_mille) ? agenda.up_to(agenda.plan.stall_max)
                                                                             : agenda.up_to(agenda.plan.turn_max);
    process.turn_at = agenda.now + std::max(wait, k_turn_min);
  }
  Instant due = process.turn_planned ? process.turn_at : process.loop->next_due();
  if (!process.turn_planned && due != k_never) due += process.timers_late;
  return std::max({due, process.paused_until, agenda.now});
}

void VirtualWorld::Impl::turn(Process& process) {
  process.turn_planned = false;
  process.woken = false;
  agenda.mix(process.id + 1);
  process.loop->awake();
  if (process.loop->turn()) process.woken = true;
  if (agenda.plan.late_timer_per_mille == 0) {
    process.timers_late = {};
  } else {
    process.timers_late =
        agenda.choices.chance(agenda.plan.late_timer_per_mille) ? agenda.up_to(agenda.plan.stall_max) : Duration{};
  }
}

std::optional<ProcessId> VirtualWorld::Impl::process_of(const VirtualEvent& event) const {
  if (event.kind != Kind::watch) return net.process_of(event);
  const auto found = watches.find(event.id);
  return found == watches.end() ? std::nullopt : std::optional(found->second.owner);
}

void VirtualWorld::Impl::handle(const VirtualEvent& event) {
  agenda.mix(static_cast<std::uint64_t>(event.kind) ^
             (static_cast<std::uint64_t>(agenda.now.time_since_epoch().count()) << 8U));
  agenda.mix(event.id ^ (event.token << 20U));
  switch (event.kind) {
    case Kind::world:
      return event.target->on_world_event(event.token);
    case Kind::arrive:
    case Kind::cut:
    case Kind::connect_arrive:
      return net.handle_network(event);
    case Kind::release:
      return net.kill(static_cast<ProcessId>(event.id));
    default:
      break;
  }
  const std::optional<ProcessId> owner = process_of(event);
  if (!owner || !processes[*owner]->alive) return;
  Process& process = *processes[*owner];
  if (process.paused_until > agenda.now) return agenda.push(event, process.paused_until - agenda.now);
  if (process.loop != nullptr) process.loop->awake();
  if (event.kind == Kind::watch) {
    on_watch(event.id);
  } else {
    net.handle_process(event);
  }
  if (process.loop != nullptr && process.alive) turn(process);
}

void VirtualWorld::Impl::on_watch(std::uint64_t id) {
  auto found = watches.find(id);
  if (found == watches.end()) return;  // waking up may have ended it
  found->second.planned = false;
  if (ready(found->second)) found->second.events->on_ready();
  // A level. A death is told once: nobody needs to hear of it again.
  found = watches.find(id);
  if (found != watches.end() && found->second.watched == k_no_process && ready(found->second)) plan_watch(id);
}

VirtualWorld::VirtualWorld(const Choices& choices, const FaultPlan& plan)
    : impl_(std::make_unique<Impl>(choices, plan)) {}
VirtualWorld::~VirtualWorld() = default;

EventPort& VirtualWorld::make_port(std::string name) {
  auto process = std::make_unique<Impl::Process>();
  process->id = static_cast<ProcessId>(impl_->processes.size());
  process->name = std::move(name);
  process->port = std::make_unique<Impl::Port>(*impl_, *process);
  impl_->processes.push_back(std::move(process));
  return *impl_->processes.back()->port;
}

void VirtualWorld::add(Loop& loop, EventPort& port) {
  Impl::Process& process = impl_->of(port);
  HIXL_ASSERT(process.loop == nullptr);
  process.loop = &loop;
  process.woken = true;
  loop.bind_to_this_thread();
}

void VirtualWorld::remove(EventPort& port) { impl_->of(port).loop = nullptr; }

std::uint64_t VirtualWorld::draw_seed() { return impl_->agenda.choices.next(); }
Choices& VirtualWorld::choices() noexcept { return impl_->agenda.choices; }
Instant VirtualWorld::now() const noexcept { return impl_->agenda.now; }
std::uint64_t VirtualWorld::steps() const noexcept { return impl_->steps; }
std::uint64_t VirtualWorld::trace_hash() const noexcept { return impl_->agenda.hash; }
void VirtualWorld::set_plan(const FaultPlan& plan) { impl_->agenda.plan = plan; }
const FaultPlan& VirtualWorld::plan() const noexcept { return impl_->agenda.plan; }
bool VirtualWorld::alive(EventPort& port) const { return impl_->of(port).alive; }

VirtualHoldings VirtualWorld::holdings(EventPort& port) const {
  const ProcessId process = impl_->of(port).id;
  VirtualHoldings holdings;
  holdings.listeners = impl_->net.listeners_of(process);
  for (const ProcessId peer : impl_->net.peers_of(process)) {
    holdings.streams += 1;
    if (peer != k_no_process && !impl_->processes[peer]->alive) holdings.streams_to_dead += 1;
  }
  for (const auto& [id, watch] : impl_->watches) {
    holdings.death_watches += watch.owner == process && watch.watched != k_no_process ? 1 : 0;
    holdings.card_watches += watch.owner == process && watch.watched == k_no_process ? 1 : 0;
  }
  return holdings;
}

bool VirtualWorld::step() {
  Impl& world = *impl_;
  Impl::Process* next = nullptr;
  Instant at = k_never;
  std::uint64_t rivals = 0;
  for (const auto& process : world.processes) {
    if (!process->alive || process->loop == nullptr) continue;
    const Instant due = world.turn_due(*process);
    if (due == k_never || due > at) continue;
    rivals = due < at ? 1 : rivals + 1;
    // Among loops due at one time each is chosen with the same chance.
    if (rivals == 1 || world.agenda.choices.below(rivals) == 0) next = process.get();
    at = due;
  }
  const Instant event_at = world.agenda.next_at();
  if (next == nullptr && event_at == k_never) return false;
  ++world.steps;
  if (event_at <= at) {
    world.agenda.now = std::max(world.agenda.now, event_at);
    world.handle(world.agenda.pop());
  } else {
    world.agenda.now = at;
    world.turn(*next);
  }
  return true;
}

void VirtualWorld::run_for(Duration time) {
  // A marker in the heap makes the clock stop exactly there.
  struct Marker final : WorldEvents {
    void on_world_event(std::uint64_t) override { passed = true; }
    bool passed = false;
  } marker;
  schedule(time, marker, 0);
  while (!marker.passed) static_cast<void>(step());
}

void VirtualWorld::set_editor(WireEditor* editor) noexcept { impl_->agenda.editor = editor; }
void VirtualWorld::set_witness(FaultWitness* witness) noexcept { impl_->agenda.witness = witness; }

void VirtualWorld::kill(EventPort& port, Duration held) {
  Impl::Process& process = impl_->of(port);
  if (!process.alive) return;
  process.alive = false;
  process.loop = nullptr;
  if (held == Duration{}) {
    impl_->net.kill(process.id);
  } else {
    impl_->net.orphan(process.id);
    impl_->agenda.push({.kind = Kind::release, .id = process.id}, held);
  }
  for (const auto& [id, watch] : impl_->watches) {
    if (watch.watched == process.id) impl_->plan_watch(id);
  }
}

void VirtualWorld::pause(EventPort& port, Duration time) {
  Impl::Process& process = impl_->of(port);
  process.paused_until = std::max(process.paused_until, impl_->agenda.now + time);
}

void VirtualWorld::clog(EventPort& from, EventPort& to, Duration time, Which which) {
  impl_->net.clog(impl_->of(from).id, impl_->of(to).id, time, which);
}

void VirtualWorld::squeeze(EventPort& from, EventPort& to, Duration time, std::uint64_t bytes_per_ms, Which which) {
  impl_->net.squeeze(impl_->of(from).id, impl_->of(to).id, time, bytes_per_ms, which);
}

void VirtualWorld::reset(EventPort& a, EventPort& b, Which which) {
  impl_->net.reset(impl_->of(a).id, impl_->of(b).id, which);
}

int VirtualWorld::death_fd(std::string_view name) const {
  for (std::size_t i = impl_->processes.size(); i-- > 0;) {
    if (impl_->processes[i]->name == name) return k_death_fd_base + static_cast<int>(i);
  }
  return -1;
}

int VirtualWorld::make_descriptor() {
  impl_->descriptors.emplace(impl_->next_descriptor, false);
  return impl_->next_descriptor++;
}

void VirtualWorld::set_ready(int descriptor, bool ready) {
  const auto found = impl_->descriptors.find(descriptor);
  if (found == impl_->descriptors.end() || std::exchange(found->second, ready) == ready || !ready) return;
  for (const auto& [id, watch] : impl_->watches) {
    if (watch.descriptor == descriptor) return impl_->plan_watch(id);
  }
}

void VirtualWorld::close_descriptor(int descriptor) { impl_->descriptors.erase(descriptor); }

void VirtualWorld::schedule(Duration delay, WorldEvents& target, std::uint64_t token) {
  impl_->agenda.push({.kind = Kind::world, .token = token, .target = &target}, delay);
}

}  // namespace hixl::runtime
