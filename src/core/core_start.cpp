// SPDX-License-Identifier: Apache-2.0
//
// Core's birth: puts the rooms together, listens, joins the rendezvous; and takes them apart again.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <random>

#include "base/assert.hpp"
#include "base/log.hpp"
#include "core/addresses.hpp"
#include "core/core.hpp"
#include "core/factories.hpp"
#include "core/release.hpp"
#include "core/sweep.hpp"
#include "memory/memory_limit.hpp"

namespace hixl::core {

namespace {

/// Mail beyond two messages a slot (its post, and a cancel or a late callback): calls (exchange, deregister, …).
constexpr std::size_t k_call_mail = 1024;

std::uint64_t system_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32U) | device();
}

std::size_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<std::size_t>(std::max(1, CPU_COUNT(&set)));
}

}  // namespace

/// A book for a world of one rank.
struct Core::NoBook final : peer::AddressBook {
  void watch(Rank, peer::AddressWatcher&) override {}
};

/// Lets in only processes of our own user: an abstract name is open to everybody on the host.
struct Core::UnixDoor final : runtime::ListenerEvents {
  UnixDoor(runtime::Loop& on_loop, peer::Directory& directory) : loop(on_loop), inner(directory) {}
  void on_accept(std::unique_ptr<runtime::Stream> stream) override {
    const auto credentials = stream->credentials();
    if (credentials.pid != 0 && credentials.uid != geteuid()) {
      loop.log().warn({"turned away from the local socket, processes of user", credentials.uid},
                      "a process of user {} was turned away from the local socket", credentials.uid);
      return;
    }
    inner.on_accept(std::move(stream));
  }
  runtime::Loop& loop;
  peer::Directory& inner;
};

Result<std::unique_ptr<Core>> Core::create(const RuntimeOptions& options, Parts parts) {
  if (const auto valid = options.validate(); !valid) return fail(valid.error());
  std::unique_ptr<Core> core(new Core(options, std::move(parts)));
  Result<void> built;
  try {
    built = core->build();
  } catch (const std::bad_alloc&) {  // half of it is there, and its loop never turned
    built = fail(ErrorCode::no_memory, {.rank = options.rank, .stage = Stage::memory, .os_error = ENOMEM});
  }
  if (!built) {
    core->teardown();
    core->set_stopped();
    core->stop_stage_ = StopStage::ended;
    core->driver_stopped_ = true;
    return fail(built.error());
  }
  return core;
}

Core::Core(const RuntimeOptions& options, Parts parts)
    : options_(options),
      parts_(std::move(parts)),
      mark_(parts_.driver->port().fork_mark()),
      seed_(options.seed != 0 ? options.seed : system_seed()) {}

Result<void> Core::build() {
  loop_ = std::make_unique<runtime::Loop>(parts_.driver->port(), seed_,
                                          2 * std::size_t{options_.requests_max} + k_call_mail);
  if (parts_.driver->own_thread() && options_.poll != PollMode::event) {
    // Where the kernel does not offer it, posts are somewhat slower.
    static_cast<void>(loop_->mailbox().wakeup().let_sleeper_pay());
  }
  requests_ = std::make_unique<runtime::RequestTable>(options_.requests_max, loop_.get());
  requests_->attach(*this);
  operations_ = std::make_unique<peer::Operation[]>(options_.requests_max);
  notes_ = std::make_unique<PostNote[]>(options_.requests_max);
  begun_.resize(options_.requests_max);
  queue_places_ = std::make_unique<QueuePlace[]>(options_.requests_max);
  inline_bytes_ = memory::PrivatePages(std::size_t{options_.requests_max} * std::max(1U, options_.max_inline));
  if (inline_bytes_.data() == nullptr) {
    return fail(ErrorCode::no_memory, {.rank = options_.rank,
                                       .stage = Stage::memory,
                                       .os_error = ENOMEM,
                                       .length = std::uint64_t{options_.requests_max} * options_.max_inline,
                                       .limit = memory::address_space_limit()});
  }
  Random random(seed_);
  auto regions = memory::RegionTable::create(options_.regions_max, random.next());
  if (!regions) return fail(regions.error());
  regions_ = std::move(*regions);
  regions_->limit({.hbm_bytes = options_.hbm_bytes, .held_bytes_max = options_.held_bytes_max});
  auto signals = memory::SignalPage::create();
  if (!signals) return fail(signals.error());
  signals_ = std::move(*signals);
  factories_ = std::move(parts_.factories);
  if (parts_.add_factories) parts_.add_factories(factories_, *loop_);
  std::vector<peer::LinkKindOff> kinds_off;
  if (factories_.empty()) {
    auto made = make_factories(options_, *loop_);
    if (!made) return fail(made.error());
    factories_ = std::move(made->used);
    kinds_off = std::move(made->off);
  }

  no_book_ = std::make_unique<NoBook>();
  peer::AddressBook* book = no_book_.get();
  if (!options_.store.empty()) {
    std::string url = options_.store;
    if (options_.host_store) {
      auto server = host_store(*loop_, options_.store, options_.insecure);
      if (!server) return fail(server.error());
      store_ = std::move(*server);
      url = store_->address().text();  // with the real port
    }
    auto rendezvous = group::make_rendezvous(*loop_, url, static_cast<group::MembershipEvents&>(*this));
    if (!rendezvous) return fail(rendezvous.error());
    membership_ = std::move(*rendezvous);
    book = membership_.get();
  }
  services_ = std::make_unique<peer::PeerServices>(peer::PeerServices{.loop = *loop_,
                                                                      .regions = *regions_,
                                                                      .signals = *signals_,
                                                                      .book = *book,
                                                                      .listener = *this,
                                                                      .counters = counters_,
                                                                      .links = {}});
  services_->links = number_links(factories_, options_);
  services_->kinds_off = std::move(kinds_off);
  services_->kind_forced = options_.links.size() == 1;
  services_->retry = options_.retry;
  services_->pooling = options_.pooling;
  services_->timing = timing_of(options_, parts_.hosted);
  services_->peer_id = {.high = std::hash<std::string>{}(options_.store), .low = options_.rank};
  services_->incarnation = random.identity();
  services_->rank = options_.rank;
  services_->world_size = options_.world_size;
  services_->tx_depth = options_.tx_depth;
  services_->rx_depth = options_.rx_depth;
  services_->chunk_bytes = options_.chunk_bytes;
  services_->check_payload = options_.payload_check == PayloadCheck::crc32c;
  services_->regions_max = options_.regions_max;
  services_->atomic_window = parts_.atomic_window;
  directory_ = std::make_unique<peer::Directory>(*services_, options_.peers_max);
  self_ = std::make_unique<SelfActor>(*loop_, *regions_, *signals_, static_cast<peer::PeerListener&>(*this),
                                      options_.rank, self_order_);
  barrier_ = std::make_unique<group::BarrierActor>(*loop_, *directory_, options_.rank);
  formation_ = std::make_unique<group::FormationActor>(*loop_, *directory_, *barrier_,
                                                       peer::PeerLife{options_.rank, services_->incarnation});
  if (const auto listening = listen(); !listening) return fail(listening.error());

  const auto acquired = requests_->acquire();
  HIXL_ASSERT(acquired.has_value());
  joined_slot_ = acquired->slot;
  joined_request_ = Request(*requests_, acquired->slot, acquired->generation);
  joined_pending_ = true;
  note_join(*acquired);
  start_sweeping();
  start_joining();
  const auto started = parts_.driver->start(*loop_, {.poll = options_.poll,
                                                     .spin = std::chrono::microseconds(options_.spin_us),
                                                     .patience = services_->timing.lease});
  if (!started) return fail(started.error());
  return {};
}

Result<void> Core::listen() {
  endpoints_.peer_id = services_->peer_id;
  endpoints_.incarnation = services_->incarnation;
  endpoints_.rank = options_.rank;
  bool local = false;
  bool network = false;
  for (const auto& factory : factories_) (factory->caps().same_host_only ? local : network) = true;
  if (local) {
    Random random(seed_ ^ services_->incarnation);
    const std::string name = fmt::format("hixl-{:016x}{:016x}", random.next(), random.next());
    unix_door_ = std::make_unique<UnixDoor>(*loop_, *directory_);
    auto listener = loop_->port().listen(runtime::Address::abstract(name), *unix_door_);
    if (!listener) return fail(listener.error());
    unix_listener_ = std::move(*listener);
    endpoints_.unix_name = name;
  }
  if (network) {
    const auto listening = addresses_to_bind(options_);
    if (!listening) return fail(listening.error());
    for (const Listening& one : *listening) {
      auto listener = loop_->port().listen(one.bind, *directory_);
      if (!listener) return fail(listener.error());
      tcp_listeners_.push_back(std::move(*listener));
      const auto told = address_to_tell(options_, one, tcp_listeners_.back()->address());
      if (!told) return fail(told.error());
      endpoints_.addresses.push_back(told->text());
    }
  }
  return {};
}

void Core::start_joining() {
  if (!membership_) {
    services_->birth = 1;  // nobody can be dialled, and nobody knows where we are
    finish_joined({});
    return;
  }
  membership_->join({.world_size = options_.world_size,
                     .job = group::job_number(options_.job),
                     .start = parts_.start,
                     .guest = static_cast<std::uint8_t>(options_.guest ? 1 : 0),
                     .endpoints = endpoints_},
                    loop_->port().now() + options_.connect_timeout);
}

void Core::on_joined(const Result<void>& result) {
  services_->birth = membership_->birth();
  finish_joined(result);
}

void Core::finish_joined(const Result<void>& result) {
  if (!joined_pending_) return;
  joined_pending_ = false;
  runtime::RequestTable::Ended ended;
  {
    const std::scoped_lock lock(joined_mutex_);
    joined_request_ = Request();  // whoever holds a copy sees the end in the slot
    ended = requests_->finish(joined_slot_, result, true);
    joined_request_ = Request::ended(result);
  }
  if (ended.callback.function == nullptr) return;
  const Completion completion{.result = result};
  tell([&] { ended.callback.function(ended.callback.context, completion); });
}

Request Core::joined() {
  if (forked()) return Request::ended(fail(ErrorCode::forked, {.rank = options_.rank}));
  const std::scoped_lock lock(joined_mutex_);
  return joined_request_;
}

void Core::on_mail(const runtime::Mail& mail) {
  switch (static_cast<MailKind>(mail.kind)) {
    case k_mail_operation: {
      peer::Operation& operation = operations_[mail.a];
      late_ ? static_cast<void>(operation.refused = true) : start_operation(operation);
      break;
    }
    case k_mail_call:
      on_call(*reinterpret_cast<LoopCall*>(mail.b));
      break;
    case k_mail_cancel:
      cancel_operation(mail.a, static_cast<std::uint32_t>(mail.b));
      break;
    case k_mail_deliver:
      deliver(mail.a);
      break;
  }
}

void Core::on_peer_down(peer::PeerLife who, peer::PeerEnd end, const Error& why) {
  loop_->log().info({"deaths of rank", who.rank}, "rank {} is down: {}", who.rank, why.message());
  formation_->on_peer_down(who, end);
  barrier_->on_peer_down(who, end);
}

/// No loop spins when the host runs more ranks than cores: it would take the time that the others need to answer.
void Core::on_same_host_count(std::size_t peers) { parts_.driver->allow_spin(peers + 1 <= usable_cores()); }

/// On the loop (or before it ever turned): everything that holds a handle of the port goes. What callers' threads may
/// still look at stays until destruction.
void Core::teardown() {
  runtime::Timer::cancel();
  sweep_.reset();
  while (!releases_.empty()) {
    for (const auto& release : std::exchange(releases_, {})) {
      tell([&] { release->tell(fail(ErrorCode::stopped, {.stage = Stage::shutdown})); });
    }
  }
  tcp_listeners_.clear();
  unix_listener_.reset();
  unix_door_.reset();
  if (directory_) directory_->release();
  formation_.reset();
  barrier_.reset();
  membership_.reset();
  store_.reset();
  factories_.clear();
  if (last_counters_.failed_unseen > 0) {
    log::warn("{} operations failed and nobody looked at their results", last_counters_.failed_unseen);
  }
}

Core::~Core() {
  if (parts_.driver && parts_.driver->own_thread()) {
    if (!driver_stopped_) static_cast<void>(stop_and_join(std::chrono::seconds(5)));
  } else if (parts_.driver && life_ != Life::stopped) {
    if (hand() != nullptr) {
      hand()->end();
      loop_->bind_to_this_thread();
    }
    stop_stage_ == StopStage::ended ? finish_hosted() : close_hosted();
  }
  if (!requests_) return;
  requests_->detach();
  runtime::RequestTable::retire(std::move(requests_));
}

}  // namespace hixl::core
