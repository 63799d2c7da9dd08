// SPDX-License-Identifier: Apache-2.0
//
// What doctor looks at in what this process may do: limits, shared memory, huge pages, ports.
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include <hixl/diagnosis.hpp>
#include <hixl/options.hpp>

#include "doctor.hpp"

namespace hixl::cli {

namespace {

/// A window takes one descriptor and a peer about ten (docs/memory.md); a rank by itself some thirty.
constexpr std::uint64_t k_files_of_a_rank = 30;
constexpr std::uint64_t k_files_of_a_peer = 10;
/// Fewer than the peers of two machines with eight ranks each: 30 + 15 * 10, and a few windows.
constexpr std::uint64_t k_files_few = 200;
constexpr std::uint64_t k_files_some = 1024;
/// What RDMA pins is the registered memory itself; a gigabyte is less than any KV cache.
constexpr std::uint64_t k_memlock_little = 1U << 30U;
constexpr std::size_t k_probe_bytes = 1U << 20U;

std::string limit_text(rlim_t limit) { return limit == RLIM_INFINITY ? "unlimited" : bytes_text(limit); }

/// The first number of a line; 0: none.
std::uint64_t number_of(const std::string& text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// 0, or the errno of making a window as the library does.
int window_error() {
  const int fd = memfd_create("hixl_diag", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return errno;
  int error = ftruncate(fd, k_probe_bytes) == 0 ? 0 : errno;
  if (error == 0) {
    void* const data = mmap(nullptr, k_probe_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    error = data == MAP_FAILED ? errno : 0;
    if (data != MAP_FAILED) munmap(data, k_probe_bytes);
  }
  ::close(fd);
  return error;
}

/// 0, or the errno of listening there on loopback.
int listen_error(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool listens = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && listen(fd, 1) == 0;
  const int error = listens ? 0 : errno;
  ::close(fd);
  return error;
}

void look_at_files(Findings& out) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::uint64_t files = limit.rlim_cur;
  const std::uint64_t peers = files > k_files_of_a_rank ? (files - k_files_of_a_rank) / k_files_of_a_peer : 0;
  const std::string found =
      "RLIMIT_NOFILE is " + std::to_string(files) + ": room for some " + std::to_string(peers) + " peers";
  const std::string remedy = limit.rlim_max > files
                                 ? "ulimit -n " + std::to_string(limit.rlim_max)
                                 : "as root: \"* - nofile 65536\" in /etc/security/limits.conf, and a new login";
  if (files < k_files_few) {
    out.push_back({"files", Health::bad, found, remedy});
  } else if (files < k_files_some) {
    out.push_back({"files", Health::warn, found, remedy});
  } else {
    out.push_back({"files", Health::ok, found, ""});
  }
}

/// Who may lock memory without a limit is not bound by it.
bool may_lock_all(const System& system) {
  constexpr unsigned k_cap_ipc_lock = 14;  // linux/capability.h
  const std::string text = system.field("/proc/self/status", "CapEff");
  std::uint64_t capabilities = 0;
  std::from_chars(text.data(), text.data() + text.size(), capabilities, 16);
  return (capabilities >> k_cap_ipc_lock & 1U) != 0;
}

void look_at_memlock(const System& system, Findings& out) {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string found = "RLIMIT_MEMLOCK is " + limit_text(limit.rlim_cur);
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= k_memlock_little) {
    out.push_back({"memlock", Health::ok, found, ""});
    return;
  }
  const bool rdma = !system.rdma_ports().empty();
  const bool bound = !may_lock_all(system);
  out.push_back({"memlock", rdma && bound ? Health::bad : Health::note,
                 found + ": RDMA can register no more" +
                     (bound ? "" : ", but for users with CAP_IPC_LOCK, as this one") +
                     (rdma ? "" : "; nothing else needs it"),
                 "ulimit -l unlimited; for good: \"* - memlock unlimited\" in /etc/security/limits.conf, "
                 "LimitMEMLOCK=infinity in a service, --ulimit memlock=-1 for a container"});
}

}  // namespace

void look_at_limits(const System& system, Findings& out) {
  look_at_memlock(system, out);
  look_at_files(out);
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  if (limit.rlim_cur != RLIM_INFINITY) {
    out.push_back({"address_space", Health::warn,
                   "RLIMIT_AS is " + limit_text(limit.rlim_cur) + ": windows of peers are mapped within it",
                   "ulimit -v unlimited"});
  }
}

void look_at_memory(const System& system, Findings& out) {
  if (const int error = window_error(); error != 0) {
    out.push_back(
        {"shared_memory", Health::bad, std::string("no shared memory (memfd): ") + std::strerror(error),
         "see docs/memory.md for the limit behind that error; a filter of system calls may forbid memfd_create"});
  } else {
    out.push_back({"shared_memory", Health::ok, "windows can be made", ""});
  }
  const std::string group = system.line("/sys/fs/cgroup/memory.max");
  if (!group.empty() && group != "max") {
    out.push_back({"memory_group", Health::note, "the control group allows " + bytes_text(number_of(group)),
                   "raise it (memory.max, or the container's --memory) if buffers are larger"});
  }
  const std::uint64_t huge = number_of(system.field("/proc/meminfo", "HugePages_Total"));
  const std::string size = system.field("/proc/meminfo", "Hugepagesize");
  if (huge == 0) {
    out.push_back({"huge_pages", Health::note, "none are reserved: who asks for them (HugePages::require) is refused",
                   "sysctl vm.nr_hugepages=N, N pages of " + (size.empty() ? "2048 kB" : size) +
                       "; hixl_diag mem tells how many"});
  } else {
    out.push_back(
        {"huge_pages", Health::ok,
         std::to_string(huge) + " of " + size + ", " + system.field("/proc/meminfo", "HugePages_Free") + " free", ""});
  }
  const std::string scope = system.line("/proc/sys/kernel/yama/ptrace_scope");
  if (!scope.empty() && scope != "0") {
    out.push_back({"cross_memory", Health::warn,
                   "kernel.yama.ptrace_scope is " + scope +
                       ": links of kind pcie are refused, and memory that was not "
                       "allocate()d goes by tcp",
                   "sysctl kernel.yama.ptrace_scope=0, or allocate() the memory"});
  } else {
    out.push_back({"cross_memory", Health::ok, "processes of one user may reach each other's memory", ""});
  }
}

void look_at_ports(Findings& out) {
  struct Port {
    std::uint16_t number;
    const char* use;
    const char* option;
  };
  for (const Port& port : {Port{k_diagnosis_port, "hixl_diag and ascend_hixl", "--port"},
                           Port{k_store_port, "the rendezvous of torchrun, Slurm and MPI jobs", "HIXL_PORT"}}) {
    const std::string name = "port " + std::to_string(port.number) + " (" + port.use + ")";
    const int error = listen_error(port.number);
    if (error == 0) {
      out.push_back({"ports", Health::ok, name + " is free", ""});
      continue;
    }
    out.push_back({"ports", Health::note, name + ": " + std::strerror(error),
                   std::string("see who has it: ss -ltnp 'sport = :") + std::to_string(port.number) +
                       "'; or choose another (" + port.option + ")"});
  }
}

}  // namespace hixl::cli
