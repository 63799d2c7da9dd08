// SPDX-License-Identifier: Apache-2.0
//
// A filter that forbids this process cross-memory attach to any process but itself, as a strict policy would.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace hixl::test {

/// False when the system does not let us install it. Only calls of this process' own architecture are looked at.
[[nodiscard]] inline bool forbid_attach() {
  const auto self = static_cast<std::uint32_t>(getpid());
  constexpr auto k_number = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  constexpr auto k_pid = static_cast<std::uint32_t>(offsetof(seccomp_data, args));  // the low half, little-endian
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, k_number),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, k_pid),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, self, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  };
  const sock_fprog program{.len = sizeof(rules) / sizeof(rules[0]), .filter = rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace hixl::test
