// SPDX-License-Identifier: Apache-2.0
//
// What the tests of waiting share: two ranks that know each other's window, a callback that notes, a coroutine.
#pragma once

#include <coroutine>
#include <thread>

#include "support.hpp"

namespace hixl::test {

inline constexpr std::size_t k_wait_bytes = 1U << 20U;

struct WaitPair {
  explicit WaitPair(const std::vector<LinkKind>& links) : world(2, links) {
    a = *world[0].allocate(k_wait_bytes);
    b = *world[1].allocate(k_wait_bytes);
    remote = world.exchange_all({a, b})[0][1];
  }
  World world;
  Region a, b;
  RemoteRegion remote;
};

struct Noted {
  std::thread::id home = std::this_thread::get_id();
  Completion completion{};
  bool elsewhere = false;  ///< it came on another thread
  Events events;
  Callback callback() {
    return {[](void* context, const Completion& seen) {
              auto& noted = *static_cast<Noted*>(context);
              noted.completion = seen;
              noted.elsewhere = std::this_thread::get_id() != noted.home;
              noted.events.add();
            },
            this};
  }
};

/// A coroutine that runs by itself; the test sees its end by other means.
/// Ends by itself; only one that threw is left at its end, for who has `frame` to destroy.
struct Detached {
  struct promise_type {
    Detached get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { throw; }  // NOLINT: on into the library, which counts it
  };
  std::coroutine_handle<> frame;
};

}  // namespace hixl::test
