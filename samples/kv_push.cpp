// SPDX-License-Identifier: Apache-2.0
//
// KV from a prefill to a decode, layer by layer: rank 0 "computes" a layer and says that it is ready, and rank 1 uses
// each as it arrives. The two lay their KV out differently; nobody computes an address.
//   hixl_run -n 2 kv_push
#include <cstdio>
#include <cstring>
#include <vector>

#include <hixl/kv/data_dist.hpp>

namespace {

template <class T>
T value_of(hixl::Result<T> result) {
  if (result) return std::move(*result);
  std::printf("%s\n", result.error().message().c_str());
  std::exit(1);
}
void check(const hixl::Result<void>& result) {
  if (!result) std::printf("%s\n", result.error().message().c_str()), std::exit(1);
}

}  // namespace

int main() {
  using namespace hixl::kv;
  auto runtime = value_of(hixl::Runtime::create(value_of(hixl::RuntimeOptions::from_environment())));
  const bool prefill = runtime->rank() == 0;
  auto dist = value_of(DataDist::open(*runtime, {.role = prefill ? Role::prefill : Role::decode}));

  // One place for a sequence of up to 256 tokens at the prefill, pages of 16 tokens at the decode.
  CacheDesc desc{.layout = {.layers = 8, .kv_heads = 4, .head_dim = 64, .block_tokens = prefill ? 256U : 16U},
                 .blocks = prefill ? 1U : 64U};
  const std::vector<std::uint32_t> pages{7, 3, 21, 4, 60};  // where the decode puts the 72 tokens of this request
  const std::vector<std::uint32_t> sequence{0};
  auto memory = value_of(runtime->allocate(value_of(cache_bytes(desc.layout, desc.blocks))));
  const TensorPlace place{.region = memory};
  const CacheId cache = value_of(dist->register_cache(desc, {&place, 1}));
  const hixl::Rank other = prefill ? 1 : 0;
  check(dist->link({&other, 1}).front());

  // The ticket goes by whatever the two programs speak with each other; here, a piece of registered memory.
  auto note = value_of(runtime->allocate(4096));
  const auto theirs = runtime->exchange({&note, 1}, {&other, 1}).front();
  check(theirs.result);
  if (!prefill) {
    const Lease lease =
        value_of(dist->grant(cache, {.holder = 0, .access = Access::push, .blocks = pages, .layer_arrivals = true}));
    std::memcpy(note.data + 64, &lease.ticket, sizeof lease.ticket);
    auto sent = value_of(runtime->put_with_signal(note.data + 64, theirs.regions[0].at(64), sizeof lease.ticket,
                                                  {.word = theirs.regions[0].at(0)}));
    check(sent.wait());
    for (std::uint32_t layer = 0; layer < 8; ++layer) {
      check(dist->wait_layer(lease.id, layer));
      std::printf("layer %u is here: %d\n", layer,
                  static_cast<int>(memory.data[layer * 2 * memory.size / 16 + 7 * 8192]));
    }
    return dist->close() ? 0 : 1;
  }
  static_cast<void>(value_of(runtime->wait_signal(note.data, hixl::Compare::equal, 1)));
  LeaseTicket ticket;
  std::memcpy(&ticket, note.data + 64, sizeof ticket);
  const RemoteCache decode = value_of(dist->find(1, desc.key));
  const Transfer push =
      value_of(dist->push(cache, decode, {.source = sequence, .target = pages, .tokens = Range{0, 72}},
                          {.ticket = &ticket, .release = true, .layered = true}));
  for (std::uint32_t layer = 0; layer < 8; ++layer) {
    std::memset(memory.data + layer * memory.size / 8, static_cast<int>(layer + 1), memory.size / 8);  // "compute"
    check(push.ready(layer));
  }
  check(push.wait());
  std::printf("%llu bytes pushed\n", static_cast<unsigned long long>(push.progress().bytes_done));
  return dist->close() ? 0 : 1;
}
