// SPDX-License-Identifier: Apache-2.0
#include "child.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include <doctest/doctest.h>

#include "proc.hpp"

namespace hixl::test {

namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Child::Child(const std::string& program, const std::vector<std::string>& arguments,
             const std::vector<std::string>& environment) {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  socket_ = ends[0];
  log_ = memfd_create("child-log", MFD_CLOEXEC);
  REQUIRE(log_ >= 0);
  std::vector<std::string> texts{program};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log_, STDERR_FILENO);
  const int error =
      posix_spawn(&pid_, program.c_str(), &actions, nullptr, pointers(texts).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  REQUIRE_MESSAGE(error == 0, program << ": " << std::strerror(error));
  running_ = true;
  lines_ = std::make_unique<Lines>(socket_);
}

Child::~Child() {
  if (running_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(socket_);
  ::close(log_);
}

void Child::tell(std::string_view line) {
  if (!try_tell(line)) FAIL("child " << pid_ << " is gone and cannot be told '" << line << "'\n" << log());
}

bool Child::try_tell(std::string_view line) { return lines_->send(line); }

std::string Child::hear() {
  auto line = lines_->next();
  if (!line) FAIL("child " << pid_ << " said nothing\n" << log());
  return *line;
}

std::string Child::ask(std::string_view line) {
  tell(line);
  return hear();
}

/// Waits for one change of state, at most k_patience.
int Child::wait_for(int options) {
  int status = 0;
  const bool changed = eventually([&] { return ::waitpid(pid_, &status, options | WNOHANG) == pid_; });
  REQUIRE_MESSAGE(changed, "child " << pid_ << " does not change its state\n" << log());
  return status;
}

void Child::stop() {
  REQUIRE(::kill(pid_, SIGSTOP) == 0);
  REQUIRE(WIFSTOPPED(wait_for(WUNTRACED)));
}

void Child::resume() {
  REQUIRE(::kill(pid_, SIGCONT) == 0);
  REQUIRE(WIFCONTINUED(wait_for(WCONTINUED)));
}

void Child::kill() {
  REQUIRE(::kill(pid_, SIGKILL) == 0);
  REQUIRE(wait() == 128 + SIGKILL);
}

int Child::wait() {
  const int status = wait_for(0);
  running_ = false;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string Child::log() const {
  std::string text(static_cast<std::size_t>(std::max<off_t>(lseek(log_, 0, SEEK_END), 0)), '\0');
  const ssize_t count = pread(log_, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return text;
}

}  // namespace hixl::test
