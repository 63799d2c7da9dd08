// SPDX-License-Identifier: Apache-2.0
#include "proc.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace hixl::test {

namespace {

namespace fs = std::filesystem;

std::string of(pid_t pid, const char* what) { return "/proc/" + std::to_string(pid) + "/" + what; }

std::string target_of(const fs::path& link) {
  std::error_code ignored;  // a descriptor may be closed while we look
  return fs::read_symlink(link, ignored).string();
}

std::set<std::string> descriptors_of(pid_t pid) {
  std::set<std::string> targets;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(of(pid, "fd"), ignored)) targets.insert(target_of(entry.path()));
  return targets;
}

/// Calls `each` with address (hexadecimal), port and inode of every tcp socket that listens in the network of `pid`.
template <class Each>
void for_each_listener(pid_t pid, Each&& each) {
  std::ifstream table(of(pid, "net/tcp"));
  std::string line;
  std::getline(table, line);  // names of the columns
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
    constexpr const char* k_listening = "0A";
    if (state != k_listening) continue;
    const auto colon = local.find(':');
    each(local.substr(0, colon), static_cast<std::uint16_t>(std::stoul(local.substr(colon + 1), nullptr, 16)), inode);
  }
}

}  // namespace

std::size_t entries_of(const std::string& directory) {
  std::error_code ignored;
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory, ignored), fs::directory_iterator()));
}

std::size_t open_descriptors(pid_t pid) { return entries_of(of(pid, "fd")); }

std::size_t library_mappings(pid_t pid) {
  std::ifstream maps(of(pid, "maps"));
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:hixl") != std::string::npos ? 1 : 0;
  return count;
}

std::uint16_t listening_port(pid_t pid) {
  const std::set<std::string> sockets = descriptors_of(pid);
  std::uint16_t highest = 0;
  for_each_listener(pid, [&](const std::string&, std::uint16_t port, const std::string& inode) {
    if (sockets.count("socket:[" + inode + "]") != 0) highest = std::max(highest, port);
  });
  return highest;
}

std::uint16_t listening_port_at(const std::string& host) {
  in_addr wanted{};
  if (inet_pton(AF_INET, host.c_str(), &wanted) != 1) return 0;
  std::error_code ignored;
  // Own sockets first: the kernel's table is slow to read, since it walks all connections of the machine.
  for (const auto& entry : fs::directory_iterator("/proc/self/fd", ignored)) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_in at{};
    socklen_t size = sizeof at;
    int listens = 0;
    socklen_t listens_size = sizeof listens;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0 || at.sin_family != AF_INET) continue;
    if (at.sin_addr.s_addr != wanted.s_addr) continue;
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_size);
    if (listens != 0) return ntohs(at.sin_port);
  }
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08X", wanted.s_addr);  // the kernel prints the word as it lies in memory
  std::uint16_t found = 0;
  for_each_listener(getpid(), [&](const std::string& at, std::uint16_t port, const std::string&) {
    if (at == digits) found = port;
  });
  return found;
}

std::string listening_name(pid_t pid) {
  const std::set<std::string> sockets = descriptors_of(pid);
  std::ifstream table(of(pid, "net/unix"));
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> path;
    constexpr const char* k_accepts_connections = "00010000";
    if (flags != k_accepts_connections || sockets.count("socket:[" + inode + "]") == 0) continue;
    if (path.rfind("@hixl-", 0) == 0) return path.substr(1);
  }
  return {};
}

int open_window_of(std::size_t bytes) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    if (target_of(entry.path()).find("memfd:hixl") == std::string::npos) continue;
    struct stat about {};
    if (stat(entry.path().c_str(), &about) != 0 || static_cast<std::size_t>(about.st_size) != bytes) continue;
    return open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
  }
  return -1;
}

bool process_exists(pid_t pid) { return ::kill(pid, 0) == 0; }

}  // namespace hixl::test
