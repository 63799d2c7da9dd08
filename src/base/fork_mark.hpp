// SPDX-License-Identifier: Apache-2.0
//
// ForkMark: a word that only the process which made it can read. It lies in a page that the kernel wipes in a forked
// child (MADV_WIPEONFORK, Linux 4.14), so a look costs one load, and nothing of the process as a whole is touched: no
// handler at fork, no cached process id.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hixl {

/// Owner: what must not be used in a forked child. Thread-safe: the word is written before anybody else knows it.
class ForkMark {
 public:
  ForkMark() noexcept;
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  /// True in every process but the one that made it. Always false where the kernel cannot wipe pages.
  [[nodiscard]] bool forked() const noexcept { return *word_ == 0; }

 private:
  static constexpr std::uint32_t k_made_here = 1;
  volatile std::uint32_t* word_;  // volatile: the kernel changes it behind the compiler's back
  std::size_t mapped_bytes_ = 0;  // 0: word_ is fallback_
  std::uint32_t fallback_ = k_made_here;
};

}  // namespace hixl
