// SPDX-License-Identifier: Apache-2.0
#include "line_pipe.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace pd {

LinePipe::LinePipe(LinePipe&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), ended_(other.ended_), in_(std::move(other.in_)), out_(std::move(other.out_)) {}

LinePipe& LinePipe::operator=(LinePipe&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(ended_, other.ended_);
  std::swap(in_, other.in_);
  std::swap(out_, other.out_);
  return *this;
}

LinePipe::~LinePipe() {
  if (fd_ >= 0) ::close(fd_);
}

bool LinePipe::write(const Json& line) {
  std::string text = line.dump() + '\n';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::send(fd_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

void LinePipe::queue(const Json& line) {
  out_ += line.dump();
  out_ += '\n';
  flush();
}

bool LinePipe::flush() {
  while (!out_.empty()) {
    const ssize_t count = ::send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (count <= 0) {
      out_.clear();
      return false;
    }
    out_.erase(0, static_cast<std::size_t>(count));
  }
  return true;
}

std::vector<Json> LinePipe::read(bool block) {
  std::vector<Json> lines;
  while (!ended_ && lines.empty()) {
    std::array<char, 65536> buffer;
    const ssize_t count = ::recv(fd_, buffer.data(), buffer.size(), block ? 0 : MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count <= 0) {
      ended_ = true;
      break;
    }
    in_.append(buffer.data(), static_cast<std::size_t>(count));
    std::size_t start = 0;
    for (std::size_t end = in_.find('\n'); end != std::string::npos; end = in_.find('\n', start)) {
      lines.push_back(Json::parse(in_.begin() + static_cast<std::ptrdiff_t>(start),
                                  in_.begin() + static_cast<std::ptrdiff_t>(end)));
      start = end + 1;
    }
    in_.erase(0, start);
  }
  return lines;
}

PipePair make_pipe() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  return {LinePipe(fds[0]), fds[1]};
}

}  // namespace pd
