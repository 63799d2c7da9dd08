// SPDX-License-Identifier: Apache-2.0
//
// The smallest program: every rank puts a greeting into the memory of the next one.
//   hixl_run -n 2 hello
#include <cstdio>

#include <hixl/runtime.hpp>

int main() {
  auto options = hixl::RuntimeOptions::from_environment();  // rank, world size and store, as hixl_run sets them
  if (!options) return std::puts(options.error().message().c_str()), 1;
  auto runtime = hixl::Runtime::create(*options);
  if (!runtime) return std::puts(runtime.error().message().c_str()), 1;
  hixl::Runtime& rank = **runtime;
  const hixl::Rank next = (rank.rank() + 1) % rank.world_size();
  const hixl::Rank before = (rank.rank() + rank.world_size() - 1) % rank.world_size();

  auto inbox = rank.allocate(4096);  // memory that others may put into
  if (!inbox) return std::puts(inbox.error().message().c_str()), 1;
  const hixl::Rank neighbours[] = {next, before};
  const auto theirs = rank.exchange({&*inbox, 1}, neighbours);  // tell them where it is, learn where theirs is
  if (!theirs[0].result) return std::puts(theirs[0].result.error().message().c_str()), 1;
  const hixl::RemoteRegion remote = theirs[0].regions[0];

  char text[64];
  const int size = std::snprintf(text, sizeof text, "hello from rank %u", rank.rank()) + 1;
  auto sent =
      rank.put_with_signal(text, remote.at(8), static_cast<std::size_t>(size), {.word = remote.at(0), .value = 1});
  if (!sent || !sent->wait()) return std::puts("the put failed"), 1;

  const auto seen = rank.wait_signal(inbox->data, hixl::Compare::equal, 1);  // asleep until the text is there
  if (!seen) return std::puts(seen.error().message().c_str()), 1;
  std::printf("rank %u got: %s\n", rank.rank(), reinterpret_cast<const char*>(inbox->data + 8));
  return rank.barrier() ? 0 : 1;
}
