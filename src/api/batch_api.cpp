// SPDX-License-Identifier: Apache-2.0
//
// hixl/engine.h: batches. A batch is a list that the core takes whole; sorting and joining are the core's.
#include <hixl/engine.h>

#include <mutex>
#include <vector>

#include "api/contexts.hpp"
#include "api/posting.hpp"
#include "api/world.hpp"

using namespace hixl;
using namespace hixl::api;

namespace {

/// HIXL_BatchDescriptor_t. Remote addresses are offsets until the transfer.
class Batch final : public Object {
 public:
  static constexpr HandleKind k_kind = HandleKind::batch;
  explicit Batch(std::uint32_t buffer) : buffer_id(buffer) {}
  const std::uint32_t buffer_id;
  std::mutex mutex;  // guards entries
  std::vector<BatchEntry> entries;
};

/// What a batch is at this moment.
struct Listed {
  std::uint32_t buffer_id = 0;
  std::vector<BatchEntry> entries;
};

/// A copy, so that nobody is inside the batch while the transfer waits for the peer.
Result<Listed> listed(HIXL_BatchDescriptor_t handle) {
  const Inside<Batch> batch(handle);
  if (!batch) return batch.error();
  const std::scoped_lock lock(batch->mutex);
  return Listed{batch->buffer_id, batch->entries};
}

/// Gives the entries their places in one peer's buffer.
Result<void> give_places(Listed& list, Context& context) {
  if (context.peers.size() != 1) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::options, .length = context.peers.size(), .limit = 1});
  }
  const auto region = context.buffer(context.peers.front(), list.buffer_id);
  if (!region) return fail(region.error());
  std::vector<BatchEntry>& entries = list.entries;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::uint64_t offset = entries[i].remote.address;
    if (offset > region->length) {  // checked here, since adding it might wrap around
      return fail(ErrorCode::out_of_range, {.rank = region->rank,
                                            .stage = Stage::remote_check,
                                            .address = offset,
                                            .length = entries[i].size,
                                            .nearest_base = region->base,
                                            .nearest_length = region->length,
                                            .entry = static_cast<std::uint32_t>(i)});
    }
    entries[i].remote = region->at(offset);
  }
  return {};
}

}  // namespace

HIXL_Status_t HIXL_BatchInitBuffer(HIXL_BatchDescriptor_t* batch, uint32_t buffer_id) {
  return guarded([&]() -> Result<void> {
    if (batch == nullptr) return missing_argument();
    *batch = nullptr;
    if (buffer_id >= k_buffers_max) return missing_argument();
    const auto handle = World::get().handles.add(HandleKind::batch, std::make_unique<Batch>(buffer_id));
    if (!handle) return fail(handle.error());
    *batch = handle->as<HIXL_BatchDescriptor_t>();
    return {};
  });
}

HIXL_Status_t HIXL_BatchInit(HIXL_BatchDescriptor_t* batch) { return HIXL_BatchInitBuffer(batch, 0); }

HIXL_Status_t HIXL_BatchAddEntry(HIXL_BatchDescriptor_t* batch, void* local_addr, uint64_t remote_offset, size_t size,
                                 HIXL_Op_t type) {
  return guarded([&]() -> Result<void> {
    if (batch == nullptr || (type != HIXL_OP_PUT && type != HIXL_OP_GET)) return missing_argument();
    const Inside<Batch> inside(*batch);
    if (!inside) return inside.error();
    const std::scoped_lock lock(inside->mutex);
    if (inside->entries.size() >= k_batch_entries_max) {
      return fail(ErrorCode::limit_reached, {.stage = Stage::options, .limit = k_batch_entries_max});
    }
    inside->entries.push_back({.verb = type == HIXL_OP_PUT ? TransferVerb::put : TransferVerb::get,
                               .local = local_addr,
                               .remote = {.address = remote_offset},
                               .size = size});
    return {};
  });
}

HIXL_Status_t HIXL_BatchTransfer(HIXL_Context_t context, HIXL_BatchDescriptor_t* batch, HIXL_Request_t* req) {
  return guarded_post(req, [&]() -> Result<void> {
    if (batch == nullptr) return missing_argument();
    const Inside<Context> where(context);
    if (!where) return where.error();
    auto list = listed(*batch);
    if (!list) return fail(list.error());
    if (const auto placed = give_places(*list, *where); !placed) return placed;
    const auto posted = post_request(where.world(), where.note(), req, {}, [&](const OpOptions& options) {
      return where->runtime().batch(list->entries, options);
    });
    // The peer, or its buffer, lives a second time: the next transfer asks again.
    if (!posted && posted.error().code == ErrorCode::stale) where->forget(where->peers.front(), list->buffer_id);
    return posted;
  });
}

HIXL_Status_t HIXL_BatchDestroy(HIXL_BatchDescriptor_t* batch) {
  return guarded([&]() -> Result<void> {
    if (batch == nullptr) return missing_argument();
    World& world = World::get();
    const Handle handle = Handle::of(*batch);
    // Nobody waits inside a batch, so this may be called in callbacks, and what is late goes by itself.
    if (world.handles.take(handle, HandleKind::batch, Deadline(Timeout{})) == HandleTable::Taken::wrong) {
      return world.wrong(handle);
    }
    *batch = nullptr;
    return {};
  });
}
