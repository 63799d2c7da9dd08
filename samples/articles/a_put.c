// SPDX-License-Identifier: Apache-2.0
//
// The first article, chapter 2: init, a synchronous put, an asynchronous one that a computation hides.
//   hixl_run -n 2 a_put_c
#include "article.h"

static double computed = 0;
static void compute_next_token(int token) {
  for (int i = 0; i < 100000; ++i) computed += token * 1e-9;
}

/* Once more, as the article's "retry or degrade". */
static void handle_transfer_failure(hixl_put_request_t* req, uint64_t local_addr, uint64_t remote_addr, size_t size,
                                    int target_rank) {
  (void)req;
  (void)local_addr;
  (void)remote_addr;
  fprintf(stderr, "Put of %lu bytes to rank %d failed: %s\n", (unsigned long)size, target_rank, hixl_last_error());
  exit(1);
}

int main(void) {
  hixl_init_info_t init_info = {
      .rank_id = local_rank(),
      .rank_size = total_ranks(),
      .transport_type = HIXL_TRANS_AUTO,
      .tx_depth = 32,
      .rx_depth = 32,
      .max_inline_data = 64,
  };
  hixl_ctx_t ctx;
  int failed = hixl_init(&ctx, &init_info);
  if (failed != 0) {
    fprintf(stderr, "HIXL init failed with error code: %d\n", failed);
    return -1;
  }

  const int rank = hixl_rank(ctx);
  const int target_rank = rank ^ 1; /* pairs */
  void* kv_cache_buffer = NULL;     /* one half is ours, the other the pair's */
  hixl_comm_t world;
  if (hixl_alloc(ctx, 2 * KV_BYTES, &kv_cache_buffer) != HIXL_OK) return step_failed("alloc");
  if (hixl_comm_world(ctx, &world) != HIXL_OK) return step_failed("comm");
  const uint64_t inbox = (uint64_t)(uintptr_t)kv_cache_buffer + KV_BYTES;
  if (hixl_address_exchange(world, &inbox, 1, target_rank) != HIXL_OK) return step_failed("exchange");
  hixl_peer_address_t told;
  if (hixl_peer_addresses(world, target_rank, &told, 1, NULL) != HIXL_OK) return step_failed("addresses");
  fill_kv(kv_cache_buffer, KV_BYTES, rank);

  const uint64_t local_addr = (uint64_t)(uintptr_t)kv_cache_buffer;
  const uint64_t remote_addr = told.address;
  const size_t size = KV_BYTES;
  hixl_status_t ret = hixl_put_sync(ctx, local_addr, remote_addr, size, target_rank);
  if (ret != HIXL_OK) {
    fprintf(stderr, "Put to rank %d failed: %s\n", target_rank, hixl_strerror(ret));
    return 1;
  }

  const int input_ids[] = {11, 12, 13, 14};
  for (int current_pos = 0; current_pos < 3; ++current_pos) {
    hixl_put_request_t req;
    ret = hixl_put_async(ctx, local_addr, remote_addr, size, target_rank, &req);
    compute_next_token(input_ids[current_pos + 1]);
    ret = hixl_wait(&req);
    if (ret != HIXL_OK) handle_transfer_failure(&req, local_addr, remote_addr, size, target_rank);
  }

  if (hixl_barrier(ctx) != HIXL_OK) return step_failed("barrier");
  const int right = kv_is((const uint8_t*)kv_cache_buffer + KV_BYTES, KV_BYTES, target_rank);
  printf("rank %d has the cache of rank %d: %s\n", rank, target_rank, right ? "right" : "WRONG");
  if (hixl_barrier(ctx) != HIXL_OK || hixl_finalize(ctx) != HIXL_OK) return step_failed("finalize");
  return right ? 0 : 1;
}
