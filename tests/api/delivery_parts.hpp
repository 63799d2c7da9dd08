// SPDX-License-Identifier: Apache-2.0
//
// What the tests of delivery share: pages of the program's own, and regions of rank 1 that rank 0 learns.
#pragma once

#include <sys/mman.h>

#include "support.hpp"

namespace hixl::test {

inline constexpr std::size_t k_page_bytes = 4096;

/// Pages of the program's own.
class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes),
        data_(
            static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(data_ != MAP_FAILED);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] std::byte* data() const noexcept { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

/// Rank 1 publishes these; what rank 0 learned of them.
inline std::vector<RemoteRegion> publish(World& world, const std::vector<Region>& theirs) {
  const Rank zero[] = {0};
  const Rank one[] = {1};
  Answer<std::vector<PeerAddresses>> answer;
  require_ok(world[1].exchange_async(theirs, zero, k_patience, store_answers, &answer));
  auto learned = world[0].exchange({}, one, k_patience);
  REQUIRE(answer.wait());
  require_ok(learned.front().result);
  REQUIRE(learned.front().regions.size() == theirs.size());
  return learned.front().regions;
}

}  // namespace hixl::test
