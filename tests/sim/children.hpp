// SPDX-License-Identifier: Apache-2.0
//
// Work in child processes: several at once, and none takes this program with it when an assertion of the library ends
// it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace hixl::sim {

/// Takes what a child has to tell.
class Told {
 public:
  explicit Told(int fd) : fd_(fd) {}
  /// All of it, or the child ends: nobody listens any more.
  void operator()(const void* data, std::size_t size) const;
  void operator()(const std::string& text) const { (*this)(text.data(), text.size()); }

 private:
  int fd_;
};

struct Outcome {
  std::string told;
  bool ended_well = false;  ///< else a signal ended it
};

struct Children {
  std::size_t count = 1;
  std::size_t at_once = 1;
  unsigned seconds_max = 0;  ///< of processor time, each; 0: any
  bool mute = false;         ///< what they print is thrown away
};

/// Calls work(i, tell) for each i below count, each in a child; the outcomes in that order.
[[nodiscard]] std::vector<Outcome> in_children(const Children& children,
                                               const std::function<void(std::size_t, const Told&)>& work);

}  // namespace hixl::sim
