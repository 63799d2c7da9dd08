// SPDX-License-Identifier: Apache-2.0
//
// hixl/engine.h: engines, contexts, buffers, descriptors.
#include <hixl/engine.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include <hixl/offers.hpp>

#include "api/contexts.hpp"
#include "api/posting.hpp"
#include "api/regions.hpp"
#include "api/world.hpp"

using namespace hixl;
using namespace hixl::api;

namespace hixl::api {

Result<RemoteRegion> Context::buffer(Rank rank, std::uint32_t id) {
  {
    const std::scoped_lock lock(mutex_);
    const auto found = known_.find({rank, id});
    if (found != known_.end()) return found->second;
  }
  if (const auto allowed = may_wait(World::get().note()); !allowed) return fail(allowed.error());
  const auto regions = Offers::ask(runtime(), rank, k_buffer_tag + id);
  if (!regions) return fail(regions.error());
  // The newest, should the number live a second time.
  const auto newest = std::ranges::find(regions->rbegin(), regions->rend(), k_buffer_tag + id, &RemoteRegion::tag);
  const std::scoped_lock lock(mutex_);
  known_[{rank, id}] = *newest;
  return *newest;
}

void Context::forget(Rank rank, std::uint32_t id) {
  const std::scoped_lock lock(mutex_);
  known_.erase({rank, id});
}

Result<void> Context::check_peer(Rank rank) const {
  if (std::ranges::find(peers, rank) != peers.end()) return {};
  return fail(rank >= runtime().world_size() ? ErrorCode::rank_out_of_range : ErrorCode::invalid_argument,
              {.rank = rank, .stage = Stage::remote_check, .limit = runtime().world_size()});
}

Result<RemoteAddress> Context::place_of(const HIXL_Addr_t& place) const {
  if (place.rank == HIXL_RANK_OF_CONTEXT && peers.size() != 1) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::remote_check, .address = place.address, .limit = 1});
  }
  const Rank rank = place.rank == HIXL_RANK_OF_CONTEXT ? peers.front() : rank_of(place.rank);
  if (const auto peer = check_peer(rank); !peer) return fail(peer.error());
  return RemoteAddress{rank, place.address, {place.region, place.generation}, place.incarnation};
}

}  // namespace hixl::api

static Result<HIXL_Context_t> create_context(HIXL_Engine_t engine, std::size_t count, const int* ranks) {
  if (count == 0 || ranks == nullptr) return missing_argument();
  const Inside<View> view(engine);
  if (!view) return view.error();
  std::vector<Rank> peers;
  for (std::size_t i = 0; i < count; ++i) {
    const Rank rank = rank_of(ranks[i]);
    if (rank >= view->runtime().world_size()) {
      return fail(ErrorCode::rank_out_of_range,
                  {.rank = rank, .stage = Stage::options, .limit = view->runtime().world_size()});
    }
    if (std::ranges::find(peers, rank) != peers.end()) {
      return fail(ErrorCode::invalid_argument, {.rank = rank, .stage = Stage::options});
    }
    peers.push_back(rank);
  }
  const auto handle =
      view.world().handles.add(HandleKind::context, std::make_unique<Context>(view->engine, std::move(peers)));
  if (!handle) return fail(handle.error());
  return handle->as<HIXL_Context_t>();
}

/// A descriptor, as the core takes it.
struct Transfer {
  TransferVerb verb;
  void* local;
  RemoteAddress remote;
  std::size_t size;
};

static Result<Transfer> transfer_of(const Context& context, const HIXL_Descriptor_t* descriptor, HIXL_Op_t type) {
  if (descriptor == nullptr) return missing_argument();
  if (descriptor->type != type) {
    return fail(ErrorCode::invalid_argument,
                {.stage = Stage::options, .length = static_cast<std::uint64_t>(descriptor->type)});
  }
  const auto remote = context.place_of(descriptor->remote_addr);
  if (!remote) return fail(remote.error());
  return Transfer{type == HIXL_OP_PUT ? TransferVerb::put : TransferVerb::get, descriptor->local_addr, *remote,
                  descriptor->size};
}

static HIXL_Status_t post_descriptor(HIXL_Context_t handle, const HIXL_Descriptor_t* descriptor, HIXL_Request_t* req,
                                     HIXL_Op_t type) {
  return guarded_post(req, [&]() -> Result<void> {
    const Inside<Context> context(handle);
    if (!context) return context.error();
    const auto t = transfer_of(*context, descriptor, type);
    if (!t) return fail(t.error());
    return post_request(context.world(), context.note(), req, {descriptor->cb, descriptor->user_data},
                        [&](const OpOptions& options) {
                          Runtime& runtime = context->runtime();
                          return t->verb == TransferVerb::put ? runtime.put(t->local, t->remote, t->size, options)
                                                              : runtime.get(t->local, t->remote, t->size, options);
                        });
  });
}

static HIXL_Status_t finish_descriptor(HIXL_Context_t handle, const HIXL_Descriptor_t* descriptor, HIXL_Op_t type) {
  return guarded([&]() -> Result<void> {
    const Inside<Context> context(handle);
    if (!context) return context.error();
    const auto t = transfer_of(*context, descriptor, type);
    if (!t) return fail(t.error());
    Runtime& runtime = context->runtime();
    return t->verb == TransferVerb::put ? runtime.put_sync(t->local, t->remote, t->size)
                                        : runtime.get_sync(t->local, t->remote, t->size);
  });
}

HIXL_Engine_t HIXL_InitSized(const HIXL_EngineConfig_t* config, size_t config_size) {
  hixl_ctx_t engine = nullptr;
  static_cast<void>(hixl_init_sized(&engine, config, config_size));
  return engine;
}

HIXL_Status_t HIXL_Finalize(HIXL_Engine_t engine) { return hixl_finalize(engine); }

HIXL_Context_t HIXL_CreateContext(HIXL_Engine_t engine, int peer_rank) {
  return guarded_or(HIXL_Context_t{}, [&] { return create_context(engine, 1, &peer_rank); });
}

HIXL_MultiContext_t HIXL_CreateMultiContext(HIXL_Engine_t engine, size_t peers, const int* peer_ranks) {
  return guarded_or(HIXL_Context_t{}, [&] { return create_context(engine, peers, peer_ranks); });
}

HIXL_Status_t HIXL_DestroyContext(HIXL_Context_t context) {
  return guarded([&]() -> Result<void> { return close_handle<Context>(context, [](Context&) {}); });
}

// ---- buffers ----

HIXL_Status_t HIXL_RegisterBuffer(HIXL_Engine_t engine, void* data, size_t size, uint32_t* buffer_id) {
  return guarded([&]() -> Result<void> {
    if (buffer_id == nullptr) return missing_argument(Stage::memory);
    *buffer_id = UINT32_MAX;
    const Inside<View> view(engine);
    if (!view) return view.error();
    if (const auto allowed = may_wait(view.note()); !allowed) return allowed;
    const std::scoped_lock numbering(view->engine->numbering);
    const std::uint32_t id = view->engine->buffers;
    if (id >= k_buffers_max) return fail(ErrorCode::limit_reached, {.stage = Stage::memory, .limit = k_buffers_max});
    const auto region = view->runtime().register_memory(data, size, {.tag = k_buffer_tag + id});
    if (!region) return fail(region.error());
    if (const auto offered = Offers::add(view->runtime(), {&*region, 1}); !offered) {
      static_cast<void>(end_region(*view->engine, *region));
      return offered;
    }
    view->engine->buffers += 1;
    *buffer_id = id;
    return {};
  });
}

/// The open region of that number.
static Result<Region> own_buffer(Runtime& runtime, std::uint32_t id) {
  const auto regions = runtime.dump_regions();
  if (!regions) return fail(regions.error());
  for (const OwnRegion& own : regions->own) {
    if (own.state == RegionState::open && own.tag == k_buffer_tag + id && id < k_buffers_max) return own.region;
  }
  return fail(ErrorCode::invalid_argument, {.stage = Stage::local_check, .length = id});
}

HIXL_Status_t HIXL_DeregisterBuffer(HIXL_Engine_t engine, uint32_t buffer_id) {
  return guarded([&]() -> Result<void> {
    const Inside<View> view(engine);
    if (!view) return view.error();
    if (const auto allowed = may_wait(view.note()); !allowed) return allowed;
    const auto region = own_buffer(view->runtime(), buffer_id);
    if (!region) return fail(region.error());
    return end_region(*view->engine, *region);
  });
}

HIXL_Addr_t HIXL_GetRemoteAddr(HIXL_Context_t handle, int peer_rank, uint32_t buffer_id) {
  const HIXL_Addr_t wrong{0, 0, 0, 0, -1, 0};
  return guarded_or(wrong, [&]() -> Result<HIXL_Addr_t> {
    const Inside<Context> context(handle);
    if (!context) return context.error();
    if (const auto peer = context->check_peer(rank_of(peer_rank)); !peer) return fail(peer.error());
    if (const auto own = own_buffer(context->runtime(), buffer_id); !own) return fail(own.error());
    context->forget(rank_of(peer_rank), buffer_id);  // it may live a second time
    const auto region = context->buffer(rank_of(peer_rank), buffer_id);
    if (!region) return fail(region.error());
    return HIXL_Addr_t{region->base, region->incarnation, region->key.id, region->key.generation, peer_rank, 0};
  });
}

// ---- transfers ----

HIXL_Status_t HIXL_Put(HIXL_Context_t context, const HIXL_Descriptor_t* descriptor, HIXL_Request_t* req) {
  return post_descriptor(context, descriptor, req, HIXL_OP_PUT);
}
HIXL_Status_t HIXL_Get(HIXL_Context_t context, const HIXL_Descriptor_t* descriptor, HIXL_Request_t* req) {
  return post_descriptor(context, descriptor, req, HIXL_OP_GET);
}
HIXL_Status_t HIXL_SyncPut(HIXL_Context_t context, const HIXL_Descriptor_t* descriptor) {
  return finish_descriptor(context, descriptor, HIXL_OP_PUT);
}
HIXL_Status_t HIXL_SyncGet(HIXL_Context_t context, const HIXL_Descriptor_t* descriptor) {
  return finish_descriptor(context, descriptor, HIXL_OP_GET);
}

HIXL_Status_t HIXL_Wait(HIXL_Request_t* req) { return hixl_wait(req); }
HIXL_Status_t HIXL_WaitTimeout(HIXL_Request_t* req, int timeout_ms) { return hixl_wait_timeout(req, timeout_ms); }
HIXL_Status_t HIXL_Query(HIXL_Request_t req) { return hixl_query(req); }
HIXL_Status_t HIXL_WaitAll(size_t count, HIXL_Request_t* reqs) {
  return hixl_wait_all(count, reqs, nullptr, HIXL_TIMEOUT_DEFAULT);
}
HIXL_Status_t HIXL_WaitAllStatus(size_t count, HIXL_Request_t* reqs, HIXL_Status_t* statuses, int timeout_ms) {
  return hixl_wait_all(count, reqs, statuses, timeout_ms);
}
HIXL_Status_t HIXL_WaitAny(size_t count, HIXL_Request_t* reqs, size_t* index, int timeout_ms) {
  return hixl_wait_any(count, reqs, index, timeout_ms);
}
