// SPDX-License-Identifier: Apache-2.0
//
// Two ranks of one process with a channel between them.
#pragma once

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <hixl/channel.hpp>

#include "support.hpp"

namespace hixl::test {

struct Pair {
  explicit Pair(std::vector<LinkKind> links = {}, const RingShape& shape = {}) : world(2, std::move(links)) {
    Result<std::unique_ptr<Channel>> other;
    std::thread connecting([&] { other = Channel::connect(world[1], 0, shape, k_patience); });
    auto mine = Channel::connect(world[0], 1, shape, k_patience);
    connecting.join();
    require_ok(mine);
    require_ok(other);
    a = std::move(*mine);
    b = std::move(*other);
  }
  World world;
  std::unique_ptr<Channel> a;
  std::unique_ptr<Channel> b;
};

}  // namespace hixl::test
