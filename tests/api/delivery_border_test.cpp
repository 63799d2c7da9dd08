// SPDX-License-Identifier: Apache-2.0
//
// Transfers about borders: of chunks and staging buffers, and of regions that lie side by side.
#include "delivery_parts.hpp"

using namespace hixl;
using namespace hixl::test;

TEST_CASE("P12: device memory in sizes about the borders of chunks and staging buffers") {
  for (const std::uint32_t chunk : {4096U, 64U << 10U, 1U << 20U}) {
    CAPTURE(chunk);
    const auto store = std::move(*Store::create("tcp://127.0.0.1:0"));
    const std::size_t room = 2 * std::size_t{chunk} + 2 * k_page_bytes;
    std::unique_ptr<Runtime> ranks[2];
    Region device[2];
    for (Rank rank = 0; rank < 2; ++rank) {
      RuntimeOptions options = options_for(rank, 2, store->url(), {LinkKind::tcp});
      options.chunk_bytes = chunk;
      options.hbm_bytes = 16U << 20U;
      auto runtime = Runtime::create(options);
      require_ok(runtime);
      ranks[rank] = std::move(*runtime);
      device[rank] = *ranks[rank]->allocate(room, {.kind = MemoryKind::hbm});
    }
    const Rank zero[] = {0};
    const Rank one[] = {1};
    Answer<std::vector<PeerAddresses>> answer;
    require_ok(ranks[1]->exchange_async(std::span(&device[1], 1), zero, k_patience, store_answers, &answer));
    const auto learned = ranks[0]->exchange({}, one, k_patience);
    REQUIRE(answer.wait());
    require_ok(learned.front().result);
    const RemoteRegion remote = learned.front().regions.front();

    std::uint64_t seed = 0;
    std::vector<std::byte> here(room);
    std::vector<std::byte> there(room);
    for (const std::size_t size : {std::size_t{chunk} - 1, std::size_t{chunk}, std::size_t{chunk} + 1,
                                   2 * std::size_t{chunk} - 1, 2 * std::size_t{chunk} + 3}) {
      CAPTURE(size);
      for (const std::size_t at : {std::size_t{0}, std::size_t{77}}) {
        for (const TransferVerb verb : {TransferVerb::put, TransferVerb::get}) {
          const Rank from = verb == TransferVerb::put ? 0 : 1;
          fill_pattern(here.data(), room, ++seed);
          std::fill(there.begin(), there.end(), std::byte{0x5a});
          require_ok(ranks[from]->copy_in(device[from], 0, here.data(), room));
          require_ok(ranks[1 - from]->copy_in(device[1 - from], 0, there.data(), room));
          std::memcpy(there.data() + at, here.data() + at, size);
          require_ok(transfer(*ranks[0], Form::sync, verb, device[0].data + at, remote.at(at), size));
          require_ok(ranks[1 - from]->copy_out(device[1 - from], 0, here.data(), room));
          REQUIRE(here == there);
        }
      }
    }
  }
}

TEST_CASE("P13: writes that meet at the border of two regions stay on their sides, and nothing outside changes") {
  constexpr std::size_t k_half = 2 * k_page_bytes;
  constexpr std::size_t k_all = 2 * k_half + 2 * k_page_bytes;  // a page before and a page behind
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    World world(2, links);
    Pages pages(k_all);
    const bool guarded = text(links) != "hccs";  // memory of the program's own; hccs reaches windows only
    std::byte* data = guarded ? pages.data() : world[1].allocate(k_all)->data;
    std::memset(data, 0x5a, k_all);
    if (guarded) {
      REQUIRE(mprotect(data, k_page_bytes, PROT_NONE) == 0);
      REQUIRE(mprotect(data + k_all - k_page_bytes, k_page_bytes, PROT_NONE) == 0);
    }
    std::byte* const border = data + k_page_bytes + k_half;
    const Region low = *world[1].register_memory(border - k_half, k_half);
    const Region high = *world[1].register_memory(border, k_half);
    const Region mine = *world[0].allocate(k_all);
    const auto remote = publish(world, {low, high});
    fill_pattern(mine.data, k_all, 1);

    // Neighbours here and there, across the border: 17 bytes below it, 19 above, and whole halves.
    for (const auto& [below, above] : {std::pair<std::size_t, std::size_t>{17, 19}, {k_half, k_half}, {1, k_half}}) {
      CAPTURE(below);
      std::memset(border - k_half, 0x5a, 2 * k_half);
      const BatchEntry entries[] = {
          {TransferVerb::put, mine.data + below, remote[1].at(0), above},
          {TransferVerb::put, mine.data, remote[0].at(k_half - below), below},
      };
      require_ok(world[0].batch_sync(entries));
      CHECK(std::memcmp(border - below, mine.data, below + above) == 0);
      CHECK(all_bytes(border - k_half, k_half - below, std::byte{0x5a}));
      CHECK(all_bytes(border + above, k_half - above, std::byte{0x5a}));
    }
    // What crosses it lies in neither, however it is addressed.
    std::memset(border - k_half, 0x5a, 2 * k_half);
    for (const Form form : k_forms) {
      RemoteAddress across = remote[0].at(k_half - 8);
      CHECK(code_of(transfer(world[0], form, TransferVerb::put, mine.data, across, 9)) == ErrorCode::out_of_range);
      across.region = {};
      CHECK(code_of(transfer(world[0], form, TransferVerb::put, mine.data, across, 9)) == ErrorCode::out_of_range);
      across = remote[1].at(0);
      across.address -= 1;
      CHECK(code_of(transfer(world[0], form, TransferVerb::put, mine.data, across, 9)) == ErrorCode::out_of_range);
    }
    // One of them taken away: its half is safe, and the other still works.
    require_ok(world[1].deregister(high));
    for (const std::size_t bytes : {std::size_t{8}, k_half}) {
      const BatchEntry entries[] = {{TransferVerb::put, mine.data, remote[0].at(k_half - bytes), bytes},
                                    {TransferVerb::put, mine.data + bytes, remote[1].at(0), bytes}};
      CHECK(code_of(world[0].batch_sync(entries)) == ErrorCode::stale);
      CHECK(all_bytes(border, k_half, std::byte{0x5a}));
      require_ok(world[0].put_sync(mine.data, remote[0].at(k_half - bytes), bytes));
      CHECK(std::memcmp(border - bytes, mine.data, bytes) == 0);
    }
    CHECK(all_bytes(border, k_half, std::byte{0x5a}));
    if (!guarded) {
      CHECK(all_bytes(data, k_page_bytes, std::byte{0x5a}));
      CHECK(all_bytes(data + k_all - k_page_bytes, k_page_bytes, std::byte{0x5a}));
    }
    CHECK(world[0].counters().link_failures == 0);
  }
}
