// SPDX-License-Identifier: Apache-2.0
#include "peer/written_ranges.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "base/random.hpp"

using namespace hixl;
using hixl::peer::WrittenRanges;

TEST_CASE("ranges that come in order are one, and gaps stay gaps") {
  WrittenRanges written;
  written.add(0, 10);
  written.add(10, 20);
  CHECK(written.list()[0] == ByteRange{0, 20});
  CHECK(written.list()[1] == ByteRange{});
  written.add(40, 50);
  written.add(30, 35);
  CHECK(written.list()[1] == ByteRange{30, 35});
  CHECK(written.list()[2] == ByteRange{40, 50});
  written.add(35, 40);
  CHECK(written.list()[1] == ByteRange{30, 50});
  written.add(7, 7);
  CHECK(written.list()[0] == ByteRange{0, 20});
  written.add(5, 45);
  CHECK(written.list()[0] == ByteRange{0, 50});
  CHECK(written.list()[1] == ByteRange{});
}

TEST_CASE("more than fit: what is told is always true, and the longest stay") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed ", seed);
    Random random(seed);
    WrittenRanges written;
    std::vector<bool> truth(1000);
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t begin = random.below(1000);
      const std::uint64_t end = begin + random.below(1000 - begin);
      if (end - begin > 60) continue;
      written.add(begin, end);
      std::fill(truth.begin() + static_cast<std::ptrdiff_t>(begin), truth.begin() + static_cast<std::ptrdiff_t>(end),
                true);
      std::uint64_t before = 0;
      bool ended = false;
      for (const ByteRange& range : written.list()) {
        ended = ended || range.begin == range.end;
        if (ended) {
          CHECK(range == ByteRange{});
          continue;
        }
        CHECK((before == 0 || range.begin > before));
        before = range.end;
        for (std::uint64_t byte = range.begin; byte < range.end; ++byte) REQUIRE(truth[byte]);
      }
    }
  }
  WrittenRanges written;
  for (const std::uint64_t at : {0U, 100U, 200U, 300U}) written.add(at, at + 50);
  written.add(400, 410);  // the shortest: gives way
  CHECK(written.list()[3] == ByteRange{300, 350});
  written.add(500, 590);
  CHECK(written.list()[3] == ByteRange{500, 590});
}
