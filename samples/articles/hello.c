// SPDX-License-Identifier: Apache-2.0
//
// The smallest C program: init, put, finalize, with memory and its address. Ranks form pairs.
//   hixl_run -n 2 hello_c
#include <stdio.h>

#include <hixl/hixl.h>

static int failed(const char* step) { return fprintf(stderr, "%s: %s\n", step, hixl_last_error()), 1; }

int main(void) {
  hixl_ctx_t ctx;
  hixl_comm_t world;
  hixl_peer_address_t theirs;
  void* memory;
  if (hixl_init(&ctx, NULL) != HIXL_OK) return failed("init"); /* who we are, as hixl_run says */
  const int peer = hixl_rank(ctx) ^ 1;

  if (hixl_alloc(ctx, 4096, &memory) != HIXL_OK) return failed("alloc"); /* others may put here */
  const uint64_t inbox = (uint64_t)(uintptr_t)memory;
  if (hixl_comm_world(ctx, &world) != HIXL_OK) return failed("comm");
  if (hixl_address_exchange(world, &inbox, 1, peer) != HIXL_OK) return failed("exchange");
  if (hixl_peer_addresses(world, peer, &theirs, 1, NULL) != HIXL_OK) return failed("addresses");

  char text[64];
  const int size = snprintf(text, sizeof text, "hello from rank %d", hixl_rank(ctx)) + 1;
  if (hixl_put_sync(ctx, (uint64_t)(uintptr_t)text, theirs.address, (size_t)size, peer) != HIXL_OK)
    return failed("put");

  /* The peer's second exchange comes after its put, so that its text is here when this returns. */
  if (hixl_address_exchange(world, &inbox, 1, peer) != HIXL_OK) return failed("exchange");
  printf("rank %d got: %s\n", hixl_rank(ctx), (const char*)memory);
  if (hixl_finalize(ctx) != HIXL_OK) return failed("finalize");
  return 0;
}
