// SPDX-License-Identifier: Apache-2.0
#include "state.hpp"

#include <algorithm>
#include <utility>

namespace hixl::kv {

namespace {

/// Longest sleep of who waits: a ring that found no room in the runtime costs no more than this.
constexpr std::chrono::milliseconds k_nap{20};
constexpr std::chrono::milliseconds k_timeout_max = std::chrono::hours(1);

/// A bell that is gone, with its rank, is no failure that anybody should look at.
constexpr Callback k_whatever{[](void*, const Completion&) {}, nullptr};

struct Hop {
  std::shared_ptr<DataDist::State> home;
  std::function<void()> work;
};

}  // namespace

DataDist::State::State(Runtime& at, const DataDistOptions& given) noexcept
    : runtime(at),
      own_rank(at.rank()),
      options(given),
      role_now(given.role),
      versions(static_cast<std::uint64_t>(now().time_since_epoch().count())),
      leases({.slots = std::size_t{given.leases_max} * given.links_max + given.arrivals_max, .after = versions}),
      arrivals_taken(given.arrivals_max, false),
      marks(given.sequences_max) {}

DataDist::State::~State() = default;

Instant DataDist::State::now() { return std::chrono::steady_clock::now(); }

Result<Passes::Pass> DataDist::State::enter() {
  auto pass = passes.enter();
  if (!pass) return fail(error_of(ErrorCode::stopped, own_rank));  // there may be no runtime any more
  if (const auto access = runtime.check_access(region.data, sizeof(std::uint64_t), Rights::read); !access) {
    const ErrorCode code = access.error().code;
    if (code == ErrorCode::forked || code == ErrorCode::stopped) return fail(access.error());
  }
  return std::move(*pass);
}

Error DataDist::State::error_of(ErrorCode code, Rank rank) const noexcept {
  return Error(code, {.rank = rank, .stage = Stage::kv});
}

Result<Instant> DataDist::State::deadline_of(Timeout timeout) const {
  if (timeout == k_default_timeout) return now() + options.default_timeout;
  if (timeout < Timeout{}) return fail(ErrorCode::invalid_argument, {.stage = Stage::kv});
  return now() + std::min<Timeout>(timeout, k_timeout_max);
}

Timeout DataDist::State::left(Instant deadline) { return std::max<Timeout>(deadline - now(), Timeout{}); }

std::atomic_ref<std::uint64_t> DataDist::State::word(std::uint64_t offset) const noexcept {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(region.data + offset));
}

DataDist::State::Turn::~Turn() {
  if (home_ == nullptr) return;
  {
    const std::lock_guard lock(home_->mutex);
    *taken_ = false;
  }
  home_->ring();
}

Result<DataDist::State::Turn> DataDist::State::take_turn(bool& taken, Instant deadline) {
  const auto mine = [&] {
    const std::lock_guard lock(mutex);
    return !std::exchange(taken, true);
  };
  if (const auto waited = await(deadline, mine); !waited) return fail(waited.error());
  return Turn(*this, taken);
}

RemoteAddress DataDist::State::own(std::uint64_t offset) const noexcept {
  return {.rank = own_rank,
          .address = region.address() + offset,
          .region = region.key,
          .incarnation = runtime.incarnation()};
}

std::uint64_t DataDist::State::bell() const noexcept { return word(directory.bell()).load(); }

Result<void> DataDist::State::may_block() const {
  // What the bell never says, so this asks only where we are.
  constexpr std::uint64_t k_never = ~std::uint64_t{0};
  const auto asked = runtime.wait_signal(region.data + directory.bell(), Compare::equal, k_never, Timeout{});
  if (asked || asked.error().code == ErrorCode::deadline_exceeded) return {};
  return fail(asked.error());
}

Result<void> DataDist::State::doze(std::uint64_t seen, Instant until) {
  if (now() >= until) return fail(error_of(ErrorCode::deadline_exceeded, own_rank));
  const Timeout nap = std::min<Timeout>(left(until), k_nap);
  const auto woken = runtime.wait_signal(region.data + directory.bell(), Compare::not_equal, seen, nap);
  if (woken || woken.error().code == ErrorCode::deadline_exceeded) return {};
  return fail(woken.error());
}

void DataDist::State::ring() {
  if (waiters.load() == 0) return;
  static_cast<void>(runtime.atomic_add(own(directory.bell()), 1, {.callback = k_whatever}));  // else a nap ends
}

void DataDist::State::begin_errand() {
  const std::lock_guard lock(mutex);
  errands += 1;
}

/// The ring comes first: when the last one is back, the runtime may be destroyed.
void DataDist::State::end_errand() {
  ring();
  const std::lock_guard lock(mutex);
  errands -= 1;
}

void DataDist::State::post_or_retry(Errand&& errand) {
  const auto posted = errand.post();
  if (posted) return;
  Error why = posted.error();
  if (why.code == ErrorCode::busy) {
    const std::lock_guard lock(mutex);
    if (kept) {
      retries.push_back(std::move(errand));
      return;
    }
    why = error_of(ErrorCode::stopped, own_rank);
  }
  errand.lost(why);
}

void DataDist::State::hop(std::function<void()> work) {
  const auto land = [](void* context, const Completion&) {
    const std::unique_ptr<Hop> landed(static_cast<Hop*>(context));
    landed->work();
    landed->home->end_errand();
  };
  begin_errand();
  Hop* const raw = std::make_unique<Hop>(Hop{shared_from_this(), std::move(work)}).release();
  post_or_retry({.post = [this, land, raw]() -> Result<void> {
                   const auto posted = runtime.atomic_add(own(directory.bell()), 1, {.callback = {land, raw}});
                   return posted ? Result<void>() : fail(posted.error());
                 },
                 // There is no loop thread any more, or no way to it.
                 .lost = [land, raw](const Error&) { land(raw, {}); }});
}

void DataDist::State::ring_there(const RemoteAddress& at) {
  post_or_retry({.post = [this, at]() -> Result<void> {
                   const auto posted = runtime.atomic_add(at, 1, {.callback = k_whatever});
                   return posted ? Result<void>() : fail(posted.error());
                 },
                 .lost = [](const Error&) {}});
}

bool DataDist::State::alive(const RemoteAddress& at) const {
  if (at.rank == own_rank) return same_life(at, own(0));
  return runtime.check_access(at, sizeof(std::uint64_t), Rights::read).has_value();
}

}  // namespace hixl::kv
