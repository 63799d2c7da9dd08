// SPDX-License-Identifier: Apache-2.0
//
// The second article: many small tensors as one operation.
//   hixl_run -n 2 b_batch
#include <hixl/hixl.h>

#include <vector>

#include "article.h"

int main() {
  constexpr int num_tensors = 128;
  constexpr size_t tensor_size = 4096;
  HIXL_Engine_t engine = HIXL_Init(HIXL_ENGINE_CONFIG_DEFAULT);
  if (engine == nullptr) return step_failed("init");
  const int peer_rank = hixl_rank(engine) ^ 1;
  std::vector<uint8_t> inbox(num_tensors * tensor_size);  // buffer 0, in which the peer's offsets count
  std::vector<uint8_t> tensors(num_tensors * tensor_size);
  uint32_t inbox_id = 0;
  uint32_t tensors_id = 0;
  if (HIXL_RegisterBuffer(engine, inbox.data(), inbox.size(), &inbox_id) != HIXL_OK) return step_failed("inbox");
  if (HIXL_RegisterBuffer(engine, tensors.data(), tensors.size(), &tensors_id) != HIXL_OK)
    return step_failed("tensors");
  fill_kv(tensors.data(), tensors.size(), hixl_rank(engine));
  std::vector<void*> local_addrs;
  std::vector<uint64_t> remote_offsets;
  std::vector<size_t> tensor_sizes;
  for (int i = 0; i < num_tensors; ++i) {
    const size_t place = static_cast<size_t>(i * 37 % num_tensors) * tensor_size;  // in no order
    local_addrs.push_back(tensors.data() + place);
    remote_offsets.push_back(place);
    tensor_sizes.push_back(tensor_size);
  }
  HIXL_Context_t ctx = HIXL_CreateContext(engine, peer_rank);
  if (ctx == nullptr) return step_failed("context");

  HIXL_BatchDescriptor_t batch_desc;
  HIXL_BatchInit(&batch_desc);
  for (int i = 0; i < num_tensors; ++i) {
    HIXL_BatchAddEntry(&batch_desc, local_addrs[i], remote_offsets[i], tensor_sizes[i], HIXL_OP_PUT);
  }
  HIXL_Request_t batch_req;
  HIXL_BatchTransfer(ctx, &batch_desc, &batch_req);
  if (HIXL_Wait(&batch_req) != HIXL_OK) return step_failed("batch");
  HIXL_BatchDestroy(&batch_desc);

  if (hixl_barrier(engine) != HIXL_OK) return step_failed("barrier");
  const bool right = kv_is(inbox.data(), inbox.size(), peer_rank) != 0;
  std::printf("rank %d has %d tensors: %s\n", hixl_rank(engine), num_tensors, right ? "right" : "WRONG");
  if (hixl_barrier(engine) != HIXL_OK || HIXL_Finalize(engine) != HIXL_OK) return step_failed("finalize");
  return right ? 0 : 1;
}
