// SPDX-License-Identifier: Apache-2.0
//
// The rank processes: started with the launcher's own program, ended with it, watched through their pipes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "line_pipe.hpp"

namespace pd {

struct Child {
  pid_t pid = -1;
  LinePipe pipe;
  bool alive = false;
  int status = 0;     ///< of waitpid, once it has ended
  bool left = false;  ///< it said goodbye
};

class Children {
 public:
  Children() = default;
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  /// What a rank's environment has besides its place in the job, or instead of what ours has: "NAME=value".
  using Settings = std::function<std::vector<std::string>(std::uint32_t rank)>;
  /// Starts `count` ranks of this program. False: errno says why.
  [[nodiscard]] bool start(std::uint32_t count, const std::string& store_url, const Settings& settings);
  [[nodiscard]] std::vector<Child>& all() { return children_; }
  [[nodiscard]] const std::vector<Child>& all() const { return children_; }
  /// kill -9, by the number that the child still holds: it has not been waited for.
  void kill(std::uint32_t rank);
  /// Waits for a child whose pipe has ended.
  void reap(Child& child);

 private:
  std::vector<Child> children_;
};

}  // namespace pd
