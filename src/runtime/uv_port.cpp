// SPDX-License-Identifier: Apache-2.0
//
// UvPort.
#include "runtime/uv_port.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "runtime/uv_port_listener.hpp"
#include "runtime/uv_port_stream.hpp"

namespace hixl::runtime {
namespace {

class UvWatch final : public Watch, private PollTarget {
 public:
  explicit UvWatch(WatchEvents& events) : events_(events) {}
  [[nodiscard]] int open(UvHandles& handles, int fd) {
    const int error = poll_.open(handles, fd, *this);
    poll_.arm(UV_READABLE);
    return error;
  }

 private:
  void on_poll(int) override {
    const UvOwner::Witness witness(poll_);
    events_.on_ready();
    if (witness.alive()) poll_.arm(UV_READABLE);  // libuv disarms a descriptor that reports an error
  }
  WatchEvents& events_;
  UvPoll poll_;
};

/// Allocation is the only thing in here that throws, and no exception leaves a room.
template <class T, class Make>
Result<T> guarded(const UvHandles& handles, Stage stage, Make make) {
  if (handles.closed()) return fail(ErrorCode::stopped, {.stage = stage});
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::no_memory, {.stage = stage, .os_error = ENOMEM});
  }
}

}  // namespace

Error set_up_error(int uv_error) {
  const bool limit = uv_error == UV_EMFILE || uv_error == UV_ENFILE;
  return Error(limit ? ErrorCode::fd_limit : ErrorCode::os_error, {.stage = Stage::options, .os_error = -uv_error});
}

int hold_standard_descriptors() noexcept {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    const int opened = ::open("/dev/null", O_RDWR);
    if (opened < 0) return -errno;
    if (opened > STDERR_FILENO) ::close(opened);  // another thread was faster
  }
  return 0;
}

Result<std::unique_ptr<UvPort>> UvPort::open(uv_loop_t* loop) {
  std::unique_ptr<UvPort> port(new UvPort(loop));
  port->bell_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  const int error = port->bell_ ? -port->bell_poll_.open(port->handles_, port->bell_.get(), *port) : errno;
  if (error != 0) return fail(set_up_error(-error));
  port->bell_poll_.arm(UV_READABLE);
  return port;
}

void UvPort::wake() noexcept {
  const int error = errno;  // callers post from anywhere and do not expect to lose theirs
  // The only way to fail is a full counter, and then the loop has been woken 2^64 - 2 times already.
  (void)::eventfd_write(bell_.get(), 1);
  errno = error;
}

void UvPort::on_poll(int) {
  eventfd_t rings = 0;
  (void)::eventfd_read(bell_.get(), &rings);  // that the poll ended is all it was for
}

Result<std::unique_ptr<Listener>> UvPort::listen(const Address& address, ListenerEvents& events) {
  return guarded<std::unique_ptr<Listener>>(handles_, Stage::bind,
                                            [&] { return UvListener::open(handles_, address, events); });
}

Result<std::unique_ptr<Stream>> UvPort::connect(const Address& address, Duration timeout, StreamEvents& events) {
  return guarded<std::unique_ptr<Stream>>(handles_, Stage::connect,
                                          [&] { return UvStream::dial(handles_, address, timeout, events); });
}

Result<std::unique_ptr<Watch>> UvPort::watch(int fd, WatchEvents& events) {
  return guarded<std::unique_ptr<Watch>>(handles_, Stage::none, [&]() -> Result<std::unique_ptr<Watch>> {
    auto watch = std::make_unique<UvWatch>(events);
    if (const int error = watch->open(handles_, fd); error != 0) {
      return fail(ErrorCode::os_error, {.os_error = -error});
    }
    return watch;
  });
}

}  // namespace hixl::runtime
