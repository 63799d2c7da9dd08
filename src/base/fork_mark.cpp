// SPDX-License-Identifier: Apache-2.0
#include "base/fork_mark.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace hixl {

ForkMark::ForkMark() noexcept : word_(&fallback_) {
  const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const int error = errno;
  void* page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED && ::madvise(page, bytes, MADV_WIPEONFORK) == 0) {
    mapped_bytes_ = bytes;
    word_ = static_cast<volatile std::uint32_t*>(page);
    *word_ = k_made_here;
  } else if (page != MAP_FAILED) {
    ::munmap(page, bytes);
  }
  errno = error;
}

ForkMark::~ForkMark() {
  if (mapped_bytes_ > 0) ::munmap(const_cast<std::uint32_t*>(word_), mapped_bytes_);
}

}  // namespace hixl
