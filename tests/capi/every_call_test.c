// SPDX-License-Identifier: Apache-2.0
//
// Every function of the C headers with null, made-up, closed and foreign handles, with a living one and wrong numbers,
// negative and huge: before the first init, from several threads while a rank lives, in a forked child, after the end.
// The calls are written by every_call.py. Nothing crashes, every answer is a status that there is, and what has a wrong
// handle is refused.
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 4 };
enum { NULL_ONE, MADE_UP, ALL_BITS, CLOSED, FOREIGN, ALIVE, KINDS };

static hixl_ctx_t ctxs[KINDS];
static hixl_comm_t comms[KINDS];
static hixl_conn_t conns[KINDS];
static HIXL_Context_t contexts[KINDS];
static HIXL_BatchDescriptor_t batchs[KINDS];
static hixl_request_t requests[KINDS];
static uint64_t memory[512];
static uint64_t at_memory;
static uint64_t at_stack;
static const hixl_init_info_t wrong_info = {.rank_id = -1, .rank_size = 1};
static const hixl_init_info_t newer_info = {.rank_id = 0, .rank_size = 1, .transport_type = 99};
static HIXL_Descriptor_t descriptors[3];
static hixl_ctx_t begun;

static void nothing(hixl_status_t status, void* user_data) {
  (void)status;
  (void)user_data;
}

static void answered(hixl_status_t status, int refused, const char* name) {
  const int known = strcmp(hixl_status_name(status), "UNKNOWN") != 0;
  if (known && (status != HIXL_OK || !refused)) return;
  fprintf(stderr, "%s answered %d (%s)\n", name, (int)status, hixl_status_name(status));
  exit(1);
}

static void made(const void* handle, int refused, const char* name) {
  answered(handle == NULL ? hixl_last_status() : HIXL_OK, refused, name);
  if (strcmp(name, "HIXL_InitSized") == 0) begun = (hixl_ctx_t)(uintptr_t)handle;
}

static void end_begun(void) {
  if (begun != NULL) CHECK_OK(hixl_finalize(begun));
  begun = NULL;
}

#include "every_call.h"

static void* caller(void* unused) {
  (void)unused;
  call_all(0, 0);
  return NULL;
}

/* One of everything that lives, and one that did. */
static void open_all(void) {
  const hixl_init_info_t info = {.rank_id = 0, .rank_size = 1};
  const int self = 0;
  uint32_t id = 0;
  CHECK_OK(hixl_init(&ctxs[ALIVE], &info));
  CHECK_OK(hixl_init(&ctxs[CLOSED], &info));
  CHECK_OK(hixl_finalize(ctxs[CLOSED]));
  CHECK_OK(hixl_register(ctxs[ALIVE], memory, sizeof memory));
  CHECK_OK(HIXL_RegisterBuffer(ctxs[ALIVE], memory, sizeof memory, &id));
  CHECK_OK(hixl_comm_world(ctxs[ALIVE], &comms[ALIVE]));
  CHECK_OK(hixl_comm_create(ctxs[ALIVE], &comms[CLOSED], 1, &self));
  CHECK_OK(hixl_comm_destroy(comms[CLOSED]));
  CHECK_OK(hixl_connect(ctxs[ALIVE], 0, PATIENCE_MS, &conns[CLOSED]));
  CHECK_OK(hixl_disconnect(conns[CLOSED]));
  CHECK_OK(hixl_connect(ctxs[ALIVE], 0, PATIENCE_MS, &conns[ALIVE]));
  CHECK((contexts[ALIVE] = HIXL_CreateContext(ctxs[ALIVE], 0)) != NULL);
  CHECK((contexts[CLOSED] = HIXL_CreateContext(ctxs[ALIVE], 0)) != NULL);
  CHECK_OK(HIXL_DestroyContext(contexts[CLOSED]));
  HIXL_BatchDescriptor_t batch = NULL;
  CHECK_OK(HIXL_BatchInit(&batchs[ALIVE]));
  CHECK_OK(HIXL_BatchInit(&batch));
  batchs[CLOSED] = batch;
  CHECK_OK(HIXL_BatchDestroy(&batch));
  for (int kind = CLOSED; kind <= ALIVE; kind += ALIVE - CLOSED) {
    CHECK_OK(hixl_put_async(ctxs[ALIVE], at_memory, at_memory + 64, 8, 0, &requests[kind]));
    CHECK_OK(hixl_wait(&requests[kind]));
  }
  hixl_request_t dropped = requests[CLOSED];
  CHECK_OK(hixl_request_drop(&dropped));
  ctxs[FOREIGN] = (hixl_ctx_t)(void*)comms[ALIVE];
  comms[FOREIGN] = (hixl_comm_t)(void*)conns[ALIVE];
  conns[FOREIGN] = (hixl_conn_t)(void*)contexts[ALIVE];
  contexts[FOREIGN] = (HIXL_Context_t)(void*)batchs[ALIVE];
  batchs[FOREIGN] = (HIXL_BatchDescriptor_t)(void*)requests[ALIVE];
  requests[FOREIGN] = (hixl_request_t)(void*)ctxs[ALIVE];
}

int main(void) {
  pthread_t threads[THREADS];
  int status = 0;
  uint64_t unregistered[8] = {0};
#ifdef __SANITIZE_THREAD__
  puts("puts from all threads to one place race, as they may: nothing for this sanitizer");
  return 77;
#endif
  at_memory = address_of(memory);
  at_stack = address_of(unregistered);
  ctxs[MADE_UP] = (hixl_ctx_t)(void*)memory;
  comms[MADE_UP] = (hixl_comm_t)(void*)memory;
  conns[MADE_UP] = (hixl_conn_t)(void*)memory;
  contexts[MADE_UP] = (HIXL_Context_t)(void*)memory;
  batchs[MADE_UP] = (HIXL_BatchDescriptor_t)(void*)memory;
  requests[MADE_UP] = (hixl_request_t)(void*)memory;
  ctxs[ALL_BITS] = (hixl_ctx_t)UINTPTR_MAX;
  comms[ALL_BITS] = (hixl_comm_t)UINTPTR_MAX;
  conns[ALL_BITS] = (hixl_conn_t)UINTPTR_MAX;
  contexts[ALL_BITS] = (HIXL_Context_t)UINTPTR_MAX;
  batchs[ALL_BITS] = (HIXL_BatchDescriptor_t)UINTPTR_MAX;
  requests[ALL_BITS] = (hixl_request_t)UINTPTR_MAX;
  memset(descriptors, 0, sizeof descriptors);
  for (size_t i = 0; i < 3; ++i) {
    descriptors[i].local_addr = memory;
    descriptors[i].remote_addr = HIXL_RawAddr(at_memory);
    descriptors[i].size = 8;
  }
  descriptors[1].type = 99;
  descriptors[2].type = HIXL_OP_GET;
  descriptors[2].size = SIZE_MAX;
  call_all(1, 1);
  open_all();
  for (size_t i = 0; i < THREADS; ++i) CHECK(pthread_create(&threads[i], NULL, caller, NULL) == 0);
  for (size_t i = 0; i < THREADS; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  call_all(0, 1);

  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    call_all(1, 0);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);

  /* All the same, it works. */
  CHECK_OK(hixl_barrier(ctxs[ALIVE]));
  memory[0] = 42;
  CHECK_OK(hixl_put_sync(ctxs[ALIVE], at_memory, at_memory + 64, 8, 0));
  CHECK(memory[8] == 42);
  CHECK_OK(hixl_finalize(ctxs[ALIVE]));
  call_all(1, 1);
  return 0;
}
