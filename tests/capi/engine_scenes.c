// SPDX-License-Identifier: Apache-2.0
//
// Scenes of the engine style, and of several views of one rank.
#include <pthread.h>
#include <string.h>

#include "ranks.h"

enum { BYTES = 1 << 16 };

static void on_end(HIXL_Status_t status, void* user_data) {
  uint64_t* told = user_data;
  __atomic_fetch_add(told, status == HIXL_OK ? 1 : 1000000, __ATOMIC_RELEASE);
}

/* Each rank puts to all others at once, then gets from each; ids name buffers, and only registering was done there. */
void play_engine(void) {
  enum { CONTEXTS = 100 };
  static uint8_t memory[2][BYTES];
  HIXL_Context_t contexts[CONTEXTS];
  HIXL_Descriptor_t descriptors[32];
  HIXL_Request_t requests[32];
  HIXL_Status_t statuses[32];
  int peers[32];
  uint64_t told[32] = {0};
  uint32_t ids[2] = {77, 77};
  size_t index = 0;
  HIXL_Engine_t engine = HIXL_Init(HIXL_ENGINE_CONFIG_DEFAULT);
  CHECK(engine != NULL);
  const int rank = hixl_rank(engine);
  const size_t size = (size_t)hixl_size(engine);
  for (size_t i = 0; i < size; ++i) peers[i] = (int)i;
  memset(memory[0], rank + 1, BYTES);
  for (int i = 0; i < 2; ++i) {
    CHECK_STATUS(HIXL_RegisterBuffer(engine, NULL, BYTES, &ids[i]), HIXL_ERR_MEMORY_UNMAPPED); /* takes no number */
    CHECK_OK(HIXL_RegisterBuffer(engine, memory[i], BYTES, &ids[i]));
    CHECK(ids[i] == (uint32_t)i);
  }
  HIXL_MultiContext_t all = HIXL_CreateMultiContext(engine, size, peers);
  CHECK(all != NULL);
  for (size_t i = 0; i < size; ++i) {
    const HIXL_Addr_t theirs = HIXL_GetRemoteAddr(all, (int)i, ids[1]);
    CHECK(theirs.generation != 0 && theirs.rank == (int)i);
    descriptors[i].type = HIXL_OP_PUT;
    descriptors[i].local_addr = memory[0];
    descriptors[i].remote_addr = HIXL_AddrAt(theirs, (uint64_t)rank * 64);
    descriptors[i].size = 64;
    descriptors[i].cb = on_end;
    descriptors[i].user_data = &told[i];
  }
  for (size_t i = 0; i < size; ++i) CHECK_OK(HIXL_Put(all, &descriptors[i], &requests[i]));
  CHECK_OK(HIXL_WaitAny(size, requests, &index, PATIENCE_MS));
  CHECK(index < size && HIXL_Query(requests[index]) == HIXL_OK);
  CHECK_OK(HIXL_WaitAll(size, requests));
  CHECK_OK(HIXL_WaitAllStatus(size, requests, statuses, PATIENCE_MS));
  for (size_t i = 0; i < size; ++i) {
    CHECK(statuses[i] == HIXL_OK);
    while (__atomic_load_n(&told[i], __ATOMIC_ACQUIRE) == 0) CHECK_OK(hixl_quiet(engine, PATIENCE_MS));
    CHECK(told[i] == 1);
  }
  CHECK_OK(hixl_barrier(engine));
  for (size_t i = 0; i < size; ++i) {
    for (int at = 0; at < 64; ++at) CHECK(memory[1][i * 64 + (size_t)at] == (uint8_t)(i + 1));
  }
  /* Contexts are cheap, and each has its own peers. */
  const int next = (rank + 1) % (int)size;
  for (int i = 0; i < CONTEXTS; ++i) CHECK((contexts[i] = HIXL_CreateContext(engine, next)) != NULL);
  HIXL_Descriptor_t get = descriptors[next];
  get.type = HIXL_OP_GET;
  get.cb = NULL;
  for (int i = 0; i < CONTEXTS; ++i) {
    memset(memory[0], 0, 64);
    CHECK_OK(HIXL_SyncGet(contexts[i], &get));
    CHECK(memory[0][0] == (uint8_t)(rank + 1) && memory[0][63] == (uint8_t)(rank + 1));
  }
  HIXL_Descriptor_t put = descriptors[next];
  put.cb = NULL;
  for (int i = 0; i < 2; ++i) {
    memset(memory[0], 0xa0 + i, 64);
    if (i == 0) {
      CHECK_OK(HIXL_SyncPut(contexts[0], &put));
    } else {
      CHECK_OK(HIXL_Put(contexts[0], &put, &requests[0]));
      CHECK_OK(HIXL_WaitTimeout(&requests[0], PATIENCE_MS));
    }
    memset(memory[0], 0, 64);
    CHECK_OK(HIXL_SyncGet(contexts[0], &get));
    CHECK(memory[0][0] == 0xa0 + i && memory[0][63] == 0xa0 + i);
  }
  get.remote_addr = HIXL_RawAddr(get.remote_addr.address); /* the only peer is meant */
  CHECK_OK(HIXL_Get(contexts[0], &get, &requests[0]));
  CHECK_OK(HIXL_Wait(&requests[0]));
  CHECK_STATUS(HIXL_SyncGet(size > 1 ? all : NULL, &get),
               size > 1 ? HIXL_ERR_INVALID_ARGUMENT : HIXL_ERR_INVALID_HANDLE);
  /* What is wrong. */
  CHECK_STATUS(HIXL_Put(contexts[0], &get, &requests[0]), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(HIXL_Wait(&requests[0]), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(HIXL_Get(contexts[0], NULL, &requests[0]), HIXL_ERR_INVALID_ARGUMENT);
  if (size > 2)
    CHECK_STATUS(HIXL_SyncPut(contexts[0], &descriptors[(rank + 2) % (int)size]), HIXL_ERR_INVALID_ARGUMENT);
  CHECK(HIXL_GetRemoteAddr(contexts[0], next, 99).generation == 0);
  CHECK(hixl_last_status() == HIXL_ERR_INVALID_ARGUMENT);
  get.remote_addr = HIXL_GetRemoteAddr(contexts[0], next, 99);
  CHECK_STATUS(HIXL_SyncGet(contexts[0], &get), HIXL_ERR_RANK_OUT_OF_RANGE);
  CHECK(HIXL_CreateContext(engine, (int)size) == NULL && hixl_last_status() == HIXL_ERR_RANK_OUT_OF_RANGE);
  CHECK(HIXL_CreateContext(engine, -1) == NULL);
  CHECK(HIXL_CreateMultiContext(engine, 0, peers) == NULL && HIXL_CreateMultiContext(engine, 2, NULL) == NULL);
  CHECK_OK(HIXL_DestroyContext(contexts[0]));
  CHECK_STATUS(HIXL_DestroyContext(contexts[0]), HIXL_ERR_INVALID_HANDLE);
  CHECK_STATUS(HIXL_SyncPut(contexts[0], &descriptors[next]), HIXL_ERR_INVALID_HANDLE);
  CHECK_OK(hixl_barrier(engine));
  CHECK_OK(HIXL_DeregisterBuffer(engine, ids[0]));
  CHECK_STATUS(HIXL_DeregisterBuffer(engine, ids[0]), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_OK(HIXL_Finalize(engine));
  CHECK_STATUS(HIXL_SyncPut(contexts[1], &descriptors[next]), HIXL_ERR_INVALID_HANDLE); /* gone with the engine */
  CHECK_STATUS(HIXL_Finalize(engine), HIXL_ERR_INVALID_HANDLE);
}

/* 128 blocks of 4 KiB, puts and gets mixed, in any order; overlapping puts end as the later entry says. */
void play_batches(void) {
  enum { BLOCKS = 128, BLOCK = 4096 };
  static uint8_t window[BLOCKS * BLOCK];
  static uint8_t local[BLOCKS * BLOCK];
  HIXL_BatchDescriptor_t batch = NULL;
  HIXL_BatchDescriptor_t other = NULL;
  HIXL_Request_t request = NULL;
  uint32_t id = 9;
  HIXL_Engine_t engine = HIXL_Init(HIXL_ENGINE_CONFIG_DEFAULT);
  CHECK(engine != NULL);
  const int rank = hixl_rank(engine);
  const int next = (rank + 1) % hixl_size(engine);
  const int before = (rank + hixl_size(engine) - 1) % hixl_size(engine);
  CHECK_OK(HIXL_RegisterBuffer(engine, window, sizeof window, &id));
  CHECK_OK(hixl_register(engine, local, sizeof local));
  memset(window, 200 + rank, sizeof window);
  for (int i = 0; i < BLOCKS; ++i) memset(local + i * BLOCK, rank * 60 + i % 50 + 1, BLOCK);
  HIXL_Context_t context = HIXL_CreateContext(engine, next);
  CHECK(context != NULL);
  CHECK_OK(hixl_barrier(engine));
  CHECK_OK(HIXL_BatchInit(&batch));
  /* Even blocks are put, odd ones got, in an order that is none. */
  for (int i = 0; i < BLOCKS; ++i) {
    const int block = i * 37 % BLOCKS;
    CHECK_OK(HIXL_BatchAddEntry(&batch, local + block * BLOCK, (uint64_t)block * BLOCK, BLOCK,
                                block % 2 == 0 ? HIXL_OP_PUT : HIXL_OP_GET));
  }
  CHECK_OK(HIXL_BatchTransfer(context, &batch, &request));
  CHECK_OK(HIXL_Wait(&request));
  CHECK_OK(hixl_barrier(engine));
  for (int at = 0; at < BLOCKS * BLOCK; ++at) {
    const int block = at / BLOCK;
    const int put = block % 2 == 0;
    CHECK(window[at] == (uint8_t)(put ? before * 60 + block % 50 + 1 : 200 + rank));
    CHECK(local[at] == (uint8_t)(put ? rank * 60 + block % 50 + 1 : 200 + next));
  }
  CHECK_OK(hixl_barrier(engine));
  CHECK_OK(HIXL_BatchInitBuffer(&other, 0));
  for (int i = 0; i < 8; ++i) { /* the same place again and again */
    memset(local + i * BLOCK, 100 + i, BLOCK);
    CHECK_OK(HIXL_BatchAddEntry(&other, local + i * BLOCK, (uint64_t)i, BLOCK, HIXL_OP_PUT));
  }
  CHECK_OK(HIXL_BatchTransfer(context, &other, &request));
  CHECK_OK(HIXL_BatchDestroy(&other)); /* while it is under way */
  CHECK(other == NULL);
  CHECK_OK(HIXL_Wait(&request));
  CHECK_OK(hixl_barrier(engine));
  for (int at = 0; at < BLOCK; ++at) CHECK(window[at] == (uint8_t)(at < 7 ? 100 + at : 107));
  /* One entry is wrong, and nothing moves. */
  CHECK_OK(HIXL_BatchAddEntry(&batch, local, sizeof window - 1, 2, HIXL_OP_PUT));
  CHECK_STATUS(HIXL_BatchTransfer(context, &batch, &request), HIXL_ERR_OUT_OF_RANGE);
  CHECK_STATUS(HIXL_Wait(&request), HIXL_ERR_OUT_OF_RANGE);
  CHECK(strstr(hixl_last_error(), "OUT_OF_RANGE") != NULL);
  CHECK_OK(HIXL_BatchInit(&other));
  CHECK_STATUS(HIXL_BatchTransfer(context, &other, &request), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_OK(HIXL_BatchAddEntry(&other, local, UINT64_MAX, 2, HIXL_OP_PUT));
  CHECK_STATUS(HIXL_BatchTransfer(context, &other, &request), HIXL_ERR_OUT_OF_RANGE);
  CHECK_STATUS(HIXL_BatchAddEntry(&other, local, 0, 2, 5), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_OK(HIXL_BatchDestroy(&batch));
  CHECK_STATUS(HIXL_BatchDestroy(&batch), HIXL_ERR_INVALID_HANDLE);
  CHECK_STATUS(HIXL_BatchAddEntry(&batch, local, 0, 2, HIXL_OP_PUT), HIXL_ERR_INVALID_HANDLE);
  CHECK_OK(hixl_barrier(engine));
  CHECK_OK(HIXL_Finalize(engine));
}

struct worker {
  struct scene* scene;
  int number;
};

/* As the article's threads: a context each, made with the first need, of the same rank. */
static void* work(void* argument) {
  static __thread hixl_ctx_t thread_ctx;
  const struct worker* worker = argument;
  struct scene* scene = worker->scene;
  const int next = (scene->rank + 1) % scene->size;
  const uint64_t place = scene->theirs[next] + (uint64_t)worker->number * 64;
  if (!thread_ctx) {
    hixl_init_info_t info = {.rank_id = scene->rank, .rank_size = scene->size, .transport_type = HIXL_TRANS_AUTO};
    CHECK_OK(hixl_init(&thread_ctx, &info));
  }
  CHECK(thread_ctx != scene->ctx && hixl_rank(thread_ctx) == scene->rank);
  for (int i = 0; i < 500; ++i) {
    hixl_put_request_t req;
    uint64_t value = (uint64_t)worker->number * 1000 + (uint64_t)i;
    CHECK_OK(hixl_put_async(thread_ctx, address_of(&value), place, 8, next, &req));
    CHECK_OK(hixl_wait(&req));
  }
  CHECK_OK(hixl_finalize(thread_ctx));
  CHECK_STATUS(hixl_finalize(thread_ctx), HIXL_ERR_INVALID_HANDLE);
  return NULL;
}

void play_views(void) {
  enum { THREADS = 8 };
  struct scene scene;
  pthread_t threads[THREADS];
  struct worker workers[THREADS];
  open_scene(&scene, 4096);
  for (int i = 0; i < THREADS; ++i) {
    workers[i].scene = &scene;
    workers[i].number = i;
    CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
  }
  for (int i = 0; i < THREADS; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_OK(hixl_barrier(scene.ctx));
  for (int i = 0; i < THREADS; ++i) CHECK(((uint64_t*)(void*)scene.mine)[i * 8] == (uint64_t)(i * 1000 + 499));
  /* What contradicts the first is a conflict. */
  hixl_ctx_t other = NULL;
  hixl_init_info_t info = {.rank_id = scene.rank, .rank_size = scene.size, .tx_depth = 7};
  CHECK_STATUS(hixl_init(&other, &info), HIXL_ERR_RANK_CONFLICT);
  CHECK(other == NULL);
  close_scene(&scene);
}
