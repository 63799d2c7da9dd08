// SPDX-License-Identifier: Apache-2.0
//
// Layer by layer: a layer moves when it is said to be ready, the receiver learns of it by a word, and never before its
// bytes are there.
#include <atomic>
#include <thread>

#include "kv_world.hpp"

using namespace hixl;
using namespace hixl::kv;
using namespace hixl::kv::test;

namespace {

Lease granted(Couple& couple, std::chrono::milliseconds time = std::chrono::minutes(5)) {
  const auto lease = couple.world[1].grant(
      couple.to,
      {.holder = 0, .access = Access::push, .blocks = k_there, .time = time, .layer_arrivals = true, .on_end = {}});
  require_ok(lease);
  return *lease;
}

}  // namespace

TEST_CASE("F124 layers move in the order in which they are ready, and arrive before anything says so") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Couple couple(links);
    const Lease lease = granted(couple);
    const auto moving =
        couple.world[0].push(couple.from, couple.target_seen, two_blocks(), {.ticket = &lease.ticket, .layered = true});
    require_ok(moving);
    CHECK(code_of(moving->query()) == ErrorCode::busy);
    for (const std::uint32_t layer : {2U, 0U, 3U, 1U}) {
      CAPTURE(layer);
      CHECK(couple.world[1].layer_arrived(lease.id, layer).value() == false);
      CHECK(code_of(couple.world[1].wait_layer(lease.id, layer, std::chrono::milliseconds(1))) ==
            ErrorCode::deadline_exceeded);
      CHECK_FALSE(couple.same_block(3, 0, layer, layer + 1));
      require_ok(moving->ready(layer));
      require_ok(couple.world[1].wait_layer(lease.id, layer, k_patience));
      CHECK(couple.same_block(3, 0, layer, layer + 1));
      CHECK(couple.same_block(9, 7, layer, layer + 1));
      CHECK(couple.world[1].layer_arrived(lease.id, layer).value());
    }
    require_ok(moving->wait());
    CHECK(moving->progress().layers_done == 4);
  }
}

TEST_CASE("P11 a layer's word never rises before its bytes: a receiver that watches, a thousand layers") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    const CacheDesc desc = paged(16, 20);
    Couple couple(links, desc);
    const std::size_t bytes = block_bytes(desc.layout).value();
    for (int round = 0; round < rounds(50); ++round) {
      for (std::size_t i = 0; i < 40; ++i) {
        std::memset(couple.source.tensor(i) + 3 * bytes, round + 1, bytes);
        std::memset(couple.source.tensor(i) + 9 * bytes, round + 1, bytes);
      }
      const Lease lease = granted(couple);
      std::thread receiver([&] {
        for (std::uint32_t layer = 0; layer < 20; ++layer) {
          require_ok(couple.world[1].wait_layer(lease.id, layer, k_patience));
          CHECK(couple.same_block(3, 0, layer, layer + 1));
          CHECK(couple.same_block(9, 7, layer, layer + 1));
        }
      });
      const auto moving = couple.world[0].push(couple.from, couple.target_seen, two_blocks(),
                                               {.ticket = &lease.ticket, .release = true, .layered = true});
      require_ok(moving);
      for (std::uint32_t layer = 0; layer < 20; ++layer) require_ok(moving->ready(layer));
      require_ok(moving->wait());
      receiver.join();
    }
  }
}

TEST_CASE(
    "a layer of more pieces than the runtime takes in one operation arrives whole, and its word after its last byte") {
  // A token a block, no two neighbours: each number is a piece of its own, twice 540 000 of them.
  CacheDesc desc = paged(1'080'000, 2);
  desc.layout.kv_heads = 1;
  desc.layout.head_dim = 1;
  desc.layout.block_tokens = 1;
  Couple couple({}, desc);
  std::vector<std::uint32_t> odd(540'000);
  for (std::uint32_t i = 0; i < odd.size(); ++i) odd[i] = 2 * i + 1;
  const auto lease = couple.world[1].grant(
      couple.to, {.holder = 0, .access = Access::push, .blocks = odd, .layer_arrivals = true, .on_end = {}});
  require_ok(lease);
  Slice slice;
  slice.source = odd;
  slice.target = odd;
  const auto moving =
      couple.world[0].push(couple.from, couple.target_seen, slice, {.ticket = &lease->ticket, .layered = true});
  require_ok(moving);
  for (const std::uint32_t layer : {1U, 0U}) {
    CHECK(couple.world[1].layer_arrived(lease->id, layer).value() == false);
    require_ok(moving->ready(layer));
    require_ok(couple.world[1].wait_layer(lease->id, layer, k_patience));
    for (const std::uint32_t block : {1U, 3U, 540'001U, 1'079'997U, 1'079'999U}) {
      CHECK(couple.same_block(block, block, layer, layer + 1));
    }
  }
  CHECK(code_of(moving->wait(k_patience)) == ErrorCode::ok);
  CHECK(moving->progress().bytes_done == moving->progress().bytes_total);
  CHECK(moving->progress().layers_done == 2);
  CHECK(std::all_of(odd.begin(), odd.end(), [&](std::uint32_t block) { return couple.same_block(block, block); }));
  CHECK(couple.target.canaries_live());
}

TEST_CASE("layers may be named by many threads; each counts once, and on_layer tells each once, before the end") {
  const CacheDesc desc = paged(16, 32);
  Couple couple({}, desc);
  struct Told {
    std::atomic<int> times[32]{};
    std::atomic<int> layers{0};
    std::atomic<int> at_end{-1};
  } told;
  TransferOptions options;
  options.layered = true;
  options.on_layer = {[](void* context, std::uint32_t layer) {
                        auto& here = *static_cast<Told*>(context);
                        here.times[layer] += 1;
                        here.layers += 1;
                      },
                      &told};
  options.callback = {[](void* context, const Result<void>&, const Progress&) {
                        auto& here = *static_cast<Told*>(context);
                        here.at_end.store(here.layers.load());
                        here.at_end.notify_all();
                      },
                      &told};
  const auto moving = couple.world[0].push(couple.from, couple.target_seen, two_blocks(), options);
  require_ok(moving);
  std::atomic<int> named{0};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (std::uint32_t layer = 0; layer < 32; ++layer) {
        const ErrorCode code = code_of(moving->ready(layer));
        if (code == ErrorCode::ok) named += 1;
        if (code == ErrorCode::already_exists) refused += 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  told.at_end.wait(-1);
  require_ok(moving->wait());
  CHECK(named.load() == 32);
  CHECK(told.at_end.load() == 32);
  for (const auto& times : told.times) CHECK(times.load() == 1);
  CHECK(couple.same_block(3, 0));
  CHECK(refused.load() == 96);
}

TEST_CASE("a transfer has not ended while its program is being told of a layer, whoever looks for the end meanwhile") {
  Couple couple;
  struct Told {
    std::atomic<int> layers{0};
    std::atomic<bool> given{false};
    Transfer transfer;
    ErrorCode inside = ErrorCode::ok;
  } told;
  TransferOptions options;
  options.layered = true;
  options.on_layer = {[](void* context, std::uint32_t) {
                        auto& here = *static_cast<Told*>(context);
                        if (++here.layers < 4) return;
                        here.given.wait(false);
                        here.transfer.cancel();  // looks for the end, as the keeper does now and then
                        here.inside = code_of(here.transfer.query());
                      },
                      &told};
  const auto moving = couple.world[0].push(couple.from, couple.target_seen, two_blocks(), options);
  require_ok(moving);
  told.transfer = *moving;
  told.given = true;
  told.given.notify_all();
  for (std::uint32_t layer = 0; layer < 4; ++layer) require_ok(moving->ready(layer));
  CHECK(code_of(moving->wait(k_patience)) == ErrorCode::ok);  // a cancel came after the last byte
  CHECK(told.layers.load() == 4);
  CHECK(told.inside == ErrorCode::busy);
}

TEST_CASE("a layer range that does not start at 0, and a pull layer by layer") {
  Couple couple;
  Slice slice = two_blocks();
  slice.layers = Range{1, 3};
  const auto moving = couple.world[1].pull(couple.to, couple.source_seen, slice, {.layered = true});
  require_ok(moving);
  CHECK(code_of(moving->ready(0)) == ErrorCode::out_of_range);
  CHECK(code_of(moving->ready(3)) == ErrorCode::out_of_range);
  require_ok(moving->ready(2));
  CHECK(code_of(moving->ready(2)) == ErrorCode::already_exists);
  require_ok(moving->ready(1));
  require_ok(moving->wait());
  CHECK(couple.same_block(3, 0, 1, 3));
  CHECK_FALSE(couple.same_block(3, 0, 0, 1));
  CHECK_FALSE(couple.same_block(3, 0, 3, 4));
  const auto plain = couple.world[1].pull(couple.to, couple.source_seen, slice);
  require_ok(plain);
  CHECK(code_of(plain->ready(1)) == ErrorCode::invalid_argument);
  require_ok(plain->wait());
}

TEST_CASE("a layer that is never named: the deadline ends it, and what has arrived stays") {
  Couple couple;
  const Lease lease = granted(couple);
  std::atomic<int> calls{0};
  TransferOptions options{.timeout = std::chrono::milliseconds(300), .ticket = &lease.ticket, .layered = true};
  options.callback = {[](void* context, const Result<void>& result, const Progress& progress) {
                        CHECK(code_of(result) == ErrorCode::deadline_exceeded);
                        CHECK(progress.layers_done == 1);
                        auto& here = *static_cast<std::atomic<int>*>(context);
                        here += 1;
                        here.notify_all();
                      },
                      &calls};
  const auto moving = couple.world[0].push(couple.from, couple.target_seen, two_blocks(), options);
  require_ok(moving);
  require_ok(moving->ready(1));
  require_ok(couple.world[1].wait_layer(lease.id, 1, k_patience));
  CHECK(code_of(moving->wait(k_patience)) == ErrorCode::deadline_exceeded);
  calls.wait(0);
  CHECK(calls.load() == 1);
  CHECK(code_of(moving->ready(2)) == ErrorCode::deadline_exceeded);
  CHECK(couple.world[1].layer_arrived(lease.id, 1).value());
  CHECK_FALSE(couple.world[1].layer_arrived(lease.id, 2).value());
}

TEST_CASE("cancel: soon, once, and no byte of a layer that was not named") {
  Couple couple;
  const auto moving = couple.world[0].push(couple.from, couple.target_seen, two_blocks(), {.layered = true});
  require_ok(moving);
  require_ok(moving->ready(0));
  moving->cancel();
  const ErrorCode code = code_of(moving->wait(k_patience));
  CHECK(code == ErrorCode::cancelled);
  moving->cancel();
  CHECK(code_of(moving->query()) == ErrorCode::cancelled);
  CHECK_FALSE(couple.same_block(3, 0, 1, 2));
  // The gate was left: the cache can be taken away.
  require_ok(couple.world[1].unregister_cache(couple.to, k_patience));
}
