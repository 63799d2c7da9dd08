// SPDX-License-Identifier: Apache-2.0
//
// The first article, chapters 3 and 5: 4 Prefill and 8 Decode ranks, two domains, exchange of addresses, a push to
// all Decodes by their load, and puts that are checked before.
//   hixl_run -n 12 a_domains_c
#include "article.h"

enum { PREFILLS = 4, DECODES = 8 };

static hixl_comm_t kv_transfer_comm;
static uint64_t decode_kv_addrs[PREFILLS + DECODES]; /* by rank: where my cache goes there */
static uint64_t decode_kv_base[PREFILLS + DECODES];
static uint64_t decode_kv_end[PREFILLS + DECODES];
static float loads[DECODES] = {0.5f, 0.1f, 0.9f, 0.3f, 0.7f, 0.2f, 0.8f, 0.4f};

static int get_decode_count(void) { return DECODES; }
static float* query_decode_load_factors(void) { return loads; }
/* Ranks of the Decodes, the least loaded first. */
static void argsort(const float* factors, int count, int* sorted_ranks) {
  for (int i = 0; i < count; ++i) {
    int place = i;
    for (; place > 0 && factors[sorted_ranks[place - 1] - PREFILLS] > factors[i]; --place) {
      sorted_ranks[place] = sorted_ranks[place - 1];
    }
    sorted_ranks[place] = PREFILLS + i;
  }
}

static int sync_kv_to_decodes(hixl_ctx_t ctx, hixl_comm_t kv_comm, float* kv_data, size_t kv_size) {
  int num_decodes = get_decode_count();
  float* load_factors = query_decode_load_factors();
  int sorted_ranks[MAX_DECODE];
  int failures = 0;
  (void)kv_comm; /* the addresses were exchanged in it */
  argsort(load_factors, num_decodes, sorted_ranks);
  hixl_put_request_t reqs[MAX_DECODE];
  for (int i = 0; i < num_decodes; i++) {
    int target_rank = sorted_ranks[i];
    hixl_status_t ret =
        hixl_put_async(ctx, (uint64_t)(uintptr_t)kv_data, decode_kv_addrs[target_rank], kv_size, target_rank, &reqs[i]);
    if (ret != HIXL_OK) fprintf(stderr, "Failed to post async put to rank %d\n", target_rank);
  }
  for (int i = 0; i < num_decodes; i++) failures += hixl_wait(&reqs[i]) != HIXL_OK;
  return failures;
}

/* Both sides exchange in the same order of pairs: Decode d's place p is for Prefill p. */
static int exchange_with_decodes(uint8_t* scratch) {
  int decode_ranks[DECODES];
  for (int i = 0; i < DECODES; i++) decode_ranks[i] = PREFILLS + i;
  for (int i = 0; i < DECODES; i++) {
    uint64_t prefill_addr = (uint64_t)(uintptr_t)scratch; /* the article's own part of the exchange */
    hixl_peer_address_t told;
    hixl_status_t ret = hixl_address_exchange(kv_transfer_comm, &prefill_addr, 1, decode_ranks[i]);
    if (ret != HIXL_OK) {
      fprintf(stderr, "Address exchange with decode rank %d failed\n", decode_ranks[i]);
      return step_failed("exchange");
    }
    if (hixl_peer_addresses(kv_transfer_comm, decode_ranks[i], &told, 1, NULL) != HIXL_OK) return step_failed("told");
    decode_kv_addrs[decode_ranks[i]] = decode_kv_base[decode_ranks[i]] = told.address;
    decode_kv_end[decode_ranks[i]] = told.address + told.length;
  }
  return 0;
}

static int run_prefill(hixl_ctx_t ctx, int rank, uint8_t* memory) {
  hixl_comm_t intra_prefill_comm;
  int prefill_ranks[4] = {0, 1, 2, 3};
  if (hixl_comm_create(ctx, &intra_prefill_comm, 4, prefill_ranks) != HIXL_OK) return step_failed("prefill comm");
  if (hixl_comm_barrier(intra_prefill_comm, HIXL_TIMEOUT_DEFAULT) != HIXL_OK) return step_failed("prefill barrier");
  if (exchange_with_decodes(memory) != 0) return 1;
  fill_kv(memory, KV_BYTES, rank);
  if (sync_kv_to_decodes(ctx, kv_transfer_comm, (float*)(void*)memory, KV_BYTES) != 0) return step_failed("push");
  /* Chapter 5: the asserts that the article advises. The library makes them itself, before a byte moves. */
  const int target_rank = PREFILLS + rank;
  const uint64_t local_addr = (uint64_t)(uintptr_t)memory;
  const uint64_t remote_addr = decode_kv_addrs[target_rank];
  const size_t size = KV_BYTES;
  assert(remote_addr >= decode_kv_base[target_rank] && remote_addr + size <= decode_kv_end[target_rank]);
  assert((remote_addr % HIXL_ALIGNMENT) == 0);
  hixl_status_t ret = hixl_put_sync(ctx, local_addr, remote_addr, size, target_rank);
  if (ret != HIXL_OK) fprintf(stderr, "Put failed despite address validation\n");
  return ret != HIXL_OK;
}

static int run_decode(int rank, uint8_t* memory) {
  for (int prefill = 0; prefill < PREFILLS; ++prefill) {
    const uint64_t place = (uint64_t)(uintptr_t)(memory + prefill * KV_BYTES);
    if (hixl_address_exchange(kv_transfer_comm, &place, 1, prefill) != HIXL_OK) return step_failed("exchange");
  }
  if (hixl_comm_barrier(kv_transfer_comm, HIXL_TIMEOUT_DEFAULT) != HIXL_OK) return step_failed("barrier");
  for (int prefill = 0; prefill < PREFILLS; ++prefill) {
    if (!kv_is(memory + prefill * KV_BYTES, KV_BYTES, prefill)) return fprintf(stderr, "a cache is wrong\n"), 1;
  }
  printf("decode %d has the caches of %d prefills\n", rank - PREFILLS, PREFILLS);
  return 0;
}

int main(void) {
  hixl_ctx_t ctx;
  void* memory = NULL;
  int all_kv_ranks[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  if (hixl_init(&ctx, NULL) != HIXL_OK) return step_failed("init");
  const int rank = hixl_rank(ctx);
  if (hixl_alloc(ctx, PREFILLS * KV_BYTES, &memory) != HIXL_OK) return step_failed("alloc");
  if (hixl_comm_create(ctx, &kv_transfer_comm, 12, all_kv_ranks) != HIXL_OK) return step_failed("comm");
  int failed = 0;
  if (rank < PREFILLS) {
    failed = run_prefill(ctx, rank, (uint8_t*)memory);
    if (hixl_comm_barrier(kv_transfer_comm, HIXL_TIMEOUT_DEFAULT) != HIXL_OK) return step_failed("barrier");
  } else {
    failed = run_decode(rank, (uint8_t*)memory);
  }
  if (hixl_barrier(ctx) != HIXL_OK || hixl_finalize(ctx) != HIXL_OK) return step_failed("finalize");
  return failed;
}
