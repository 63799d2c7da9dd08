// SPDX-License-Identifier: Apache-2.0
//
// Scenes of ranks that work together: barriers, communicators, exchange of addresses, messages, a death.
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"

/* The last rank comes late to a barrier that the others have given up, and they say who was missing. */
void play_barrier(void) {
  struct scene scene;
  int missing[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
  uint64_t late = 0;
  open_scene(&scene, 4096);
  for (int i = 0; i < 20; ++i) CHECK_OK(hixl_barrier(scene.ctx));
  if (scene.rank == scene.size - 1) {
    /* Not before the others have given up. */
    CHECK_OK(hixl_wait_signal(scene.ctx, address_of(scene.mine), (uint64_t)scene.size - 1, PATIENCE_MS, &late));
  } else {
    CHECK_STATUS(hixl_barrier_timeout(scene.ctx, 100), HIXL_ERR_DEADLINE_EXCEEDED);
    CHECK(hixl_missing_ranks(missing, 8) >= 1);
    int named = 0;
    for (int i = 0; i < 8; ++i) named |= missing[i] == scene.size - 1;
    CHECK(named);
    CHECK(strstr(hixl_last_error(), "missing") != NULL);
    CHECK_OK(hixl_atomic_add(scene.ctx, scene.theirs[scene.size - 1], 1, scene.size - 1));
  }
  CHECK_STATUS(hixl_barrier_timeout(scene.ctx, -7), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_OK(hixl_barrier_timeout(scene.ctx, PATIENCE_MS));
  close_scene(&scene);
}

/* A ring of puts inside a communicator. */
static void use_comm(struct scene* scene, hixl_comm_t comm, int count, const int* ranks, uint8_t mark) {
  const int place = hixl_comm_rank(comm);
  CHECK(hixl_comm_size(comm) == count && place >= 0 && ranks[place] == scene->rank);
  const int next = ranks[(place + 1) % count];
  memset(scene->mine + 64, mark, 64);
  CHECK_OK(hixl_comm_barrier(comm, PATIENCE_MS));
  CHECK_OK(hixl_put_sync(scene->ctx, address_of(scene->mine + 64), scene->theirs[next], 64, next));
  CHECK_OK(hixl_comm_barrier(comm, PATIENCE_MS));
  for (int at = 0; at < 64; ++at) CHECK(scene->mine[at] == mark);
  CHECK_OK(hixl_comm_barrier(comm, PATIENCE_MS));
}

/* Two at once, over different links; destroyed and made again with one rank more; and what is refused. */
void play_communicators(void) {
  struct scene scene;
  int all[32];
  int wrong[3];
  hixl_comm_t fast = NULL;
  hixl_comm_t wide = NULL;
  hixl_comm_t none = (hixl_comm_t)(uintptr_t)1;
  open_scene(&scene, 4096);
  for (int i = 0; i < 32; ++i) all[i] = i;
  const int few = scene.size / 2 > 0 ? scene.size / 2 : 1;
  if (scene.rank < few) CHECK_OK(hixl_comm_create_over(scene.ctx, &fast, few, all, HIXL_TRANS_HCCS));
  CHECK_OK(hixl_comm_create_over(scene.ctx, &wide, scene.size, all, HIXL_TRANS_TCP));
  if (scene.rank < few) use_comm(&scene, fast, few, all, 1);
  use_comm(&scene, wide, scene.size, all, 2);
  for (int round = 0; round < 3; ++round) {
    hixl_comm_t made = NULL;
    const int count = scene.size - 1 + round % 2;
    if (scene.rank < count && count > 0) {
      CHECK_OK(hixl_comm_create(scene.ctx, &made, count, all));
      use_comm(&scene, made, count, all, (uint8_t)(10 + round));
      CHECK_OK(hixl_comm_destroy(made));
      CHECK_STATUS(hixl_comm_barrier(made, 100), HIXL_ERR_INVALID_HANDLE);
      CHECK_STATUS(hixl_comm_destroy(made), HIXL_ERR_INVALID_HANDLE);
      CHECK(hixl_comm_rank(made) == -1 && hixl_comm_size(made) == -1);
    }
    CHECK_OK(hixl_barrier(scene.ctx));
  }
  wrong[0] = wrong[1] = scene.rank;
  CHECK_STATUS(hixl_comm_create(scene.ctx, &none, 2, wrong), HIXL_ERR_INVALID_ARGUMENT);
  CHECK(none == NULL);
  wrong[1] = scene.size;
  CHECK_STATUS(hixl_comm_create(scene.ctx, &none, 2, wrong), HIXL_ERR_RANK_OUT_OF_RANGE);
  wrong[1] = -1;
  CHECK_STATUS(hixl_comm_create(scene.ctx, &none, 2, wrong), HIXL_ERR_RANK_OUT_OF_RANGE);
  CHECK_STATUS(hixl_comm_create(scene.ctx, &none, 0, wrong), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_comm_create(scene.ctx, &none, -3, wrong), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_comm_create(scene.ctx, &none, 2, NULL), HIXL_ERR_INVALID_ARGUMENT);
  wrong[0] = (scene.rank + 1) % scene.size; /* own rank is missing */
  if (scene.size > 1) CHECK_STATUS(hixl_comm_create(scene.ctx, &none, 1, wrong), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_comm_create_over(scene.ctx, &none, scene.size, all, HIXL_TRANS_UB), HIXL_ERR_TRANSPORT_UNAVAILABLE);
  CHECK_STATUS(hixl_comm_create_over(scene.ctx, &none, scene.size, all, 77), HIXL_ERR_INVALID_ARGUMENT);
  close_scene(&scene); /* and the two that are left go with it */
}

/* Addresses in the middle of regions, many at once, the peer's own, wrong ones, and nobody there. */
void play_exchange(void) {
  struct scene scene;
  hixl_comm_t comm = NULL;
  hixl_peer_address_t told[3];
  int all[32];
  int count = 0;
  CHECK_OK(hixl_init(&scene.ctx, NULL));
  CHECK_OK(hixl_finalize(scene.ctx));
  CHECK_OK(hixl_init(&scene.ctx, NULL));
  /* It may still meet the other one's first life, which ends. */
  hixl_status_t met = hixl_barrier(scene.ctx);
  for (int i = 0; i < 3 && (met == HIXL_ERR_PEER_LOST || met == HIXL_ERR_PEER_GONE); ++i) met = hixl_barrier(scene.ctx);
  CHECK_OK(met);
  /* Nothing was told yet. */
  CHECK_STATUS(hixl_put_sync(scene.ctx, 0, 4096, 1, (hixl_rank(scene.ctx) + 1) % 2), HIXL_ERR_NOT_EXCHANGED);
  CHECK_OK(hixl_finalize(scene.ctx));

  open_scene(&scene, 1 << 16);
  CHECK(scene.size == 2);
  const int other = 1 - scene.rank;
  for (int i = 0; i < 32; ++i) all[i] = i;
  CHECK_OK(hixl_comm_create(scene.ctx, &comm, 2, all));
  CHECK_STATUS(hixl_peer_addresses(comm, other, told, 3, &count), HIXL_ERR_NOT_EXCHANGED);
  const uint64_t mine[3] = {address_of(scene.mine + 4096), address_of(scene.mine), address_of(scene.mine + 100)};
  uint64_t copy[3];
  memcpy(copy, mine, sizeof mine);
  CHECK_OK(hixl_address_exchange_timeout(comm, copy, 3, other, PATIENCE_MS));
  CHECK(memcmp(copy, mine, sizeof mine) == 0);
  CHECK_OK(hixl_peer_addresses(comm, other, told, 3, &count));
  CHECK(count == 3);
  CHECK(told[0].address - told[1].address == 4096 && told[2].address - told[1].address == 100);
  CHECK(told[0].length == (1 << 16) - 4096 && told[1].length == 1 << 16);
  CHECK_OK(hixl_peer_addresses(comm, other, NULL, 0, &count));
  CHECK(count == 3);
  /* The article passes the peer's address; it is checked against what the peer tells. */
  const uint64_t theirs = told[0].address;
  if (scene.rank == 0) {
    CHECK_OK(hixl_address_exchange(comm, &theirs, 1, other));
    const uint64_t wrong = 12345;
    CHECK_STATUS(hixl_address_exchange(comm, &wrong, 1, other), HIXL_ERR_NOT_REGISTERED);
    CHECK(strstr(hixl_last_error(), "rank 1") != NULL);
  } else {
    CHECK_OK(hixl_address_exchange(comm, mine, 1, other));
    CHECK_OK(hixl_address_exchange(comm, mine, 1, other));
  }
  CHECK_OK(hixl_comm_barrier(comm, PATIENCE_MS));
  if (scene.rank == 0) { /* the other does not call */
    CHECK_STATUS(hixl_address_exchange_timeout(comm, mine, 1, other, 50), HIXL_ERR_DEADLINE_EXCEEDED);
    CHECK(strstr(hixl_last_error(), "rank 1") != NULL);
  }
  CHECK_OK(hixl_comm_barrier(comm, PATIENCE_MS));
  CHECK_STATUS(hixl_address_exchange(comm, NULL, 1, other), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_address_exchange(comm, mine, -1, other), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_address_exchange(comm, mine, 1, 2), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_address_exchange(scene.all, mine, 1, 2), HIXL_ERR_RANK_OUT_OF_RANGE);
  CHECK_STATUS(hixl_peer_addresses(comm, 5, told, 3, &count), HIXL_ERR_NOT_EXCHANGED);
  CHECK_STATUS(hixl_peer_addresses(comm, other, NULL, 3, &count), HIXL_ERR_INVALID_ARGUMENT);
  close_scene(&scene);
}

/* What was told of a region, its start and its middle, ends with it: then nobody writes there any more. */
void play_told(void) {
  enum { BYTES = 8192, TOLD = 6 };
  static uint8_t memory[2][BYTES];
  struct scene scene;
  hixl_peer_address_t theirs[TOLD];
  void* data = NULL;
  uint32_t id = 9;
  int count = 0;
  open_scene(&scene, 4096);
  CHECK(scene.size == 2);
  const int other = 1 - scene.rank;
  CHECK_OK(hixl_alloc(scene.ctx, BYTES, &data));
  CHECK_OK(hixl_register(scene.ctx, memory[0], BYTES));
  CHECK_OK(hixl_register(scene.ctx, memory[0], BYTES));
  CHECK_OK(HIXL_RegisterBuffer(scene.ctx, memory[1], BYTES, &id));
  const uint64_t mine[TOLD] = {address_of(data),           address_of(data) + 100, address_of(memory[0]),
                               address_of(memory[0] + 64), address_of(memory[1]),  address_of(memory[1] + 4096)};
  for (int twice = 0; twice < 2; ++twice) CHECK_OK(hixl_address_exchange(scene.all, mine, TOLD, other));
  CHECK_OK(hixl_peer_addresses(scene.all, other, theirs, TOLD, &count));
  CHECK(count == TOLD);
  CHECK_OK(hixl_deregister(scene.ctx, memory[0])); /* it was registered twice, and is still there */
  CHECK_OK(hixl_barrier(scene.ctx));
  for (int i = 0; i < TOLD; ++i) {
    CHECK_OK(hixl_put_sync(scene.ctx, address_of(scene.mine), theirs[i].address, 8, other));
  }
  CHECK_OK(hixl_barrier(scene.ctx));
  CHECK_OK(hixl_free(scene.ctx, data));
  CHECK_OK(hixl_deregister(scene.ctx, memory[0]));
  CHECK_OK(HIXL_DeregisterBuffer(scene.ctx, id));
  CHECK_STATUS(hixl_free(scene.ctx, data), HIXL_ERR_NOT_REGISTERED);
  CHECK_STATUS(hixl_check_local(scene.ctx, address_of(memory[0] + 64), 1024), HIXL_ERR_NOT_REGISTERED);
  CHECK_STATUS(hixl_check_local(scene.ctx, address_of(memory[1] + 4096), 1024), HIXL_ERR_NOT_REGISTERED);
  CHECK_OK(hixl_barrier(scene.ctx));
  for (int i = 0; i < TOLD; ++i) {
    CHECK_STATUS(hixl_put_sync(scene.ctx, address_of(scene.mine), theirs[i].address, 8, other), HIXL_ERR_STALE);
  }
  close_scene(&scene);
}

/* Both ways at once, of all sizes, some held for a while. */
void play_messages(void) {
  enum { MESSAGES = 300, BIGGEST = 5000, FULL = 20000 /* eight do not fit */ };
  struct scene scene;
  hixl_conn_t conn = NULL;
  hixl_conn_t second = NULL;
  const void* data = NULL;
  const void* held = NULL;
  size_t size = 0;
  open_scene(&scene, 1 << 16);
  CHECK(scene.size == 2);
  const int other = 1 - scene.rank;
  CHECK_OK(hixl_connect_sized(scene.ctx, other, 1 << 16, PATIENCE_MS, &conn));
  CHECK_STATUS(hixl_connect(scene.ctx, other, 100, &second), HIXL_ERR_INVALID_ARGUMENT);
  CHECK(second == NULL);
  CHECK_STATUS(hixl_recv(conn, &data, &size, 0), HIXL_ERR_DEADLINE_EXCEEDED);
  CHECK_OK(hixl_barrier(scene.ctx));
  for (int i = 0; i < MESSAGES; ++i) {
    const size_t wanted = (size_t)i * 211 % BIGGEST;
    memset(scene.mine, scene.rank * 100 + i % 100, wanted);
    if (i % 2 == 0) {
      CHECK_OK(hixl_send(conn, scene.mine, wanted));
    } else {
      CHECK_OK(hixl_send_timeout(conn, scene.mine, wanted, PATIENCE_MS));
    }
    CHECK_OK(hixl_recv(conn, &data, &size, PATIENCE_MS));
    CHECK(size == wanted);
    for (size_t at = 0; at < size; ++at) CHECK(((const uint8_t*)data)[at] == (uint8_t)(other * 100 + i % 100));
    if (i % 3 == 0) {
      held = data;
      continue;
    }
    CHECK_OK(hixl_recv_release(conn, data));
    if (held != NULL) CHECK_OK(hixl_recv_release(conn, held));
    held = NULL;
    CHECK_STATUS(hixl_recv_release(conn, data), HIXL_ERR_INVALID_ARGUMENT);
  }
  /* No room, and nobody makes any: the time is over, and what was sent before is whole. */
  if (held != NULL) CHECK_OK(hixl_recv_release(conn, held));
  CHECK_OK(hixl_barrier(scene.ctx));
  memset(scene.mine, 10 + scene.rank, FULL);
  CHECK_OK(hixl_send_timeout(conn, scene.mine, FULL, PATIENCE_MS));
  hixl_status_t sent = HIXL_OK;
  for (int i = 0; i < 8 && sent == HIXL_OK; ++i) sent = hixl_send_timeout(conn, scene.mine, FULL, 20);
  CHECK_STATUS(sent, HIXL_ERR_DEADLINE_EXCEEDED);
  CHECK_OK(hixl_barrier(scene.ctx));
  int received = 0;
  while (hixl_recv(conn, &data, &size, 0) == HIXL_OK) {
    CHECK(size == FULL);
    for (size_t at = 0; at < size; ++at) CHECK(((const uint8_t*)data)[at] == 10 + other);
    CHECK_OK(hixl_recv_release(conn, data));
    ++received;
  }
  CHECK(received >= 1 && hixl_last_status() == HIXL_ERR_DEADLINE_EXCEEDED);
  CHECK_STATUS(hixl_send(conn, scene.mine, (1 << 15) + 1), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_send(conn, NULL, 1), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_recv(conn, NULL, &size, 0), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_STATUS(hixl_connect(scene.ctx, 7, 100, &second), HIXL_ERR_RANK_OUT_OF_RANGE);
  CHECK_STATUS(hixl_connect_sized(scene.ctx, other, 100, 100, &second), HIXL_ERR_INVALID_ARGUMENT);
  CHECK_OK(hixl_barrier(scene.ctx));
  CHECK_OK(hixl_disconnect(conn));
  CHECK_STATUS(hixl_disconnect(conn), HIXL_ERR_INVALID_HANDLE);
  CHECK_STATUS(hixl_send(conn, "x", 1), HIXL_ERR_INVALID_HANDLE);
  CHECK_OK(hixl_connect(scene.ctx, other, PATIENCE_MS, &conn)); /* and again */
  CHECK_OK(hixl_send(conn, "again", 6));
  CHECK_OK(hixl_recv(conn, &data, &size, PATIENCE_MS));
  CHECK(size == 6 && strcmp(data, "again") == 0);
  close_scene(&scene);
}

/* A rank dies. What was under way to it ends with a status that says so, and nothing hangs. */
void play_death(void) {
  struct scene scene;
  open_scene(&scene, 4096);
  CHECK_OK(hixl_barrier(scene.ctx));
  if (scene.rank == scene.size - 1) {
    /* hixl_run counts a signal as failure; a death without goodbye is none. */
    _exit(0);
  }
  hixl_status_t status = HIXL_OK;
  while (status == HIXL_OK) {
    status = hixl_put_sync(scene.ctx, address_of(scene.mine), scene.theirs[scene.size - 1], 64, scene.size - 1);
  }
  CHECK(status == HIXL_ERR_PEER_LOST || status == HIXL_ERR_STALE || status == HIXL_ERR_NOT_EXCHANGED);
  /* A barrier of all ranks is with whoever lives there; the next life of that rank would do. */
  int missing = -1;
  CHECK_STATUS(hixl_barrier_timeout(scene.ctx, 300), HIXL_ERR_DEADLINE_EXCEEDED);
  CHECK(hixl_missing_ranks(&missing, 1) == 1 && missing == scene.size - 1);
  CHECK_OK(hixl_finalize(scene.ctx));
}
