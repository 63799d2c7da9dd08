// SPDX-License-Identifier: Apache-2.0
//
// JSON lines over a socket pair: how launcher and ranks talk about requests and results.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace pd {

using Json = nlohmann::json;

/// One end. Owns its descriptor.
class LinePipe {
 public:
  LinePipe() = default;
  explicit LinePipe(int fd) : fd_(fd) {}
  LinePipe(LinePipe&& other) noexcept;
  LinePipe& operator=(LinePipe&& other) noexcept;
  ~LinePipe();

  [[nodiscard]] int fd() const { return fd_; }
  /// Blocks until the line is in the socket (a rank's end). False: the other side is gone.
  bool write(const Json& line);
  /// Keeps what the socket does not take now (the launcher's end, which must not block on one rank).
  void queue(const Json& line);
  bool flush();  ///< False: the other side is gone.
  [[nodiscard]] bool wants_to_write() const { return !out_.empty(); }
  /// Whole lines that are there; with `block` at least one unless the other side is gone (then `ended()`).
  [[nodiscard]] std::vector<Json> read(bool block);
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  int fd_ = -1;
  bool ended_ = false;
  std::string in_;
  std::string out_;
};

/// Two ends of one pipe; the second is meant for a child and stays open across exec there.
struct PipePair {
  LinePipe ours;
  int child_fd = -1;
};
[[nodiscard]] PipePair make_pipe();

}  // namespace pd
