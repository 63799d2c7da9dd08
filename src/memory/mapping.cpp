// SPDX-License-Identifier: Apache-2.0
//
// Asks the kernel for one mapping after the other: by the ioctl of /proc/self/maps where there is one (Linux 6.11),
// else by reading its text.
#include "memory/mapping.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace hixl::memory {
namespace {

std::uint64_t address_of(const void* data) noexcept { return reinterpret_cast<std::uint64_t>(data); }

struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool readable = false;
  bool writable = false;
  bool of_file = false;
};

/// The kernel's structure, as far as it is needed here; it takes any length that covers the question.
struct Query {
  std::uint64_t size = sizeof(Query);
  std::uint64_t flags = 0;  // 0: the mapping that holds the address
  std::uint64_t address = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t protection = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t inode = 0;
};
constexpr std::size_t k_whole_query_bytes = 104;  // the length that the number of the call was made with
constexpr unsigned long k_query = _IOC(_IOC_READ | _IOC_WRITE, 'f', 17, k_whole_query_bytes);
constexpr std::uint64_t k_readable = 1;
constexpr std::uint64_t k_writable = 2;

class Maps {
 public:
  Maps() noexcept : fd_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
  ~Maps() {
    if (fd_ >= 0) close(fd_);
  }
  Maps(const Maps&) = delete;
  Maps& operator=(const Maps&) = delete;
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

/// "begin-end rwxp offset device inode name"
std::optional<Mapping> parse(const std::string& line) {
  Mapping mapping;
  const char* const end = line.data() + line.size();
  const auto first = std::from_chars(line.data(), end, mapping.begin, 16);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '-') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, mapping.end, 16);
  if (second.ec != std::errc{} || end - second.ptr < 5) return std::nullopt;
  mapping.readable = second.ptr[1] == 'r';
  mapping.writable = second.ptr[2] == 'w';
  mapping.of_file = line.find('/') != std::string::npos;
  return mapping;
}

/// Nothing: no mapping there.
std::optional<Mapping> find_in_text(std::uint64_t address) {
  std::ifstream text("/proc/self/maps");
  for (std::string line; std::getline(text, line);) {
    const auto mapping = parse(line);
    if (mapping && address >= mapping->begin && address < mapping->end) return mapping;
  }
  return std::nullopt;
}

std::optional<Mapping> find(const Maps& maps, std::uint64_t address) {
  Query query;
  query.address = address;
  if (ioctl(maps.fd(), k_query, &query) == 0) {
    return Mapping{.begin = query.begin,
                   .end = query.end,
                   .readable = (query.protection & k_readable) != 0,
                   .writable = (query.protection & k_writable) != 0,
                   .of_file = query.inode != 0};
  }
  if (errno == ENOENT) return std::nullopt;
  return find_in_text(address);
}

/// A page of a file beyond that file's end is mapped and yet not there. The kernel's own copy finds out without SIGBUS.
bool is_there(std::uint64_t address) noexcept {
  std::byte byte{};
  const iovec here{&byte, 1};
  const iovec there{reinterpret_cast<void*>(address), 1};
  const ssize_t copied = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
  return copied == 1 || errno != EFAULT;  // forbidden altogether: no answer is no reason to refuse
}

}  // namespace

bool is_mapped(const void* data, std::size_t size) noexcept {
  // With MS_ASYNC the kernel walks its list of mappings and does nothing else (msync(2): ENOMEM for a hole).
  const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = address_of(data) & ~(page - 1);
  const std::uint64_t bytes = address_of(data) - begin + size;
  errno = ENOMEM;
  // The kernel rounds the length up without looking for a wrap; nothing is mapped in the last page anyway.
  if (bytes > std::numeric_limits<std::uint64_t>::max() - page) return false;
  return ::msync(reinterpret_cast<void*>(begin), bytes, MS_ASYNC) == 0;
}

Result<Protection> protection_of(const void* data, std::size_t size) {
  const ErrorDetail detail{.stage = Stage::memory, .os_error = ENOMEM, .address = address_of(data), .length = size};
  if (!is_mapped(data, size)) return fail(ErrorCode::memory_unmapped, detail);
  const Maps maps;
  if (maps.fd() < 0) return Protection{.readable = true, .writable = true};  // nobody to ask; mapped it is
  Protection protection{.readable = true, .writable = true};
  const std::uint64_t end = address_of(data) + size;
  for (std::uint64_t at = address_of(data); at < end;) {
    const auto mapping = find(maps, at);
    if (!mapping) return fail(ErrorCode::memory_unmapped, detail);
    protection.readable = protection.readable && mapping->readable;
    protection.writable = protection.writable && mapping->writable;
    const std::uint64_t last = std::min(mapping->end, end) - 1;
    if (mapping->of_file && mapping->readable && !is_there(last)) {
      ErrorDetail beyond = detail;
      beyond.os_error = EFAULT;
      return fail(ErrorCode::memory_unmapped, beyond);
    }
    at = mapping->end;
  }
  return protection;
}

}  // namespace hixl::memory
