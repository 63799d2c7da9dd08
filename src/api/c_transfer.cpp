// SPDX-License-Identifier: Apache-2.0
//
// hixl/transfer.h: puts, gets, signals, atomics, order.
#include <hixl/transfer.h>

#include "api/posting.hpp"
#include "api/world.hpp"

using namespace hixl;
using namespace hixl::api;

static RemoteAddress place(uint64_t address, int rank) { return {.rank = rank_of(rank), .address = address}; }

/// Runs a call of the rank's runtime.
template <class Call>
static hixl_status_t with_runtime(hixl_ctx_t ctx, Call&& call) {
  return guarded([&]() -> Result<void> {
    const Inside<View> view(ctx);
    if (!view) return view.error();
    return call(view->runtime());
  });
}

/// The same for calls that wait, which in callbacks is refused.
template <class Call>
static hixl_status_t waiting_with_runtime(hixl_ctx_t ctx, Call&& call) {
  return guarded([&]() -> Result<void> {
    const Inside<View> view(ctx);
    if (!view) return view.error();
    if (const auto allowed = may_wait(view.note()); !allowed) return allowed;
    return call(view->runtime());
  });
}

template <class Post>
static hixl_status_t post_here(hixl_ctx_t ctx, hixl_request_t* req, bool wanted, hixl_callback_t done, void* user_data,
                               Post&& post) {
  return guarded_post(req, [&]() -> Result<void> {
    if (wanted && req == nullptr) return missing_argument();
    const Inside<View> view(ctx);
    if (!view) return view.error();
    return post_request(view.world(), view.note(), req, {done, user_data},
                        [&](const OpOptions& options) { return post(view->runtime(), options); });
  });
}

hixl_status_t hixl_put_sync(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size, int rank) {
  return with_runtime(ctx,
                      [&](Runtime& r) { return r.put_sync(pointer_of(local_addr), place(remote_addr, rank), size); });
}

hixl_status_t hixl_get_sync(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size, int rank) {
  return with_runtime(ctx,
                      [&](Runtime& r) { return r.get_sync(pointer_of(local_addr), place(remote_addr, rank), size); });
}

hixl_status_t hixl_put_async(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size, int rank,
                             hixl_put_request_t* req) {
  return post_here(ctx, req, true, nullptr, nullptr, [&](Runtime& r, const OpOptions& options) {
    return r.put(pointer_of(local_addr), place(remote_addr, rank), size, options);
  });
}

hixl_status_t hixl_get_async(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size, int rank,
                             hixl_get_request_t* req) {
  return post_here(ctx, req, true, nullptr, nullptr, [&](Runtime& r, const OpOptions& options) {
    return r.get(pointer_of(local_addr), place(remote_addr, rank), size, options);
  });
}

hixl_status_t hixl_put_callback(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size, int rank,
                                hixl_callback_t done, void* user_data, hixl_request_t* req) {
  if (done == nullptr) return guarded_post(req, []() -> Result<void> { return missing_argument(); });
  return post_here(ctx, req, false, done, user_data, [&](Runtime& r, const OpOptions& options) {
    return r.put(pointer_of(local_addr), place(remote_addr, rank), size, options);
  });
}

hixl_status_t hixl_get_callback(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size, int rank,
                                hixl_callback_t done, void* user_data, hixl_request_t* req) {
  if (done == nullptr) return guarded_post(req, []() -> Result<void> { return missing_argument(); });
  return post_here(ctx, req, false, done, user_data, [&](Runtime& r, const OpOptions& options) {
    return r.get(pointer_of(local_addr), place(remote_addr, rank), size, options);
  });
}

// ---- signals ----

static Result<void> tell_word(const Result<std::uint64_t>& word, uint64_t* out) {
  if (!word) return fail(word.error());
  if (out != nullptr) *out = *word;
  return {};
}

hixl_status_t hixl_put_signal(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size, int rank,
                              uint64_t signal_addr, uint64_t value, hixl_request_t* req) {
  return post_here(ctx, req, true, nullptr, nullptr, [&](Runtime& r, const OpOptions& options) {
    const Signal signal{.word = place(signal_addr, rank), .value = value};
    return r.put_with_signal(pointer_of(local_addr), place(remote_addr, rank), size, signal, options);
  });
}

hixl_status_t hixl_wait_signal(hixl_ctx_t ctx, uint64_t signal_addr, uint64_t value, int timeout_ms, uint64_t* seen) {
  if (seen != nullptr) *seen = 0;
  return guarded([&]() -> Result<void> {
    const Inside<View> view(ctx);
    if (!view) return view.error();
    // In callbacks it looks once.
    const auto allowed = timeout_ms == 0 ? Result<void>() : may_wait(view.note());
    auto word = view->runtime().wait_signal(pointer_of(signal_addr), Compare::greater_equal, value,
                                            allowed ? timeout_of(timeout_ms) : Timeout{});
    if (!allowed && !word && word.error().code == ErrorCode::deadline_exceeded) return allowed;
    return tell_word(word, seen);
  });
}

// ---- atomics ----

hixl_status_t hixl_atomic_add(hixl_ctx_t ctx, uint64_t remote_addr, uint64_t value, int rank) {
  return with_runtime(ctx, [&](Runtime& r) { return r.atomic_add_sync(place(remote_addr, rank), value); });
}

hixl_status_t hixl_atomic_fetch_add(hixl_ctx_t ctx, uint64_t remote_addr, uint64_t value, int rank, uint64_t* before) {
  if (before != nullptr) *before = 0;
  return with_runtime(ctx,
                      [&](Runtime& r) { return tell_word(r.fetch_add_sync(place(remote_addr, rank), value), before); });
}

hixl_status_t hixl_atomic_compare_swap(hixl_ctx_t ctx, uint64_t remote_addr, uint64_t expected, uint64_t desired,
                                       int rank, uint64_t* before) {
  if (before != nullptr) *before = 0;
  return with_runtime(ctx, [&](Runtime& r) {
    return tell_word(r.compare_swap_sync(place(remote_addr, rank), expected, desired), before);
  });
}

hixl_status_t hixl_atomic_swap(hixl_ctx_t ctx, uint64_t remote_addr, uint64_t value, int rank, uint64_t* before) {
  if (before != nullptr) *before = 0;
  return with_runtime(ctx, [&](Runtime& r) { return tell_word(r.swap_sync(place(remote_addr, rank), value), before); });
}

// ---- order ----

hixl_status_t hixl_fence(hixl_ctx_t ctx, int rank) {
  return with_runtime(ctx, [&](Runtime& r) -> Result<void> {
    const auto fence = r.fence(rank_of(rank));
    if (!fence) return fail(fence.error());
    return {};
  });
}

hixl_status_t hixl_flush(hixl_ctx_t ctx, int rank, int timeout_ms) {
  return waiting_with_runtime(ctx, [&](Runtime& r) { return r.flush(rank_of(rank), timeout_of(timeout_ms)); });
}

hixl_status_t hixl_quiet(hixl_ctx_t ctx, int timeout_ms) {
  return waiting_with_runtime(ctx, [&](Runtime& r) { return r.quiet(timeout_of(timeout_ms)); });
}
