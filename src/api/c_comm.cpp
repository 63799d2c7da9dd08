// SPDX-License-Identifier: Apache-2.0
//
// hixl/comm.h: communicators, exchange of addresses, barriers.
#include <hixl/comm.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "api/regions.hpp"
#include "api/world.hpp"

using namespace hixl;
using namespace hixl::api;

namespace {

/// hixl_comm_t. Without a group: the world.
class Comm final : public Object {
 public:
  static constexpr HandleKind k_kind = HandleKind::comm;
  Comm(std::shared_ptr<Engine> e, Group&& g) : engine(std::move(e)), group(std::move(g)) { owner = engine.get(); }
  ~Comm() override {
    group.close();
    engine->told.forget(this);
  }
  [[nodiscard]] bool world() const noexcept { return group.size() == 0; }
  [[nodiscard]] Result<PeerAddresses> exchange(std::span<const Region> mine, Rank rank, Timeout timeout) {
    auto answers =
        world() ? engine->runtime->exchange(mine, {&rank, 1}, timeout) : group.exchange_with(mine, {&rank, 1}, timeout);
    if (!answers.front().result) return fail(answers.front().result.error());
    return std::move(answers.front());
  }
  /// Regions that begin at my addresses, and addresses that are none of mine.
  struct Sorted {
    std::vector<Region> mine;
    std::vector<std::uint64_t> others;
  };
  [[nodiscard]] Result<Sorted> sort(std::span<const std::uint64_t> addresses, const Deadline& deadline);

  const std::shared_ptr<Engine> engine;
  Group group;
  std::mutex mutex;  // guards what is below
  std::map<Rank, std::vector<RemoteRegion>> learned;
};

/// An address is told as a region of its own, from there to the end of the region that it is in.
Result<Comm::Sorted> Comm::sort(std::span<const std::uint64_t> addresses, const Deadline& deadline) {
  const auto regions = engine->runtime->dump_regions();
  if (!regions) return fail(regions.error());
  Sorted sorted;
  std::vector<RegionKey> bases;
  for (const std::uint64_t address : addresses) {
    const OwnRegion* const around = region_around(*regions, address);
    if (around == nullptr) {
      sorted.others.push_back(address);
      continue;
    }
    const auto region = engine->told.tell(*around, address, this);
    if (!region) return fail(region.error());
    sorted.mine.push_back(*region);
    bases.push_back(around->region.key);
  }
  // What has ended since it was looked up is told no more, and the exchange says so.
  if (const auto followed = engine->told.follow(bases, deadline); !followed) return fail(followed.error());
  return sorted;
}

Result<hixl_comm_t> add_comm(const Inside<View>& view, Group&& group) {
  const auto handle =
      view.world().handles.add(HandleKind::comm, std::make_unique<Comm>(view->engine, std::move(group)));
  if (!handle) return fail(handle.error());
  return handle->as<hixl_comm_t>();
}

Result<void> create_comm(hixl_ctx_t ctx, hixl_comm_t* comm, int count, const int* ranks, hixl_transport_t transport) {
  if (comm == nullptr) return missing_argument(Stage::group);
  *comm = nullptr;
  if (count < 0 || (count > 0 && ranks == nullptr)) return missing_argument(Stage::group);
  const Inside<View> view(ctx);
  if (!view) return view.error();
  if (const auto allowed = may_wait(view.note()); !allowed) return allowed;
  const auto links = links_of(transport);
  if (!links) return fail(links.error());
  GroupOptions options;
  for (const LinkKind kind : *links) options.links.add(kind);
  std::vector<Rank> members;
  for (int i = 0; i < count; ++i) members.push_back(rank_of(ranks[i]));
  auto group = view->runtime().create_group(members, options);
  if (!group) return fail(group.error());
  const auto made = add_comm(view, std::move(*group));
  if (!made) return fail(made.error());
  *comm = *made;
  return {};
}

Result<void> exchange(hixl_comm_t handle, const uint64_t* addrs, int count, int rank, int timeout_ms) {
  if (count < 0 || (count > 0 && addrs == nullptr)) return missing_argument(Stage::exchange);
  const Inside<Comm> comm(handle);
  if (!comm) return comm.error();
  if (const auto allowed = may_wait(comm.note()); !allowed) return allowed;
  if (const auto valid = check_time(timeout_ms); !valid) return valid;
  const Deadline deadline(comm->engine->time_of(timeout_ms));
  const auto sorted = comm->sort({addrs, static_cast<std::size_t>(count)}, deadline);
  if (!sorted) return fail(sorted.error());
  auto answer = comm->exchange(sorted->mine, rank_of(rank), deadline.left());
  if (!answer) return fail(answer.error());
  // Told only now: a wrong address here must not make the peer wait for its own exchange.
  for (const std::uint64_t address : sorted->others) {
    const auto holds = [address](const RemoteRegion& r) { return address >= r.base && address - r.base < r.length; };
    if (std::ranges::any_of(answer->regions, holds)) continue;
    return fail(ErrorCode::not_registered,
                {.rank = rank_of(rank), .stage = Stage::exchange, .address = address, .length = 1});
  }
  const std::scoped_lock lock(comm->mutex);
  comm->learned[rank_of(rank)] = std::move(answer->regions);
  return {};
}

}  // namespace

hixl_status_t hixl_comm_create(hixl_ctx_t ctx, hixl_comm_t* comm, int count, const int* ranks) {
  return guarded([&] { return create_comm(ctx, comm, count, ranks, HIXL_TRANS_AUTO); });
}

hixl_status_t hixl_comm_create_over(hixl_ctx_t ctx, hixl_comm_t* comm, int count, const int* ranks,
                                    hixl_transport_t transport) {
  return guarded([&] { return create_comm(ctx, comm, count, ranks, transport); });
}

hixl_status_t hixl_comm_world(hixl_ctx_t ctx, hixl_comm_t* comm) {
  return guarded([&]() -> Result<void> {
    if (comm == nullptr) return missing_argument(Stage::group);
    *comm = nullptr;
    const Inside<View> view(ctx);
    if (!view) return view.error();
    const auto made = add_comm(view, Group());
    if (!made) return fail(made.error());
    *comm = *made;
    return {};
  });
}

hixl_status_t hixl_comm_destroy(hixl_comm_t comm) {
  return guarded(
      [&]() -> Result<void> { return close_handle<Comm>(comm, [](Comm& closed) { closed.group.close(); }); });
}

int hixl_comm_rank(hixl_comm_t comm) {
  return guarded_or(-1, [&]() -> Result<int> {
    const Inside<Comm> inside(comm);
    if (!inside) return inside.error();
    return static_cast<int>(inside->world() ? inside->engine->runtime->rank() : inside->group.rank());
  });
}

int hixl_comm_size(hixl_comm_t comm) {
  return guarded_or(-1, [&]() -> Result<int> {
    const Inside<Comm> inside(comm);
    if (!inside) return inside.error();
    return static_cast<int>(inside->world() ? inside->engine->runtime->world_size() : inside->group.size());
  });
}

hixl_status_t hixl_address_exchange(hixl_comm_t comm, const uint64_t* addrs, int count, int rank) {
  return guarded([&] { return exchange(comm, addrs, count, rank, HIXL_TIMEOUT_DEFAULT); });
}

hixl_status_t hixl_address_exchange_timeout(hixl_comm_t comm, const uint64_t* addrs, int count, int rank,
                                            int timeout_ms) {
  return guarded([&] { return exchange(comm, addrs, count, rank, timeout_ms); });
}

hixl_status_t hixl_peer_addresses(hixl_comm_t comm, int rank, hixl_peer_address_t* out, int max, int* count) {
  return guarded([&]() -> Result<void> {
    if (count != nullptr) *count = 0;
    if (max < 0 || (max > 0 && out == nullptr)) return missing_argument(Stage::exchange);
    const Inside<Comm> inside(comm);
    if (!inside) return inside.error();
    const std::scoped_lock lock(inside->mutex);
    const auto learned = inside->learned.find(rank_of(rank));
    if (learned == inside->learned.end()) {
      return fail(ErrorCode::not_exchanged, {.rank = rank_of(rank), .stage = Stage::exchange});
    }
    const std::vector<RemoteRegion>& regions = learned->second;
    if (count != nullptr) *count = static_cast<int>(regions.size());
    for (std::size_t i = 0; i < std::min(regions.size(), static_cast<std::size_t>(max)); ++i) {
      out[i] = {regions[i].base, regions[i].length};
    }
    return {};
  });
}

// ---- barriers ----

hixl_status_t hixl_barrier_timeout(hixl_ctx_t ctx, int timeout_ms) {
  return guarded([&]() -> Result<void> {
    const Inside<View> view(ctx);
    if (!view) return view.error();
    if (const auto allowed = may_wait(view.note()); !allowed) return allowed;
    return view->runtime().barrier(timeout_of(timeout_ms));
  });
}

hixl_status_t hixl_barrier(hixl_ctx_t ctx) { return hixl_barrier_timeout(ctx, HIXL_TIMEOUT_DEFAULT); }

hixl_status_t hixl_comm_barrier(hixl_comm_t comm, int timeout_ms) {
  return guarded([&]() -> Result<void> {
    const Inside<Comm> inside(comm);
    if (!inside) return inside.error();
    if (const auto allowed = may_wait(inside.note()); !allowed) return allowed;
    if (inside->world()) return inside->engine->runtime->barrier(timeout_of(timeout_ms));
    return inside->group.barrier(timeout_of(timeout_ms));
  });
}
