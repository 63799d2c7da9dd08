// SPDX-License-Identifier: Apache-2.0
//
// How much memory this process can still get. Beyond a control group's limit the kernel does not answer with an error,
// it kills; so ask first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hixl::memory {

/// Bytes that can be allocated now without paging others out or being killed: the smallest of what the machine and
/// each control group above this process has left. An estimate, since others allocate too.
[[nodiscard]] std::uint64_t available_bytes();

/// What RLIMIT_AS allows this process, as `ulimit -v` sets it; 0 without a limit. An error of the system for want of
/// memory (ENOMEM) carries it as its limit: free memory is seldom what is missing then.
[[nodiscard]] std::uint64_t address_space_limit() noexcept;

/// Size of the system's default huge page; 2 MiB where it does not say.
[[nodiscard]] std::size_t huge_page_bytes();
/// What is reserved for huge pages (vm.nr_hugepages) and not taken. 0 without any.
[[nodiscard]] std::uint64_t free_huge_page_bytes();
/// Free pages of one NUMA node, and its page cache that the kernel drops first. UINT64_MAX where nobody says.
[[nodiscard]] std::uint64_t node_available_bytes(int node);

/// What the control groups named in `groups` (the text of /proc/self/cgroup) leave, looked up below `root`
/// (/sys/fs/cgroup). UINT64_MAX without a limit.
[[nodiscard]] std::uint64_t group_available_bytes(const std::string& groups, const std::string& root);

}  // namespace hixl::memory
