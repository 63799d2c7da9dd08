// SPDX-License-Identifier: Apache-2.0
//
// SocketPort: an event port for tests over socket pairs that exist already; real descriptors travel, and the test turns
// everything in one thread. Cannot listen, connect or watch.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/event_port.hpp"

namespace hixl::hccs_test {

class SocketPort final : public runtime::EventPort {
 public:
  [[nodiscard]] Instant now() override { return Instant(std::chrono::steady_clock::now().time_since_epoch()); }
  void wake() noexcept override {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(bell_.get(), &one, sizeof one));
  }
  [[nodiscard]] Result<std::unique_ptr<runtime::Listener>> listen(const runtime::Address&,
                                                                  runtime::ListenerEvents&) override {
    return fail(ErrorCode::unsupported);
  }
  [[nodiscard]] Result<std::unique_ptr<runtime::Stream>> connect(const runtime::Address&, Duration,
                                                                 runtime::StreamEvents&) override {
    return fail(ErrorCode::unsupported);
  }
  [[nodiscard]] Result<std::unique_ptr<runtime::Watch>> watch(int, runtime::WatchEvents&) override {
    return fail(ErrorCode::unsupported);
  }

  /// One end of a connection, as a stream of this port.
  [[nodiscard]] std::unique_ptr<runtime::Stream> adopt(runtime::Fd fd) {
    return std::make_unique<PairStream>(*this, std::move(fd));
  }
  /// Who is said to be at the other end: the kernel names the maker of a socket pair, which a test may not be.
  std::int32_t peer_pid = ::getpid();
  [[nodiscard]] int bell() const noexcept { return bell_.get(); }
  [[nodiscard]] std::vector<int> descriptors() const {
    std::vector<int> all{bell_.get()};
    for (const PairStream* stream : streams_) all.push_back(stream->fd());
    return all;
  }
  /// Tells the streams what their sockets have for them. True: something was told.
  bool dispatch() {
    std::uint64_t rings = 0;
    bool any = ::read(bell_.get(), &rings, sizeof rings) > 0;
    const std::vector<PairStream*> present = streams_;
    for (PairStream* stream : present) {
      if (std::find(streams_.begin(), streams_.end(), stream) != streams_.end()) any |= stream->dispatch();
    }
    return any;
  }

 private:
  class PairStream final : public runtime::Stream {
   public:
    PairStream(SocketPort& port, runtime::Fd fd) : port_(port), fd_(std::move(fd)) { port.streams_.push_back(this); }
    ~PairStream() override { std::erase(port_.streams_, this); }
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

    void set_events(runtime::StreamEvents* events) override { events_ = events; }
    void want_read(bool on) override { wants_read_ = on; }
    [[nodiscard]] std::string remote_text() const override { return "pair"; }
    [[nodiscard]] Credentials credentials() const override { return {port_.peer_pid, ::getuid()}; }
    runtime::IoResult write(std::span<const iovec> pieces, std::span<const int> fds) override {
      msghdr message = header(pieces);
      alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> control{};
      if (!fds.empty()) {
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(fds.size_bytes());
        cmsghdr* rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(fds.size_bytes());
        std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
      }
      const runtime::IoResult result = answer(sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT));
      blocked_ = result.state == runtime::IoResult::State::would_block;
      return result;
    }
    runtime::IoResult read(std::span<const iovec> pieces, std::vector<runtime::Fd>* fds) override {
      msghdr message = header(pieces);
      alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> control{};
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      const ssize_t count = recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
      for (cmsghdr* part = CMSG_FIRSTHDR(&message); count > 0 && part != nullptr; part = CMSG_NXTHDR(&message, part)) {
        const std::size_t bytes = part->cmsg_len - CMSG_LEN(0);
        for (std::size_t at = 0; at < bytes; at += sizeof(int)) {
          int fd = -1;
          std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
          runtime::Fd owned(fd);
          if (fds != nullptr) fds->push_back(std::move(owned));
        }
      }
      if (count == 0) return {runtime::IoResult::State::closed, 0, 0};
      return answer(count);
    }
    bool dispatch() {
      pollfd query{fd_.get(), POLLIN | POLLOUT, 0};
      if (events_ == nullptr || ::poll(&query, 1, 0) <= 0) return false;
      if (blocked_ && (query.revents & POLLOUT) != 0) {
        blocked_ = false;
        events_->on_writable();
        return true;
      }
      if (!wants_read_ || (query.revents & (POLLIN | POLLHUP | POLLERR)) == 0) return false;
      events_->on_readable();
      return true;
    }

   private:
    static msghdr header(std::span<const iovec> pieces) {
      msghdr message{};
      message.msg_iov = const_cast<iovec*>(pieces.data());
      message.msg_iovlen = pieces.size();
      return message;
    }
    static runtime::IoResult answer(ssize_t count) {
      if (count >= 0) return {runtime::IoResult::State::ok, static_cast<std::size_t>(count), 0};
      if (errno == EAGAIN || errno == EINTR) return {runtime::IoResult::State::would_block, 0, 0};
      return {runtime::IoResult::State::failed, 0, errno};
    }
    SocketPort& port_;
    runtime::Fd fd_;
    runtime::StreamEvents* events_ = nullptr;
    bool wants_read_ = true;
    bool blocked_ = false;
  };

  runtime::Fd bell_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::vector<PairStream*> streams_;
};

/// Two connected unix stream sockets.
[[nodiscard]] inline std::array<runtime::Fd, 2> socket_pair() {
  int fds[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) return {};
  return {runtime::Fd(fds[0]), runtime::Fd(fds[1])};
}

}  // namespace hixl::hccs_test
