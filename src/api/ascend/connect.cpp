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

Timeout time_of(std::int32_t timeout_ms) noexcept { return std::chrono::milliseconds(timeout_ms); }

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

Hixl::State::~State() { finalize(); }

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
  end_later();
  std::map<std::string, std::shared_ptr<RemoteEngine>> remotes;
  std::unique_ptr<Runtime> door;
  std::vector<std::unique_ptr<MessageReceiver>> notes;
  const std::scoped_lock connecting(connecting_);
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
  for (const auto& [name, remote] : remotes) static_cast<void>(remote->runtime->stop());
  if (door) static_cast<void>(door->stop());
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
  std::vector<Runtime*> runtimes;
  std::vector<std::shared_ptr<RemoteEngine>> kept;
  const std::scoped_lock connecting(connecting_);  // so that no runtime goes meanwhile
  MemDesc mem;
  {
    const std::scoped_lock lock(mutex_);
    if (const Status now = ready(); now != SUCCESS) return now;
    const auto found = memory_.find(reinterpret_cast<std::uint64_t>(handle));
    if (found == memory_.end()) return failed(Error(ErrorCode::invalid_handle, {.stage = Stage::memory}));
    if (--found->second.references > 0) return SUCCESS;
    mem = found->second.mem;
    memory_.erase(found);
    if (door_ != nullptr) runtimes.push_back(door_.get());
    for (const auto& [name, remote] : remotes_) {
      kept.push_back(remote);
      runtimes.push_back(remote->runtime.get());
    }
  }
  Status status = SUCCESS;
  for (Runtime* const runtime : runtimes) {
    const auto regions = runtime->dump_regions();
    if (!regions) continue;
    for (const OwnRegion& own : regions->own) {
      if (own.region.address() != mem.addr || own.region.size != mem.len || own.state != RegionState::open) continue;
      if (const auto gone = runtime->deregister(own.region); !gone) status = failed(gone.error());
      break;
    }
  }
  return status;
}

// ---- connections ----

/// As a rank that nobody has there: the first guess differs by engine and process, the next are its neighbours.
Result<std::unique_ptr<Runtime>> Hixl::State::join(const EngineName& name, Timeout timeout) {
  auto options = base_options(options_.insecure);
  if (!options) return fail(options.error());
  options->store = name.store_url();
  options->host_store = false;
  const auto self = engine_name(AscendString(name_));
  if (self && options->bind == RuntimeOptions{}.bind) options->bind = self->bind();
  options->connect_timeout = std::clamp(std::chrono::duration_cast<std::chrono::milliseconds>(timeout),
                                        std::chrono::milliseconds(10), std::chrono::milliseconds(600'000));
  const std::size_t first = std::hash<std::string>{}(name_) + static_cast<std::size_t>(::getpid()) * 31 + joins_++ * 7;
  for (std::uint32_t i = 0; i + 1 < k_engine_world; ++i) {
    options->rank = static_cast<Rank>(1 + (first + i) % (k_engine_world - 1));
    auto runtime = Runtime::create(*options);
    if (runtime || runtime.error().code != ErrorCode::rank_conflict) return runtime;
  }
  return fail(ErrorCode::limit_reached, {.stage = Stage::connect, .limit = k_engine_world - 1});
}

Result<std::shared_ptr<RemoteEngine>> Hixl::State::make_remote(const std::string& remote, Timeout timeout) {
  const auto name = engine_name(AscendString(remote));
  if (!name) return fail(name.error());
  if (name->port == 0) return fail(ErrorCode::invalid_argument, {.stage = Stage::connect});
  auto runtime = join(*name, timeout);
  if (!runtime) return fail(runtime.error());
  auto made = std::make_shared<RemoteEngine>();
  made->runtime = std::move(*runtime);
  const auto told = Offers::ask(*made->runtime, 0, k_notes_tag, timeout);
  if (!told) return fail(told.error());
  const auto notes = std::ranges::find(*told, k_notes_tag, &RemoteRegion::tag);
  const std::uint64_t place = (made->runtime->rank() - 1) * k_notes_shape.region_bytes();
  auto sender = MessageSender::attach(*made->runtime, notes->at(place), k_notes_shape, timeout);
  if (!sender) return fail(sender.error());
  made->notes = std::move(*sender);
  return made;
}

Status Hixl::State::connect(const std::string& remote, std::int32_t timeout_ms) {
  if (timeout_ms <= 0) return failed(Error(ErrorCode::invalid_argument, {.stage = Stage::connect}));
  const std::scoped_lock connecting(connecting_);
  {
    const std::scoped_lock lock(mutex_);
    if (const Status now = ready(); now != SUCCESS) return now;
    if (remotes_.contains(remote)) {
      return failed(ALREADY_CONNECTED, Error(ErrorCode::invalid_argument, {.stage = Stage::connect}));
    }
  }
  auto made = make_remote(remote, time_of(timeout_ms));
  if (!made) return failed(made.error());
  const std::scoped_lock lock(mutex_);
  if (const Status now = ready(); now != SUCCESS) return now;
  for (const auto& [id, range] : memory_) {
    if (const auto region = register_with(*(*made)->runtime, range.mem); !region) return failed(region.error());
  }
  remotes_[remote] = std::move(*made);
  standing_[remote] = AsyncConnectStatus::CONNECTED;
  return SUCCESS;
}

Status Hixl::State::disconnect(const std::string& remote, std::int32_t timeout_ms) {
  if (timeout_ms <= 0) return failed(Error(ErrorCode::invalid_argument, {.stage = Stage::connect}));
  const std::scoped_lock connecting(connecting_);
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
  if (const auto stopped = gone->runtime->stop(time_of(timeout_ms)); !stopped) return failed(stopped.error());
  return SUCCESS;
}

Result<std::shared_ptr<RemoteEngine>> Hixl::State::remote(const std::string& name, std::int32_t timeout_ms,
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
    status = connect(name, timeout_ms);
    // Another thread may have been first.
    if (status != SUCCESS && status != ALREADY_CONNECTED) return fail(ErrorCode::not_exchanged);
  }
}

}  // namespace hixl
