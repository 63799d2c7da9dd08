// SPDX-License-Identifier: Apache-2.0
//
// What the programs of this folder share: what an engine would bring along. Compiles as C99 and as C++.
#ifndef HIXL_SAMPLES_ARTICLE_H
#define HIXL_SAMPLES_ARTICLE_H

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hixl/hixl.h>

#define KV_BYTES (64 * 1024)
#define MAX_DECODE 16

static int step_failed(const char* step) {
  fprintf(stderr, "%s: %s\n", step, hixl_last_error());
  return 1;
}

/* The launcher (hixl_run) says who we are. */
static int local_rank(void) { return atoi(getenv("HIXL_RANK") != NULL ? getenv("HIXL_RANK") : "0"); }
static int total_ranks(void) { return atoi(getenv("HIXL_WORLD_SIZE") != NULL ? getenv("HIXL_WORLD_SIZE") : "1"); }

/* A cache whose every byte says whose it is and where. */
static uint8_t kv_byte(int rank, size_t at) { return (uint8_t)(rank * 31 + (int)(at % 251) + 1); }
static void fill_kv(void* data, size_t size, int rank) {
  for (size_t at = 0; at < size; ++at) ((uint8_t*)data)[at] = kv_byte(rank, at);
}
static int kv_is(const void* data, size_t size, int rank) {
  for (size_t at = 0; at < size; ++at) {
    if (((const uint8_t*)data)[at] != kv_byte(rank, at)) return 0;
  }
  return 1;
}

#endif
