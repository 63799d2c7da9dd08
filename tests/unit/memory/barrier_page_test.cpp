// SPDX-License-Identifier: Apache-2.0
//
// BarrierPage with a thread for each member, on one page: nobody leaves early, numbers survive calls that gave up.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "memory/barrier_page.hpp"

namespace hixl::memory {
namespace {

using namespace std::chrono_literals;
using Pages = std::vector<std::shared_ptr<BarrierPage>>;

std::vector<Rank> ranks_of(std::size_t members) {
  std::vector<Rank> ranks(members);
  for (std::size_t i = 0; i < members; ++i) ranks[i] = static_cast<Rank>(10 + i);
  return ranks;
}

Pages make(std::size_t members) {
  Pages pages;
  auto first = BarrierPage::create(ranks_of(members), 0, 77);
  REQUIRE(first.has_value());
  pages.push_back(*first);
  for (std::size_t place = 1; place < members; ++place) {
    CHECK_FALSE(pages[0]->shared());
    auto page = BarrierPage::open(pages[0]->location(), ranks_of(members), place);
    REQUIRE(page.has_value());
    pages.push_back(*page);
  }
  CHECK(pages[0]->shared());
  for (auto& page : pages) {
    CHECK_FALSE(page->started());
    page->start(2);
  }
  return pages;
}

/// As a caller's thread does it.
BarrierPage::State pass(BarrierPage& page) {
  if (!page.take_turn()) return BarrierPage::State::waiting;
  static_cast<void>(page.enter(BarrierPage::Wake::by_word));
  for (;;) {
    const std::uint32_t rings = page.rings();
    const BarrierPage::State state = page.look();
    if (state != BarrierPage::State::waiting) {
      page.leave();
      return state;
    }
    page.await_ring(rings, 10s);
  }
}

TEST_CASE("S8: on a page nobody leaves before all have entered") {
  constexpr std::size_t k_members = 6;
  constexpr int k_rounds = 3000;
  const Pages pages = make(k_members);
  std::vector<std::atomic<int>> entered(k_members);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < k_members; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 1; round <= k_rounds; ++round) {
        entered[i].store(round);
        if (pass(*pages[i]) != BarrierPage::State::released) wrong += 1;
        for (const auto& other : entered) {
          if (other.load() < round) wrong += 1;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a call that gives up takes no number; the missing are seen; one call at a time") {
  const Pages pages = make(2);
  BarrierPage& mine = *pages[0];
  REQUIRE(mine.take_turn());
  CHECK_FALSE(mine.take_turn());
  CHECK_FALSE(mine.enter(BarrierPage::Wake::by_word));
  CHECK(mine.look() == BarrierPage::State::waiting);
  CHECK(mine.has_entered(0));
  CHECK_FALSE(mine.has_entered(1));
  mine.leave();
  // It has entered all the same: the other passes, and the next call here is the same barrier again.
  CHECK(pass(*pages[1]) == BarrierPage::State::released);
  CHECK(pass(mine) == BarrierPage::State::released);
  REQUIRE(mine.take_turn());
  static_cast<void>(mine.enter(BarrierPage::Wake::by_word));
  CHECK(mine.look() == BarrierPage::State::waiting);
  mine.leave();
}

TEST_CASE("the last to enter knows who waits by message") {
  const Pages pages = make(3);
  REQUIRE(pages[1]->take_turn());
  CHECK_FALSE(pages[1]->enter(BarrierPage::Wake::by_message));
  REQUIRE(pages[2]->take_turn());
  CHECK_FALSE(pages[2]->enter(BarrierPage::Wake::by_word));
  REQUIRE(pages[0]->take_turn());
  CHECK(pages[0]->enter(BarrierPage::Wake::by_word));
  CHECK(pages[0]->waits_for_message(1));
  CHECK_FALSE(pages[0]->waits_for_message(2));
  for (const auto& page : pages) CHECK(page->look() == BarrierPage::State::released);
  for (const auto& page : pages) page->leave();
  CHECK_FALSE(pages[0]->waits_for_message(1));
}

TEST_CASE("a group that is over tells who waits and who comes, and the first reason stays") {
  const Pages pages = make(2);
  BarrierPage::State seen{};
  std::thread waiting([&] { seen = pass(*pages[0]); });
  pages[0]->break_with(Error(ErrorCode::peer_lost, {.rank = 4}));
  pages[0]->break_with(Error(ErrorCode::stopped));
  waiting.join();
  CHECK(seen == BarrierPage::State::broken);
  CHECK(pass(*pages[0]) == BarrierPage::State::broken);
  CHECK(pages[0]->error().code == ErrorCode::peer_lost);
  CHECK(pages[0]->error().detail.rank == 4);
  // What was released before counts first.
  CHECK(pass(*pages[1]) == BarrierPage::State::released);
  CHECK(pass(*pages[0]) == BarrierPage::State::released);
}

TEST_CASE("S8: who is lost is not counted, although it had entered, and all see who it was") {
  const Pages pages = make(3);
  REQUIRE(pages[1]->take_turn());
  CHECK_FALSE(pages[1]->enter(BarrierPage::Wake::by_word));
  BarrierPage::State seen{};
  std::thread waiting([&] { seen = pass(*pages[0]); });
  pages[0]->mark(1, ErrorCode::peer_lost);
  waiting.join();
  CHECK(seen == BarrierPage::State::broken);
  CHECK(pass(*pages[2]) == BarrierPage::State::broken);
  for (const std::size_t i : {0U, 2U}) {
    CHECK(pages[i]->error().code == ErrorCode::peer_lost);
    CHECK(pages[i]->error().detail.rank == 11);
  }
}

TEST_CASE("only the page itself is opened") {
  const auto page = BarrierPage::create(ranks_of(2), 0, 5);
  REQUIRE(page.has_value());
  BarrierPage::Location location = (*page)->location();
  location.challenge += 1;
  CHECK_FALSE(BarrierPage::open(location, ranks_of(2), 1).has_value());
  location = (*page)->location();
  location.descriptor = 0;  // something else, and no memfd
  CHECK_FALSE(BarrierPage::open(location, ranks_of(2), 1).has_value());
  location.descriptor = 1'000'000;
  CHECK_FALSE(BarrierPage::open(location, ranks_of(2), 1).has_value());
  CHECK_FALSE(BarrierPage::open({}, ranks_of(2), 1).has_value());
  CHECK_FALSE(BarrierPage::create(ranks_of(BarrierPage::k_members_max + 1), 0, 5).has_value());
}

}  // namespace
}  // namespace hixl::memory
