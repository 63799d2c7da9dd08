// SPDX-License-Identifier: Apache-2.0
//
// A runtime that ends in a callback of its own group, in a program of its own: that end has no join, so a sanitizer
// cannot know that descriptors which are used again later were given back before.
#include <chrono>
#include <filesystem>
#include <thread>

#include "group_parts.hpp"
#include "polled_parts.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

/// Without opening anything: a folder has two links, and one more for each folder in it.
std::size_t threads() { return static_cast<std::size_t>(std::filesystem::hard_link_count("/proc/self/task")) - 2; }

}  // namespace

TEST_CASE("a runtime that is destroyed in a callback of its group's barrier: its groups answer STOPPED at once") {
#ifdef __SANITIZE_THREAD__
  MESSAGE("skipped: libuv's closing of a descriptor is not seen here, and its next use would count as a race");
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
  // It ends on a thread of its own, which nobody can join.
  const auto limit = std::chrono::steady_clock::now() + k_patience;
  while (threads() > threads_left && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  CHECK(threads() <= threads_left);
}
