// SPDX-License-Identifier: Apache-2.0
//
// A stranger's program: it knows the installed headers and the library, nothing else. One rank puts 8 bytes to itself.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <hixl/runtime.hpp>

namespace {

int failed(const char* step, const hixl::Error& error) {
  std::fprintf(stderr, "%s: %s\n", step, error.message().c_str());
  return 1;
}

}  // namespace

int main() {
  hixl::RuntimeOptions options;
  options.world_size = 1;
  auto runtime = hixl::Runtime::create(options);
  if (!runtime) return failed("create", runtime.error());

  auto region = (*runtime)->allocate(4096);
  if (!region) return failed("allocate", region.error());

  const std::uint64_t sent = 0x1122334455667788;
  const hixl::RemoteAddress word{.rank = 0, .address = region->address() + 64, .region = region->key, .incarnation = 0};
  if (const auto put = (*runtime)->put_sync(&sent, word, sizeof sent); !put) return failed("put", put.error());
  std::uint64_t seen = 0;
  std::memcpy(&seen, region->data + 64, sizeof seen);
  if (seen != sent) {
    std::fprintf(stderr, "put said it was done, but the bytes are not there\n");
    return 1;
  }
  if (const auto stop = (*runtime)->stop(); !stop) return failed("stop", stop.error());
  std::puts("8 bytes, there");
  return 0;
}
