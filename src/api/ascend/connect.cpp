// SPDX-License-Identifier: Apache-2.0
//
// Hixl::State: how an engine begins, is found, finds others, and ends; its memory.
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "api/ascend/engine.hpp"
#include "api/world.hpp"

namespace hixl {

using namespace api;

namespace {

/// Ends of runtimes that nobody waits for.
void nobody(void*, const Result<void>&) {}

/// What the environment says of links and security; nothing of ranks and stores, which are the engine's own.
Result<RuntimeOptions> base_options(bool insecure) {
  auto options = RuntimeOptions::from_environment();
  if (!options) return options;
  options->job = "hixl::Hixl";
  options->world_size = k_engine_world;
  options->insecure = options->insecure || insecure;
  return options;
}

}  // namespace

Status Hixl::State::ready() const {
  return initialized_ ? SUCCESS : failed(FAILED, Error(ErrorCode::stopped, {.stage = Stage::options}));
}

Status Hixl::State::initialize(const AscendString& local_engine, const std::map<AscendString, AscendString>& options) {
  const auto name = engine_name(local_engine);
  if (!name) return failed(name.error());
  const auto said = ascend_options(options);
  if (!said) return failed(said.error());
  const std::scoped_lock lock(mutex_);
  if (initialized_) return failed(FAILED, Error(ErrorCode::invalid_argument, {.stage = Stage::options}));
  options_ = *said;
  if (name->port != 0) {
    if (const auto opened = open_door(*name); !opened) {
      notes_.clear();
      door_.reset();
      return failed(opened.error());
    }
  }
  name_ = local_engine.GetString();
  initialized_ = true;
  life_ += 1;
  return SUCCESS;
}

Result<void> Hixl::State::open_door(const EngineName& name) {
  auto options = base_options(options_.insecure);
  if (!options) return fail(options.error());
  options->rank = 0;
  options->store = name.store_url();
  options->host_store = true;
  options->bind = name.bind();
  auto runtime = Runtime::create(*options);
  if (!runtime) return fail(runtime.error());
  door_ = std::move(*runtime);
  const std::uint64_t ring = k_notes_shape.region_bytes();
  auto region = door_->allocate(ring * (k_engine_world - 1), {.tag = k_notes_tag});
  if (!region) return fail(region.error());
  notes_region_ = *region;
  for (std::uint32_t i = 0; i + 1 < k_engine_world; ++i) {
    auto receiver = MessageReceiver::create(*door_, *region, i * ring, k_notes_shape);
    if (!receiver) return fail(receiver.error());
    notes_.push_back(std::move(*receiver));
  }
  return Offers::add(*door_, {&*region, 1});
}

void Hixl::State::finalize() {
  constexpr std::chrono::seconds k_drain{5};  // as Runtime::stop(), for all together
  end_later();
  std::map<std::string, std::shared_ptr<RemoteEngine>> remotes;
  std::shared_ptr<Runtime> door;
  std::vector<std::unique_ptr<MessageReceiver>> notes;
  {
    const std::scoped_lock lock(mutex_);
    if (!initialized_) return;
    initialized_ = false;
    remotes.swap(remotes_);
    door.swap(door_);
    notes.swap(notes_);
    memory_.clear();
    standing_.clear();
  }
  const Deadline deadline(k_drain);
  for (const auto& [name, remote] : remotes) static_cast<void>(remote->runtime->stop(deadline.left()));
  if (door) static_cast<void>(door->stop(deadline.left()));
}

// ---- memory ----

Result<Region> Hixl::State::register_with(Runtime& runtime, const MemDesc& mem) const {
  return runtime.register_memory(reinterpret_cast<void*>(mem.addr), mem.len);
}

Status Hixl::State::register_mem(const MemDesc& mem, MemHandle& handle) {
  handle = nullptr;
  const std::scoped_lock lock(mutex_);
  if (const Status now = ready(); now != SUCCESS) return now;
  for (auto& [id, range] : memory_) {
    if (range.mem.addr != mem.addr || range.mem.len != mem.len) continue;
    range.references += 1;
    handle = reinterpret_cast<MemHandle>(id);
    return SUCCESS;
  }
  std::vector<std::pair<Runtime*, Region>> done;
  const auto add = [&](Runtime& runtime) -> Result<void> {
    const auto region = register_with(runtime, mem);
    if (!region) return fail(region.error());
    done.emplace_back(&runtime, *region);
    return {};
  };
  Result<void> added;
  if (door_ != nullptr) added = add(*door_);
  for (auto remote = remotes_.begin(); added && remote != remotes_.end(); ++remote) {
    added = add(*remote->second->runtime);
    // A remote that is over takes nothing, and is told by its transfers.
    if (!added && added.error().code == ErrorCode::stopped) added = {};
  }
  if (added && door_ != nullptr) added = Offers::add(*door_, {&done.front().second, 1});
  if (!added) {
    for (const auto& [runtime, region] : done) {
      static_cast<void>(runtime->deregister_async(region, k_default_timeout, nobody, nullptr));
    }
    return failed(added.error());
  }
  // Without a runtime there is nobody yet who could say that the range is wrong.
  if (done.empty() && (mem.addr == 0 || mem.len == 0)) {
    return failed(Error(ErrorCode::invalid_argument, {.stage = Stage::memory, .address = mem.addr, .length = mem.len}));
  }
  memory_[++last_handle_] = {.mem = mem, .references = 1};
  handle = reinterpret_cast<MemHandle>(last_handle_);
  return SUCCESS;
}

Status Hixl::State::deregister_mem(MemHandle handle) {
  std::vector<std::shared_ptr<Runtime>> runtimes;  // none of which goes meanwhile
  MemDesc mem;
  {
    const std::scoped_lock lock(mutex_);
    if (const Status now = ready(); now != SUCCESS) return now;
    const auto found = memory_.find(reinterpret_cast<std::uint64_t>(handle));
    if (found == memory_.end()) return failed(Error(ErrorCode::invalid_handle, {.stage = Stage::memory}));
    if (--found->second.references > 0) return SUCCESS;
    mem = found->second.mem;
    memory_.erase(found);
    if (door_ != nullptr) runtimes.push_back(door_);
    for (const auto& [name, remote] : remotes_) runtimes.emplace_back(remote, remote->runtime.get());
  }
  Status status = SUCCESS;
  const Deadline deadline(RuntimeOptions{}.default_timeout);
  for (const auto& runtime : runtimes) {
    const auto regions = runtime->dump_regions();
    if (!regions) continue;
    for (const OwnRegion& own : regions->own) {
      if (own.region.address() != mem.addr || own.region.size != mem.len || own.state != RegionState::open) continue;
      const auto gone = runtime->deregister(own.region, deadline.left());
      // With a runtime that has stopped its registrations are over too.
      if (!gone && gone.error().code != ErrorCode::stopped) status = failed(gone.error());
      break;
    }
  }
  return status;
}

// ---- connections ----

/// As a rank that nobody has there: the first guess differs by engine and process, the next are its neighbours.
Result<std::unique_ptr<Runtime>> Hixl::State::join(const EngineName& name, const Deadline& deadline) {
  auto options = base_options(options_.insecure);
  if (!options) return fail(options.error());
  options->store = name.store_url();
  options->host_store = false;
  std::string own_name;
  {
    const std::scoped_lock lock(mutex_);
    own_name = name_;
  }
  const auto self = engine_name(AscendString(own_name));
  if (self && options->bind == RuntimeOptions{}.bind) options->bind = self->bind();
  const std::size_t first = std::hash<std::string>{}(own_name) + static_cast<std::size_t>(::getpid()) * 31 +
                            joins_.fetch_add(1, std::memory_order_relaxed) * 7;
  for (std::uint32_t i = 0; i + 1 < k_engine_world; ++i) {
    options->connect_timeout = std::clamp(std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left()),
                                          std::chrono::milliseconds(10), std::chrono::milliseconds(600'000));
    options->rank = static_cast<Rank>(1 + (first + i) % (k_engine_world - 1));
    auto runtime = Runtime::create(*options);
    if (runtime || runtime.error().code != ErrorCode::rank_conflict) return runtime;
    if (deadline.passed()) return fail(ErrorCode::connect_timeout, {.stage = Stage::connect});
  }
  return fail(ErrorCode::limit_reached, {.stage = Stage::connect, .limit = k_engine_world - 1});
}

Result<std::shared_ptr<RemoteEngine>> Hixl::State::make_remote(const std::string& remote, const Deadline& deadline) {
  const auto name = engine_name(AscendString(remote));
  if (!name) return fail(name.error());
  if (name->port == 0) return fail(ErrorCode::invalid_argument, {.stage = Stage::connect});
  auto runtime = join(*name, deadline);
  if (!runtime) return fail(runtime.error());
  auto made = std::make_shared<RemoteEngine>();
  made->runtime = std::move(*runtime);
  const auto told = Offers::ask(*made->runtime, 0, k_notes_tag, deadline.left());
  if (!told) return fail(told.error());
  const auto notes = std::ranges::find(*told, k_notes_tag, &RemoteRegion::tag);
  const std::uint64_t place = (made->runtime->rank() - 1) * k_notes_shape.region_bytes();
  auto sender = MessageSender::attach(*made->runtime, notes->at(place), k_notes_shape, deadline.left());
  if (!sender) return fail(sender.error());
  made->notes = std::move(*sender);
  return made;
}

/// One thread makes the connection to a remote; others that want it wait for what becomes of that.
class Hixl::State::Connecting {
 public:
  Connecting(State& engine, const std::string& remote) : engine_(engine), remote_(remote) {}
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;
  ~Connecting() {
    const std::scoped_lock lock(engine_.mutex_);
    engine_.connecting_.erase(remote_);
    engine_.connected_.notify_all();
  }

 private:
  State& engine_;
  const std::string& remote_;
};

Status Hixl::State::begin_connecting(const std::string& remote, const Deadline& deadline, std::uint64_t& life) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (const Status now = ready(); now != SUCCESS) return now;
    if (remotes_.contains(remote)) {
      return failed(ALREADY_CONNECTED, Error(ErrorCode::invalid_argument, {.stage = Stage::connect}));
    }
    life = life_;
    if (connecting_.insert(remote).second) return SUCCESS;
    if (connected_.wait_until(lock, deadline.end()) == std::cv_status::timeout) {
      return failed(Error(ErrorCode::connect_timeout, {.stage = Stage::connect}));
    }
  }
}

Status Hixl::State::connect(const std::string& remote, std::int32_t timeout_ms) {
  if (timeout_ms <= 0) return failed(Error(ErrorCode::invalid_argument, {.stage = Stage::connect}));
  return connect(remote, Deadline(std::chrono::milliseconds(timeout_ms)));
}

Status Hixl::State::connect(const std::string& remote, const Deadline& deadline) {
  std::uint64_t life = 0;
  if (const Status begun = begin_connecting(remote, deadline, life); begun != SUCCESS) return begun;
  const Connecting connecting(*this, remote);
  auto made = make_remote(remote, deadline);
  if (!made) return failed(made.error());
  const std::scoped_lock lock(mutex_);
  if (const Status now = ready(); now != SUCCESS) return now;
  if (life_ != life) return failed(FAILED, Error(ErrorCode::stopped, {.stage = Stage::connect}));
  for (const auto& [id, range] : memory_) {
    if (const auto region = register_with(*(*made)->runtime, range.mem); !region) return failed(region.error());
  }
  remotes_[remote] = std::move(*made);
  standing_[remote] = AsyncConnectStatus::CONNECTED;
  return SUCCESS;
}

Status Hixl::State::disconnect(const std::string& remote, std::int32_t timeout_ms) {
  if (timeout_ms <= 0) return failed(Error(ErrorCode::invalid_argument, {.stage = Stage::connect}));
  std::shared_ptr<RemoteEngine> gone;
  {
    const std::scoped_lock lock(mutex_);
    if (const Status now = ready(); now != SUCCESS) return now;
    const auto found = remotes_.find(remote);
    if (found == remotes_.end())
      return failed(NOT_CONNECTED, Error(ErrorCode::not_exchanged, {.stage = Stage::connect}));
    gone = std::move(found->second);
    remotes_.erase(found);
    standing_[remote] = AsyncConnectStatus::NOT_CONNECT;
  }
  const auto stopped = gone->runtime->stop(std::chrono::milliseconds(timeout_ms));
  return stopped ? SUCCESS : failed(stopped.error());
}

Result<std::shared_ptr<RemoteEngine>> Hixl::State::remote(const std::string& name, const Deadline& deadline,
                                                          Status& status) {
  for (bool tried = false;; tried = true) {
    {
      const std::scoped_lock lock(mutex_);
      if (status = ready(); status != SUCCESS) return fail(ErrorCode::stopped);
      if (const auto found = remotes_.find(name); found != remotes_.end()) return found->second;
      if (!options_.auto_connect || tried) {
        const Error error(ErrorCode::not_exchanged, {.stage = Stage::connect});
        status = failed(NOT_CONNECTED, error);
        return fail(error);
      }
    }
    status = connect(name, deadline);
    // Another thread may have been first.
    if (status != SUCCESS && status != ALREADY_CONNECTED) return fail(ErrorCode::not_exchanged);
  }
}

}  // namespace hixl
