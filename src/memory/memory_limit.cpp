// SPDX-License-Identifier: Apache-2.0
//
// Reads /proc/meminfo and the limit, usage and reclaimable page cache of each control group, version 1 or 2.
#include "memory/memory_limit.hpp"

#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace hixl::memory {
namespace {

constexpr std::uint64_t k_unlimited = std::numeric_limits<std::uint64_t>::max();

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The number at the start of `text` after blanks; nothing for "max" or an absent file.
std::optional<std::uint64_t> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

/// The number that follows `name` at the start of a line.
std::optional<std::uint64_t> field(const std::string& text, std::string_view name) {
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view line(text.data() + at, std::min(text.find('\n', at), text.size()) - at);
    if (line.starts_with(name)) return number_in(line.substr(name.size()));
    at += line.size() + 1;
  }
  return std::nullopt;
}

struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  ///< field of memory.stat: page cache that the kernel drops before it kills
};
constexpr GroupFiles k_version1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file "};
constexpr GroupFiles k_version2{"/memory.max", "/memory.current", "inactive_file "};

std::uint64_t left_in(const std::string& directory, const GroupFiles& files) {
  const auto limit = number_in(text_of(directory + files.limit));
  if (!limit) return k_unlimited;
  const std::uint64_t usage = number_in(text_of(directory + files.usage)).value_or(0);
  const std::uint64_t cache = field(text_of(directory + "/memory.stat"), files.reclaimable).value_or(0);
  const std::uint64_t held = usage - std::min(usage, cache);
  return *limit - std::min(*limit, held);
}

/// A limit binds every group below it: looks at `path` and all above it. Inside a container the path may name
/// directories that only the host shows; those are absent here and limit nothing.
std::uint64_t left_above(const std::string& root, std::string path, const GroupFiles& files) {
  std::uint64_t left = k_unlimited;
  for (;;) {
    left = std::min(left, left_in(root + path, files));
    if (path.empty() || path == "/") return left;
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
}

bool names_memory(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');) {
    if (name == "memory") return true;
  }
  return false;
}

std::uint64_t machine_available_bytes() {
  const std::string text = text_of("/proc/meminfo");
  if (const auto available_kib = field(text, "MemAvailable:")) {
    return (*available_kib + field(text, "SwapFree:").value_or(0)) << 10U;
  }
  struct sysinfo info {};
  if (sysinfo(&info) != 0) return k_unlimited;
  return (static_cast<std::uint64_t>(info.freeram) + info.bufferram + info.freeswap) * info.mem_unit;
}

}  // namespace

std::uint64_t group_available_bytes(const std::string& groups, const std::string& root) {
  std::uint64_t left = k_unlimited;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // "number:controllers:path"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) left = std::min(left, left_above(root, path, k_version2));
    if (names_memory(controllers)) {
      left = std::min(left, left_above(root + "/memory", path, k_version1));
    }
  }
  return left;
}

std::uint64_t available_bytes() {
  return std::min(machine_available_bytes(), group_available_bytes(text_of("/proc/self/cgroup"), "/sys/fs/cgroup"));
}

std::uint64_t address_space_limit() noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? 0 : limit.rlim_cur;
}

std::size_t huge_page_bytes() {
  constexpr std::uint64_t k_usual_kib = 2048;
  return field(text_of("/proc/meminfo"), "Hugepagesize:").value_or(k_usual_kib) << 10U;
}

std::uint64_t free_huge_page_bytes() {
  const std::string text = text_of("/proc/meminfo");
  const std::uint64_t free_pages = field(text, "HugePages_Free:").value_or(0);
  const std::uint64_t promised = field(text, "HugePages_Rsvd:").value_or(0);
  return (free_pages - std::min(free_pages, promised)) * huge_page_bytes();
}

std::uint64_t node_available_bytes(int node) {
  const std::string number_text = std::to_string(node);
  const std::string text = text_of("/sys/devices/system/node/node" + number_text + "/meminfo");
  const std::string prefix = "Node " + number_text + " ";
  const auto free_kib = field(text, prefix + "MemFree:");
  if (!free_kib) return k_unlimited;
  return (*free_kib + field(text, prefix + "Inactive(file):").value_or(0)) << 10U;
}

}  // namespace hixl::memory
