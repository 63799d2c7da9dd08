// SPDX-License-Identifier: Apache-2.0
//
// The engine style: an engine for this rank, contexts for the ranks it talks to, descriptors for what moves. The same
// library as hixl_…: an engine is a hixl_ctx_t, a request a hixl_request_t, a status a hixl_status_t, and their rules
// hold here too.
#ifndef HIXL_ENGINE_H
#define HIXL_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include <hixl/comm.h>
#include <hixl/transfer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef hixl_status_t HIXL_Status_t;
typedef hixl_ctx_t HIXL_Engine_t;
typedef hixl_request_t HIXL_Request_t;
typedef struct hixl_context_opaque* HIXL_Context_t;
typedef HIXL_Context_t HIXL_MultiContext_t;
typedef struct hixl_batch_opaque* HIXL_BatchDescriptor_t;
typedef hixl_callback_t HIXL_Callback_t;

/* Settings of the engine are those of the rank; null is all defaults: rank, size and store as the launcher says. */
typedef hixl_init_info_t HIXL_EngineConfig_t;
#define HIXL_ENGINE_CONFIG_DEFAULT ((const HIXL_EngineConfig_t*)0)

/* Null on failure; hixl_last_status() and hixl_last_error() say why. */
HIXL_API HIXL_Engine_t HIXL_InitSized(const HIXL_EngineConfig_t* config, size_t config_size);
static inline HIXL_Engine_t HIXL_Init(const HIXL_EngineConfig_t* config) {
  return HIXL_InitSized(config, sizeof(HIXL_EngineConfig_t));
}
/* As hixl_finalize(); contexts of the engine are closed with it. */
HIXL_API HIXL_Status_t HIXL_Finalize(HIXL_Engine_t engine);

/* Cheap views of one engine: no connection is made before the first need, and none of its own. Null on failure. */
HIXL_API HIXL_Context_t HIXL_CreateContext(HIXL_Engine_t engine, int peer_rank);
HIXL_API HIXL_MultiContext_t HIXL_CreateMultiContext(HIXL_Engine_t engine, size_t peers, const int* peer_ranks);
HIXL_API HIXL_Status_t HIXL_DestroyContext(HIXL_Context_t context);

/* ---- buffers ---- */

/* Registers memory and numbers it: 0, 1, 2, … in the order of calls on this rank. Peers find it by that number, without
 * this rank's help. */
HIXL_API HIXL_Status_t HIXL_RegisterBuffer(HIXL_Engine_t engine, void* data, size_t size, uint32_t* buffer_id);
HIXL_API HIXL_Status_t HIXL_DeregisterBuffer(HIXL_Engine_t engine, uint32_t buffer_id);

/* A place in a rank's memory, which says whose it is. */
typedef struct HIXL_Addr {
  uint64_t address;
  uint64_t incarnation; /* the life of that rank; 0: whichever is current */
  uint32_t region;
  uint32_t generation; /* of the region; 0: the newest known one that holds the range */
  int32_t rank;        /* HIXL_RANK_OF_CONTEXT: the only peer of the context that it is used with */
  uint32_t reserved;
} HIXL_Addr_t;
#define HIXL_RANK_OF_CONTEXT (-2)

/* Start of the peer's buffer of the same number as my own `buffer_id`; waits until the peer has registered it. On
 * failure all zero, with generation 0 and rank -1: using it is HIXL_ERR_RANK_OUT_OF_RANGE. A number that this rank has
 * not registered: HIXL_ERR_INVALID_ARGUMENT. */
HIXL_API HIXL_Addr_t HIXL_GetRemoteAddr(HIXL_Context_t context, int peer_rank, uint32_t buffer_id);
/* A plain address of the only peer of a context; that peer must have told of it. */
static inline HIXL_Addr_t HIXL_RawAddr(uint64_t address) {
  HIXL_Addr_t place = {0, 0, 0, 0, HIXL_RANK_OF_CONTEXT, 0};
  place.address = address;
  return place;
}
static inline HIXL_Addr_t HIXL_AddrAt(HIXL_Addr_t base, uint64_t offset) {
  base.address += offset;
  return base;
}

/* ---- transfers ---- */

typedef int32_t HIXL_Op_t;
enum { HIXL_OP_PUT = 0, HIXL_OP_GET = 1 };

typedef struct HIXL_Descriptor {
  HIXL_Op_t type;
  void* local_addr;
  HIXL_Addr_t remote_addr;
  size_t size;
  HIXL_Callback_t cb; /* may be null; the library's thread calls it once after the end */
  void* user_data;    /* handed to it */
} HIXL_Descriptor_t;

/* Return at once. `req` may be null. The type must be that of the function. On failure *req has ended with the same
 * error, and cb is not called. */
HIXL_API HIXL_Status_t HIXL_Put(HIXL_Context_t context, const HIXL_Descriptor_t* descriptor, HIXL_Request_t* req);
HIXL_API HIXL_Status_t HIXL_Get(HIXL_Context_t context, const HIXL_Descriptor_t* descriptor, HIXL_Request_t* req);
/* Return when the bytes are there; cb is not looked at. */
HIXL_API HIXL_Status_t HIXL_SyncPut(HIXL_Context_t context, const HIXL_Descriptor_t* descriptor);
HIXL_API HIXL_Status_t HIXL_SyncGet(HIXL_Context_t context, const HIXL_Descriptor_t* descriptor);

/* As hixl_wait(), hixl_query(), hixl_wait_all(), hixl_wait_any(). */
HIXL_API HIXL_Status_t HIXL_Wait(HIXL_Request_t* req);
HIXL_API HIXL_Status_t HIXL_WaitTimeout(HIXL_Request_t* req, int timeout_ms);
HIXL_API HIXL_Status_t HIXL_Query(HIXL_Request_t req);
HIXL_API HIXL_Status_t HIXL_WaitAll(size_t count, HIXL_Request_t* reqs);
HIXL_API HIXL_Status_t HIXL_WaitAllStatus(size_t count, HIXL_Request_t* reqs, HIXL_Status_t* statuses, int timeout_ms);
HIXL_API HIXL_Status_t HIXL_WaitAny(size_t count, HIXL_Request_t* reqs, size_t* index, int timeout_ms);

/* ---- batches: many puts and gets with one peer as one operation ---- */

/* Remote offsets count from the start of the peer's buffer 0 (HIXL_RegisterBuffer), or of the one that is named. */
HIXL_API HIXL_Status_t HIXL_BatchInit(HIXL_BatchDescriptor_t* batch);
HIXL_API HIXL_Status_t HIXL_BatchInitBuffer(HIXL_BatchDescriptor_t* batch, uint32_t buffer_id);
HIXL_API HIXL_Status_t HIXL_BatchAddEntry(HIXL_BatchDescriptor_t* batch, void* local_addr, uint64_t remote_offset,
                                          size_t size, HIXL_Op_t type);
/* All entries, sorted, neighbours joined; where puts of a batch overlap, the later one's bytes stand. Every entry is
 * checked before a byte moves. The batch may be transferred again, also while it is under way. An empty one:
 * HIXL_ERR_INVALID_ARGUMENT. */
HIXL_API HIXL_Status_t HIXL_BatchTransfer(HIXL_Context_t context, HIXL_BatchDescriptor_t* batch, HIXL_Request_t* req);
/* At any time, in callbacks too; what is under way goes on. *batch is null then. */
HIXL_API HIXL_Status_t HIXL_BatchDestroy(HIXL_BatchDescriptor_t* batch);

#ifdef __cplusplus
}
#endif

#endif
