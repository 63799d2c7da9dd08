// SPDX-License-Identifier: Apache-2.0
//
// A rank: how it begins and ends, and its memory.
//
// Rules of the whole C interface. Every function may be called from any thread. Handles are numbers in the shape of
// pointers: one that is null, made up, closed, or a parent process' answers HIXL_ERR_INVALID_HANDLE (or
// HIXL_ERR_FORKED), never a crash. A function that fails has begun nothing, and leaves what it would have given as null
// or 0. Times are milliseconds; HIXL_TIMEOUT_DEFAULT stands for hixl_init_info_t.timeout_ms. In callbacks, functions
// that wait answer HIXL_ERR_WOULD_DEADLOCK. In a forked child the parent's handles answer HIXL_ERR_FORKED, and
// hixl_init() makes new ones.
#ifndef HIXL_CONTEXT_H
#define HIXL_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#include <hixl/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hixl_ctx_opaque* hixl_ctx_t;

/* Which links may be used. AUTO: the best that works, others as spares. Any other: that one alone, and
 * HIXL_ERR_TRANSPORT_UNAVAILABLE where it is not to be had. HCCS and PCIE are emulated (docs/design.md). */
typedef int32_t hixl_transport_t;
enum {
  HIXL_TRANS_AUTO = 0,
  HIXL_TRANS_HCCS = 1,
  HIXL_TRANS_PCIE = 2,
  HIXL_TRANS_ROCE = 3,
  HIXL_TRANS_UB = 4,
  HIXL_TRANS_TCP = 5
};

/* A cache line. Transfers work from and to any address; aligned ones are faster. Words of atomics and signals: 8. */
#define HIXL_ALIGNMENT 64
/* As max_inline_data: no payload travels inside its command. */
#define HIXL_INLINE_NONE 0xffffffffu
#define HIXL_TIMEOUT_DEFAULT (-1)

/* What is left out is 0 and means its default. Members are only ever added at the end. */
typedef struct hixl_init_info {
  int32_t rank_id;
  int32_t rank_size;               /* 0: rank and size as the launcher says (hixl_run, torchrun, mpirun, Slurm) */
  hixl_transport_t transport_type; /* HIXL_TRANS_AUTO: what HIXL_LINKS says, or all */
  uint32_t tx_depth;               /* pieces under way, a link: 1 … 1 024; default 32 */
  uint32_t rx_depth;               /* control messages not yet read, a link: 1 … 1 024; default 32 */
  uint32_t max_inline_data;        /* bytes that a put copies in the call: 1 … 256 or HIXL_INLINE_NONE; default 64 */
  const char* store;               /* where ranks meet: "tcp://host:port", "unix:@name", "file:///path"; default:
                                      HIXL_STORE, or as the launcher says */
  const char* job;                 /* ranks of two jobs at one store do not meet; default: as the launcher says */
  const char* bind;                /* addresses to listen on; default: HIXL_BIND, or loopback */
  int32_t host_store;              /* 1: this rank hosts the store */
  int32_t insecure;                /* 1: `bind` may reach beyond loopback */
  uint32_t requests_max;           /* operations in flight or not yet looked at: 2 … 131 072; default 4 096 */
  uint32_t timeout_ms;             /* of calls that name none: 1 … 3 600 000; default 30 000 */
} hixl_init_info_t;

/* Joins the others; ranks may come later. A second call of this process for the same rank gives another view of the
 * same rank, so that every thread may have a context of its own at no cost; what it names must agree with the first.
 * `info` may be null: all defaults.
 *   HIXL_ERR_RANK_CONFLICT          another process holds the rank, or this one with other settings
 *   HIXL_ERR_RANK_OUT_OF_RANGE      rank_id is not below rank_size
 *   HIXL_ERR_TRANSPORT_UNAVAILABLE  the forced transport is not to be had here
 *   HIXL_ERR_NO_MEMORY, HIXL_ERR_FD_LIMIT, HIXL_ERR_RENDEZVOUS_UNREACHABLE, HIXL_ERR_INVALID_ARGUMENT, … */
HIXL_API hixl_status_t hixl_init_sized(hixl_ctx_t* ctx, const hixl_init_info_t* info, size_t info_size);
static inline hixl_status_t hixl_init(hixl_ctx_t* ctx, const hixl_init_info_t* info) {
  return hixl_init_sized(ctx, info, sizeof(hixl_init_info_t));
}

/* Ends this view; the last one leaves the job: what is open may end for 5 s, then ends with HIXL_ERR_STOPPED; waits of
 * other threads end, communicators, connections and memory of the rank are gone. Requests keep their answers. Again:
 * HIXL_ERR_INVALID_HANDLE. HIXL_ERR_DEADLINE_EXCEEDED: not all could end well; it is closed all the same. */
HIXL_API hixl_status_t hixl_finalize(hixl_ctx_t ctx);
/* The same with another time; 0 waits for nothing. */
HIXL_API hixl_status_t hixl_finalize_timeout(hixl_ctx_t ctx, int timeout_ms);

/* -1 for a wrong handle. */
HIXL_API int hixl_rank(hixl_ctx_t ctx);
HIXL_API int hixl_size(hixl_ctx_t ctx);

/* ---- memory ---- */

/* Memory that every link reaches: zeroed, page aligned, registered. */
HIXL_API hixl_status_t hixl_alloc(hixl_ctx_t ctx, size_t size, void** data);
/* Registers memory of the program. The same range again counts a reference. */
HIXL_API hixl_status_t hixl_register(hixl_ctx_t ctx, void* data, size_t size);
/* Ends the newest registration that begins at `data`, and frees it if it is hixl_alloc()'s. After HIXL_OK nobody
 * touches it. HIXL_ERR_HELD: a stopped peer may still write there. */
HIXL_API hixl_status_t hixl_free(hixl_ctx_t ctx, void* data);
HIXL_API hixl_status_t hixl_deregister(hixl_ctx_t ctx, void* data);

/* Whether a put of `size` bytes to that address of a rank would be refused now, and why; nothing moves. */
HIXL_API hixl_status_t hixl_check_access(hixl_ctx_t ctx, uint64_t remote_addr, size_t size, int rank);
/* The same for a local source. */
HIXL_API hixl_status_t hixl_check_local(hixl_ctx_t ctx, uint64_t local_addr, size_t size);

/* ---- seeing inside ---- */

typedef int32_t hixl_report_t;
enum { HIXL_REPORT_REGIONS = 0, HIXL_REPORT_LINKS = 1, HIXL_REPORT_OUTSTANDING = 2, HIXL_REPORT_COUNTERS = 3 };
/* Text for people (json 0) or programs (json 1), cut to `size` bytes with the final zero; `*needed` (may be null) is
 * what all of it takes. `text` may be null with size 0. */
HIXL_API hixl_status_t hixl_report(hixl_ctx_t ctx, hixl_report_t what, int json, char* text, size_t size,
                                   size_t* needed);
/* All registered ranges, of this rank and as told by others, to standard output. */
HIXL_API hixl_status_t hixl_dump_regions(hixl_ctx_t ctx);

#ifdef __cplusplus
}
#endif

#endif
