// SPDX-License-Identifier: Apache-2.0
//
// A million random operations against plain arrays: three ranks put, get, batch and signal among each other, and after
// each phase every byte of every memory is what the arrays say.
#include <array>
#include <deque>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_ranks = 3;
constexpr std::size_t k_size = 256U << 10U;
constexpr std::size_t k_open_max = 24;  // operations under way at once
constexpr std::size_t k_entries_max = 6;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
  std::uint64_t below(std::uint64_t limit) {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return (state_ >> 11U) % limit;
  }

 private:
  std::uint64_t state_;
};

struct Range {
  std::size_t rank, begin, end;
  bool written;
};

bool conflict(const Range& a, const Range& b) {
  return a.rank == b.rank && a.begin < b.end && b.begin < a.end && (a.written || b.written);
}

struct Open {
  Request request;
  std::array<Range, 2 * k_entries_max> ranges;
  std::size_t count = 0;
};

/// The ranks, the arrays, and what is under way between them. What is posted changes the arrays at once: nothing that
/// is under way touches the same bytes.
class Model {
 public:
  Model(const std::vector<LinkKind>& links, std::uint64_t seed) : world_(k_ranks, links), dice_(seed) {
    std::vector<Region> regions;
    for (std::size_t rank = 0; rank < k_ranks; ++rank) {
      regions.push_back(*world_[rank].allocate(k_size));
      memory_[rank] = regions[rank].data;
      fill_pattern(memory_[rank], k_size, seed + rank);
      arrays_[rank].assign(memory_[rank], memory_[rank] + k_size);
    }
    table_ = world_.exchange_all(regions);
  }

  void step() {
    const std::size_t self = dice_.below(k_ranks);
    const std::size_t peer = dice_.below(8) == 0 ? self : (self + 1 + dice_.below(k_ranks - 1)) % k_ranks;
    const std::uint64_t what = dice_.below(100);
    if (what < 40) return single(self, peer, dice_.below(2) == 0 ? TransferVerb::put : TransferVerb::get, true);
    if (what < 80) return single(self, peer, dice_.below(2) == 0 ? TransferVerb::put : TransferVerb::get, false);
    if (what < 90) return batch(self, peer);
    if (what < 99) return signal(self, peer);
    settle();
    require_ok(world_[self].flush(static_cast<Rank>(peer)));
  }

  /// Ends everything and compares everything.
  void compare() {
    while (!open_.empty()) finish_oldest();
    for (std::size_t rank = 0; rank < k_ranks; ++rank) {
      CAPTURE(rank);
      REQUIRE(std::memcmp(memory_[rank], arrays_[rank].data(), k_size) == 0);
    }
  }
  [[nodiscard]] World& world() { return world_; }

 private:
  std::size_t some_size() {
    const std::uint64_t kind = dice_.below(100);
    if (kind < 70) return dice_.below(65);
    return dice_.below(kind < 97 ? 1500 : 20'000);
  }
  std::size_t some_place(std::size_t size) { return dice_.below(k_size - size + 1); }
  RemoteAddress at(std::size_t self, std::size_t peer, std::size_t place) const {
    const RemoteRegion& region = table_[self][peer];
    // By key, or by the address alone.
    if (place % 2 == 0) return region.at(place);
    return {static_cast<Rank>(peer), region.base + place, {}, 0};
  }

  void finish_oldest() {
    require_ok(open_.front().request.wait());
    open_.pop_front();
  }
  void settle() {
    while (open_.size() > 4) finish_oldest();
  }
  /// Waits for whatever is in the way of these ranges; false when they are in each other's way.
  bool make_way(const Open& wanted) {
    for (std::size_t i = 0; i < wanted.count; ++i) {
      for (std::size_t j = i + 1; j < wanted.count; ++j) {
        if (conflict(wanted.ranges[i], wanted.ranges[j])) return false;
      }
    }
    const auto in_the_way = [&](const Open& open) {
      for (std::size_t i = 0; i < wanted.count; ++i) {
        for (std::size_t j = 0; j < open.count; ++j) {
          if (conflict(wanted.ranges[i], open.ranges[j])) return true;
        }
      }
      return false;
    };
    for (Open& open : open_) {
      if (in_the_way(open)) require_ok(open.request.wait());  // its end is remembered
    }
    return true;
  }
  void keep(Open&& open, Result<Request>&& request) {
    require_ok(request);
    open.request = std::move(*request);
    open_.push_back(std::move(open));
    if (open_.size() > k_open_max) finish_oldest();
  }
  static void add_ranges(Open& open, std::size_t self, std::size_t here, std::size_t peer, std::size_t there,
                         std::size_t size, TransferVerb verb) {
    open.ranges[open.count++] = {self, here, here + size, verb == TransferVerb::get};
    open.ranges[open.count++] = {peer, there, there + size, verb == TransferVerb::put};
  }
  void apply(std::size_t self, std::size_t here, std::size_t peer, std::size_t there, std::size_t size,
             TransferVerb verb) {
    std::byte* const local = arrays_[self].data() + here;
    std::byte* const remote = arrays_[peer].data() + there;
    verb == TransferVerb::put ? std::memcpy(remote, local, size) : std::memcpy(local, remote, size);
  }

  void single(std::size_t self, std::size_t peer, TransferVerb verb, bool wait) {
    const std::size_t size = some_size(), here = some_place(size), there = some_place(size);
    Open open;
    add_ranges(open, self, here, peer, there, size, verb);
    if (!make_way(open)) return;
    apply(self, here, peer, there, size, verb);
    Runtime& runtime = world_[self];
    std::byte* const local = memory_[self] + here;
    const RemoteAddress remote = at(self, peer, there);
    if (wait) {
      require_ok(transfer(runtime, Form::sync, verb, local, remote, size));
    } else {
      keep(std::move(open),
           verb == TransferVerb::put ? runtime.put(local, remote, size) : runtime.get(local, remote, size));
    }
  }
  void batch(std::size_t self, std::size_t peer) {
    Open open;
    std::vector<BatchEntry> entries;
    const std::size_t count = 1 + dice_.below(k_entries_max);
    std::array<std::size_t, k_entries_max> here{}, there{};
    for (std::size_t i = 0; i < count; ++i) {
      const TransferVerb verb = dice_.below(2) == 0 ? TransferVerb::put : TransferVerb::get;
      const std::size_t size = some_size();
      here[i] = some_place(size);
      there[i] = some_place(size);
      add_ranges(open, self, here[i], peer, there[i], size, verb);
      entries.push_back({verb, memory_[self] + here[i], at(self, peer, there[i]), size});
    }
    if (!make_way(open)) return;
    for (std::size_t i = 0; i < count; ++i) apply(self, here[i], peer, there[i], entries[i].size, entries[i].verb);
    if (dice_.below(2) == 0) {
      require_ok(world_[self].batch_sync(entries));
    } else {
      keep(std::move(open), world_[self].batch(entries));
    }
  }
  void signal(std::size_t self, std::size_t peer) {
    const std::size_t size = some_size(), here = some_place(size), there = some_place(size);
    const std::size_t word = dice_.below(k_size / 8) * 8;
    Open open;
    add_ranges(open, self, here, peer, there, size, TransferVerb::put);
    open.ranges[open.count++] = {peer, word, word + 8, true};
    if (!make_way(open)) return;
    apply(self, here, peer, there, size, TransferVerb::put);
    const SignalOp op = dice_.below(2) == 0 ? SignalOp::set : SignalOp::add;
    const std::uint64_t value = dice_.below(1U << 30U) << dice_.below(34);
    std::uint64_t now = 0;
    std::memcpy(&now, arrays_[peer].data() + word, 8);
    now = op == SignalOp::add ? now + value : value;
    std::memcpy(arrays_[peer].data() + word, &now, 8);
    keep(std::move(open), world_[self].put_with_signal(memory_[self] + here, at(self, peer, there), size,
                                                       {.word = at(self, peer, word), .value = value, .op = op}));
  }

  World world_;
  Dice dice_;
  std::vector<std::vector<RemoteRegion>> table_;
  std::array<std::byte*, k_ranks> memory_{};
  std::array<std::vector<std::byte>, k_ranks> arrays_;
  std::deque<Open> open_;
};

}  // namespace

TEST_CASE("a million random operations leave every memory as plain arrays say") {
  struct Part {
    std::vector<LinkKind> links;
    int steps;
  };
  // tcp costs a hundred times as much an operation as the lane of a window.
  const Part parts[] = {{{}, 475'000}, {{LinkKind::hccs}, 475'000}, {{LinkKind::tcp}, 60'000}};
  const std::uint64_t seed = base_seed();
  MESSAGE("seed ", seed);
  for (const Part& part : parts) {
    CAPTURE(text(part.links));
    Model model(part.links, seed);
    const int steps = rounds(part.steps);
    const int phase = std::max(1, steps / 20);
    for (int step = 0; step < steps; ++step) {
      CAPTURE(step);
      model.step();
      if (step % phase == phase - 1) model.compare();
    }
    model.compare();
    for (Rank rank = 0; rank < k_ranks; ++rank) {
      const Counters counters = model.world()[rank].counters();
      CHECK(counters.failed == 0);
      CHECK(counters.link_failures == 0);
      CHECK(counters.callback_errors == 0);
    }
  }
}
