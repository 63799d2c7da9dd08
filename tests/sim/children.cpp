// SPDX-License-Identifier: Apache-2.0
#include "children.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/assert.hpp"

namespace hixl::sim {

namespace {

struct Child {
  std::size_t index = 0;
  pid_t pid = 0;
  int fd = -1;
};

[[noreturn]] void be_child(const Children& children, std::size_t index, int fd,
                           const std::function<void(std::size_t, const Told&)>& work) {
  if (children.seconds_max != 0) {
    const rlimit limit{children.seconds_max, children.seconds_max};
    ::setrlimit(RLIMIT_CPU, &limit);
  }
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  if (children.mute) {
    const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(null, STDOUT_FILENO);
    ::dup2(null, STDERR_FILENO);
  }
  work(index, Told(fd));
  std::fflush(nullptr);
  ::_exit(0);  // what the parent has registered for its own exit is not ours
}

Child start(const Children& children, std::size_t index, const std::function<void(std::size_t, const Told&)>& work) {
  int ends[2];
  HIXL_ASSERT(::pipe2(ends, O_CLOEXEC) == 0);
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  HIXL_ASSERT(pid >= 0);
  if (pid == 0) {
    ::close(ends[0]);
    be_child(children, index, ends[1], work);
  }
  ::close(ends[1]);
  return {index, pid, ends[0]};
}

/// False: it has ended.
bool listen_to(const Child& child, Outcome& outcome) {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(child.fd, buffer.data(), buffer.size());
  if (got > 0) outcome.told.append(buffer.data(), static_cast<std::size_t>(got));
  if (got > 0 || (got < 0 && errno == EINTR)) return true;
  ::close(child.fd);
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  outcome.ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return false;
}

}  // namespace

void Told::operator()(const void* data, std::size_t size) const {
  const auto* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(fd_, from, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) ::_exit(1);
    from += written;
    size -= static_cast<std::size_t>(written);
  }
}

std::vector<Outcome> in_children(const Children& children, const std::function<void(std::size_t, const Told&)>& work) {
  std::vector<Outcome> outcomes(children.count);
  std::vector<Child> running;
  std::size_t next = 0;
  while (next < children.count || !running.empty()) {
    while (next < children.count && running.size() < children.at_once) running.push_back(start(children, next++, work));
    std::vector<pollfd> waiting;
    for (const Child& child : running) waiting.push_back({child.fd, POLLIN, 0});
    if (::poll(waiting.data(), waiting.size(), -1) < 0) continue;
    for (std::size_t i = running.size(); i-- > 0;) {
      if (waiting[i].revents == 0 || listen_to(running[i], outcomes[running[i].index])) continue;
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return outcomes;
}

}  // namespace hixl::sim
