// SPDX-License-Identifier: Apache-2.0
//
// How the public shells make a blocking call of an asynchronous one.
#pragma once

#include <utility>
#include <vector>

#include "core/core.hpp"

namespace hixl::core {

/// Runs an asynchronous call and waits for it; WOULD_DEADLOCK where that could never end.
template <class Value, class Start>
[[nodiscard]] Result<Value> wait_for(Core& core, Start&& start) {
  if (core.forked()) return fail(ErrorCode::forked, {.rank = core.options().rank});
  if (core.on_loop_thread()) return fail(ErrorCode::would_deadlock, {.rank = core.options().rank});
  Waiting<Value> waiting;
  if (const Result<void> started = start(&waiting); !started) return fail(started.error());
  return waiting.wait(*core.loop().thread());
}

// For calls whose context is what waits.
inline void store_result(void* context, const Result<void>& result) {
  static_cast<Waiting<Result<void>>*>(context)->give(result);
}
inline void store_answers(void* context, std::vector<PeerAddresses>&& answers) {
  static_cast<Waiting<std::vector<PeerAddresses>>*>(context)->give(std::move(answers));
}

[[nodiscard]] inline Result<void> flatten(Result<Result<void>>&& result) {
  if (!result) return fail(result.error());
  return *result;
}

}  // namespace hixl::core
