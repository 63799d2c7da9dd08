// SPDX-License-Identifier: Apache-2.0
//
// What has arrived when somebody is told so: whole, in its place, and final, also when a part of it failed.
#include <array>
#include <thread>

#include "delivery_parts.hpp"
#include "vanishing.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

/// Words that tell round and position: quick to write and to compare, and one that is torn shows.
void number_words(std::byte* data, std::size_t bytes, std::uint64_t round) {
  auto* words = reinterpret_cast<std::uint64_t*>(data);
  for (std::size_t i = 0; i < bytes / 8; ++i) words[i] = round << 32U | i;
}
bool holds_numbers(const std::byte* data, std::size_t bytes, std::uint64_t round) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(data);
  for (std::size_t i = 0; i < bytes / 8; ++i) {
    if (words[i] != (round << 32U | i)) return false;
  }
  return true;
}

/// All of this rank's request slots can be taken at once, so none is lost.
void require_all_slots_free(Runtime& runtime, const std::byte* source, const RemoteAddress& at) {
  require_ok(runtime.quiet(k_patience));
  std::vector<Request> all;
  for (;;) {
    auto request = runtime.put(source, at, 0);
    if (!request) break;
    all.push_back(std::move(*request));
  }
  CHECK(all.size() == 256);
  require_ok(wait_all(all, k_patience));
}

}  // namespace

TEST_CASE("P10: whoever is told that a put of 2.4 MB has completed finds all of it there") {
  constexpr std::size_t k_bytes = 2'400'000;
  struct Row {
    std::vector<LinkKind> links;
    bool window;
  };
  for (const Row& row : {Row{{LinkKind::hccs}, true}, Row{{LinkKind::tcp}, true}, Row{{}, false}}) {
    CAPTURE(text(row.links));
    World world(2, row.links);
    const Region mine = *world[0].allocate(k_bytes);
    Pages pages(k_bytes);
    const Region theirs = row.window ? *world[1].allocate(k_bytes) : *world[1].register_memory(pages.data(), k_bytes);
    const RemoteRegion remote = publish(world, {theirs}).front();
    struct Seen {
      const std::byte* data;
      std::uint64_t round;
      int torn = 0;
      int failed = 0;
      Events events{};
    } seen{theirs.data, 0};
    const int count = rounds(60);
    for (int round = 1; round <= count; ++round) {
      seen.round = static_cast<std::uint64_t>(round);
      number_words(mine.data, k_bytes, seen.round);
      if (round % 2 == 0) {
        require_ok(world[0].put_sync(mine.data, remote.at(0), k_bytes));
        REQUIRE(holds_numbers(theirs.data, k_bytes, seen.round));
        seen.events.add();
        continue;
      }
      const Callback look{[](void* context, const Completion& completion) {
                            auto& told = *static_cast<Seen*>(context);
                            told.failed += completion.result && completion.bytes == k_bytes ? 0 : 1;
                            told.torn += holds_numbers(told.data, k_bytes, told.round) ? 0 : 1;
                            told.events.add();
                          },
                          &seen};
      require_ok(world[0].put(mine.data, remote.at(0), k_bytes, {.callback = look}));
      REQUIRE(seen.events.wait_for(round));
    }
    CHECK(seen.torn == 0);
    CHECK(seen.failed == 0);
    // A place that the target does not offer is never a success.
    require_ok(world[1].deregister(theirs));
    for (const Form form : k_forms) {
      CHECK(code_of(transfer(world[0], form, TransferVerb::put, mine.data, remote.at(0), k_bytes)) == ErrorCode::stale);
    }
  }
}

TEST_CASE("S46 P11: two slots, filled and consumed thousands of times; each notice finds its data, nothing runs out") {
  constexpr std::size_t k_slot = 64U << 10U;
  constexpr std::size_t k_words = 2 * k_slot;  // behind the slots: the word of each
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    World world(2, links);
    const Region mine = *world[0].allocate(2 * k_slot + k_page_bytes);
    const Region theirs = *world[1].allocate(2 * k_slot + k_page_bytes);
    const auto table = world.exchange_all({mine, theirs});
    const RemoteRegion to_consumer = table[0][1];
    const RemoteRegion to_producer = table[1][0];
    const auto count = static_cast<std::uint64_t>(rounds(2000));
    const auto bytes_of = [](std::uint64_t n) { return 8 + n * 7919 % 1500 * 8 + (n % 50 == 0 ? k_slot / 2 : 0); };
    const std::size_t descriptors = open_descriptors();

    std::uint64_t wrong = 0;
    std::thread consumer([&] {
      for (std::uint64_t n = 1; n <= count; ++n) {
        const std::size_t slot = n % 2;
        const auto seen = world[1].wait_signal(theirs.data + k_words + slot * 8, Compare::greater_equal, n, k_patience);
        if (!seen || *seen != n || !holds_numbers(theirs.data + slot * k_slot, bytes_of(n), n)) wrong += 1;
        // "Consumed": dropped, since the producer's next notice tells that it was heard.
        if (!world[1].put_with_signal(nullptr, to_producer.at(0), 0,
                                      {.word = to_producer.at(k_words + slot * 8), .value = n})) {
          wrong += 1;
        }
      }
    });
    std::uint64_t not_freed = 0;
    std::uint64_t failed = 0;
    std::array<Request, 2> last;
    for (std::uint64_t n = 1; n <= count; ++n) {
      const std::size_t slot = n % 2;
      if (n > 2) {
        const auto freed =
            world[0].wait_signal(mine.data + k_words + slot * 8, Compare::greater_equal, n - 2, k_patience);
        not_freed += freed ? 0 : 1;
        failed += last[slot].wait(k_patience) ? 0 : 1;
      }
      number_words(mine.data + slot * k_slot, bytes_of(n), n);
      auto request =
          world[0].put_with_signal(mine.data + slot * k_slot, to_consumer.at(slot * k_slot), bytes_of(n),
                                   {.word = to_consumer.at(k_words + slot * 8), .value = n}, {.timeout = k_patience});
      if (request) last[slot] = *request;
      failed += request ? 0 : 1;
    }
    consumer.join();
    require_ok(wait_all(last, k_patience));
    CHECK(wrong == 0);
    CHECK(not_freed == 0);
    CHECK(failed == 0);
    for (Rank rank = 0; rank < 2; ++rank) {
      require_all_slots_free(world[rank], rank == 0 ? mine.data : theirs.data, table[rank][1 - rank].at(0));
      CHECK(world[rank].counters().failed == 0);
    }
    CHECK(open_descriptors() < descriptors + 16);  // links may come up meanwhile; one a round would be thousands
  }
}

TEST_CASE("S6 P11: chunks over links of different speed: add tells how many are whole, a word for each tells which") {
  constexpr std::size_t k_chunks = 8;
  constexpr std::size_t k_long = 256U << 10U;
  constexpr std::size_t k_short = 4096;
  constexpr std::size_t k_counter = k_chunks * k_short;  // in the window, behind its chunks
  for (const std::vector<LinkKind>& links :
       {std::vector<LinkKind>{}, {LinkKind::hccs, LinkKind::tcp}, {LinkKind::tcp}}) {
    CAPTURE(text(links));
    World world(2, links);
    Pages pages(k_chunks * k_long);
    const Region mine = *world[0].allocate(k_chunks * k_long);
    const Region window = *world[1].allocate(k_counter + k_page_bytes);
    const Region plain = *world[1].register_memory(pages.data(), k_chunks * k_long);
    const auto remote = publish(world, {window, plain});
    // Even chunks are long and lie in the program's own memory, which no window reaches; odd ones go by window.
    const auto bytes_of = [](std::size_t chunk) { return chunk % 2 == 0 ? k_long : k_short; };
    const auto place = [&](std::size_t chunk) {
      return chunk % 2 == 0 ? remote[1].at(chunk * k_long) : remote[0].at(chunk * k_short);
    };
    const auto is_whole = [&](std::size_t chunk, std::uint64_t round) {
      const std::byte* data = chunk % 2 == 0 ? plain.data + chunk * k_long : window.data + chunk * k_short;
      return holds_numbers(data, bytes_of(chunk), round);
    };
    const auto put_all = [&](std::uint64_t round, bool counted) {
      std::vector<Request> open;
      for (std::size_t chunk = 0; chunk < k_chunks; ++chunk) {
        number_words(mine.data + chunk * k_long, bytes_of(chunk), round);
        const Signal signal = counted ? Signal{remote[0].at(k_counter), 1, SignalOp::add}
                                      : Signal{remote[0].at(k_counter + 8 + chunk * 8), round, SignalOp::set};
        auto request = world[0].put_with_signal(mine.data + chunk * k_long, place(chunk), bytes_of(chunk), signal);
        require_ok(request);
        open.push_back(*request);
      }
      return open;
    };
    std::uint64_t counted = 0;
    for (int i = 1; i <= rounds(20); ++i) {
      const auto round = static_cast<std::uint64_t>(2 * i);
      std::vector<Request> open = put_all(round, true);
      for (std::size_t k = 1; k <= k_chunks; ++k) {
        const auto seen =
            world[1].wait_signal(window.data + k_counter, Compare::greater_equal, counted + k, k_patience);
        require_ok(seen);
        REQUIRE(*seen <= counted + k_chunks);
#ifndef __SANITIZE_THREAD__  // which chunks these are nobody says, so one that is looked at may be on its way
        std::size_t whole = 0;
        for (std::size_t chunk = 0; chunk < k_chunks; ++chunk) whole += is_whole(chunk, round) ? 1 : 0;
        REQUIRE(whole >= k);
#endif
      }
      counted += k_chunks;
      // TSan knows nothing of a signal that comes by another mapping of its page; this waits for the thread that wrote.
      static_cast<void>(world[1].counters());
      for (std::size_t chunk = 0; chunk < k_chunks; ++chunk) REQUIRE(is_whole(chunk, round));
      require_ok(wait_all(open, k_patience));

      open = put_all(round + 1, false);
      for (std::size_t chunk = 0; chunk < k_chunks; ++chunk) {
        require_ok(
            world[1].wait_signal(window.data + k_counter + 8 + chunk * 8, Compare::equal, round + 1, k_patience));
        static_cast<void>(world[1].counters());
        REQUIRE(is_whole(chunk, round + 1));
      }
      require_ok(wait_all(open, k_patience));
    }
  }
}

TEST_CASE("S1 P20: a batch of which a part fails ends once, when all of it is over; no byte of it comes later") {
  constexpr std::size_t k_parts = 8;
  constexpr std::size_t k_part = 512U << 10U;
  constexpr std::size_t k_bytes = k_parts * k_part;
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    if (text(links) == "hccs") continue;  // a window cannot be unmapped by its owner
    World world(2, links);
    Vanishing vanishing(k_page_bytes);
    Pages pages(k_bytes);
    const Region mine = *world[0].allocate(k_bytes + k_page_bytes);
    const Region window = *world[1].allocate(k_bytes);
    const Region plain = *world[1].register_memory(pages.data(), k_bytes);
    const Region gone = *world[1].register_memory(vanishing.data(), k_page_bytes);
    const auto remote = publish(world, {window, plain, gone});
    vanishing.vanish();
    for (int round = 0; round < rounds(12); ++round) {
      CAPTURE(round);
      const Region& target = round % 2 == 0 ? window : plain;
      const RemoteRegion& place = remote[static_cast<std::size_t>(round % 2)];
      std::vector<BatchEntry> entries;
      for (std::size_t i = 0; i < k_parts; ++i) {
        entries.push_back({TransferVerb::put, mine.data + i * k_part, place.at(i * k_part), k_part});
      }
      entries.insert(entries.begin() + round % static_cast<int>(k_parts + 1),
                     {TransferVerb::put, mine.data + k_bytes, remote[2].at(0), k_page_bytes});
      std::memset(mine.data, 0x11, k_bytes);
      // Beside it, one of its own that goes well: each request has its own end.
      auto batch = world[0].batch(entries);
      auto beside = world[0].put(mine.data + k_bytes, place.at(0), 0);
      require_ok(batch);
      require_ok(beside);
      while (code_of(batch->query()) == ErrorCode::busy) {
      }
      CHECK(code_of(batch->query()) == ErrorCode::memory_unmapped);
      std::memset(mine.data, 0x77, k_bytes);
      std::memset(target.data, 0x33, k_bytes);
      require_ok(beside->wait(k_patience));
      require_ok(world[0].put_sync(mine.data, place.at(k_bytes - 1), 1));
      require_ok(world[0].flush(1, k_patience));
      static_cast<void>(world[1].counters());
      CHECK(all_bytes(target.data, k_bytes - 1, std::byte{0x33}));
      CHECK(all_bytes(mine.data, k_bytes, std::byte{0x77}));
    }
    CHECK(world[0].counters().link_failures == 0);
    require_all_slots_free(world[0], mine.data, remote[0].at(0));
  }
}
