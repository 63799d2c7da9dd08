// SPDX-License-Identifier: Apache-2.0
//
// What ranks do with words that they share: count on one, and take turns by one.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>

#include <hixl/runtime.hpp>

namespace hixl::test {

/// "ok" and all values before, in order; or the error's name.
inline std::string count_on(Runtime& runtime, const RemoteAddress& word, std::uint64_t times, Timeout patience) {
  std::string seen = "ok";
  for (std::uint64_t i = 0; i < times; ++i) {
    const auto before = runtime.fetch_add_sync(word, 1, patience);
    if (!before) return std::string(name(before.error().code));
    seen += ' ' + std::to_string(*before);
  }
  return seen;
}

/// Takes the lock word by compare_swap, adds 1 to the word behind it by get and put through `own` (of a region of this
/// rank), and gives it back, that often: "ok".
inline std::string take_turns(Runtime& runtime, const RemoteRegion& there, std::uint64_t offset, std::uint64_t times,
                              std::byte* own, Timeout patience) {
  const std::uint64_t me = runtime.rank() + 1;
  const auto failed = [](const Error& error) { return std::string(name(error.code)); };
  for (std::uint64_t i = 0; i < times; ++i) {
    for (;;) {
      const auto holder = runtime.compare_swap_sync(there.at(offset), 0, me, patience);
      if (!holder) return failed(holder.error());
      if (*holder == 0) break;
      sched_yield();
    }
    if (const auto got = runtime.get_sync(own, there.at(offset + 8), 8, patience); !got) return failed(got.error());
    *reinterpret_cast<std::uint64_t*>(own) += 1;
    if (const auto put = runtime.put_sync(own, there.at(offset + 8), 8, patience); !put) return failed(put.error());
    const auto held = runtime.swap_sync(there.at(offset), 0, patience);
    if (!held) return failed(held.error());
    if (*held != me) return "somebody else held it: " + std::to_string(*held);
  }
  return "ok";
}

}  // namespace hixl::test
