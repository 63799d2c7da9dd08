// SPDX-License-Identifier: Apache-2.0
//
// Core's prewarm: the links to many ranks, made side by side.
#include <memory>

#include "core/core.hpp"
#include "core/function_call.hpp"

namespace hixl::core {

namespace {

/// Counts the ranks of one call; the last one's answer ends it, with the first error.
struct PrewarmCall {
  std::size_t missing = 0;
  Result<void> result{};
  void (*end)(void* entered, const Result<void>& result) = nullptr;
  void* entered = nullptr;

  void one(const Result<void>& answer) {
    if (result && !answer) result = answer;
    if (--missing > 0) return;
    end(entered, result);
    delete this;
  }
};

}  // namespace

Result<void> Core::prewarm(std::span<const Rank> with, Timeout timeout, Done done, void* context) {
  if (const auto valid = check_done(done); !valid) return valid;
  if (const auto admitted = admit(); !admitted) return admitted;
  for (const Rank rank : with) {
    if (const auto valid = check_rank(rank); !valid) return valid;
  }
  const auto deadline = deadline_of(timeout);
  if (!deadline) return fail(deadline.error());
  using Entered = Teller<Result<void>>;
  auto entered = std::make_unique<Entered>(Entered{*this, done, context});
  const Error stopped(ErrorCode::stopped, {.stage = Stage::shutdown});
  const auto begun = call(make_call(
      [this, ranks = std::vector<Rank>(with.begin(), with.end()), deadline = *deadline, entered = entered.get(),
       stopped] {
        if (stop_stage_ >= StopStage::closing) return Entered::end(entered, fail(stopped));
        // One more, so that the end comes after the start; owned by its last answer.
        auto* const all = new PrewarmCall{.missing = ranks.size() + 1, .end = Entered::end, .entered = entered};
        for (const Rank rank : ranks) {
          if (rank == options_.rank) {
            all->one({});
          } else if (peer::PeerActor* actor = directory_->peer(rank); actor != nullptr) {
            actor->prewarm({.deadline = deadline,
                            .done = [](void* at, const Result<void>& got) { static_cast<PrewarmCall*>(at)->one(got); },
                            .context = all});
          } else {
            all->one(fail(ErrorCode::limit_reached, {.rank = rank, .limit = options_.peers_max}));
          }
        }
        all->one({});
      },
      [entered = entered.get(), stopped] { Entered::end(entered, fail(stopped)); }));
  if (begun) static_cast<void>(entered.release());  // by its end
  return begun;
}

}  // namespace hixl::core
