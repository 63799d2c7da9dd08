// SPDX-License-Identifier: Apache-2.0
//
// Scenes of bytes: transfers of all sizes, atomics, signals, callbacks.
#include <string.h>

#include "ranks.h"

enum { BYTES = 1 << 20, HALF = BYTES / 2, SHORT = 4096 };

static uint8_t pattern(int rank, size_t at) { return (uint8_t)(rank * 37 + (int)(at * 11) + 5); }

/* Each rank puts into the first half of the next one's region from its own second half, and gets it back. */
void play_transfers(void) {
  static const size_t sizes[] = {0, 1, 7, 64, 65, 4096, 4097, 100001, HALF};
  struct scene scene;
  open_scene(&scene, BYTES);
  const int next = (scene.rank + 1) % scene.size;
  const int before = (scene.rank + scene.size - 1) % scene.size;
  const uint64_t source = address_of(scene.mine + HALF);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    const size_t size = sizes[i];
    hixl_put_request_t put;
    hixl_get_request_t get;
    memset(scene.mine, 0, HALF);
    for (size_t at = 0; at < size; ++at) scene.mine[HALF + at] = pattern(scene.rank, at);
    CHECK_OK(hixl_barrier(scene.ctx));
    if (i % 2 == 0) {
      CHECK_OK(hixl_put_sync(scene.ctx, source, scene.theirs[next], size, next));
    } else {
      CHECK_OK(hixl_put_async(scene.ctx, source, scene.theirs[next], size, next, &put));
      CHECK_OK(hixl_wait(&put));
      CHECK_OK(hixl_query(put));
      CHECK_OK(hixl_wait(&put)); /* and again */
    }
    CHECK_OK(hixl_barrier(scene.ctx));
    for (size_t at = 0; at < size; ++at) CHECK(scene.mine[at] == pattern(before, at));
    for (size_t at = size; at < HALF; ++at) CHECK(scene.mine[at] == 0);
    memset(scene.mine + HALF, 0, size);
    CHECK_OK(hixl_get_async(scene.ctx, source, scene.theirs[next], size, next, &get));
    CHECK_OK(hixl_wait_timeout(&get, PATIENCE_MS));
    for (size_t at = 0; at < size; ++at) CHECK(scene.mine[HALF + at] == pattern(scene.rank, at));
    memset(scene.mine + HALF, 0, size);
    CHECK_OK(hixl_get_sync(scene.ctx, source, scene.theirs[next], size, next));
    for (size_t at = 0; at < size; ++at) CHECK(scene.mine[HALF + at] == pattern(scene.rank, at));
    CHECK_OK(hixl_barrier(scene.ctx));
  }
  /* Short ones go before long ones, but not past a fence. */
  enum { LONG = HALF - SHORT };
  memset(scene.mine + HALF, 1, LONG);
  memset(scene.mine + HALF + LONG, 2, SHORT);
  for (int i = 0; i < 20; ++i) {
    hixl_put_request_t put;
    CHECK_OK(hixl_put_async(scene.ctx, source, scene.theirs[next], LONG, next, &put));
    CHECK_OK(hixl_request_drop(&put));
    CHECK_OK(hixl_fence(scene.ctx, next));
    CHECK_OK(hixl_put_async(scene.ctx, source + LONG, scene.theirs[next] + LONG - SHORT, SHORT, next, &put));
    CHECK_OK(hixl_request_drop(&put));
    CHECK_OK(hixl_quiet(scene.ctx, PATIENCE_MS));
    CHECK_OK(hixl_barrier(scene.ctx));
    CHECK(scene.mine[0] == 1 && scene.mine[LONG - SHORT - 1] == 1);
    for (size_t at = LONG - SHORT; at < LONG; ++at) CHECK(scene.mine[at] == 2);
    CHECK_OK(hixl_barrier(scene.ctx));
  }
  /* A cancelled one ends, one way or the other. */
  hixl_put_request_t cancelled;
  CHECK_OK(hixl_put_async(scene.ctx, source, scene.theirs[next], HALF, next, &cancelled));
  CHECK_OK(hixl_cancel(cancelled));
  const hixl_status_t ended = hixl_wait_timeout(&cancelled, PATIENCE_MS);
  CHECK(ended == HIXL_OK || ended == HIXL_ERR_CANCELLED);
  CHECK_STATUS(hixl_query(cancelled), ended);
  CHECK_OK(hixl_barrier(scene.ctx));
  /* Wrong ranges, before a byte moves; what was posted wrongly has ended with the same. */
  memset(scene.mine, 0xee, BYTES);
  CHECK_OK(hixl_barrier(scene.ctx));
  hixl_put_request_t wrong = NULL;
  const uint64_t end = scene.theirs[next] + BYTES;
  static uint8_t unregistered[4096];
  CHECK_STATUS(hixl_put_sync(scene.ctx, source, end - 10, 11, next), HIXL_ERR_OUT_OF_RANGE);
  CHECK_STATUS(hixl_put_async(scene.ctx, source, end - 10, 11, next, &wrong), HIXL_ERR_OUT_OF_RANGE);
  CHECK_STATUS(hixl_wait(&wrong), HIXL_ERR_OUT_OF_RANGE);
  CHECK_STATUS(hixl_query(wrong), HIXL_ERR_OUT_OF_RANGE);
  CHECK_STATUS(hixl_put_sync(scene.ctx, source, 16, 8, next), HIXL_ERR_NOT_REGISTERED);
  CHECK_STATUS(hixl_put_sync(scene.ctx, address_of(unregistered), scene.theirs[next], 4096, next),
               HIXL_ERR_NOT_REGISTERED);
  CHECK_STATUS(hixl_put_sync(scene.ctx, source, scene.theirs[next], (size_t)-1, next), HIXL_ERR_OUT_OF_RANGE);
  CHECK_STATUS(hixl_put_sync(scene.ctx, source, scene.theirs[next], 8, scene.size), HIXL_ERR_RANK_OUT_OF_RANGE);
  CHECK_STATUS(hixl_put_sync(scene.ctx, source, scene.theirs[next], 8, -1), HIXL_ERR_RANK_OUT_OF_RANGE);
  CHECK_STATUS(hixl_check_access(scene.ctx, end - 10, 11, next), HIXL_ERR_OUT_OF_RANGE);
  CHECK_OK(hixl_check_access(scene.ctx, end - 10, 10, next));
  CHECK_STATUS(hixl_check_local(scene.ctx, address_of(unregistered), 4096), HIXL_ERR_NOT_REGISTERED);
  CHECK_OK(hixl_quiet(scene.ctx, PATIENCE_MS));
  CHECK_OK(hixl_barrier(scene.ctx));
  for (size_t at = 0; at < BYTES; ++at) CHECK(scene.mine[at] == 0xee);
  close_scene(&scene);
}

/* All ranks count up one word of rank 0: what they saw before is a permutation. */
void play_atomics(void) {
  enum { ROUNDS = 500, WORDS = 32 * ROUNDS };
  struct scene scene;
  uint64_t old = 0;
  open_scene(&scene, (WORDS + 8) * sizeof(uint64_t));
  const uint64_t word = scene.theirs[0];
  const int total = ROUNDS * scene.size;
  for (int i = 0; i < ROUNDS; ++i) {
    CHECK_OK(hixl_atomic_fetch_add(scene.ctx, word, 1, 0, &old));
    CHECK(old < (uint64_t)total);
    /* Marks its place in rank 0's list; nobody else may have marked it. */
    uint64_t mark = 1;
    CHECK_OK(hixl_atomic_swap(scene.ctx, word + (8 + old) * sizeof(uint64_t), 1, 0, &mark));
    CHECK(mark == 0);
    CHECK_OK(hixl_atomic_add(scene.ctx, word + sizeof(uint64_t), 3, 0));
  }
  CHECK_OK(hixl_barrier(scene.ctx));
  CHECK_OK(hixl_atomic_fetch_add(scene.ctx, word, 0, 0, &old));
  CHECK(old == (uint64_t)total);
  CHECK_OK(hixl_atomic_fetch_add(scene.ctx, word + sizeof(uint64_t), 0, 0, NULL));
  if (scene.rank == 0) {
    const uint64_t* words = (const uint64_t*)(const void*)scene.mine;
    CHECK(words[1] == (uint64_t)total * 3);
    for (int i = 0; i < total; ++i) CHECK(words[8 + i] == 1);
  }
  CHECK_STATUS(hixl_atomic_add(scene.ctx, word + 4, 1, 0), HIXL_ERR_UNALIGNED);
  CHECK_STATUS(hixl_atomic_fetch_add(scene.ctx, word + 1, 1, 0, &old), HIXL_ERR_UNALIGNED);
  CHECK(old == 0);
  close_scene(&scene);
}

/* A lock made of compare-and-swap guards a count that is read and written back. */
void play_lock(void) {
  enum { ROUNDS = 60 };
  struct scene scene;
  open_scene(&scene, 4096);
  const uint64_t lock = scene.theirs[0];
  const uint64_t count = lock + 64;
  uint64_t* scratch = (uint64_t*)(void*)(scene.mine + 128);
  for (int i = 0; i < ROUNDS; ++i) {
    uint64_t holder = 1;
    while (holder != 0) {
      CHECK_OK(hixl_atomic_compare_swap(scene.ctx, lock, 0, (uint64_t)scene.rank + 1, 0, &holder));
    }
    CHECK_OK(hixl_get_sync(scene.ctx, address_of(scratch), count, 8, 0));
    *scratch += 1;
    CHECK_OK(hixl_put_sync(scene.ctx, address_of(scratch), count, 8, 0));
    CHECK_OK(hixl_atomic_compare_swap(scene.ctx, lock, (uint64_t)scene.rank + 1, 0, 0, &holder));
    CHECK(holder == (uint64_t)scene.rank + 1);
  }
  CHECK_OK(hixl_barrier(scene.ctx));
  CHECK_OK(hixl_get_sync(scene.ctx, address_of(scratch), count, 8, 0));
  CHECK(*scratch == (uint64_t)(ROUNDS * scene.size));
  close_scene(&scene);
}

/* A flag is never seen before its data. */
void play_signals(void) {
  enum { ROUNDS = 200, SIZE = 3000 };
  struct scene scene;
  hixl_request_t request;
  uint64_t seen = 0;
  open_scene(&scene, 1 << 16);
  const int next = (scene.rank + 1) % scene.size;
  const uint64_t ready = address_of(scene.mine);     /* from the rank before: data is here */
  const uint64_t taken = address_of(scene.mine + 8); /* from the next rank: data was read */
  const int before = (scene.rank + scene.size - 1) % scene.size;
  uint8_t* source = scene.mine + 32768;
  for (int round = 1; round <= ROUNDS; ++round) {
    memset(source, round, SIZE);
    CHECK_OK(hixl_put_signal(scene.ctx, address_of(source), scene.theirs[next] + 4096, SIZE, next, scene.theirs[next],
                             (uint64_t)round, &request));
    CHECK_OK(hixl_wait_signal(scene.ctx, ready, (uint64_t)round, PATIENCE_MS, &seen));
    CHECK(seen >= (uint64_t)round);
    for (int at = 0; at < SIZE; ++at) CHECK(scene.mine[4096 + at] == (uint8_t)round);
    CHECK_OK(hixl_wait(&request));
    CHECK_OK(hixl_put_signal(scene.ctx, 0, scene.theirs[before], 0, before, scene.theirs[before] + 8, (uint64_t)round,
                             &request));
    CHECK_OK(hixl_wait(&request));
    CHECK_OK(hixl_wait_signal(scene.ctx, taken, (uint64_t)round, PATIENCE_MS, NULL));
  }
  CHECK_STATUS(hixl_wait_signal(scene.ctx, ready, ROUNDS + 1, 5, &seen), HIXL_ERR_DEADLINE_EXCEEDED);
  CHECK_STATUS(hixl_wait_signal(scene.ctx, ready + 1, 0, 5, &seen), HIXL_ERR_UNALIGNED);
  CHECK_STATUS(
      hixl_put_signal(scene.ctx, address_of(source), scene.theirs[next], 64, next, scene.theirs[next] + 8, 1, &request),
      HIXL_ERR_OVERLAP);
  CHECK_STATUS(hixl_wait(&request), HIXL_ERR_OVERLAP);
  close_scene(&scene);
}

struct told {
  struct scene* scene;
  hixl_status_t status;
  hixl_status_t inside; /* what a call that waits answered there */
  uint64_t word;        /* changed when the callback was called */
  int calls;
};

static void on_end(hixl_status_t status, void* user_data) {
  struct told* told = user_data;
  told->status = status;
  told->inside = hixl_finalize(told->scene->ctx);
  if (told->inside == HIXL_ERR_WOULD_DEADLOCK) told->inside = hixl_barrier(told->scene->ctx);
  if (told->inside == HIXL_ERR_WOULD_DEADLOCK) {
    hixl_request_t never = NULL;
    told->inside = hixl_get_async(told->scene->ctx, told->scene->theirs[told->scene->rank], 0, 0, -1, &never) ==
                           HIXL_ERR_RANK_OUT_OF_RANGE
                       ? HIXL_ERR_WOULD_DEADLOCK
                       : HIXL_ERR_INTERNAL;
  }
  told->calls += 1;
  __atomic_store_n(&told->word, 1, __ATOMIC_RELEASE);
}

/* Told once, with the user's pointer, not inside the post; waiting calls refuse to wait there. */
void play_callbacks(void) {
  enum { POSTS = 6000 }; /* more than there are requests: who is told needs not look */
  static struct told told[POSTS + 1];
  struct scene scene;
  open_scene(&scene, BYTES);
  const int next = (scene.rank + 1) % scene.size;
  for (int i = 0; i < POSTS; ++i) {
    hixl_request_t request = NULL;
    hixl_status_t status;
    told[i].scene = &scene;
    do {
      status = i % 2 == 0 ? hixl_put_callback(scene.ctx, address_of(scene.mine + HALF), scene.theirs[next], 4096, next,
                                              on_end, &told[i], i % 4 == 0 ? &request : NULL)
                          : hixl_get_callback(scene.ctx, address_of(scene.mine + HALF), scene.theirs[next], 4096, next,
                                              on_end, &told[i], &request);
    } while (status == HIXL_ERR_BUSY);
    CHECK_OK(status);
    if (i % 3 == 0 && request != NULL) CHECK_OK(hixl_wait(&request));
  }
  told[POSTS].scene = &scene;
  CHECK_OK(hixl_flush(scene.ctx, next, PATIENCE_MS)); /* so that there is room */
  CHECK_OK(hixl_get_callback(scene.ctx, address_of(scene.mine + HALF), scene.theirs[next], 4096, next, on_end,
                             &told[POSTS], NULL));
  for (int i = 0; i <= POSTS; ++i) {
    while (__atomic_load_n(&told[i].word, __ATOMIC_ACQUIRE) == 0) CHECK_OK(hixl_flush(scene.ctx, next, PATIENCE_MS));
    CHECK(told[i].calls == 1 && told[i].status == HIXL_OK && told[i].inside == HIXL_ERR_WOULD_DEADLOCK);
  }
  CHECK_STATUS(hixl_put_callback(scene.ctx, 0, 0, 0, next, NULL, NULL, NULL), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_put_callback(scene.ctx, 0, scene.theirs[next], BYTES + 1, next, on_end, &told[0], NULL),
               HIXL_ERR_OUT_OF_RANGE);
  CHECK(told[0].calls == 1);
  close_scene(&scene);
}
