// SPDX-License-Identifier: Apache-2.0
//
// Ranks that work together: communicators, exchange of addresses, barriers; and messages between two ranks.
#ifndef HIXL_COMM_H
#define HIXL_COMM_H

#include <stddef.h>
#include <stdint.h>

#include <hixl/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hixl_comm_opaque* hixl_comm_t;

/* Makes a communicator of these ranks, which all of them do with the same list in the same order; ranks of a list are
 * those of the world. Waits. A rank twice, own rank missing, nobody: HIXL_ERR_INVALID_ARGUMENT; no such rank:
 * HIXL_ERR_RANK_OUT_OF_RANGE; not all came: HIXL_ERR_DEADLINE_EXCEEDED, and hixl_missing_ranks(). */
HIXL_API hixl_status_t hixl_comm_create(hixl_ctx_t ctx, hixl_comm_t* comm, int count, const int* ranks);
/* The same over links of one kind only; different communicators may use different ones. */
HIXL_API hixl_status_t hixl_comm_create_over(hixl_ctx_t ctx, hixl_comm_t* comm, int count, const int* ranks,
                                             hixl_transport_t transport);
/* All ranks, those that come later too. No agreement, so nobody waits. */
HIXL_API hixl_status_t hixl_comm_world(hixl_ctx_t ctx, hixl_comm_t* comm);
/* What it told of its own addresses is STALE for the others then. It may be made again, with other ranks too. */
HIXL_API hixl_status_t hixl_comm_destroy(hixl_comm_t comm);
/* Place in it, and how many; -1 for a wrong handle. */
HIXL_API int hixl_comm_rank(hixl_comm_t comm);
HIXL_API int hixl_comm_size(hixl_comm_t comm);

/* Tells `rank` of `count` addresses of mine and learns its own: both call it, with each other's rank, in either order.
 * An address of mine, in a registered region, is told with what follows it in that region, and is STALE for the others
 * when that region has ended (hixl_free, hixl_deregister, HIXL_DeregisterBuffer). An address that is none of mine is
 * taken for one of the peer's, and must lie in what the peer tells. `addrs` stays as it is. Waits until both sides have
 * the other's. When it fails the error names the rank; a put to that rank is HIXL_ERR_NOT_EXCHANGED until one succeeds.
 * With count 0 this rank only learns. May be repeated, with other addresses, at any time. */
HIXL_API hixl_status_t hixl_address_exchange(hixl_comm_t comm, const uint64_t* addrs, int count, int rank);
HIXL_API hixl_status_t hixl_address_exchange_timeout(hixl_comm_t comm, const uint64_t* addrs, int count, int rank,
                                                     int timeout_ms);

typedef struct hixl_peer_address {
  uint64_t address;
  uint64_t length; /* bytes from there to the end of its region */
} hixl_peer_address_t;
/* What the rank told in its latest exchange in this communicator, in its order: at most `max` to `out`; *count is all
 * of it. HIXL_ERR_NOT_EXCHANGED: nothing yet. */
HIXL_API hixl_status_t hixl_peer_addresses(hixl_comm_t comm, int rank, hixl_peer_address_t* out, int max, int* count);

/* Nobody leaves before the last rank has entered. HIXL_ERR_DEADLINE_EXCEEDED: hixl_missing_ranks() tells who did not
 * come. HIXL_ERR_PEER_LOST: one died. */
HIXL_API hixl_status_t hixl_barrier(hixl_ctx_t ctx);
HIXL_API hixl_status_t hixl_barrier_timeout(hixl_ctx_t ctx, int timeout_ms);
HIXL_API hixl_status_t hixl_comm_barrier(hixl_comm_t comm, int timeout_ms);

/* ---- messages ---- */

typedef struct hixl_conn_opaque* hixl_conn_t;

/* A connection with one rank, which connects with this one as well. At most one between two ranks. */
HIXL_API hixl_status_t hixl_connect(hixl_ctx_t ctx, int rank, int timeout_ms, hixl_conn_t* conn);
/* The same with memory for `buffer_bytes` (4 KiB …, a multiple of 64; default 4 MiB) of messages not yet released, on
 * both sides; a message has at most half of it. */
HIXL_API hixl_status_t hixl_connect_sized(hixl_ctx_t ctx, int rank, size_t buffer_bytes, int timeout_ms,
                                          hixl_conn_t* conn);
/* Calls of other threads that wait in it end: HIXL_ERR_CANCELLED; one whose message is under way ends by its own time.
 * HIXL_ERR_DEADLINE_EXCEEDED, after the time of calls that name none: one has not ended yet; it is closed all the same,
 * as it is with hixl_comm_destroy. */
HIXL_API hixl_status_t hixl_disconnect(hixl_conn_t conn);
/* Returns when the receiver can see the message; waits for room. `data`: registered, or at most 4 KiB of any memory. */
HIXL_API hixl_status_t hixl_send(hixl_conn_t conn, const void* data, size_t size);
HIXL_API hixl_status_t hixl_send_timeout(hixl_conn_t conn, const void* data, size_t size, int timeout_ms);
/* The next message, where it arrived: valid and unchanged until hixl_recv_release(), in any order. Timeout 0 looks
 * once, in callbacks too. HIXL_ERR_DEADLINE_EXCEEDED: none came. */
HIXL_API hixl_status_t hixl_recv(hixl_conn_t conn, const void** data, size_t* size, int timeout_ms);
HIXL_API hixl_status_t hixl_recv_release(hixl_conn_t conn, const void* data);

#ifdef __cplusplus
}
#endif

#endif
