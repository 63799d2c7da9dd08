// SPDX-License-Identifier: Apache-2.0
//
// Completion queues and queue pairs of libibverbs, for ibv_verbs.cpp.
#pragma once

#include <cstdint>
#include <memory>

#include "links/roce/verbs.hpp"

namespace hixl::links::roce {

[[nodiscard]] Result<std::unique_ptr<CompletionQueue>> create_ibv_completion_queue(ibv_context* context,
                                                                                   std::uint32_t depth);
/// `completions`: one of create_ibv_completion_queue().
[[nodiscard]] Result<std::unique_ptr<QueuePair>> create_ibv_queue_pair(ibv_pd* domain, CompletionQueue& completions,
                                                                       Device::QueuePairOptions& options);

}  // namespace hixl::links::roce
