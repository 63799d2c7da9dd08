// SPDX-License-Identifier: Apache-2.0
//
// Transfers through the public interface, over every link kind of this machine.
#include <atomic>

#include "world.hpp"

using namespace hixl;
using namespace hixl::test;

TEST_CASE("put and get move exactly the bytes asked for") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    World world(2, links);
    constexpr std::size_t k_size = 6U << 20U;
    const auto a = world[0].allocate(k_size);
    const auto b = world[1].allocate(k_size);
    require_ok(a);
    require_ok(b);
    const auto table = world.exchange_all({*a, *b});
    const RemoteRegion remote = table[0][1];
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{65}, std::size_t{4096},
          std::size_t{65536}, std::size_t{65537}, std::size_t{1} << 20U, (std::size_t{5} << 20U) + 3}) {
      CAPTURE(size);
      for (const std::size_t offset : {std::size_t{0}, std::size_t{13}}) {
        std::memset(b->data, 0x5a, k_size);
        fill_pattern(a->data + offset, size, size + offset);
        require_ok(world[0].put_sync(a->data + offset, remote.at(128 + offset), size));
        CHECK(holds_pattern(b->data + 128 + offset, size, size + offset));
        CHECK(b->data[127 + offset] == std::byte{0x5a});
        CHECK(b->data[128 + offset + size] == std::byte{0x5a});
        std::memset(a->data, 0, k_size);
        require_ok(world[0].get_sync(a->data + 64, remote.at(128 + offset), size));
        // TSan dates the target's read at the return of its sendmsg(); this waits for that thread.
        static_cast<void>(world[1].counters());
        CHECK(holds_pattern(a->data + 64, size, size + offset));
        CHECK(a->data[63] == std::byte{0});
        CHECK(a->data[64 + size] == std::byte{0});
      }
    }
  }
}

TEST_CASE("a request gives its result for ever, a late copy is invalid") {
  World world(2);
  const auto a = world[0].allocate(1U << 20U);
  const auto b = world[1].allocate(1U << 20U);
  const auto table = world.exchange_all({*a, *b});
  auto request = world[0].put(a->data, table[0][1].at(0), 1U << 20U);
  require_ok(request);
  Request copy = *request;
  require_ok(request->wait());
  require_ok(request->query());
  CHECK(request->done());
  CHECK(code_of(copy.query()) == ErrorCode::invalid_request);
  Request seen = *request;
  require_ok(seen.query());
}

TEST_CASE("a callback fires once with its data, never inside the post") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    World world(2, links);
    const auto a = world[0].allocate(1U << 20U);
    const auto b = world[1].allocate(1U << 20U);
    const auto table = world.exchange_all({*a, *b});
    struct Seen {
      std::atomic<int> calls{0};
      std::uint64_t user_data = 0;
      std::uint64_t bytes = 0;
      bool ok = false;
    };
    for (const std::size_t size : {std::size_t{8}, std::size_t{1} << 20U}) {
      Seen seen;
      auto request = world[0].put(a->data, table[0][1].at(0), size,
                                  {.callback = {[](void* context, const Completion& completion) {
                                                  auto& s = *static_cast<Seen*>(context);
                                                  s.user_data = completion.user_data;
                                                  s.bytes = completion.bytes;
                                                  s.ok = completion.result.has_value();
                                                  s.calls.fetch_add(1);
                                                  s.calls.notify_all();
                                                },
                                                &seen},
                                   .user_data = 77});
      require_ok(request);
      seen.calls.wait(0);
      CHECK(seen.calls == 1);
      CHECK(seen.user_data == 77);
      CHECK(seen.bytes == size);
      CHECK(seen.ok);
      require_ok(world[0].flush(1));
      CHECK(seen.calls == 1);
    }
  }
}

TEST_CASE("a batch of puts and gets is one operation") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    World world(2, links);
    const auto a = world[0].allocate(1U << 20U);
    const auto b = world[1].allocate(1U << 20U);
    const auto table = world.exchange_all({*a, *b});
    fill_pattern(a->data, 512 << 10U, 1);
    fill_pattern(b->data + (512U << 10U), 512U << 10U, 2);
    std::vector<BatchEntry> entries;
    for (std::size_t i = 0; i < 128; ++i) {
      entries.push_back({TransferVerb::put, a->data + i * 4096, table[0][1].at((127 - i) * 4096), 4096});
    }
    for (std::size_t i = 0; i < 128; ++i) {
      entries.push_back(
          {TransferVerb::get, a->data + (512U << 10U) + i * 4096, table[0][1].at((512U << 10U) + i * 4096), 4096});
    }
    require_ok(world[0].batch_sync(entries));
    for (std::size_t i = 0; i < 128; ++i) {
      CHECK(std::memcmp(a->data + i * 4096, b->data + (127 - i) * 4096, 4096) == 0);
    }
    CHECK(holds_pattern(a->data + (512U << 10U), 512U << 10U, 2));
  }
}

TEST_CASE("a signal is seen only with its data") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    World world(2, links);
    const auto a = world[0].allocate(1U << 20U);
    const auto b = world[1].allocate(1U << 20U);
    const auto table = world.exchange_all({*a, *b});
    constexpr std::size_t k_word = (1U << 20U) - 8;
    for (std::uint64_t round = 1; round <= 30; ++round) {
      const std::size_t size = round % 3 == 0 ? 0 : round * 20'000;
      fill_pattern(a->data, size, round);
      auto request =
          world[0].put_with_signal(a->data, table[0][1].at(0), size, {.word = table[0][1].at(k_word), .value = round});
      require_ok(request);
      const auto value =
          world[1].wait_signal(b->data + k_word, Compare::greater_equal, round, std::chrono::seconds(20));
      require_ok(value);
      CHECK(*value == round);
      CHECK(holds_pattern(b->data, size, round));
      require_ok(request->wait());
    }
    auto add = world[0].put_with_signal(a->data, table[0][1].at(0), 8,
                                        {.word = table[0][1].at(k_word), .value = 12, .op = SignalOp::add});
    require_ok(add);
    require_ok(world[1].wait_signal(b->data + k_word, Compare::equal, 42, std::chrono::seconds(20)));
    require_ok(add->wait());
  }
}

TEST_CASE("S23: a rank puts to itself") {
  World world(1);
  const auto a = world[0].allocate(3U << 20U);
  require_ok(a);
  fill_pattern(a->data, 1U << 20U, 5);
  const RemoteAddress own{.rank = 0, .address = a->address() + (2U << 20U)};
  require_ok(world[0].put_sync(a->data, own, 1U << 20U));
  CHECK(holds_pattern(a->data + (2U << 20U), 1U << 20U, 5));
  require_ok(world[0].barrier());
  const Region regions[] = {*a};
  const Rank self[] = {0};
  const auto answers = world[0].exchange(regions, self);
  require_ok(answers.front().result);
  require_ok(world[0].put_sync(a->data, answers.front().regions.front().at(1U << 20U), 100));
}
