// SPDX-License-Identifier: Apache-2.0
//
// hixl::Runtime: the public shell over Core.
#include <hixl/runtime.hpp>

#include <algorithm>
#include <chrono>

#include "core/core.hpp"
#include "core/group_state.hpp"
#include "core/life_start.hpp"
#include "core/runtime_state.hpp"
#include "core/wait_for.hpp"

namespace hixl {

namespace {

core::Parts parts_of(std::unique_ptr<runtime::Driver> driver, bool hosted) {
  core::Parts parts;
  parts.driver = std::move(driver);
  parts.hosted = hosted;
  parts.start = core::life_start();
  return parts;
}

}  // namespace

Runtime::Runtime(std::unique_ptr<State> state) : state_(std::move(state)) {}

/// In a forked child nothing can be released: threads that hold locks are not there, and peers, rings and sockets are
/// the parent's. The child's copy stays until it ends.
Runtime::~Runtime() {
  if (state_->core->forked()) {
    static_cast<void>(state_.release());
  } else {
    state_->diagnosis.reset();
    core::Core::let_go(std::move(state_->core));
  }
}

Result<std::unique_ptr<Runtime>> Runtime::create(const RuntimeOptions& options) {
  if (const auto valid = options.validate(); !valid) return fail(valid.error());
  auto driver = runtime::make_thread_driver();
  if (!driver) return fail(driver.error());
  auto core = core::Core::create(options, parts_of(std::move(*driver), false));
  if (!core) return fail(core.error());
  if (const auto joined = (*core)->joined().wait(options.connect_timeout + std::chrono::seconds(1)); !joined) {
    return fail(joined.error());
  }
  return RuntimeDoor::open(std::move(*core));
}

Result<std::unique_ptr<Runtime>> Runtime::create_on(uv_loop_s* loop, const RuntimeOptions& options) {
  if (const auto valid = options.validate(); !valid) return fail(valid.error());
  if (loop == nullptr) return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
  auto driver = runtime::make_hosted_driver(loop);
  if (!driver) return fail(driver.error());
  auto core = core::Core::create(options, parts_of(std::move(*driver), true));
  if (!core) return fail(core.error());
  return RuntimeDoor::open(std::move(*core));
}

Result<std::unique_ptr<Runtime>> Runtime::create_polled(const RuntimeOptions& options) {
  if (const auto valid = options.validate(); !valid) return fail(valid.error());
  auto driver = runtime::make_polled_driver();
  if (!driver) return fail(driver.error());
  auto core = core::Core::create(options, parts_of(std::move(*driver), true));
  if (!core) return fail(core.error());
  return RuntimeDoor::open(std::move(*core));
}

int Runtime::fd() const noexcept {
  const auto& hand = state_->core->hand();
  return hand && !state_->core->forked() ? hand->fd() : -1;
}

std::size_t Runtime::poll() noexcept {
  const auto hand = state_->core->hand();  // a copy: the end of a stop may destroy this runtime from inside
  return hand && !state_->core->forked() ? hand->poll() : 0;
}

Request Runtime::joined() { return state_->core->joined(); }
Rank Runtime::rank() const noexcept { return state_->core->options().rank; }
std::uint32_t Runtime::world_size() const noexcept { return state_->core->options().world_size; }
std::uint64_t Runtime::incarnation() const noexcept { return state_->core->incarnation(); }

Result<Region> Runtime::register_memory(void* data, std::size_t size, const RegisterOptions& options) {
  return state_->core->register_memory(data, size, options);
}

Result<Region> Runtime::allocate(std::size_t size, const AllocateOptions& options) {
  return state_->core->allocate(size, options);
}

Result<void> Runtime::copy_in(const Region& to, std::uint64_t offset, const void* from, std::uint64_t size) {
  return state_->core->copy(to, offset, const_cast<void*>(from), size, TransferVerb::put);
}

Result<void> Runtime::copy_out(const Region& from, std::uint64_t offset, void* to, std::uint64_t size) {
  return state_->core->copy(from, offset, to, size, TransferVerb::get);
}

Result<void> Runtime::deregister(const Region& region, Timeout timeout) {
  return core::flatten(core::wait_for<Result<void>>(*state_->core, [&](void* waiting) {
    return state_->core->deregister(region, timeout, core::store_result, waiting);
  }));
}

Result<void> Runtime::deregister_async(const Region& region, Timeout timeout, void (*done)(void*, const Result<void>&),
                                       void* context) {
  return state_->core->deregister(region, timeout, done, context);
}

std::vector<PeerAddresses> Runtime::exchange(std::span<const Region> mine, std::span<const Rank> with,
                                             Timeout timeout) {
  auto answers = core::wait_for<std::vector<PeerAddresses>>(*state_->core, [&](void* waiting) {
    return state_->core->exchange(mine, with, timeout, core::store_answers, waiting);
  });
  if (answers) return std::move(*answers);
  std::vector<PeerAddresses> refused;
  for (const Rank rank : with) refused.push_back({.rank = rank, .result = fail(answers.error()), .regions = {}});
  return refused;
}

Result<void> Runtime::exchange_async(std::span<const Region> mine, std::span<const Rank> with, Timeout timeout,
                                     void (*done)(void*, std::vector<PeerAddresses>&&), void* context) {
  return state_->core->exchange(mine, with, timeout, done, context);
}

Result<void> Runtime::publish_async(std::span<const Region> mine, std::span<const Rank> with, Timeout timeout,
                                    void (*done)(void*, std::vector<PeerAddresses>&&), void* context) {
  return state_->core->exchange(mine, with, timeout, done, context, {.note = wire::ExchangeNote::told});
}

Result<void> Runtime::prewarm(std::span<const Rank> with, Timeout timeout) {
  return core::flatten(core::wait_for<Result<void>>(
      *state_->core, [&](void* waiting) { return state_->core->prewarm(with, timeout, core::store_result, waiting); }));
}

Result<void> Runtime::prewarm_async(std::span<const Rank> with, Timeout timeout, Done done, void* context) {
  return state_->core->prewarm(with, timeout, done, context);
}

Result<Request> Runtime::put(const void* local, const RemoteAddress& remote, std::uint64_t size,
                             const OpOptions& options) {
  return state_->core->post(TransferVerb::put, local, remote, size, nullptr, options);
}

Result<Request> Runtime::get(void* local, const RemoteAddress& remote, std::uint64_t size, const OpOptions& options) {
  return state_->core->post(TransferVerb::get, local, remote, size, nullptr, options);
}

Result<void> Runtime::put_sync(const void* local, const RemoteAddress& remote, std::uint64_t size, Timeout timeout) {
  return state_->core->transfer_sync(TransferVerb::put, local, remote, size, timeout);
}

Result<void> Runtime::get_sync(void* local, const RemoteAddress& remote, std::uint64_t size, Timeout timeout) {
  return state_->core->transfer_sync(TransferVerb::get, local, remote, size, timeout);
}

Result<Request> Runtime::batch(std::span<const BatchEntry> entries, const OpOptions& options) {
  return state_->core->post_batch(entries, nullptr, options);
}

Result<Request> Runtime::batch_with_signal(std::span<const BatchEntry> entries, const Signal& signal,
                                           const OpOptions& options) {
  return state_->core->post_batch(entries, &signal, options);
}

Result<Request> Runtime::put_gathered(std::span<const LocalPiece> pieces, const RemoteAddress& remote,
                                      const OpOptions& options) {
  return state_->core->post_pieces(TransferVerb::put, pieces, remote, options);
}

Result<Request> Runtime::get_scattered(std::span<const LocalPiece> pieces, const RemoteAddress& remote,
                                       const OpOptions& options) {
  return state_->core->post_pieces(TransferVerb::get, pieces, remote, options);
}

Result<Request> Runtime::put_strided(const Strided& strided, const OpOptions& options) {
  return state_->core->post_strided(TransferVerb::put, strided, options);
}

Result<Request> Runtime::get_strided(const Strided& strided, const OpOptions& options) {
  return state_->core->post_strided(TransferVerb::get, strided, options);
}

Result<void> Runtime::batch_sync(std::span<const BatchEntry> entries, Timeout timeout) {
  return state_->core->batch_sync(entries, timeout);
}

Result<Request> Runtime::put_with_signal(const void* local, const RemoteAddress& remote, std::uint64_t size,
                                         const Signal& signal, const OpOptions& options) {
  return state_->core->post(TransferVerb::put, local, remote, size, &signal, options);
}

namespace {

using Atomic = core::Core::AtomicCall;
Atomic adding(std::uint64_t value) { return {links::Verb::atomic_add, value, 0}; }
Atomic swapping(std::uint64_t value) { return {links::Verb::atomic_swap, value, 0}; }
Atomic comparing(std::uint64_t expected, std::uint64_t desired) {
  return {links::Verb::atomic_compare_swap, desired, expected};
}

}  // namespace

Result<Request> Runtime::atomic_add(const RemoteAddress& word, std::uint64_t value, const OpOptions& options) {
  return state_->core->post_atomic(word, adding(value), options);
}

Result<Request> Runtime::fetch_add(const RemoteAddress& word, std::uint64_t value, const OpOptions& options) {
  return state_->core->post_atomic(word, adding(value), options);
}

Result<Request> Runtime::compare_swap(const RemoteAddress& word, std::uint64_t expected, std::uint64_t desired,
                                      const OpOptions& options) {
  return state_->core->post_atomic(word, comparing(expected, desired), options);
}

Result<Request> Runtime::swap(const RemoteAddress& word, std::uint64_t value, const OpOptions& options) {
  return state_->core->post_atomic(word, swapping(value), options);
}

Result<void> Runtime::atomic_add_sync(const RemoteAddress& word, std::uint64_t value, Timeout timeout) {
  const auto before = state_->core->atomic_sync(word, adding(value), timeout);
  if (!before) return fail(before.error());
  return {};
}

Result<std::uint64_t> Runtime::fetch_add_sync(const RemoteAddress& word, std::uint64_t value, Timeout timeout) {
  return state_->core->atomic_sync(word, adding(value), timeout);
}

Result<std::uint64_t> Runtime::compare_swap_sync(const RemoteAddress& word, std::uint64_t expected,
                                                 std::uint64_t desired, Timeout timeout) {
  return state_->core->atomic_sync(word, comparing(expected, desired), timeout);
}

Result<std::uint64_t> Runtime::swap_sync(const RemoteAddress& word, std::uint64_t value, Timeout timeout) {
  return state_->core->atomic_sync(word, swapping(value), timeout);
}

Result<std::uint64_t> Runtime::wait_signal(const void* word, Compare compare, std::uint64_t value, Timeout timeout) {
  return state_->core->wait_signal(word, compare, value, timeout);
}

Result<void> Runtime::flush(Rank rank, Timeout timeout) {
  return state_->core->post_and_wait(timeout,
                                     [&](Timeout left) { return state_->core->post_flush(rank, {.timeout = left}); });
}

Result<Request> Runtime::flush_async(Rank rank, const OpOptions& options) {
  return state_->core->post_flush(rank, options);
}

Result<Request> Runtime::fence(Rank rank, const OpOptions& options) { return state_->core->post_fence(rank, options); }

Result<void> Runtime::quiet(Timeout timeout) {
  return core::flatten(core::wait_for<Result<void>>(
      *state_->core, [&](void* waiting) { return state_->core->quiet(timeout, core::store_result, waiting); }));
}

Result<void> Runtime::quiet_async(Timeout timeout, void (*done)(void*, const Result<void>&), void* context) {
  return state_->core->quiet(timeout, done, context);
}

Result<void> Runtime::barrier(Timeout timeout, std::span<const Rank> ranks) {
  return core::flatten(core::wait_for<Result<void>>(*state_->core, [&](void* waiting) {
    return state_->core->barrier(ranks, timeout, core::store_result, waiting);
  }));
}

Result<void> Runtime::barrier_async(std::span<const Rank> ranks, Timeout timeout,
                                    void (*done)(void*, const Result<void>&), void* context) {
  return state_->core->barrier(ranks, timeout, done, context);
}

namespace {

/// A create call under way: what its Group will hold.
struct Creation {
  std::vector<Rank> ranks;
  GroupOptions options;
  core::Core* core;
  void (*done)(void*, Result<Group>&&);
  void* context;
};

void store_group(void* context, Result<Group>&& group) {
  static_cast<core::Waiting<Result<Group>>*>(context)->give(std::move(group));
}

}  // namespace

Result<Group> Runtime::create_group(std::span<const Rank> ranks, const GroupOptions& options, Timeout timeout) {
  auto group = core::wait_for<Result<Group>>(
      *state_->core, [&](void* waiting) { return create_group_async(ranks, options, timeout, store_group, waiting); });
  if (!group) return fail(group.error());
  return std::move(*group);
}

Result<void> Runtime::create_group_async(std::span<const Rank> ranks, const GroupOptions& options, Timeout timeout,
                                         void (*done)(void*, Result<Group>&&), void* context) {
  if (done == nullptr) return fail(ErrorCode::invalid_argument, {.stage = Stage::options});
  auto creation =
      std::make_unique<Creation>(Creation{{ranks.begin(), ranks.end()}, options, state_->core.get(), done, context});
  const auto begun = state_->core->create_group(
      ranks, options, timeout,
      [](void* at, const Result<group::FormationActor::Formed>& formed) {
        const std::unique_ptr<Creation> made(static_cast<Creation*>(at));
        if (!formed) return made->done(made->context, fail(formed.error()));
        auto state = std::make_unique<Group::State>();
        state->mark = made->core->fork_mark();
        state->door = made->core->self();
        state->name = formed->name;
        state->page = formed->page;
        state->sorted = made->ranks;
        std::sort(state->sorted.begin(), state->sorted.end());
        const auto self = std::find(made->ranks.begin(), made->ranks.end(), made->core->options().rank);
        state->place = static_cast<Rank>(self - made->ranks.begin());
        state->ranks = std::move(made->ranks);
        state->options = made->options;
        made->done(made->context, Group(std::move(state)));
      },
      creation.get());
  if (begun) static_cast<void>(creation.release());  // by its end
  return begun;
}

Counters Runtime::counters() const { return state_->core->counters(); }
std::vector<LinkInfo> Runtime::links() { return state_->core->links(); }
Result<RegionDump> Runtime::dump_regions() { return state_->core->dump_regions(); }
Result<std::vector<OperationInfo>> Runtime::outstanding() { return state_->core->outstanding(); }

Result<void> Runtime::check_access(const RemoteAddress& remote, std::uint64_t size, Rights need) const {
  return state_->core->check_access(remote, size, need);
}

Result<void> Runtime::check_access(const void* local, std::uint64_t size, Rights need) const {
  return state_->core->check_access(local, size, need);
}

Result<void> Runtime::stop(Timeout timeout) { return state_->core->stop_and_join(timeout); }

Result<void> Runtime::stop_async(Timeout timeout, void (*done)(void*, const Result<void>&), void* context) {
  return state_->core->stop(timeout, done, context);
}

}  // namespace hixl
