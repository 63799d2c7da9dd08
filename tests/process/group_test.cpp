// SPDX-License-Identifier: Apache-2.0
//
// Groups of 12 and 13 processes: a member killed in the middle of a barrier is named by all others (S8), and the group
// made again holds its new life, and more ranks (F28).
#include "home.hpp"

#include <future>

namespace hixl::test {
namespace {

constexpr Rank k_ranks = 13;

/// Rank 0 is the test itself, the others are processes.
class Crowd {
 public:
  explicit Crowd(Home& home) : home_(home), children_(k_ranks) {
    for (Rank rank = 1; rank < k_ranks; ++rank) start(rank);
  }
  void start(Rank rank) {
    children_[rank] = std::make_unique<Child>(settings().rank_program,
                                              std::vector<std::string>{"--bytes", "65536", "--lease-ms", "500"},
                                              home_.environment(rank));
  }
  Child& operator[](Rank rank) { return *children_[rank]; }
  void tell(Rank last, const std::string& line, Rank except = 0) {
    for (Rank rank = 1; rank < last; ++rank) {
      if (rank != except) children_[rank]->tell(line);
    }
  }
  void hear(Rank last, const std::string& wanted, Rank except = 0) {
    for (Rank rank = 1; rank < last; ++rank) {
      CAPTURE(rank);
      if (rank != except) REQUIRE(children_[rank]->hear() == wanted);
    }
  }
  Group make(Rank last) {
    std::vector<Rank> ranks;
    for (Rank rank = 0; rank < last; ++rank) ranks.push_back(rank);
    tell(last, "make 0 " + std::to_string(last));
    auto made = home_->create_group(ranks, {}, k_patience);
    require_ok(made);
    hear(last, "ok");
    return std::move(*made);
  }
  void barrier(Group& group) {
    tell(group.size(), "barrier");
    require_ok(group.barrier(k_patience));
    hear(group.size(), "ok");
  }
  void close(Group& group) {
    const Rank size = group.size();
    group.close();
    tell(size, "close");
    hear(size, "ok");
  }

 private:
  Home& home_;
  std::vector<std::unique_ptr<Child>> children_;
};

TEST_CASE("S8 F28: 12 processes; one is killed inside a barrier; made again with 12 and with 13") {
  for (const char* links : {"", "tcp"}) {
    CAPTURE(links);
    Home home(k_ranks, links, 64U << 10U);
    Crowd crowd(home);
    Group group = crowd.make(12);
    for (int i = 0; i < 20; ++i) crowd.barrier(group);

    // All but rank 5 are inside, and so is rank 7 when it dies.
    std::promise<Result<void>> ended;
    auto mine = ended.get_future();
    crowd.tell(12, "barrier", 5);
    require_ok(group.barrier_async(
        k_patience,
        [](void* context, const Result<void>& result) {
          static_cast<std::promise<Result<void>>*>(context)->set_value(result);
        },
        &ended));
    crowd[7].kill();
    REQUIRE(mine.wait_for(k_patience) == std::future_status::ready);
    const Result<void> lost = mine.get();
    CHECK(code_of(lost) == ErrorCode::peer_lost);
    CHECK(lost.error().detail.rank == 7);
    for (Rank rank = 1; rank < 12; ++rank) {
      CAPTURE(rank);
      if (rank != 5 && rank != 7) REQUIRE(crowd[rank].hear() == "PEER_LOST 7");
    }
    // Who comes later hears it too, and at once.
    REQUIRE(crowd[5].ask("barrier") == "PEER_LOST 7");
    CHECK(code_of(group.barrier(k_patience)) == ErrorCode::peer_lost);

    crowd.start(7);
    Group again = crowd.make(12);
    crowd.barrier(again);
    group.close();
    crowd.close(again);

    Group wider = crowd.make(13);
    const auto region = home.region();
    crowd.tell(13, "send 0");
    const auto answers = wider.exchange(std::span(&region, 1), k_patience);
    for (const PeerAddresses& answer : answers) require_ok(answer.result);
    require_ok(wider.barrier(k_patience));
    crowd.hear(13, "ok");
    bool one_of_them = false;
    for (Rank rank = 1; rank < 13; ++rank) one_of_them = one_of_them || holds_pattern(home.data(), 64, rank);
    CHECK(one_of_them);
    crowd.close(wider);
  }
}

}  // namespace
}  // namespace hixl::test
