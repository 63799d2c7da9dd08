// SPDX-License-Identifier: Apache-2.0
//
// The smallest program with coroutines: every rank sends three greetings to the next one, one after the other, without
// a thread that waits for them. What follows a co_await runs on the runtime's loop thread and keeps its rules: be
// short, and never block.
//   hixl_run -n 2 coroutine
#include <cstdio>
#include <future>
#include <utility>

#include <hixl/runtime.hpp>

namespace {

/// A coroutine that starts at once and whose end a thread may wait for. A program will have a type of its own.
struct Task {
  struct promise_type {
    std::promise<bool> done;
    Task get_return_object() { return {done.get_future()}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_value(bool ok) { done.set_value(ok); }
    void unhandled_exception() { done.set_value(false); }
  };
  std::future<bool> done;
};

Task greet(hixl::Runtime& rank, hixl::RemoteRegion remote) {
  for (unsigned count = 1; count <= 3; ++count) {
    char text[64];  // lives in the coroutine until the put has ended
    const int size = std::snprintf(text, sizeof text, "greeting %u of rank %u", count, rank.rank()) + 1;
    auto sent = rank.put_with_signal(text, remote.at(8), static_cast<std::size_t>(size),
                                     {.word = remote.at(0), .value = count});
    if (!sent) co_return false;
    const hixl::Result<void> result = co_await *sent;
    if (!result) co_return std::puts(result.error().message().c_str()), false;
  }
  co_return true;
}

}  // namespace

int main() {
  auto options = hixl::RuntimeOptions::from_environment();
  if (!options) return std::puts(options.error().message().c_str()), 1;
  auto runtime = hixl::Runtime::create(*options);
  if (!runtime) return std::puts(runtime.error().message().c_str()), 1;
  hixl::Runtime& rank = **runtime;
  const hixl::Rank next = (rank.rank() + 1) % rank.world_size();
  const hixl::Rank before = (rank.rank() + rank.world_size() - 1) % rank.world_size();

  auto inbox = rank.allocate(4096);
  if (!inbox) return std::puts(inbox.error().message().c_str()), 1;
  const hixl::Rank neighbours[] = {next, before};
  const auto theirs = rank.exchange({&*inbox, 1}, neighbours);
  if (!theirs[0].result) return std::puts(theirs[0].result.error().message().c_str()), 1;

  Task task = greet(rank, theirs[0].regions[0]);
  const auto seen = rank.wait_signal(inbox->data, hixl::Compare::greater_equal, 3);
  if (!seen) return std::puts(seen.error().message().c_str()), 1;
  std::printf("rank %u got: %s\n", rank.rank(), reinterpret_cast<const char*>(inbox->data + 8));
  return task.done.get() && rank.barrier() ? 0 : 1;
}
