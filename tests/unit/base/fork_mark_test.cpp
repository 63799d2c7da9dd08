// SPDX-License-Identifier: Apache-2.0
#include "base/fork_mark.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

TEST_CASE("a mark is whole where it was made, and wiped in a child and a grandchild") {
  const auto mark = std::make_unique<hixl::ForkMark>();
  CHECK_FALSE(mark->forked());
  const pid_t child = fork();
  if (child == 0) {
    const hixl::ForkMark own;
    if (!mark->forked() || own.forked()) _exit(1);
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(mark->forked() && own.forked() ? 0 : 2);
    int status = -1;
    _exit(waitpid(grandchild, &status, 0) == grandchild && status == 0 && !own.forked() ? 0 : 3);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK_FALSE(mark->forked());
}
