// SPDX-License-Identifier: Apache-2.0
//
// The first article, chapter 5: a context of its own for each thread, made with the first need; and the sweep over
// requests that nobody has looked at, with retries.
//   hixl_run -n 2 a_threads_c
#include <pthread.h>

#include "article.h"

enum { THREADS = 4, POSTS = 100 };

static uint64_t remote_base;
static uint64_t local_base;
static int target_rank;

static int get_thread_rank(void) { return local_rank(); } /* views of one rank; every thread may have one */

static void* worker(void* argument) {
  static __thread hixl_ctx_t thread_ctx; /* every thread its own */
  const size_t place = (size_t)(uintptr_t)argument * KV_BYTES / THREADS;
  const uint64_t local_addr = local_base + place;
  const uint64_t remote_addr = remote_base + place;
  const size_t size = KV_BYTES / THREADS;
  if (!thread_ctx) {
    hixl_init_info_t info = {
        .rank_id = get_thread_rank(),
        .rank_size = total_ranks(),
        .transport_type = HIXL_TRANS_AUTO,
    };
    if (hixl_init(&thread_ctx, &info) != HIXL_OK) exit(step_failed("init of a thread"));
  }
  hixl_put_request_t open[POSTS];
  for (int i = 0; i < POSTS; ++i) {
    hixl_put_request_t req;
    hixl_put_async(thread_ctx, local_addr, remote_addr, size, target_rank, &req);
    open[i] = req;
  }
  /* The sweep: an error of an asynchronous put is seen here, and tried again, three times at most. */
  for (int i = 0; i < POSTS; ++i) {
    hixl_status_t status;
    int retries = 0;
    while ((status = hixl_query(open[i])) != HIXL_OK) {
      if (status == HIXL_ERR_BUSY) {
        hixl_wait_timeout(&open[i], 1000);
        continue;
      }
      if (retries++ == 3) exit(step_failed("put of a thread"));
      hixl_put_async(thread_ctx, local_addr, remote_addr, size, target_rank, &open[i]);
    }
  }
  if (hixl_finalize(thread_ctx) != HIXL_OK) exit(step_failed("finalize of a thread"));
  return NULL;
}

int main(void) {
  hixl_ctx_t ctx;
  hixl_comm_t world;
  hixl_peer_address_t told;
  void* memory = NULL;
  pthread_t threads[THREADS];
  if (hixl_init(&ctx, NULL) != HIXL_OK) return step_failed("init");
  target_rank = hixl_rank(ctx) ^ 1;
  if (hixl_alloc(ctx, 2 * KV_BYTES, &memory) != HIXL_OK) return step_failed("alloc");
  if (hixl_comm_world(ctx, &world) != HIXL_OK) return step_failed("comm");
  local_base = (uint64_t)(uintptr_t)memory;
  const uint64_t inbox = local_base + KV_BYTES;
  if (hixl_address_exchange(world, &inbox, 1, target_rank) != HIXL_OK) return step_failed("exchange");
  if (hixl_peer_addresses(world, target_rank, &told, 1, NULL) != HIXL_OK) return step_failed("addresses");
  remote_base = told.address;
  fill_kv(memory, KV_BYTES, hixl_rank(ctx));
  for (int i = 0; i < THREADS; ++i) {
    if (pthread_create(&threads[i], NULL, worker, (void*)(uintptr_t)i) != 0) return 1;
  }
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  if (hixl_barrier(ctx) != HIXL_OK) return step_failed("barrier");
  const int right = kv_is((const uint8_t*)memory + KV_BYTES, KV_BYTES, target_rank);
  printf("rank %d has what %d threads sent: %s\n", hixl_rank(ctx), THREADS, right ? "right" : "WRONG");
  if (hixl_barrier(ctx) != HIXL_OK || hixl_finalize(ctx) != HIXL_OK) return step_failed("finalize");
  return right ? 0 : 1;
}
