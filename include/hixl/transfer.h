// SPDX-License-Identifier: Apache-2.0
//
// Moving bytes: puts and gets, how to wait for them, signals, atomics, order.
//
// Addresses are virtual addresses of the process that they belong to, as integers. A remote one must lie in a region
// that its rank has told this one of (hixl_address_exchange); a local one in a registered region, unless it is the
// source of a put of at most max_inline_data bytes. All of it is checked before a byte moves: HIXL_ERR_NOT_REGISTERED,
// HIXL_ERR_OUT_OF_RANGE, HIXL_ERR_NOT_EXCHANGED, HIXL_ERR_STALE, HIXL_ERR_ACCESS_DENIED, HIXL_ERR_RANK_OUT_OF_RANGE.
#ifndef HIXL_TRANSFER_H
#define HIXL_TRANSFER_H

#include <stddef.h>
#include <stdint.h>

#include <hixl/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One operation. Copies of the handle are the same request. Look at its end by hixl_wait() or hixl_query(), or drop it
 * with hixl_request_drop(): until then it takes one of requests_max places. An end that was seen once is told again
 * until at least requests_max later requests were posted; then, and for what never was a request,
 * HIXL_ERR_INVALID_REQUEST. */
typedef struct hixl_request_opaque* hixl_request_t;
typedef hixl_request_t hixl_put_request_t;
typedef hixl_request_t hixl_get_request_t;

/* Returns when the bytes are visible to the target's CPU (put), or here (get). */
HIXL_API hixl_status_t hixl_put_sync(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size, int rank);
HIXL_API hixl_status_t hixl_get_sync(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size, int rank);

/* Returns at once. On failure *req is a request that has ended with the same error, so that waiting for it is right in
 * any case. HIXL_ERR_BUSY: no place is free; look at some ends, then post again. *req has then ended with
 * HIXL_ERR_LIMIT_REACHED, since hixl_query() says BUSY of what is under way. */
HIXL_API hixl_status_t hixl_put_async(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size, int rank,
                                      hixl_put_request_t* req);
HIXL_API hixl_status_t hixl_get_async(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size, int rank,
                                      hixl_get_request_t* req);

/* Called once after the end, on the library's thread, never inside the call that posted. Keep it short; it may post,
 * query and cancel, but not wait. The request counts as looked at. */
typedef void (*hixl_callback_t)(hixl_status_t status, void* user_data);
/* `req` may be null. If posting fails, `done` is never called. */
HIXL_API hixl_status_t hixl_put_callback(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size,
                                         int rank, hixl_callback_t done, void* user_data, hixl_request_t* req);
HIXL_API hixl_status_t hixl_get_callback(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size,
                                         int rank, hixl_callback_t done, void* user_data, hixl_request_t* req);

/* ---- waiting ---- */

/* Until the end, which every operation has by its own deadline; its result. *req stays what it is. */
HIXL_API hixl_status_t hixl_wait(hixl_request_t* req);
/* HIXL_ERR_DEADLINE_EXCEEDED: this wait is over, or so the operation ended; hixl_query() tells which. */
HIXL_API hixl_status_t hixl_wait_timeout(hixl_request_t* req, int timeout_ms);
/* Never waits: HIXL_ERR_BUSY while it is under way, then its result, the same one every time. */
HIXL_API hixl_status_t hixl_query(hixl_request_t req);
/* Waits for all; the first error in order of the array after all have ended. While one has not, the reason why the wait
 * is over (HIXL_ERR_DEADLINE_EXCEEDED), whatever others have ended with. `statuses`, one each, may be null: of what is
 * under way HIXL_ERR_BUSY. */
HIXL_API hixl_status_t hixl_wait_all(size_t count, hixl_request_t* reqs, hixl_status_t* statuses, int timeout_ms);
/* Waits for one that has ended, gives its index, and its result. *index is `count` when none has. */
HIXL_API hixl_status_t hixl_wait_any(size_t count, hixl_request_t* reqs, size_t* index, int timeout_ms);
/* Asks that it end now; its end then tells HIXL_ERR_CANCELLED, or success if it was through. Never waits. */
HIXL_API hixl_status_t hixl_cancel(hixl_request_t req);
/* The operation goes on, the request is over: HIXL_ERR_INVALID_REQUEST from now on. */
HIXL_API hixl_status_t hixl_request_drop(hixl_request_t* req);

/* ---- signals ---- */

/* A put that stores `value` in the 8-byte word at `signal_addr` of the same rank once its bytes are visible there. */
HIXL_API hixl_status_t hixl_put_signal(hixl_ctx_t ctx, uint64_t local_addr, uint64_t remote_addr, size_t size, int rank,
                                       uint64_t signal_addr, uint64_t value, hixl_request_t* req);
/* Sleeps until the word in own registered memory is at least `value`; *seen (may be null) is what it was. */
HIXL_API hixl_status_t hixl_wait_signal(hixl_ctx_t ctx, uint64_t signal_addr, uint64_t value, int timeout_ms,
                                        uint64_t* seen);

/* ---- atomics, on 8-byte aligned words (else HIXL_ERR_UNALIGNED); each exactly once; *before may be null ---- */

HIXL_API hixl_status_t hixl_atomic_add(hixl_ctx_t ctx, uint64_t remote_addr, uint64_t value, int rank);
HIXL_API hixl_status_t hixl_atomic_fetch_add(hixl_ctx_t ctx, uint64_t remote_addr, uint64_t value, int rank,
                                             uint64_t* before);
HIXL_API hixl_status_t hixl_atomic_compare_swap(hixl_ctx_t ctx, uint64_t remote_addr, uint64_t expected,
                                                uint64_t desired, int rank, uint64_t* before);
HIXL_API hixl_status_t hixl_atomic_swap(hixl_ctx_t ctx, uint64_t remote_addr, uint64_t value, int rank,
                                        uint64_t* before);

/* ---- order; operations have none by themselves (docs/ordering.md) ---- */

/* What is posted to `rank` later begins after everything posted to it earlier has ended. Does not wait. */
HIXL_API hixl_status_t hixl_fence(hixl_ctx_t ctx, int rank);
/* Waits until everything posted to `rank`, or to anybody, has ended. */
HIXL_API hixl_status_t hixl_flush(hixl_ctx_t ctx, int rank, int timeout_ms);
HIXL_API hixl_status_t hixl_quiet(hixl_ctx_t ctx, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
