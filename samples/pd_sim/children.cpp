// SPDX-License-Identifier: Apache-2.0
#include "children.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string_view>

namespace pd {

namespace {

/// The environment of one rank: ours, so that HIXL_LINKS and HIXL_LOG reach it, but for `settings`.
std::vector<std::string> environment_with(std::vector<std::string> settings) {
  std::vector<std::string> result = std::move(settings);
  const std::size_t own = result.size();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const auto end = result.begin() + static_cast<std::ptrdiff_t>(own);
    if (std::any_of(result.begin(), end, [&](const std::string& set) { return set.starts_with(name); })) continue;
    result.emplace_back(text);
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Children::~Children() {
  for (std::uint32_t rank = 0; rank < children_.size(); ++rank) {
    if (!children_[rank].alive) continue;
    kill(rank);
    reap(children_[rank]);
  }
}

bool Children::start(std::uint32_t count, const std::string& store_url, const Settings& settings) {
  const pid_t launcher = ::getpid();
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    PipePair pipe = make_pipe();
    std::vector<std::string> own = settings ? settings(rank) : std::vector<std::string>();
    own.push_back("HIXL_RANK=" + std::to_string(rank));
    own.push_back("HIXL_WORLD_SIZE=" + std::to_string(count));
    own.push_back("HIXL_STORE=" + store_url);
    std::vector<std::string> environment = environment_with(std::move(own));
    std::vector<std::string> arguments{"hixl_pd_sim", "--rank-fd", std::to_string(pipe.child_fd)};
    const std::vector<char*> environment_pointers = pointers(environment);
    const std::vector<char*> argument_pointers = pointers(arguments);
    const pid_t pid = ::fork();
    if (pid == 0) {
      // The store's thread does not exist here: only async-signal-safe calls until exec.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != launcher) ::_exit(1);  // it died before the line above
      ::fcntl(pipe.child_fd, F_SETFD, 0);
      ::execve("/proc/self/exe", argument_pointers.data(), environment_pointers.data());
      ::_exit(127);
    }
    ::close(pipe.child_fd);
    if (pid < 0) return false;
    children_.push_back({.pid = pid, .pipe = std::move(pipe.ours), .alive = true});
  }
  return true;
}

void Children::kill(std::uint32_t rank) {
  if (children_[rank].alive) ::kill(children_[rank].pid, SIGKILL);
}

void Children::reap(Child& child) {
  if (!child.alive) return;
  ::waitpid(child.pid, &child.status, 0);
  child.alive = false;
}

}  // namespace pd
