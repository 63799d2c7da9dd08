// SPDX-License-Identifier: Apache-2.0
//
// The second article: one to many. Rank 0 puts to all others at once, computes meanwhile, and waits for all.
//   hixl_run -n 4 b_broadcast
#include <hixl/hixl.h>

#include <array>
#include <atomic>
#include <vector>

#include "article.h"

static std::array<std::atomic<int>, 64> told{};

static void broadcast_completion_callback(HIXL_Status_t status, void* user_data) {
  if (status == HIXL_OK) told[reinterpret_cast<size_t>(user_data)].fetch_add(1);
}

static double computed = 0;
static void do_computation() {
  for (int i = 0; i < 1'000'000; ++i) computed += i * 1e-9;
}

static int broadcast(HIXL_Engine_t engine, uint8_t* local_buffer_ptr, uint32_t buffer_id) {
  std::vector<int> peer_ranks;
  for (int rank = 1; rank < hixl_size(engine); ++rank) peer_ranks.push_back(rank);
  const size_t num_peers = peer_ranks.size();
  const size_t chunk_size = KV_BYTES;

  HIXL_MultiContext_t mctx = HIXL_CreateMultiContext(engine, num_peers, peer_ranks.data());
  if (mctx == nullptr) {
    return -1;
  }
  std::vector<HIXL_Addr_t> remote_bufs(num_peers);
  for (size_t i = 0; i < num_peers; ++i) remote_bufs[i] = HIXL_GetRemoteAddr(mctx, peer_ranks[i], buffer_id);

  std::vector<HIXL_Descriptor_t> descs(num_peers);
  std::vector<HIXL_Request_t> reqs(num_peers);
  for (size_t i = 0; i < num_peers; ++i) {
    descs[i].type = HIXL_OP_PUT;
    descs[i].local_addr = reinterpret_cast<void*>(local_buffer_ptr);
    descs[i].remote_addr = remote_bufs[i];
    descs[i].size = chunk_size;
    descs[i].cb = broadcast_completion_callback;
    descs[i].user_data = reinterpret_cast<void*>(i);
  }
  for (size_t i = 0; i < num_peers; ++i) {
    HIXL_Put(mctx, &descs[i], &reqs[i]);
  }
  do_computation();
  if (HIXL_WaitAll(num_peers, reqs.data()) != HIXL_OK) return step_failed("broadcast");
  return 0;
}

int main() {
  HIXL_Engine_t engine = HIXL_Init(HIXL_ENGINE_CONFIG_DEFAULT);
  if (engine == nullptr) return step_failed("init");
  const int rank = hixl_rank(engine);
  std::vector<uint8_t> buffer(KV_BYTES);
  uint32_t buffer_id = 0;
  if (HIXL_RegisterBuffer(engine, buffer.data(), KV_BYTES, &buffer_id) != HIXL_OK) return step_failed("register");
  if (rank == 0) {
    fill_kv(buffer.data(), KV_BYTES, 0);
    if (hixl_size(engine) > 1 && broadcast(engine, buffer.data(), buffer_id) != 0) return 1;
  }
  if (hixl_barrier(engine) != HIXL_OK) return step_failed("barrier");
  const bool right = kv_is(buffer.data(), KV_BYTES, 0) != 0;
  std::printf("rank %d has the chunk of rank 0: %s\n", rank, right ? "right" : "WRONG");
  if (HIXL_Finalize(engine) != HIXL_OK) return step_failed("finalize");
  for (int i = 0; rank == 0 && i + 1 < total_ranks(); ++i) {
    if (told[static_cast<size_t>(i)] != 1) return std::fprintf(stderr, "a callback is missing\n"), 1;
  }
  return right ? 0 : 1;
}
