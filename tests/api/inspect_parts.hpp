// SPDX-License-Identifier: Apache-2.0
//
// What the tests of looking inside share: two ranks that know each other's window, and rows of links().
#pragma once

#include <vector>

#include "wait_parts.hpp"

namespace hixl::test {

struct Couple {
  explicit Couple(const std::vector<LinkKind>& links) : pair(links) {}
  WaitPair pair;
  Runtime& runtime = pair.world[0];
};

inline const LinkInfo& row_of(const std::vector<LinkInfo>& links, LinkKind kind) {
  for (const LinkInfo& link : links) {
    if (link.kind == kind) return link;
  }
  FAIL("no row for " << name(kind));
  return links.front();
}

}  // namespace hixl::test
