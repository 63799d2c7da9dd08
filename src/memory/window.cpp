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
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "base/log.hpp"
#include "memory/memory_limit.hpp"
#include "memory/numa.hpp"

#ifndef MFD_HUGE_SHIFT
#define MFD_HUGE_SHIFT 26
#endif
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
  const std::uint64_t limit = os_error == ENOMEM ? address_space_limit() : 0;
  return fail(code, {.stage = Stage::memory, .os_error = os_error, .length = length, .limit = limit});
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
    auto over = over_limit(ErrorCode::limit_reached, size, file_size.rlim_cur);
    over.value().detail.os_error = EFBIG;
    return over;
  }
  return {};
}

/// `huge`: bytes of a huge page, 0 for ordinary ones.
int make_memfd(const char* label, std::size_t huge) noexcept {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  if (huge != 0) flags |= MFD_HUGETLB | static_cast<unsigned>(std::countr_zero(huge)) << MFD_HUGE_SHIFT;
  const int fd = memfd_create(label, flags | MFD_NOEXEC_SEAL);
  return fd < 0 && errno == EINVAL ? memfd_create(label, flags) : fd;
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

/// Maps, kept out of children and of core dumps (others' keys and prompts are in there); null with errno.
std::byte* map_pages(int fd, std::size_t size, int protection) noexcept {
  void* data = mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return nullptr;
  if (madvise(data, size, MADV_DONTFORK) != 0 || madvise(data, size, MADV_DONTDUMP) != 0) {
    const int error = errno;
    munmap(data, size);
    errno = error;
    return nullptr;
  }
  return static_cast<std::byte*>(data);
}

}  // namespace

Result<std::unique_ptr<Window>> Window::create(std::size_t size, const char* label, const WindowOptions& options) {
  if (size == 0) return fail(ErrorCode::invalid_argument, {.stage = Stage::memory});
  if (options.numa_node != k_no_numa_node && options.numa_node != k_numa_auto) {
    if (const Result<void> known = check_numa_node(options.numa_node, size); !known) return fail(known.error());
  }
  std::unique_ptr<Window> window(new Window);
  if (options.huge_pages != HugePages::none) {
    const Result<void> made = window->make(size, label, options, huge_page_bytes());
    if (made) return window;
    if (options.huge_pages == HugePages::require || made.error().code == ErrorCode::fd_limit) return fail(made.error());
    log::debug("no huge pages for {} bytes ({}); going on with ordinary ones", size, made.error().message());
    window.reset(new Window);
  }
  if (const Result<void> made = window->make(size, label, options, 0); !made) return fail(made.error());
  return window;
}

/// `huge` 0: ordinary pages. On failure the destructor gives back what was made.
Result<void> Window::make(std::size_t size, const char* label, const WindowOptions& options, std::size_t huge) {
  page_bytes_ = huge != 0 ? huge : static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (size > std::numeric_limits<std::size_t>::max() - page_bytes_) {
    return over_limit(ErrorCode::no_memory, size, static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()));
  }
  const std::size_t bytes = (size + page_bytes_ - 1) / page_bytes_ * page_bytes_;
  if (const Result<void> checked = check_limits(bytes, options.reserve && huge == 0); !checked) return checked;
  if (huge != 0) {
    const std::uint64_t free_bytes = free_huge_page_bytes();
    if (bytes > free_bytes) return over_limit(ErrorCode::huge_pages_missing, bytes, free_bytes);
  }
  const auto os_error = [&](int error) -> Result<void> {
    auto failure = os_failure(error, bytes);
    // Somebody else was faster, or a control group allows none.
    if (huge != 0 && failure.value().code != ErrorCode::fd_limit) failure.value().code = ErrorCode::huge_pages_missing;
    return failure;
  };
  fd_ = make_memfd(("hixl-" + std::string(label)).c_str(), huge);
  if (fd_ < 0) return os_error(errno);
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return os_error(errno);
  data_ = map_pages(fd_, bytes, PROT_READ | PROT_WRITE);
  if (data_ == nullptr) return os_error(errno);
  size_ = bytes;
  // Before the pages are made: the policy belongs to the file then, and says where.
  if (options.numa_node != k_no_numa_node) {
    const Result<void> placed = place_on_node(data_, bytes, options.numa_node);
    if (!placed) return placed;
  }
  if (options.reserve) {
    if (const int error = allocate_pages(fd_, bytes); error != 0) return os_error(error);
  }
  if (options.numa_node != k_no_numa_node && options.reserve) numa_node_ = numa_node_of(data_);
  if (fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return os_error(errno);
  return {};
}

Window::~Window() {
  if (data_ != nullptr) munmap(data_, size_);
  if (read_only_fd_ >= 0) close(read_only_fd_);
  if (fd_ >= 0) close(fd_);
}

void Window::give_back(std::size_t offset, std::size_t bytes) noexcept {
  // A hole among huge pages is filled at the next touch only if one is free, else by SIGBUS at whoever still maps them.
  const bool ordinary = page_bytes_ == static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  constexpr int k_punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (ordinary && fallocate(fd_, k_punch, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0) return;
  std::memset(data_ + offset, 0, bytes);
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
  struct stat status {};
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

bool MappedWindow::shrink(std::size_t bytes) noexcept {
  if (size_ <= bytes) return true;
  const std::size_t left = (size_ - 1) / bytes * bytes;
  if (munmap(data_ + left, size_ - left) != 0) return true;
  size_ = left;
  return false;
}

void MappedWindow::detach() noexcept {
  // Pages are made only if somebody touches them. In case of failure the old mapping stays: memory is held, not lost.
  void* replaced =
      mmap(data_, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (replaced != MAP_FAILED) madvise(data_, size_, MADV_DONTFORK);
}

}  // namespace hixl::memory
