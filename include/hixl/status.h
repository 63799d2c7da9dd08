// SPDX-License-Identifier: Apache-2.0
//
// What a call of the C interface answers: one number, its text, and the details of this thread's last failure.
#ifndef HIXL_STATUS_H
#define HIXL_STATUS_H

#include <stdint.h>

#define HIXL_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* HIXL_OK or one of HIXL_ERR_…; the numbers of hixl/error.hpp, stable and never used twice. */
typedef int32_t hixl_status_t;

enum {
  HIXL_OK = 0,
  /* The call is wrong: nothing was begun. */
  HIXL_ERR_INVALID_ARGUMENT = 1,
  HIXL_ERR_NOT_REGISTERED = 10,
  HIXL_ERR_OUT_OF_RANGE = 11,
  HIXL_ERR_STALE = 12,
  HIXL_ERR_ACCESS_DENIED = 13,
  HIXL_ERR_NOT_EXCHANGED = 14,
  HIXL_ERR_UNALIGNED = 15,
  HIXL_ERR_OVERLAP = 16,
  HIXL_ERR_WOULD_DEADLOCK = 20,
  HIXL_ERR_INVALID_REQUEST = 21,
  HIXL_ERR_STOPPED = 22,
  HIXL_ERR_FORKED = 23,
  HIXL_ERR_INVALID_HANDLE = 24,
  /* Meeting the others. */
  HIXL_ERR_RANK_CONFLICT = 30,
  HIXL_ERR_RANK_OUT_OF_RANGE = 31,
  HIXL_ERR_RENDEZVOUS_UNREACHABLE = 32,
  HIXL_ERR_ADDRESS_IN_USE = 33,
  HIXL_ERR_HOST_UNRESOLVED = 34,
  HIXL_ERR_CONNECT_TIMEOUT = 35,
  HIXL_ERR_CONNECT_REFUSED = 36,
  HIXL_ERR_NO_ROUTE = 37,
  HIXL_ERR_SECURITY_REQUIRED = 38,
  HIXL_ERR_VERSION_MISMATCH = 39,
  HIXL_ERR_HANDSHAKE_FAILED = 40,
  HIXL_ERR_WRONG_PEER = 41,
  HIXL_ERR_ADDRESS_NOT_LOCAL = 42,
  HIXL_ERR_FAMILY_MISMATCH = 43,
  HIXL_ERR_WRONG_JOB = 44,
  HIXL_ERR_TRANSPORT_UNAVAILABLE = 45,
  HIXL_ERR_ADDRESS_SCOPE = 46,
  /* Under way. */
  HIXL_ERR_BUSY = 50,
  HIXL_ERR_DEADLINE_EXCEEDED = 51,
  HIXL_ERR_CANCELLED = 52,
  HIXL_ERR_PEER_LOST = 53,
  HIXL_ERR_PEER_GONE = 54,
  HIXL_ERR_OUTCOME_UNKNOWN = 55,
  HIXL_ERR_LINK_FAILED = 56,
  HIXL_ERR_FENCED = 57,
  HIXL_ERR_HELD = 58,
  HIXL_ERR_RETRIES_EXHAUSTED = 59,
  /* Limits of this machine. */
  HIXL_ERR_NO_MEMORY = 60,
  HIXL_ERR_NO_SPACE = 61,
  HIXL_ERR_MEMLOCK_LIMIT = 62,
  HIXL_ERR_FD_LIMIT = 63,
  HIXL_ERR_UNSUPPORTED = 64,
  HIXL_ERR_MEMORY_UNMAPPED = 65,
  HIXL_ERR_LIMIT_REACHED = 66,
  HIXL_ERR_HUGE_PAGES_MISSING = 69,
  /* What should not happen. */
  HIXL_ERR_MALFORMED_FRAME = 70,
  HIXL_ERR_TRUNCATED_FRAME = 71,
  HIXL_ERR_CORRUPT = 72,
  HIXL_ERR_PAYLOAD_CORRUPT = 73,
  HIXL_ERR_OS_ERROR = 80,
  HIXL_ERR_INTERNAL = 90,
  /* Of caches. */
  HIXL_ERR_LAYOUT_MISMATCH = 100,
  HIXL_ERR_CACHE_UNKNOWN = 101,
  HIXL_ERR_CACHE_STALE = 102,
  HIXL_ERR_LEASE_ENDED = 103,
  HIXL_ERR_ALREADY_EXISTS = 104,
  HIXL_ERR_NOT_LINKED = 105,
  HIXL_ERR_WRONG_ROLE = 106
};

/* What to do about a status: hixl_status_kind(). */
enum {
  HIXL_KIND_NONE = 0,
  HIXL_KIND_RETRY_LATER = 1,
  HIXL_KIND_RECONNECT = 2,
  HIXL_KIND_GIVE_UP = 3,
  HIXL_KIND_FIX_CALL = 4,
  HIXL_KIND_OUTCOME_UNKNOWN = 5
};

/* What happened, and the remedy. Never null; belongs to the library and stays. Numbers that are no status get a text
 * that says so. Any thread. */
HIXL_API const char* hixl_strerror(hixl_status_t status);
/* "PEER_LOST". The same rules; "UNKNOWN" for numbers that are no status. */
HIXL_API const char* hixl_status_name(hixl_status_t status);
HIXL_API int hixl_status_kind(hixl_status_t status);

/* The whole story of the last call of this thread that failed: rank, address, range, nearest region, limit, remedy.
 * Empty before the first. Stays until this thread's next call of this function. */
HIXL_API const char* hixl_last_error(void);
HIXL_API hixl_status_t hixl_last_status(void);
/* Of that failure, when a barrier or an exchange missed ranks: how many, the first `max` of them (of at most 8 that are
 * known) to `ranks`, which may be null when `max` is 0. */
HIXL_API int hixl_missing_ranks(int* ranks, int max);

#ifdef __cplusplus
}
#endif

#endif
