// SPDX-License-Identifier: Apache-2.0
//
// Lines of text between a test and the processes it starts: one connected socket, one line a message.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace hixl::test {

/// Longest wait for anything that another process does. No promise of the library is this slow; a test that gets
/// here fails and says for what it waited.
inline constexpr std::chrono::seconds k_patience{20};

/// Owner: its maker. Does not own the descriptor.
class Lines {
 public:
  explicit Lines(int fd) : fd_(fd) {}
  /// False: the other end is gone. Never raises SIGPIPE.
  bool send(std::string_view line);
  /// The next line, without its end. Nothing: the time is over or the other end is gone.
  [[nodiscard]] std::optional<std::string> next(std::chrono::milliseconds patience = k_patience);
  /// A line (or the end) is there now.
  [[nodiscard]] bool waiting() const;

 private:
  int fd_;
  std::string read_;
};

}  // namespace hixl::test
