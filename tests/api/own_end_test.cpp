// SPDX-License-Identifier: Apache-2.0
//
// A runtime that ends in a callback of its own, in a program of its own: that end has no join, so a sanitizer cannot
// know that descriptors which are used again later were given back before. One case is left to it, as the last.
#include <chrono>
#include <filesystem>
#include <thread>

#include "group_parts.hpp"
#include "polled_parts.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

#ifdef __SANITIZE_THREAD__
constexpr const char* k_unseen =
    "skipped: libuv's closing of a descriptor is not seen here, and its next use would count as a race";
#endif

/// Without opening anything: a folder has two links, and one more for each folder in it.
std::size_t threads() { return static_cast<std::size_t>(std::filesystem::hard_link_count("/proc/self/task")) - 2; }

/// Whether no more than these are left: a runtime ends on a thread of its own, which nobody can join.
bool wait_for_threads(std::size_t left) {
  const auto limit = std::chrono::steady_clock::now() + k_patience;
  while (threads() > left && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  return threads() <= left;
}

}  // namespace

TEST_CASE("a runtime that is destroyed in a callback of its group's barrier: its groups answer STOPPED at once") {
#ifdef __SANITIZE_THREAD__
  MESSAGE(k_unseen);
  return;
#endif
  const std::size_t threads_left = threads() + 1;  // the store's
  World world(1);
  const Rank self[] = {0};
  auto group = world[0].create_group(self, {}, k_patience);
  require_ok(group);
  struct Destroyer {
    World* world;
    Group* group;
    Events events;
    ErrorCode after = ErrorCode::ok;
  } destroyer{&world, &*group, {}, ErrorCode::ok};
  require_ok(group->barrier_async(
      k_patience,
      [](void* context, const Result<void>&) {
        auto& at = *static_cast<Destroyer*>(context);
        at.world->slot(0).reset();
        at.after = code_of(at.group->barrier());
        at.group->close();
        at.events.add();
      },
      &destroyer));
  REQUIRE(destroyer.events.wait_for(1));
  CHECK(destroyer.after == ErrorCode::stopped);
  CHECK(wait_for_threads(threads_left));
}

TEST_CASE("a runtime that hixl_diag may ask, destroyed in a callback of its own") {
#ifdef __SANITIZE_THREAD__
  MESSAGE(k_unseen);
  return;
#endif
  std::thread([] {}).join();  // a sanitizer's own thread comes with the first
  const std::size_t threads_left = threads();
  RuntimeOptions options;
  options.diagnosis = "127.0.0.1:0";
  auto made = Runtime::create(options);
  require_ok(made);
  struct End {
    std::unique_ptr<Runtime> runtime;
    Events ended{};
  } end{std::move(*made)};
  const auto done = [](void* context, const Result<void>&) {
    auto& to = *static_cast<End*>(context);
    to.runtime.reset();
    to.ended.add();
  };
  require_ok(end.runtime->quiet_async(k_patience, done, &end));
  REQUIRE(end.ended.wait_for(1));
  CHECK(wait_for_threads(threads_left));
}

TEST_CASE("a hook on a runtime's own thread may ask, post, and end the runtime") {
  struct Hooked {
    std::unique_ptr<Runtime> runtime;
    Region region;
    Result<std::vector<OperationInfo>> rows{};
    bool posted = false;
    Events events;
  } hooked;
  std::thread([] {}).join();  // a sanitizer's own thread comes with the first
  const std::size_t threads_left = threads();
  auto options = options_for(0, 1, "");
  options.sweep_period = 10ms;
  options.sweep_hook = {
      [](void* context, const OperationInfo&) {
        auto& in = *static_cast<Hooked*>(context);
        if (in.runtime == nullptr) return;
        in.rows = in.runtime->outstanding();
        in.posted = in.runtime->put(in.region.data, {0, in.region.address() + 8, {}, 0}, 8).has_value();
        in.runtime.reset();
        in.events.add();
      },
      &hooked};
  auto runtime = Runtime::create(options);
  require_ok(runtime);
  hooked.region = *(*runtime)->allocate(4096);
  Runtime& here = **runtime;
  hooked.runtime = std::move(*runtime);
  const auto late = here.put(hooked.region.data, {0, hooked.region.address() + 8, {}, 0}, 8, {.timeout = 0ns});
  require_ok(late);
  REQUIRE(hooked.events.wait_for(1));
  require_ok(hooked.rows);
  CHECK(hooked.rows->size() == 1);
  CHECK(hooked.posted);
  CHECK(wait_for_threads(threads_left));
}
