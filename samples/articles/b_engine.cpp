// SPDX-License-Identifier: Apache-2.0
//
// The second article: an engine, a context, and an asynchronous put with a callback.
//   hixl_run -n 2 b_engine
#include <hixl/hixl.h>

#include <atomic>
#include <vector>

#include "article.h"

static std::atomic<int> completed{0};

static void completion_callback(HIXL_Status_t status, void* user_data) {
  if (status == HIXL_OK) *static_cast<int*>(user_data) = 1;
  completed.fetch_add(1);
  completed.notify_all();
}

int main() {
  HIXL_Engine_t engine = HIXL_Init(HIXL_ENGINE_CONFIG_DEFAULT);
  if (engine == nullptr) {
    std::fprintf(stderr, "init: %s\n", hixl_last_error());
    return -1;
  }
  const int peer_rank = hixl_rank(engine) ^ 1;
  std::vector<uint8_t> local_buffer(KV_BYTES);
  std::vector<uint8_t> inbox(KV_BYTES);
  uint32_t source_id = 0;
  uint32_t local_buffer_id = 0;  // the same number names the peer's inbox
  if (HIXL_RegisterBuffer(engine, local_buffer.data(), KV_BYTES, &source_id) != HIXL_OK) return step_failed("source");
  if (HIXL_RegisterBuffer(engine, inbox.data(), KV_BYTES, &local_buffer_id) != HIXL_OK) return step_failed("inbox");
  uint8_t* const local_buffer_ptr = local_buffer.data();
  const size_t data_size = KV_BYTES;
  fill_kv(local_buffer_ptr, data_size, hixl_rank(engine));
  int arrived = 0;
  void* const user_context = &arrived;

  HIXL_Context_t ctx = HIXL_CreateContext(engine, peer_rank);
  if (ctx == nullptr) {
    HIXL_Finalize(engine);
    return -1;
  }
  HIXL_Addr_t remote_addr = HIXL_GetRemoteAddr(ctx, peer_rank, local_buffer_id);
  HIXL_Descriptor_t desc;
  desc.type = HIXL_OP_PUT;
  desc.local_addr = reinterpret_cast<void*>(local_buffer_ptr);
  desc.remote_addr = remote_addr;
  desc.size = data_size;
  desc.cb = completion_callback;
  desc.user_data = user_context;
  HIXL_Request_t req;
  HIXL_Status_t st = HIXL_Put(ctx, &desc, &req);
  if (st != HIXL_OK) return step_failed("put");

  completed.wait(0);
  if (hixl_barrier(engine) != HIXL_OK) return step_failed("barrier");
  const bool right = arrived == 1 && kv_is(inbox.data(), KV_BYTES, peer_rank) != 0;
  std::printf("rank %d: the callback came, and the peer's bytes are %s\n", hixl_rank(engine),
              right ? "right" : "WRONG");
  if (hixl_barrier(engine) != HIXL_OK || HIXL_Finalize(engine) != HIXL_OK) return step_failed("finalize");
  return right ? 0 : 1;
}
