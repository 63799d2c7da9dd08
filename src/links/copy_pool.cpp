// SPDX-License-Identifier: Apache-2.0
#include "links/copy_pool.hpp"

#include <algorithm>

namespace hixl::links {
namespace {

/// Jobs given back in one poll of one engine: a turn stays short, and a full ring empties in a few.
constexpr std::size_t k_jobs_per_poll = 64;

}  // namespace

CopyPool::CopyPool(runtime::Loop& loop, std::uint32_t engines) : loop_(loop), engines_wanted_(engines) {}

Result<void> CopyPool::start() {
  const auto notify = [](void* context) noexcept { static_cast<runtime::Wakeup*>(context)->notify(); };
  while (engines_.size() < engines_wanted_) {
    auto engine = memory::CopyEngine::create({.function = notify, .context = &loop_.mailbox().wakeup()}, {});
    if (!engine) return fail(engine.error());
    engines_.push_back(std::move(*engine));
  }
  if (!linked()) loop_.attach(*this);
  return {};
}

bool CopyPool::submit(memory::CopyJob& job, CopyClient& client) {
  const auto idlest = std::min_element(engines_.begin(), engines_.end(), [](const auto& a, const auto& b) {
    return a->outstanding() < b->outstanding();
  });
  if (idlest == engines_.end()) return false;
  job.owner = &client;
  return (*idlest)->submit(job);
}

bool CopyPool::can_sleep() {
  return std::none_of(engines_.begin(), engines_.end(), [](const auto& engine) { return engine->has_ended_jobs(); });
}

bool CopyPool::poll() {
  bool any = false;
  for (const auto& engine : engines_) {
    for (std::size_t count = 0; count < k_jobs_per_poll; ++count) {
      memory::CopyJob* job = engine->take();
      if (job == nullptr) break;
      any = true;
      static_cast<CopyClient*>(job->owner)->on_copied(*job);
    }
  }
  return any;
}

}  // namespace hixl::links
