// SPDX-License-Identifier: Apache-2.0
//
// Child: a process that a test starts, talks to by lines, stops, kills and waits for. It is spawned (fork and exec in
// one), because the test itself runs threads. It never outlives its Child, nor the test.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lines.hpp"

namespace hixl::test {

/// Owner: the test. Any failure of the machinery, and every wait that takes longer than k_patience, fails the test.
class Child {
 public:
  /// `environment` comes on top of this process' own. Standard input and output are one socket to us; standard
  /// error is kept for log().
  Child(const std::string& program, const std::vector<std::string>& arguments,
        const std::vector<std::string>& environment = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void tell(std::string_view line);
  /// For one that may have ended already. False: it has.
  [[nodiscard]] bool try_tell(std::string_view line);
  /// Its next line.
  [[nodiscard]] std::string hear();
  [[nodiscard]] std::string ask(std::string_view line);

  /// SIGSTOP; returns when the kernel has reported that it stands still.
  void stop();
  void resume();
  /// SIGKILL; returns when it is gone.
  void kill();
  /// Waits for its own end. Exit code, or 128 + signal.
  [[nodiscard]] int wait();
  /// What it wrote to standard error so far.
  [[nodiscard]] std::string log() const;

 private:
  [[nodiscard]] int wait_for(int options);

  pid_t pid_ = -1;
  bool running_ = false;
  int socket_ = -1;
  int log_ = -1;
  std::unique_ptr<Lines> lines_;
};

}  // namespace hixl::test
