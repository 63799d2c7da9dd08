// SPDX-License-Identifier: Apache-2.0
//
// How a rank of this process begins and ends, and how several views share it.
#include "api/engine_table.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "api/world.hpp"

namespace hixl::api {

namespace {

bool same_rank(const RuntimeOptions& a, const RuntimeOptions& b) {
  return a.rank == b.rank && a.world_size == b.world_size && a.store == b.store && a.job == b.job;
}

/// A second view means the same runtime.
bool same_settings(const RuntimeOptions& a, const RuntimeOptions& b) {
  return a.links == b.links && a.tx_depth == b.tx_depth && a.rx_depth == b.rx_depth && a.max_inline == b.max_inline &&
         a.bind == b.bind && a.requests_max == b.requests_max && a.default_timeout == b.default_timeout;
}

}  // namespace

std::shared_ptr<EnginePlace> EngineTable::place_of(const RuntimeOptions& options) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(places_, [](const auto& place) { return place.use_count() == 1 && place->engine == nullptr; });
  const auto found = std::ranges::find_if(places_, [&](const auto& place) { return same_rank(place->key, options); });
  if (found != places_.end()) return *found;
  auto place = std::make_shared<EnginePlace>();
  place->key = options;
  places_.push_back(place);
  return place;
}

void EngineTable::stop_all() noexcept {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  for (const auto& place : places_) {
    const std::unique_lock inside(place->mutex, std::try_to_lock);
    if (inside && place->engine != nullptr) static_cast<void>(place->engine->runtime->stop(Timeout{}));
  }
}

Result<std::vector<LinkKind>> links_of(hixl_transport_t transport) {
  constexpr std::array k_kinds{LinkKind::hccs, LinkKind::pcie, LinkKind::roce, LinkKind::ub, LinkKind::tcp};
  if (transport == HIXL_TRANS_AUTO) return std::vector<LinkKind>();
  if (transport < 0 || transport > static_cast<hixl_transport_t>(k_kinds.size())) {
    return fail(ErrorCode::invalid_argument,
                {.stage = Stage::options, .length = static_cast<std::uint64_t>(transport), .limit = k_kinds.size()});
  }
  return std::vector<LinkKind>{k_kinds[static_cast<std::size_t>(transport) - 1]};
}

Result<RuntimeOptions> options_of(const hixl_init_info_t* info, std::size_t size) {
  auto options = RuntimeOptions::from_environment();
  if (!options || info == nullptr) return options;
  // What a newer header has is accepted as long as it says nothing; what an older one lacks is 0.
  const auto* const bytes = reinterpret_cast<const std::byte*>(info);
  hixl_init_info_t said{};
  std::copy_n(bytes, std::min(size, sizeof said), reinterpret_cast<std::byte*>(&said));
  if (size > sizeof said &&
      std::any_of(bytes + sizeof said, bytes + size, [](std::byte b) { return b != std::byte{}; })) {
    return fail(ErrorCode::unsupported, {.stage = Stage::options, .length = size, .limit = sizeof said});
  }
  if (said.rank_size < 0 || (said.rank_size == 0 && said.rank_id != 0 && rank_of(said.rank_id) != options->rank)) {
    return fail(ErrorCode::invalid_argument,
                {.rank = rank_of(said.rank_id), .stage = Stage::options, .limit = options->world_size});
  }
  if (said.rank_size > 0) {
    options->rank = rank_of(said.rank_id);
    options->world_size = static_cast<std::uint32_t>(said.rank_size);
  }
  if (options->rank >= options->world_size) {
    return fail(ErrorCode::rank_out_of_range,
                {.rank = options->rank, .stage = Stage::options, .limit = options->world_size});
  }
  auto links = links_of(said.transport_type);
  if (!links) return fail(links.error());
  if (!links->empty()) options->links = std::move(*links);
  const auto take = [](auto& option, std::uint32_t value) {
    if (value != 0) option = value;
  };
  take(options->tx_depth, said.tx_depth);
  take(options->rx_depth, said.rx_depth);
  take(options->max_inline, said.max_inline_data);
  if (said.max_inline_data == HIXL_INLINE_NONE) options->max_inline = 0;
  take(options->requests_max, said.requests_max);
  if (said.timeout_ms != 0) options->default_timeout = std::chrono::milliseconds(said.timeout_ms);
  if (said.job != nullptr) options->job = said.job;
  if (said.bind != nullptr) options->bind = said.bind;
  if (said.insecure != 0) options->insecure = true;
  if (said.store != nullptr) {
    options->store = said.store;
    options->host_store = said.host_store != 0;
  } else if (said.host_store != 0) {
    options->host_store = true;
  }
  if (options->world_size == 1 && said.store == nullptr) {  // whoever is alone need not be found
    options->store.clear();
    options->host_store = false;
  }
  if (const auto valid = options->validate(); !valid) return fail(valid.error());
  return options;
}

Result<hixl_ctx_t> open_view(const RuntimeOptions& options) {
  World& world = World::get();
  if (const auto allowed = may_wait(world.note()); !allowed) return fail(allowed.error());
  const auto place = world.engines.place_of(options);
  const std::scoped_lock lock(place->mutex);
  if (place->engine == nullptr) {
    auto runtime = Runtime::create(options);
    if (!runtime) return fail(runtime.error());
    auto engine = std::make_shared<Engine>(std::move(*runtime), options);
    world.requests.reserve(options.requests_max);
    place->engine = std::move(engine);
  } else if (!same_settings(place->engine->options, options)) {
    return fail(ErrorCode::rank_conflict, {.rank = options.rank, .stage = Stage::options});
  }
  const auto handle = world.handles.add(HandleKind::view, std::make_unique<View>(place));
  if (!handle) {
    if (place->views == 0) {
      place->engine.reset();
      world.requests.release(options.requests_max);
    }
    return fail(handle.error());
  }
  place->views += 1;
  return handle->as<hixl_ctx_t>();
}

Result<void> close_view(hixl_ctx_t ctx, int timeout_ms) {
  World& world = World::get();
  const Handle handle = Handle::of(ctx);
  std::shared_ptr<EnginePlace> place;
  std::optional<Deadline> deadline;
  {
    const Inside<View> view(handle);
    if (!view) return view.error();
    if (const auto allowed = may_wait(view.note()); !allowed) return allowed;
    if (const auto valid = check_time(timeout_ms); !valid) return valid;
    deadline.emplace(view->engine->time_of(timeout_ms));
    place = view->place;
  }
  const std::scoped_lock lock(place->mutex);
  {
    const Inside<View> still(handle);  // another thread may have closed it meanwhile
    if (!still) return still.error();
  }
  Result<void> ended;
  const bool last = place->views == 1;
  if (last) {
    ended = place->engine->runtime->stop(deadline->left());
    // Nothing was begun: it stays as it is.
    if (!ended && ended.error().code == ErrorCode::would_deadlock) return ended;
  }
  // From here on there is no way back. Whoever is inside ends soon, since the runtime has stopped.
  bool late = world.handles.take(handle, HandleKind::view, *deadline) == HandleTable::Taken::late;
  place->views -= 1;
  if (last) {
    const std::shared_ptr<Engine> engine = std::exchange(place->engine, nullptr);
    late |= world.handles.take_all(engine.get(), *deadline) == HandleTable::Taken::late;
    world.requests.release(engine->options.requests_max);
  }
  if (ended && late) return fail(ErrorCode::deadline_exceeded, {.stage = Stage::shutdown});
  return ended;
}

}  // namespace hixl::api
