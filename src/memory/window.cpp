// SPDX-License-Identifier: Apache-2.0
//
// memfd, seals and mapping. Everything that could end in a signal later (SIGBUS, SIGXFSZ, the memory killer) is asked
// for first and answered with an error.
#include "memory/window.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>

#include "memory/memory_limit.hpp"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3; older C libraries do not name it
#endif

namespace hixl::memory {
namespace {

/// Windows below this size are not compared with the available memory: the files to read would cost more than the
/// pages, and so little decides nothing.
constexpr std::size_t k_checked_bytes_min = 1U << 20U;
/// Page tables and their kin are charged too: 8 bytes a page, doubled for safety.
constexpr std::size_t k_overhead_divisor = 256;
/// Pages are allocated in pieces of this size with signals blocked, since a signal undoes the whole call; a piece
/// takes some 20 ms, which a signal can wait.
constexpr std::size_t k_allocation_piece_bytes = 64U << 20U;
/// Interruptions (stopping and continuing the process cannot be blocked) after which a piece is given up.
constexpr int k_interruptions_max = 64;

tl::unexpected<Error> os_failure(int os_error, std::size_t length) {
  ErrorCode code = ErrorCode::os_error;
  if (os_error == EMFILE || os_error == ENFILE) code = ErrorCode::fd_limit;
  if (os_error == ENOMEM) code = ErrorCode::no_memory;
  if (os_error == ENOSPC) code = ErrorCode::no_space;
  if (os_error == EFBIG) code = ErrorCode::limit_reached;
  return fail(code, {.stage = Stage::memory, .os_error = os_error, .length = length});
}

tl::unexpected<Error> over_limit(ErrorCode code, std::size_t length, std::uint64_t limit) {
  return fail(code, {.stage = Stage::memory, .length = length, .limit = limit});
}

/// Compares with everything that would otherwise answer by a signal.
Result<void> check_limits(std::size_t size, bool reserve) {
  constexpr auto k_file_bytes_max = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  if (size > k_file_bytes_max) return over_limit(ErrorCode::no_memory, size, k_file_bytes_max);
  if (reserve && size >= k_checked_bytes_min) {
    const std::uint64_t available = available_bytes();
    if (size > available || size / k_overhead_divisor > available - size) {
      return over_limit(ErrorCode::no_memory, size, available);
    }
  }
  rlimit file_size{};
  if (getrlimit(RLIMIT_FSIZE, &file_size) == 0 && file_size.rlim_cur != RLIM_INFINITY && size > file_size.rlim_cur) {
    return over_limit(ErrorCode::limit_reached, size, file_size.rlim_cur);
  }
  return {};
}

int make_memfd(const char* label) noexcept {
  constexpr unsigned k_flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = memfd_create(label, k_flags | MFD_NOEXEC_SEAL);
  return fd < 0 && errno == EINVAL ? memfd_create(label, k_flags) : fd;
}

/// 0 or an error number.
int allocate_pages(int fd, std::size_t size) noexcept {
  sigset_t all, before;
  sigfillset(&all);
  for (std::size_t offset = 0; offset < size; offset += k_allocation_piece_bytes) {
    const auto bytes = static_cast<off_t>(std::min(size - offset, k_allocation_piece_bytes));
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = EINTR;
    for (int attempt = 0; error == EINTR && attempt < k_interruptions_max; ++attempt) {
      error = posix_fallocate(fd, static_cast<off_t>(offset), bytes);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error != 0) return error;
  }
  return 0;
}

/// Maps, kept out of children; null with errno.
std::byte* map_pages(int fd, std::size_t size, int protection) noexcept {
  void* data = mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return nullptr;
  if (madvise(data, size, MADV_DONTFORK) != 0) {
    const int error = errno;
    munmap(data, size);
    errno = error;
    return nullptr;
  }
  return static_cast<std::byte*>(data);
}

}  // namespace

Result<std::unique_ptr<Window>> Window::create(std::size_t size, const char* label, bool reserve) {
  if (size == 0) return fail(ErrorCode::invalid_argument, {.stage = Stage::memory});
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (size > std::numeric_limits<std::size_t>::max() - page) {
    return over_limit(ErrorCode::no_memory, size, static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()));
  }
  const std::size_t bytes = (size + page - 1) / page * page;
  if (const Result<void> checked = check_limits(bytes, reserve); !checked) return fail(checked.error());

  std::unique_ptr<Window> window(new Window);
  window->fd_ = make_memfd(("hixl-" + std::string(label)).c_str());
  if (window->fd_ < 0) return os_failure(errno, bytes);
  if (ftruncate(window->fd_, static_cast<off_t>(bytes)) != 0) return os_failure(errno, bytes);
  if (reserve) {
    if (const int error = allocate_pages(window->fd_, bytes); error != 0) return os_failure(error, bytes);
  }
  if (fcntl(window->fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return os_failure(errno, bytes);
  window->data_ = map_pages(window->fd_, bytes, PROT_READ | PROT_WRITE);
  if (window->data_ == nullptr) return os_failure(errno, bytes);
  window->size_ = bytes;
  return window;
}

Window::~Window() {
  if (data_ != nullptr) munmap(data_, size_);
  if (read_only_fd_ >= 0) close(read_only_fd_);
  if (fd_ >= 0) close(fd_);
}

int Window::read_only_fd() {
  if (read_only_fd_ < 0) {
    read_only_fd_ = open(("/proc/self/fd/" + std::to_string(fd_)).c_str(), O_RDONLY | O_CLOEXEC);
  }
  return read_only_fd_;
}

Result<std::unique_ptr<MappedWindow>> MappedWindow::map(int fd, std::size_t size, bool writable) {
  const ErrorDetail detail{.stage = Stage::memory, .length = size};
  if (size == 0) return fail(ErrorCode::invalid_argument, detail);
  // Only memfds have seals, and only one that cannot shrink cannot raise SIGBUS here.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return fail(ErrorCode::access_denied, detail);
  struct stat status{};
  if (fstat(fd, &status) != 0) return os_failure(errno, size);
  if (static_cast<std::uint64_t>(status.st_size) < size) {
    ErrorDetail shorter = detail;
    shorter.limit = static_cast<std::uint64_t>(status.st_size);
    return fail(ErrorCode::access_denied, shorter);
  }
  std::unique_ptr<MappedWindow> window(new MappedWindow);
  window->data_ = map_pages(fd, size, writable ? PROT_READ | PROT_WRITE : PROT_READ);
  if (window->data_ == nullptr) {
    if (errno == EACCES || errno == EPERM) return fail(ErrorCode::access_denied, detail);
    return os_failure(errno, size);
  }
  window->size_ = size;
  return window;
}

MappedWindow::~MappedWindow() {
  if (data_ != nullptr) munmap(data_, size_);
}

void MappedWindow::detach() noexcept {
  // Pages are made only if somebody touches them. In case of failure the old mapping stays: memory is held, not lost.
  void* replaced = mmap(data_, size_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (replaced != MAP_FAILED) madvise(data_, size_, MADV_DONTFORK);
}

}  // namespace hixl::memory
