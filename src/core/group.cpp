// SPDX-License-Identifier: Apache-2.0
//
// hixl::Group and its creation: a shell over Core's groups that may outlive the core.
#include <hixl/group.hpp>

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/core.hpp"
#include "core/group_state.hpp"
#include "core/wait_for.hpp"

namespace hixl {

// ---- what is behind a Group ----

Result<core::Core*> Group::State::enter() const {
  if (mark->forked()) return fail(ErrorCode::forked, {.stage = Stage::group});
  if (closed.load(std::memory_order_acquire)) return fail(ErrorCode::invalid_argument, {.stage = Stage::group});
  core::Core* const core = door->load();
  if (core == nullptr) return fail(ErrorCode::stopped, {.stage = Stage::group});
  if (const auto admitted = core->admit(); !admitted) return fail(admitted.error());
  return core;
}

Result<void> Group::State::check_member(Rank rank) const {
  if (std::binary_search(sorted.begin(), sorted.end(), rank)) return {};
  return fail(ErrorCode::invalid_argument, {.rank = rank, .stage = Stage::group, .limit = ranks.size()});
}

Timeout Group::State::timeout_of(Timeout timeout) const noexcept {
  const bool ours = timeout == k_default_timeout && options.default_timeout.count() > 0;
  return ours ? Timeout(options.default_timeout) : timeout;
}

/// The group's links, or those of them that the call allows.
Result<LinkSet> Group::State::links_of(LinkSet wanted) const {
  if (wanted.empty() || options.links.empty()) return wanted.empty() ? options.links : wanted;
  LinkSet both;
  for (std::size_t kind = 0; kind < k_link_kinds; ++kind) {
    const auto link = static_cast<LinkKind>(kind);
    if (wanted.allows(link) && options.links.allows(link)) both.add(link);
  }
  if (both.empty()) return fail(ErrorCode::transport_unavailable, {.stage = Stage::group});
  return both;
}

/// Runs a transfer that has passed the group's own checks.
template <class Post>
Result<Request> Group::State::post(const State* state, Rank rank, const OpOptions& options, Post&& run) {
  if (state == nullptr) return fail(ErrorCode::invalid_argument, {.stage = Stage::group});
  const auto core = state->enter();
  if (!core) return fail(core.error());
  if (const auto member = state->check_member(rank); !member) return fail(member.error());
  const auto links = state->links_of(options.links);
  if (!links) return fail(links.error());
  OpOptions with = options;
  with.links = *links;
  with.timeout = state->timeout_of(options.timeout);
  return run(**core, with);
}

// ---- members ----

Group::Group() = default;
Group::Group(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Group::Group(Group&& other) noexcept = default;
Group& Group::operator=(Group&& other) noexcept {
  if (this != &other) {
    leave();
    state_ = std::move(other.state_);
  }
  return *this;
}
Group::~Group() { leave(); }

/// In a forked child nothing can be released; see ~Runtime().
void Group::leave() noexcept {
  close();
  if (state_ && state_->mark->forked()) static_cast<void>(state_.release());
}

std::uint32_t Group::size() const noexcept { return state_ ? static_cast<std::uint32_t>(state_->ranks.size()) : 0; }
Rank Group::rank() const noexcept { return state_ ? state_->place : k_no_rank; }
Rank Group::world_rank(Rank place) const noexcept { return place < size() ? state_->ranks[place] : k_no_rank; }
std::span<const Rank> Group::ranks() const noexcept {
  return state_ ? std::span<const Rank>(state_->ranks) : std::span<const Rank>();
}

void Group::close() {
  if (!state_ || state_->mark->forked() || state_->closed.exchange(true, std::memory_order_acq_rel)) return;
  if (core::Core* const core = state_->door->load(); core != nullptr) core->close_group(state_->name);
}

// ---- together ----

Result<void> Group::barrier(Timeout timeout) {
  if (!state_) return fail(ErrorCode::invalid_argument, {.stage = Stage::group});
  const auto core = state_->enter();
  if (!core) return fail(core.error());
  const Timeout time = state_->timeout_of(timeout);
  if (state_->page && !(*core)->on_loop_thread()) {
    if (auto done = (*core)->barrier_by_page(*state_->page, state_->name, state_->ranks, time)) return *done;
  }
  return core::flatten(core::wait_for<Result<void>>(
      **core, [&](void* waiting) { return (*core)->group_barrier(state_->name, time, core::store_result, waiting); }));
}

Result<void> Group::barrier_async(Timeout timeout, void (*done)(void*, const Result<void>&), void* context) {
  if (!state_) return fail(ErrorCode::invalid_argument, {.stage = Stage::group});
  const auto core = state_->enter();
  if (!core) return fail(core.error());
  return (*core)->group_barrier(state_->name, state_->timeout_of(timeout), done, context);
}

std::vector<PeerAddresses> Group::exchange(std::span<const Region> mine, Timeout timeout) {
  if (!state_) return {};
  return exchange_with(mine, state_->ranks, timeout);
}

std::vector<PeerAddresses> Group::exchange_with(std::span<const Region> mine, std::span<const Rank> with,
                                                Timeout timeout) {
  if (!state_) return {};
  auto core = state_->enter();
  for (const Rank rank : with) {
    if (const auto member = state_->check_member(rank); core && !member) core = fail(member.error());
  }
  auto answers = core ? core::wait_for<std::vector<PeerAddresses>>(
                            **core,
                            [&](void* waiting) {
                              return (*core)->exchange(mine, with, state_->timeout_of(timeout), core::store_answers,
                                                       waiting, {.group = state_->name});
                            })
                      : Result<std::vector<PeerAddresses>>(fail(core.error()));
  if (answers) return std::move(*answers);
  std::vector<PeerAddresses> refused;
  for (const Rank rank : with) {
    refused.push_back({.rank = rank, .result = fail(answers.error()), .regions = {}});
  }
  return refused;
}

// ---- transfers ----

Result<Request> Group::put(const void* local, const RemoteAddress& remote, std::uint64_t size,
                           const OpOptions& options) {
  return State::post(state_.get(), remote.rank, options, [&](core::Core& core, const OpOptions& with) {
    return core.post(TransferVerb::put, local, remote, size, nullptr, with);
  });
}

Result<Request> Group::get(void* local, const RemoteAddress& remote, std::uint64_t size, const OpOptions& options) {
  return State::post(state_.get(), remote.rank, options, [&](core::Core& core, const OpOptions& with) {
    return core.post(TransferVerb::get, local, remote, size, nullptr, with);
  });
}

Result<Request> Group::put_with_signal(const void* local, const RemoteAddress& remote, std::uint64_t size,
                                       const Signal& signal, const OpOptions& options) {
  return State::post(state_.get(), remote.rank, options, [&](core::Core& core, const OpOptions& with) {
    return core.post(TransferVerb::put, local, remote, size, &signal, with);
  });
}

Result<Request> Group::State::post_entries(const State* state, std::span<const BatchEntry> entries,
                                           const Signal* signal, const OpOptions& options) {
  if (state == nullptr || entries.empty()) {
    return fail(ErrorCode::invalid_argument, {.stage = Stage::group, .limit = 1});
  }
  return post(state, entries.front().remote.rank, options,
              [&](core::Core& core, const OpOptions& with) { return core.post_batch(entries, signal, with); });
}

Result<Request> Group::batch(std::span<const BatchEntry> entries, const OpOptions& options) {
  return State::post_entries(state_.get(), entries, nullptr, options);
}

Result<Request> Group::batch_with_signal(std::span<const BatchEntry> entries, const Signal& signal,
                                         const OpOptions& options) {
  return State::post_entries(state_.get(), entries, &signal, options);
}

Result<Request> Group::put_gathered(std::span<const LocalPiece> pieces, const RemoteAddress& remote,
                                    const OpOptions& options) {
  return State::post(state_.get(), remote.rank, options, [&](core::Core& core, const OpOptions& with) {
    return core.post_pieces(TransferVerb::put, pieces, remote, with);
  });
}

Result<Request> Group::get_scattered(std::span<const LocalPiece> pieces, const RemoteAddress& remote,
                                     const OpOptions& options) {
  return State::post(state_.get(), remote.rank, options, [&](core::Core& core, const OpOptions& with) {
    return core.post_pieces(TransferVerb::get, pieces, remote, with);
  });
}

Result<Request> Group::put_strided(const Strided& strided, const OpOptions& options) {
  return State::post(state_.get(), strided.remote.rank, options, [&](core::Core& core, const OpOptions& with) {
    return core.post_strided(TransferVerb::put, strided, with);
  });
}

Result<Request> Group::get_strided(const Strided& strided, const OpOptions& options) {
  return State::post(state_.get(), strided.remote.rank, options, [&](core::Core& core, const OpOptions& with) {
    return core.post_strided(TransferVerb::get, strided, with);
  });
}

Result<Request> Group::flush_async(Rank rank, const OpOptions& options) {
  return State::post(state_.get(), rank, options,
                     [&](core::Core& core, const OpOptions& with) { return core.post_flush(rank, with); });
}

Result<Request> Group::fence(Rank rank, const OpOptions& options) {
  return State::post(state_.get(), rank, options,
                     [&](core::Core& core, const OpOptions& with) { return core.post_fence(rank, with); });
}

Result<void> Group::State::transfer(const State* state, TransferVerb verb, const void* local,
                                    const RemoteAddress& remote, std::uint64_t size, Timeout timeout) {
  if (state == nullptr) return fail(ErrorCode::invalid_argument, {.stage = Stage::group});
  const auto core = state->enter();
  if (!core) return fail(core.error());
  if (const auto member = state->check_member(remote.rank); !member) return member;
  return (*core)->transfer_sync(verb, local, remote, size, state->timeout_of(timeout), state->options.links);
}

Result<void> Group::put_sync(const void* local, const RemoteAddress& remote, std::uint64_t size, Timeout timeout) {
  return State::transfer(state_.get(), TransferVerb::put, local, remote, size, timeout);
}

Result<void> Group::get_sync(void* local, const RemoteAddress& remote, std::uint64_t size, Timeout timeout) {
  return State::transfer(state_.get(), TransferVerb::get, local, remote, size, timeout);
}

Result<void> Group::flush(Rank rank, Timeout timeout) {
  if (!state_) return fail(ErrorCode::invalid_argument, {.stage = Stage::group});
  const auto core = state_->enter();
  if (!core) return fail(core.error());
  if (const auto member = state_->check_member(rank); !member) return member;
  return (*core)->post_and_wait(state_->timeout_of(timeout),
                                [&](Timeout left) { return (*core)->post_flush(rank, OpOptions{.timeout = left}); });
}

}  // namespace hixl
