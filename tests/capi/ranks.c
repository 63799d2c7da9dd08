// SPDX-License-Identifier: Apache-2.0
//
// A rank of a job, as hixl_run starts it: plays one scene by name.
#include "ranks.h"

#include <string.h>

void open_scene(struct scene* scene, size_t bytes) {
  void* data = NULL;
  memset(scene, 0, sizeof *scene);
  CHECK_OK(hixl_init(&scene->ctx, NULL));
  scene->rank = hixl_rank(scene->ctx);
  scene->size = hixl_size(scene->ctx);
  CHECK(scene->rank >= 0 && scene->size <= 32);
  CHECK_OK(hixl_alloc(scene->ctx, bytes, &data));
  scene->mine = data;
  CHECK_OK(hixl_comm_world(scene->ctx, &scene->all));
  for (int step = 0; step < scene->size; ++step) {
    const uint64_t mine = address_of(scene->mine);
    /* Both meet in the same step: of three ranks in a ring, somebody would else wait for the one who waits for him. */
    const int other = (step - scene->rank + scene->size) % scene->size;
    hixl_peer_address_t told;
    int count = 0;
    CHECK_OK(hixl_address_exchange(scene->all, &mine, 1, other));
    CHECK_OK(hixl_peer_addresses(scene->all, other, &told, 1, &count));
    CHECK(count == 1 && told.length >= bytes);
    scene->theirs[other] = told.address;
  }
}

void close_scene(struct scene* scene) {
  CHECK_OK(hixl_barrier(scene->ctx));
  CHECK_OK(hixl_comm_destroy(scene->all));
  CHECK_OK(hixl_finalize(scene->ctx));
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*play)(void);
  } scenes[] = {
      {"transfers", play_transfers},
      {"atomics", play_atomics},
      {"lock", play_lock},
      {"barrier", play_barrier},
      {"communicators", play_communicators},
      {"exchange", play_exchange},
      {"told", play_told},
      {"callbacks", play_callbacks},
      {"signals", play_signals},
      {"messages", play_messages},
      {"engine", play_engine},
      {"batches", play_batches},
      {"views", play_views},
      {"death", play_death},
  };
  for (size_t i = 0; argc == 2 && i < sizeof scenes / sizeof *scenes; ++i) {
    if (strcmp(argv[1], scenes[i].name) != 0) continue;
    scenes[i].play();
    return 0;
  }
  fprintf(stderr, "usage: capi_ranks SCENE\n");
  return 2;
}
