// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <new>
#include <thread>

namespace {
std::atomic<std::uint64_t> g_allocations{0};
}

void* operator new(std::size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* data = std::malloc(size == 0 ? 1 : size)) return data;
  throw std::bad_alloc();
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }

namespace hixl::bench {

double Samples::us(std::size_t per_mille) {
  if (values_.empty()) return 0;
  if (!sorted_) std::sort(values_.begin(), values_.end());
  sorted_ = true;
  const std::size_t index = std::min(values_.size() - 1, values_.size() * per_mille / 1000);
  return static_cast<double>(values_[index]) / 1000.0;
}

void fill(std::byte* data, std::size_t size, std::uint64_t seed) {
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = (at + 1) * 0x9e3779b97f4a7c15U + seed;
    std::memcpy(data + at, &word, std::min(sizeof(word), size - at));
  }
}

bool verify(const std::byte* data, std::size_t size, std::uint64_t seed) {
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = (at + 1) * 0x9e3779b97f4a7c15U + seed;
    if (std::memcmp(data + at, &word, std::min(sizeof(word), size - at)) != 0) return false;
  }
  return true;
}

std::uint64_t allocations() { return g_allocations.load(std::memory_order_relaxed); }

double cache_line_round_trip_us(std::size_t rounds) {
  alignas(64) std::atomic<std::uint64_t> line{0};
  std::thread other([&] {
    for (std::uint64_t i = 0; i < rounds; ++i) {
      while (line.load(std::memory_order_acquire) != 2 * i + 1) {
      }
      line.store(2 * i + 2, std::memory_order_release);
    }
  });
  Samples samples(rounds);
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const std::uint64_t start = now_ns();
    line.store(2 * i + 1, std::memory_order_release);
    while (line.load(std::memory_order_acquire) != 2 * i + 2) {
    }
    samples.add(now_ns() - start);
  }
  other.join();
  return samples.us(500);
}

double memcpy_gbps(std::byte* target, const std::byte* source, std::size_t size, std::size_t rounds) {
  Samples samples(rounds);
  for (std::size_t i = 0; i < rounds; ++i) {
    const std::uint64_t start = now_ns();
    std::memcpy(target, source, size);
    asm volatile("" : : "r"(target) : "memory");
    samples.add(now_ns() - start);
  }
  return static_cast<double>(size) / (samples.us(500) * 1000.0);
}

double attach_gbps(std::byte* target, const std::byte* source, std::size_t size, std::size_t rounds) {
  constexpr std::size_t k_call_bytes = 1U << 20U;
  Samples samples(rounds);
  for (std::size_t i = 0; i < rounds; ++i) {
    const std::uint64_t start = now_ns();
    for (std::size_t done = 0; done < size;) {
      const std::size_t bytes = std::min(k_call_bytes, size - done);
      const iovec here{const_cast<std::byte*>(source) + done, bytes};
      const iovec there{target + done, bytes};
      const ssize_t moved = process_vm_writev(getpid(), &here, 1, &there, 1, 0);
      if (moved <= 0) {
        std::perror("process_vm_writev");
        std::exit(1);
      }
      done += static_cast<std::size_t>(moved);
    }
    samples.add(now_ns() - start);
  }
  return static_cast<double>(size) / (samples.us(500) * 1000.0);
}

namespace {

void fail_if(bool failed, const char* what) {
  if (!failed) return;
  std::perror(what);
  std::exit(1);
}

void read_all(int fd, std::byte* data, std::size_t size) {
  while (size > 0) {
    const ssize_t got = recv(fd, data, size, 0);
    fail_if(got <= 0, "recv");
    data += got;
    size -= static_cast<std::size_t>(got);
  }
}

void write_all(int fd, const std::byte* data, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
    fail_if(sent <= 0, "send");
    data += sent;
    size -= static_cast<std::size_t>(sent);
  }
}

}  // namespace

double raw_socket_gbps(std::size_t size, std::size_t count) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  fail_if(bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0, "bind");
  fail_if(listen(listener, 1) != 0, "listen");
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
  std::thread reader([&] {
    const int fd = accept(listener, nullptr, nullptr);
    fail_if(fd < 0, "accept");
    std::vector<std::byte> target(size);
    for (std::size_t i = 0; i < count; ++i) {
      read_all(fd, target.data(), size);
      if (i == 0 || i + 1 == count) write_all(fd, target.data(), 1);
    }
    close(fd);
  });
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  fail_if(connect(fd, reinterpret_cast<sockaddr*>(&address), length) != 0, "connect");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  std::vector<std::byte> source(size, std::byte{7});
  std::byte answer{};
  write_all(fd, source.data(), size);  // one ahead, not counted: page faults and slow start
  read_all(fd, &answer, 1);
  const std::uint64_t start = now_ns();
  for (std::size_t i = 1; i < count; ++i) write_all(fd, source.data(), size);
  read_all(fd, &answer, 1);
  const std::uint64_t time = now_ns() - start;
  reader.join();
  close(fd);
  close(listener);
  return static_cast<double>(size) * static_cast<double>(count - 1) / static_cast<double>(time);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double process_seconds(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

namespace {

/// A line of /proc/PROCESS/status, in bytes.
double status_bytes(pid_t process, const std::string& name) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == name + ":" && status >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace

MemoryUse::MemoryUse()
    : private_bytes(status_bytes(getpid(), "RssAnon")), shared_bytes(status_bytes(getpid(), "RssShmem")) {}

PeakMemory::PeakMemory(pid_t process) : process_(process), before_bytes_(status_bytes(process, "RssAnon")) {
  std::ofstream("/proc/" + std::to_string(process) + "/clear_refs") << "5";
}

double PeakMemory::grown_bytes() const {
  const double other = status_bytes(process_, "RssFile") + status_bytes(process_, "RssShmem");
  return std::max(0.0, status_bytes(process_, "VmHWM") - other - before_bytes_);
}

}  // namespace hixl::bench
