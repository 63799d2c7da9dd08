// SPDX-License-Identifier: Apache-2.0
//
// The cases of the rank program: each is one scene that all ranks of a job play.
#ifndef HIXL_TESTS_RANKS_H
#define HIXL_TESTS_RANKS_H

#include "check.h"

/* What every scene begins with: a rank, a region of `bytes` of every rank, and where the others' are. */
struct scene {
  hixl_ctx_t ctx;
  hixl_comm_t all;
  int rank;
  int size;
  uint8_t* mine;
  uint64_t theirs[32];
};

void open_scene(struct scene* scene, size_t bytes);
void close_scene(struct scene* scene);

void play_transfers(void);
void play_atomics(void);
void play_lock(void);
void play_barrier(void);
void play_communicators(void);
void play_exchange(void);
void play_told(void);
void play_callbacks(void);
void play_signals(void);
void play_messages(void);
void play_engine(void);
void play_batches(void);
void play_views(void);
void play_death(void);

#endif
