// SPDX-License-Identifier: Apache-2.0
//
// Core's groups: checks what a program asks for and hands it to the actors that make groups and keep their barriers.
#include <algorithm>

#include "core/core.hpp"
#include "core/function_call.hpp"
#include "group/rank_set.hpp"

namespace hixl::core {

namespace {

/// As RuntimeOptions::default_timeout.
constexpr std::chrono::milliseconds k_group_timeout_max = std::chrono::hours(1);

/// As the questions of a barrier by messages.
constexpr std::chrono::milliseconds k_ask_pause{200};

}  // namespace

void Core::on_barrier(peer::PeerLife from, const wire::Barrier& message) { barrier_->on_barrier(from, message); }
void Core::on_group_join(peer::PeerLife from, const wire::GroupJoin& message) { formation_->on_join(from, message); }
void Core::on_group_answer(peer::PeerLife from, const wire::GroupAnswer& message) {
  formation_->on_answer(from, message);
}

Result<void> Core::check_links(LinkSet links, Rank rank) const noexcept {
  if (links.empty() || rank == options_.rank) return {};
  for (const peer::LinkChoice& choice : services_->links) {
    if (links.allows(choice.factory->caps().kind)) return {};
  }
  return fail(ErrorCode::transport_unavailable, {.rank = rank, .stage = Stage::options});
}

bool Core::uses(LinkKind kind) const noexcept {
  const auto& links = services_->links;
  return std::any_of(links.begin(), links.end(),
                     [kind](const peer::LinkChoice& choice) { return choice.factory->caps().kind == kind; });
}

/// What can be seen to be wrong on this side alone.
Result<void> Core::check_group(std::span<const Rank> ranks, const GroupOptions& options) const {
  if (ranks.empty()) return fail(ErrorCode::invalid_argument, {.stage = Stage::group, .limit = 1});
  if (ranks.size() > wire::k_group_size_max) {
    return fail(ErrorCode::limit_reached,
                {.stage = Stage::group, .length = ranks.size(), .limit = wire::k_group_size_max});
  }
  for (const Rank rank : ranks) {
    if (rank < options_.world_size) continue;
    return fail(ErrorCode::rank_out_of_range, {.rank = rank, .stage = Stage::group, .limit = options_.world_size});
  }
  std::vector<Rank> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    return fail(ErrorCode::invalid_argument, {.rank = *twice, .stage = Stage::group});
  }
  if (!std::binary_search(sorted.begin(), sorted.end(), options_.rank)) {
    return fail(ErrorCode::invalid_argument, {.rank = options_.rank, .stage = Stage::group});
  }
  if (options.default_timeout < std::chrono::milliseconds(0) || options.default_timeout > k_group_timeout_max) {
    return fail(ErrorCode::invalid_argument,
                {.stage = Stage::group, .limit = static_cast<std::uint64_t>(k_group_timeout_max.count())});
  }
  // Each kind that is asked for: a group that would silently go by another one is not what its program wants.
  for (std::size_t kind = 0; kind < k_link_kinds; ++kind) {
    const auto wanted = static_cast<LinkKind>(kind);
    if (options.links.empty() || !options.links.allows(wanted)) continue;
    if (!uses(wanted)) return fail(ErrorCode::transport_unavailable, {.stage = Stage::group, .limit = kind});
  }
  return {};
}

Result<void> Core::create_group(std::span<const Rank> ranks, const GroupOptions& options, Timeout timeout,
                                void (*done)(void*, const GroupFormed&), void* context) {
  if (const auto valid = check_done(done); !valid) return valid;
  if (const auto admitted = admit(); !admitted) return admitted;
  if (const auto valid = check_group(ranks, options); !valid) return valid;
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  // What a window link could do, memory that both map, is what a page needs.
  const bool windows = options.links.allows(LinkKind::hccs) && uses(LinkKind::hccs);
  using Pages = group::FormationActor::Pages;
  using Formed = Teller<GroupFormed>;
  auto formed = std::make_unique<Formed>(Formed{*this, done, context});
  group::FormationActor::Request request{
      .ranks = {ranks.begin(), ranks.end()},
      .tag = options.tag,
      .options = group::hash_of(static_cast<std::uint64_t>(options.default_timeout.count()),
                                group::hash_of(options.links.bits())),
      .deadline = *deadline,
      .done = Formed::end,
      .context = formed.get(),
      .pages = windows ? Pages::if_shared : Pages::none};
  const Error stopped(ErrorCode::stopped, {.rank = options_.rank, .stage = Stage::group});
  const auto begun = call(make_call(
      [this, request = std::move(request), formed = formed.get(), stopped] {
        if (stop_stage_ >= StopStage::closing) return Formed::end(formed, fail(stopped));
        formation_->form(request);
      },
      [formed = formed.get(), stopped] { Formed::end(formed, fail(stopped)); }));
  if (begun) static_cast<void>(formed.release());  // by its end
  return begun;
}

Result<void> Core::group_barrier(std::uint64_t name, Timeout timeout, void (*done)(void*, const Result<void>&),
                                 void* context) {
  if (const auto valid = check_done(done); !valid) return valid;
  if (const auto admitted = admit(); !admitted) return admitted;
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  using Entered = Teller<Result<void>>;
  auto entered = std::make_unique<Entered>(Entered{*this, done, context});
  const Error stopped(ErrorCode::stopped, {.rank = options_.rank, .stage = Stage::barrier});
  const auto begun = call(make_call(
      [this, name, deadline = *deadline, entered = entered.get(), stopped] {
        if (stop_stage_ >= StopStage::closing) return Entered::end(entered, fail(stopped));
        barrier_->enter(name, {.deadline = deadline, .done = Entered::end, .context = entered});
      },
      [entered = entered.get(), stopped] { Entered::end(entered, fail(stopped)); }));
  if (begun) static_cast<void>(entered.release());  // by its end
  return begun;
}

/// The caller's thread enters on the shared page and sleeps there; no loop turns for it. A runtime that is turned by
/// hand does not: its thread would have to watch the page and its loop at once.
std::optional<Result<void>> Core::barrier_by_page(memory::BarrierPage& page, std::uint64_t name,
                                                  std::span<const Rank> ranks, Timeout timeout) {
  const auto deadline = deadline_of(timeout);
  if (hand() != nullptr || !deadline || !page.started() || !page.take_turn()) return std::nullopt;
  using memory::BarrierPage;
  const auto on_loop = [this, name](void (group::BarrierActor::*what)(std::uint64_t)) {
    // Refused where the loop has no room: who waits by the loop looks at the page now and then.
    static_cast<void>(call(make_call(
        [this, name, what] {
          if (barrier_) (barrier_.get()->*what)(name);
        },
        [] {})));
  };
  if (page.enter(BarrierPage::Wake::by_word)) on_loop(&group::BarrierActor::tell_released);
  Result<void> result;
  for (;;) {
    const std::uint32_t rings = page.rings();
    const BarrierPage::State state = page.look();
    if (state == BarrierPage::State::released) break;
    if (state == BarrierPage::State::broken) {
      result = fail(page.error());
      break;
    }
    const Instant now = loop_->port().now();
    if (now >= *deadline) {
      ErrorDetail detail{.stage = Stage::barrier};
      std::vector<Rank> missing;
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (!page.has_entered(i)) missing.push_back(ranks[i]);
      }
      std::sort(missing.begin(), missing.end());
      for (const Rank rank : missing) group::add_missing(detail, rank);
      result = fail(ErrorCode::deadline_exceeded, detail);
      break;
    }
    page.await_ring(rings, std::min<Duration>(*deadline - now, k_ask_pause));
    // A word about a dead member may have been lost on its way to this rank.
    if (page.rings() == rings) on_loop(&group::BarrierActor::ask);
  }
  page.leave();
  return result;
}

void Core::close_group(std::uint64_t name) {
  // Not refused where the loop has no room: the others would wait for this rank until the runtime's end.
  static_cast<void>(call_to_the_end(make_call(
      [this, name] {
        if (barrier_) barrier_->close(name);
      },
      [] {})));
}

}  // namespace hixl::core
