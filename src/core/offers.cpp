// SPDX-License-Identifier: Apache-2.0
//
// hixl::Offers: what others may ask for. A question is an exchange of nothing that the peer's loop answers.
#include <hixl/offers.hpp>

#include <algorithm>

#include "core/core.hpp"
#include "core/function_call.hpp"
#include "core/runtime_state.hpp"
#include "core/wait_for.hpp"

namespace hixl {

namespace core {

Result<void> Core::offer(std::span<const Region> regions, Done done, void* context) {
  if (const auto admitted = admit(); !admitted) return admitted;
  std::vector<Region> all(regions.begin(), regions.end());
  const auto end = [this, done, context](const Result<void>& result) { tell([&] { done(context, result); }); };
  return call(make_call(
      [this, all = std::move(all), end] {
        for (const Region& region : all) {
          const auto info = find_own(region);
          if (!info) return end(fail(info.error()));
          services_->offered.insert_or_assign(info->key.id, descriptor_of(*info));
        }
        for (const auto& actor : directory_->peers()) actor->serve_questions();
        end({});
      },
      [end] { end(fail(ErrorCode::stopped, {.stage = Stage::shutdown})); }));
}

}  // namespace core

Result<void> Offers::add(Runtime& runtime, std::span<const Region> regions) {
  core::Core& core = RuntimeDoor::core(runtime);
  return core::flatten(core::wait_for<Result<void>>(
      core, [&](void* waiting) { return core.offer(regions, core::store_result, waiting); }));
}

Result<std::vector<RemoteRegion>> Offers::ask(Runtime& runtime, Rank rank, std::uint32_t tag, Timeout timeout) {
  core::Core& core = RuntimeDoor::core(runtime);
  auto answers = core::wait_for<std::vector<PeerAddresses>>(core, [&](void* waiting) {
    return core.exchange({}, std::span(&rank, 1), timeout, core::store_answers, waiting,
                         {.note = wire::ExchangeNote::question, .group = tag});
  });
  if (!answers) return fail(answers.error());
  PeerAddresses& answer = answers->front();
  if (!answer.result) return fail(answer.result.error());
  const bool told =
      tag == k_any_tag || std::ranges::any_of(answer.regions, [&](const auto& r) { return r.tag == tag; });
  if (!told) return fail(ErrorCode::not_exchanged, {.rank = rank, .stage = Stage::exchange, .limit = tag});
  return std::move(answer.regions);
}

}  // namespace hixl
