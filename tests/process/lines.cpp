// SPDX-License-Identifier: Apache-2.0
#include "lines.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace hixl::test {

bool Lines::send(std::string_view line) {
  std::string rest(line);
  rest += '\n';
  while (!rest.empty()) {
    const ssize_t sent = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    rest.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

std::optional<std::string> Lines::next(std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (const auto newline = read_.find('\n'); newline != std::string::npos) {
      std::string line = read_.substr(0, newline);
      read_.erase(0, newline + 1);
      return line;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return std::nullopt;
    pollfd query{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&query, 1, static_cast<int>(left.count())) <= 0) continue;
    std::array<char, 4096> buffer;
    const ssize_t count = ::recv(fd_, buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    read_.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

bool Lines::waiting() const {
  pollfd query{.fd = fd_, .events = POLLIN, .revents = 0};
  return !read_.empty() || ::poll(&query, 1, 0) > 0;
}

}  // namespace hixl::test
