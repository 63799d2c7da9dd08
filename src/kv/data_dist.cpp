// SPDX-License-Identifier: Apache-2.0
//
// The public shells.
#include <hixl/kv/data_dist.hpp>

#include <utility>

#include "movement.hpp"
#include "state.hpp"

namespace hixl::kv {

Result<std::unique_ptr<DataDist>> DataDist::open(Runtime& runtime, const DataDistOptions& options) {
  auto state = std::make_shared<State>(runtime, options);
  if (const auto opened = state->open(); !opened) return fail(opened.error());
  return std::unique_ptr<DataDist>(new DataDist(std::move(state)));
}

DataDist::DataDist(std::shared_ptr<State> state) noexcept : state_(std::move(state)) {}

DataDist::~DataDist() {
  const auto closed = state_->close(std::chrono::seconds(5));
  if (closed || state_->closed.load()) return;
  if (closed.error().code == ErrorCode::forked) {
    // The parent's threads are not here, and its memory is not ours to give back.
    static_cast<void>(new std::shared_ptr<State>(std::move(state_)));
    return;
  }
  state_->let_go();
}

Result<void> DataDist::close(Timeout timeout) { return state_->close(timeout); }

Result<CacheId> DataDist::register_cache(const CacheDesc& desc, std::span<const TensorPlace> tensors, Timeout timeout) {
  return state_->inside([&] { return state_->register_cache(desc, tensors, timeout); });
}
Result<void> DataDist::unregister_cache(const CacheId& cache, Timeout timeout) {
  return state_->inside([&] { return state_->unregister_cache(cache, timeout); });
}
Result<CacheDesc> DataDist::describe(const CacheId& cache) const {
  return state_->inside([&]() -> Result<CacheDesc> {
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->cache(cache);
    if (!found) return fail(state_->error_of(ErrorCode::cache_stale, state_->own_rank));
    return found->desc;
  });
}

std::vector<Result<void>> DataDist::link(std::span<const Rank> ranks, Timeout timeout) {
  const auto pass = state_->enter();
  if (!pass) return std::vector<Result<void>>(ranks.size(), fail(pass.error()));
  return state_->link(ranks, timeout);
}
Result<void> DataDist::unlink(Rank rank, Timeout timeout) {
  return state_->inside([&] { return state_->unlink(rank, timeout); });
}
LinkState DataDist::link_state(Rank rank) const {
  const auto pass = state_->enter();
  return pass && rank < state_->runtime.world_size() ? state_->link_state(rank) : LinkState::none;
}
Role DataDist::role() const noexcept {
  const auto pass = state_->enter();
  if (!pass) return state_->options.role;
  const std::lock_guard lock(state_->mutex);
  return state_->role_now;
}
Result<void> DataDist::switch_role(Role role, Timeout timeout) {
  return state_->inside([&] { return state_->switch_role(role, timeout); });
}
Result<RemoteCache> DataDist::find(Rank rank, const CacheKey& key, Timeout timeout) {
  return state_->inside([&] { return state_->find(rank, key, timeout); });
}

Result<Transfer> DataDist::push(const CacheId& from, const RemoteCache& to, const Slice& slice,
                                const TransferOptions& options) {
  return state_->inside([&] {
    return state_->move({.verb = TransferVerb::put, .local = from, .remote = to, .slice = slice, .options = options});
  });
}
Result<Transfer> DataDist::pull(const CacheId& to, const RemoteCache& from, const Slice& slice,
                                const TransferOptions& options) {
  return state_->inside([&] {
    return state_->move({.verb = TransferVerb::get, .local = to, .remote = from, .slice = slice, .options = options});
  });
}
void DataDist::rewind(std::uint64_t sequence, std::uint32_t tokens) {
  const auto pass = state_->enter();
  if (!pass) return;
  const std::lock_guard lock(state_->mutex);
  state_->marks.rewind(sequence, tokens);
}

Result<Lease> DataDist::grant(const CacheId& cache, const LeaseOptions& options) {
  return state_->inside([&] {
    auto lease = state_->grant(cache, options);
    if (!lease && lease.error().code == ErrorCode::limit_reached) {
      state_->look_at_leases();  // some may have ended, and the keeper has not seen it yet
      lease = state_->grant(cache, options);
    }
    state_->wake_keeper();
    return lease;
  });
}
Result<void> DataDist::extend(const LeaseId& lease, std::chrono::milliseconds time) {
  return state_->inside([&] { return state_->extend(lease, time); });
}
Result<void> DataDist::end_lease(const LeaseId& lease) {
  return state_->inside([&] { return state_->end_lease(lease); });
}
LeaseState DataDist::lease_state(const LeaseId& lease) const {
  const auto pass = state_->enter();
  return pass ? state_->lease_state(lease) : LeaseState::ended;
}
Result<bool> DataDist::layer_arrived(const LeaseId& lease, std::uint32_t layer) const {
  return state_->inside([&] { return state_->layer_arrived(lease, layer); });
}
Result<void> DataDist::wait_layer(const LeaseId& lease, std::uint32_t layer, Timeout timeout) {
  return state_->inside([&] { return state_->wait_layer(lease, layer, timeout); });
}
Result<void> DataDist::release(const LeaseTicket& ticket) {
  return state_->inside([&] { return state_->release(ticket); });
}

// ---- Transfer ----

namespace {

tl::unexpected<Error> no_transfer() { return fail(ErrorCode::invalid_request, {.stage = Stage::kv}); }

}  // namespace

Result<void> Transfer::query() const { return state_ ? state_->query() : Result<void>(no_transfer()); }
Result<void> Transfer::wait(Timeout timeout) const {
  return state_ ? state_->wait(timeout) : Result<void>(no_transfer());
}
Progress Transfer::progress() const { return state_ ? state_->progress() : Progress{}; }
Result<void> Transfer::ready(std::uint32_t layer) const {
  return state_ ? state_->ready(layer) : Result<void>(no_transfer());
}
void Transfer::cancel() const {
  if (state_) state_->end_early(Error(ErrorCode::cancelled, {.rank = state_->rank(), .stage = Stage::kv}));
}

}  // namespace hixl::kv
