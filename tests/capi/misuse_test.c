// SPDX-License-Identifier: Apache-2.0
//
// Every function of both C interfaces with every kind of wrong handle and pointer: before the first init, from several
// threads while a rank lives, after its end, and in a forked child. Each answers with an error.
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static int wanted_forked; /* handles of the parent answer FORKED in a child, others are wrong */
static uint8_t memory[4096];

/* 1: it refused. */
static int refused(hixl_status_t status) { return status != HIXL_OK && hixl_last_status() == status; }

/* Every function that takes a handle of this kind. Outputs must be left empty. */
static void try_context(hixl_ctx_t ctx) {
  void* data = memory;
  uint64_t word = 7;
  hixl_request_t req = NULL;
  hixl_comm_t comm = (hixl_comm_t)(uintptr_t)8;
  hixl_conn_t conn = (hixl_conn_t)(uintptr_t)8;
  size_t needed = 1;
  char text[8] = "before";
  uint32_t id = 0;
  const int ranks[1] = {0};
  const uint64_t at = address_of(memory);
  CHECK(refused(hixl_finalize(ctx)));
  CHECK(refused(hixl_finalize_timeout(ctx, 0)));
  CHECK(hixl_rank(ctx) == -1 && hixl_size(ctx) == -1);
  CHECK(refused(hixl_alloc(ctx, 4096, &data)) && data == NULL);
  CHECK(refused(hixl_register(ctx, memory, sizeof memory)));
  CHECK(refused(hixl_free(ctx, memory)));
  CHECK(refused(hixl_deregister(ctx, memory)));
  CHECK(refused(hixl_check_access(ctx, at, 8, 0)));
  CHECK(refused(hixl_check_local(ctx, at, 8)));
  CHECK(refused(hixl_report(ctx, HIXL_REPORT_LINKS, 0, NULL, 0, &needed)) && needed == 0);
  CHECK(refused(hixl_report(ctx, HIXL_REPORT_LINKS, 0, text, sizeof text, NULL)) && text[0] == '\0');
  CHECK(refused(hixl_dump_regions(ctx)));
  CHECK(refused(hixl_put_sync(ctx, at, at, 8, 0)));
  CHECK(refused(hixl_get_sync(ctx, at, at, 8, 0)));
  CHECK(refused(hixl_put_async(ctx, at, at, 8, 0, &req)));
  const hixl_status_t first = hixl_last_status();
  CHECK_STATUS(hixl_wait(&req), first); /* the wait that follows tells the same, and again */
  CHECK_STATUS(hixl_wait_timeout(&req, 0), first);
  CHECK_STATUS(hixl_query(req), first);
  CHECK(refused(hixl_get_async(ctx, at, at, 8, 0, &req)));
  CHECK(refused(hixl_put_callback(ctx, at, at, 8, 0, NULL, NULL, NULL)));
  CHECK(refused(hixl_get_callback(ctx, at, at, 8, 0, NULL, NULL, NULL)));
  CHECK(refused(hixl_put_signal(ctx, at, at, 8, 0, at, 1, &req)));
  CHECK(refused(hixl_wait_signal(ctx, at, 1, 0, &word)) && word == 0);
  CHECK(refused(hixl_atomic_add(ctx, at, 1, 0)));
  CHECK(refused(hixl_atomic_fetch_add(ctx, at, 1, 0, NULL)));
  CHECK(refused(hixl_atomic_compare_swap(ctx, at, 1, 2, 0, NULL)));
  CHECK(refused(hixl_atomic_swap(ctx, at, 1, 0, NULL)));
  CHECK(refused(hixl_fence(ctx, 0)));
  CHECK(refused(hixl_flush(ctx, 0, 0)));
  CHECK(refused(hixl_quiet(ctx, 0)));
  CHECK(refused(hixl_barrier(ctx)));
  CHECK(refused(hixl_barrier_timeout(ctx, 0)));
  CHECK(refused(hixl_comm_create(ctx, &comm, 1, ranks)) && comm == NULL);
  CHECK(refused(hixl_comm_create_over(ctx, &comm, 1, ranks, HIXL_TRANS_TCP)));
  CHECK(refused(hixl_comm_world(ctx, &comm)));
  CHECK(refused(hixl_connect(ctx, 0, 0, &conn)) && conn == NULL);
  CHECK(refused(hixl_connect_sized(ctx, 0, 4096, 0, &conn)));
  CHECK(refused(HIXL_Finalize(ctx)));
  CHECK(HIXL_CreateContext(ctx, 0) == NULL && HIXL_CreateMultiContext(ctx, 1, ranks) == NULL);
  CHECK(refused(HIXL_RegisterBuffer(ctx, memory, sizeof memory, &id)) && id == UINT32_MAX);
  CHECK(refused(HIXL_DeregisterBuffer(ctx, 0)));
}

static void try_comm(hixl_comm_t comm) {
  const uint64_t at = address_of(memory);
  int count = 7;
  CHECK(refused(hixl_comm_destroy(comm)));
  CHECK(hixl_comm_rank(comm) == -1 && hixl_comm_size(comm) == -1);
  CHECK(refused(hixl_address_exchange(comm, &at, 1, 0)));
  CHECK(refused(hixl_address_exchange_timeout(comm, &at, 1, 0, 0)));
  CHECK(refused(hixl_peer_addresses(comm, 0, NULL, 0, &count)) && count == 0);
  CHECK(refused(hixl_comm_barrier(comm, 0)));
}

static void try_connection(hixl_conn_t conn) {
  const void* data = memory;
  size_t size = 7;
  CHECK(refused(hixl_disconnect(conn)));
  CHECK(refused(hixl_send(conn, memory, 8)));
  CHECK(refused(hixl_send_timeout(conn, memory, 8, 0)));
  CHECK(refused(hixl_recv(conn, &data, &size, 0)) && data == NULL && size == 0);
  CHECK(refused(hixl_recv_release(conn, memory)));
}

static void try_engine_context(HIXL_Context_t context, HIXL_BatchDescriptor_t batch) {
  HIXL_Request_t req = NULL;
  HIXL_Descriptor_t descriptor;
  HIXL_BatchDescriptor_t copy = batch;
  memset(&descriptor, 0, sizeof descriptor);
  CHECK(refused(HIXL_DestroyContext(context)));
  CHECK(HIXL_GetRemoteAddr(context, 0, 0).generation == 0);
  CHECK(refused(HIXL_Put(context, &descriptor, &req)) && refused(HIXL_Wait(&req)));
  CHECK(refused(HIXL_SyncPut(context, &descriptor)));
  descriptor.type = HIXL_OP_GET;
  CHECK(refused(HIXL_Get(context, &descriptor, &req)) && refused(HIXL_Query(req)));
  CHECK(refused(HIXL_SyncGet(context, &descriptor)));
  CHECK(refused(HIXL_BatchTransfer(context, &copy, &req)) && refused(HIXL_Wait(&req)));
  CHECK(refused(HIXL_BatchAddEntry(&copy, memory, 0, 8, HIXL_OP_PUT)));
  CHECK(refused(HIXL_BatchDestroy(&copy)));
}

static void try_request(hixl_request_t req) {
  hixl_request_t copy = req;
  size_t index = 0;
  CHECK(refused(hixl_query(req)));
  CHECK(refused(hixl_wait(&copy)));
  CHECK(refused(hixl_wait_timeout(&copy, 0)));
  CHECK(refused(hixl_wait_all(1, &copy, NULL, 0)));
  CHECK(refused(hixl_wait_any(1, &copy, &index, 0)));
  CHECK(refused(hixl_cancel(req)));
  CHECK(refused(hixl_request_drop(&copy)));
}

static void try_nulls(void) {
  hixl_request_t req = NULL;
  size_t index = 0;
  size_t size = 0;
  CHECK_STATUS(hixl_init(NULL, NULL), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_alloc(NULL, 8, NULL), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_wait(NULL), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_wait_timeout(NULL, 0), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_wait_timeout(&req, -2), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_wait_all(1, NULL, NULL, 0), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_OK(hixl_wait_all(0, NULL, NULL, 0));
  CHECK_STATUS(hixl_wait_any(0, &req, &index, 0), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_wait_any(1, &req, NULL, 0), HIXL_ERR_INVALID_ARGUMENT);
  index = 7;
  CHECK_STATUS(hixl_wait_any(1, NULL, &index, 0), HIXL_ERR_INVALID_ARGUMENT);
  CHECK(index == 1);
  CHECK_STATUS(hixl_request_drop(NULL), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_put_async(NULL, 0, 0, 0, 0, NULL), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_comm_create(NULL, NULL, 0, NULL), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_comm_world(NULL, NULL), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_connect(NULL, 0, 0, NULL), HIXL_ERR_INVALID_ARGUMENT);
  HIXL_BatchDescriptor_t batch = (HIXL_BatchDescriptor_t)(uintptr_t)8;
  CHECK(refused(HIXL_BatchInitBuffer(&batch, UINT32_MAX)) && batch == NULL);
  size = 7;
  CHECK(refused(hixl_recv(NULL, NULL, &size, 0)) && size == 0);
  CHECK_STATUS(HIXL_BatchInit(NULL), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(HIXL_BatchDestroy(NULL), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(HIXL_BatchAddEntry(NULL, NULL, 0, 0, HIXL_OP_PUT), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(HIXL_BatchTransfer(NULL, NULL, NULL), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(HIXL_RegisterBuffer(NULL, NULL, 0, NULL), HIXL_ERR_INVALID_ARGUMENT);
}

/* Handles of everything, some of which live. */
struct handles {
  hixl_ctx_t ctx;
  hixl_comm_t comm;
  hixl_conn_t conn;
  HIXL_Context_t context;
  HIXL_BatchDescriptor_t batch;
  hixl_request_t request;
};

/* `real` handles are tried as what they are not; as what they are only when they are known to be over. */
static void try_all(const struct handles* real, int over) {
  uintptr_t bits[16] = {0, 1, 0xfff, (uintptr_t)-1, (uintptr_t)memory, (uintptr_t)&bits, (uintptr_t)1 << 63};
  size_t count = 7;
  const uintptr_t made[] = {(uintptr_t)real->ctx,     (uintptr_t)real->comm,  (uintptr_t)real->conn,
                            (uintptr_t)real->context, (uintptr_t)real->batch, (uintptr_t)real->request};
  for (size_t i = 0; i < sizeof made / sizeof *made; ++i)
    bits[count++] = made[i] + ((uintptr_t)1 << 32);            /* next life */
  bits[count++] = (uintptr_t)real->ctx ^ ((uintptr_t)3 << 22); /* another kind */
  for (size_t i = 0; i < count; ++i) {
    try_context((hixl_ctx_t)bits[i]);
    try_comm((hixl_comm_t)bits[i]);
    try_connection((hixl_conn_t)bits[i]);
    try_engine_context((HIXL_Context_t)bits[i], (HIXL_BatchDescriptor_t)bits[i]);
    try_request((hixl_request_t)bits[i]);
  }
  for (size_t i = 0; i < sizeof made / sizeof *made; ++i) {
    if (i != 0 || over) try_context((hixl_ctx_t)made[i]);
    if (i != 1 || over) try_comm((hixl_comm_t)made[i]);
    if (i != 2 || over) try_connection((hixl_conn_t)made[i]);
    if (i != 5) try_request((hixl_request_t)made[i]);
  }
  if (over) try_engine_context(real->context, wanted_forked ? real->batch : NULL);
  if (wanted_forked) {
    CHECK_STATUS(hixl_barrier(real->ctx), HIXL_ERR_FORKED);
    CHECK_STATUS(hixl_comm_barrier(real->comm, 0), HIXL_ERR_FORKED);
    CHECK_STATUS(hixl_send(real->conn, "x", 1), HIXL_ERR_FORKED);
    hixl_request_t copy = real->request;
    CHECK_STATUS(hixl_wait(&copy), HIXL_ERR_FORKED);
    CHECK_STATUS(hixl_finalize(real->ctx), HIXL_ERR_FORKED);
  }
}

static void* worker(void* argument) {
  for (int i = 0; i < 20; ++i) {
    try_all(argument, 0);
    try_nulls();
  }
  return NULL;
}

static void open_all(struct handles* made) {
  void* data = NULL;
  uint32_t id = 0;
  hixl_init_info_t info = {.rank_id = 0, .rank_size = 1};
  memset(made, 0, sizeof *made);
  CHECK_OK(hixl_init(&made->ctx, &info));
  CHECK_OK(hixl_alloc(made->ctx, 4096, &data));
  CHECK_OK(hixl_comm_world(made->ctx, &made->comm));
  CHECK_OK(hixl_connect(made->ctx, 0, PATIENCE_MS, &made->conn));
  CHECK_OK(HIXL_RegisterBuffer(made->ctx, data, 4096, &id));
  made->context = HIXL_CreateContext(made->ctx, 0);
  CHECK(made->context != NULL);
  CHECK_OK(HIXL_BatchInit(&made->batch));
  CHECK_OK(hixl_put_async(made->ctx, address_of(data), address_of(data) + 64, 8, 0, &made->request));
  CHECK_OK(hixl_wait(&made->request));
}

static void try_init(void) {
  hixl_ctx_t ctx = (hixl_ctx_t)(uintptr_t)8;
  char many[4096];
  memset(many, 0, sizeof many);
  const hixl_init_info_t wrong[] = {
      {.rank_id = 1, .rank_size = 1},
      {.rank_id = -1, .rank_size = 1},
      {.rank_size = -4},
      {.rank_id = 3, .rank_size = 0},
      {.rank_size = 1 << 20},
      {.rank_size = 1, .transport_type = 99},
      {.rank_size = 1, .transport_type = -1},
      {.rank_size = 1, .tx_depth = 100000},
      {.rank_size = 1, .rx_depth = 100000},
      {.rank_size = 1, .max_inline_data = 257},
      {.rank_size = 1, .requests_max = 1},
      {.rank_size = 1, .timeout_ms = 0xffffffffu},
      {.rank_size = 2},
      {.rank_size = 2, .store = "nonsense"},
      {.rank_size = 2, .store = "tcp://127.0.0.1:1"},
      {.rank_size = 1, .bind = "999.1.1.1"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    ctx = (hixl_ctx_t)(uintptr_t)8;
    CHECK(refused(hixl_init(&ctx, &wrong[i])) && ctx == NULL);
    CHECK(strlen(hixl_last_error()) > 10);
    if (i >= 3) continue;
    const hixl_status_t first = hixl_last_status();
    CHECK(HIXL_Init(&wrong[i]) == NULL && hixl_last_status() == first); /* the engine's says the same */
    CHECK(strlen(hixl_last_error()) > 10);
  }
  const hixl_init_info_t ub = {.rank_size = 1, .transport_type = HIXL_TRANS_UB};
  CHECK_STATUS(hixl_init(&ctx, &ub), HIXL_ERR_TRANSPORT_UNAVAILABLE);
  /* Members of a newer header: accepted while they say nothing. */
  CHECK_OK(hixl_init_sized(&ctx, (const hixl_init_info_t*)(const void*)many, sizeof many));
  CHECK_OK(hixl_finalize(ctx));
  many[4000] = 1;
  CHECK_STATUS(hixl_init_sized(&ctx, (const hixl_init_info_t*)(const void*)many, sizeof many), HIXL_ERR_UNSUPPORTED);
  CHECK_OK(hixl_init_sized(&ctx, (const hixl_init_info_t*)(const void*)many, 0)); /* nothing is said */
  CHECK_OK(hixl_finalize(ctx));
  const hixl_init_info_t no_inline = {.rank_size = 1, .max_inline_data = HIXL_INLINE_NONE};
  static const uint64_t unregistered = 1;
  void* data = NULL;
  CHECK_OK(hixl_init(&ctx, &no_inline));
  CHECK_OK(hixl_alloc(ctx, 4096, &data));
  CHECK_STATUS(hixl_put_sync(ctx, address_of(&unregistered), address_of(data), 8, 0), HIXL_ERR_NOT_REGISTERED);
  CHECK_OK(hixl_finalize(ctx));
}

static void try_reports(hixl_ctx_t ctx) {
  char text[64];
  size_t needed = 0;
  for (hixl_report_t what = HIXL_REPORT_REGIONS; what <= HIXL_REPORT_COUNTERS; ++what) {
    for (int json = 0; json < 2; ++json) {
      memset(text, 'x', sizeof text);
      CHECK_OK(hixl_report(ctx, what, json, text, sizeof text, &needed));
      CHECK(strlen(text) < sizeof text && (needed > sizeof text || strlen(text) + 1 == needed));
    }
  }
  CHECK_STATUS(hixl_report(ctx, 4, 0, NULL, 0, &needed), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_report(ctx, HIXL_REPORT_LINKS, 0, NULL, 8, &needed), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_OK(hixl_dump_regions(ctx));
  CHECK_STATUS(hixl_free(ctx, memory), HIXL_ERR_NOT_REGISTERED);
  CHECK_STATUS(hixl_free(ctx, NULL), HIXL_ERR_NOT_REGISTERED);
  CHECK_STATUS(hixl_register(ctx, NULL, 8), HIXL_ERR_MEMORY_UNMAPPED);
  CHECK_STATUS(hixl_register(ctx, memory, 0), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_register(ctx, memory, (size_t)-1), HIXL_ERR_OUT_OF_RANGE);
  void* data = memory;
  CHECK(refused(hixl_alloc(ctx, 0, &data)) && data == NULL);
  CHECK(refused(hixl_alloc(ctx, (size_t)-1, &data)) && data == NULL);
  CHECK_OK(hixl_register(ctx, memory, sizeof memory));
  CHECK_OK(hixl_register(ctx, memory, sizeof memory));
  CHECK_OK(hixl_deregister(ctx, memory));
  CHECK_OK(hixl_check_local(ctx, address_of(memory), 4096));
  CHECK_OK(hixl_deregister(ctx, memory));
  CHECK_STATUS(hixl_check_local(ctx, address_of(memory), 4096), HIXL_ERR_NOT_REGISTERED);
}

int main(void) {
  const struct handles none = {0};
  struct handles made;
  pthread_t threads[4];
  int status = 0;
  try_all(&none, 0);
  try_nulls();
  try_init();
  open_all(&made);
  for (size_t i = 0; i < 4; ++i) CHECK(pthread_create(&threads[i], NULL, worker, &made) == 0);
  for (size_t i = 0; i < 4; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  try_reports(made.ctx);

  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    wanted_forked = 1;
    try_all(&made, 1);
    wanted_forked = 0;
    try_nulls();
#ifndef __SANITIZE_THREAD__ /* which ends a child that begins threads */
    struct handles again;
    open_all(&again); /* a child may begin its own */
    CHECK_OK(hixl_barrier(again.ctx));
    CHECK_OK(hixl_finalize(again.ctx));
    try_all(&again, 1);
#endif
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);

  CHECK_OK(hixl_barrier(made.ctx)); /* the parent notices nothing */
  CHECK_OK(hixl_query(made.request));
  CHECK_OK(HIXL_BatchDestroy(&made.batch));
  CHECK_OK(hixl_finalize(made.ctx));
  CHECK_OK(hixl_query(made.request)); /* answers outlive the rank */
  try_all(&made, 1);
  return 0;
}
