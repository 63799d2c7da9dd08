// SPDX-License-Identifier: Apache-2.0
//
// Every call with what it must refuse, from many threads, after close, and where it may not block.
#include <atomic>
#include <limits>
#include <thread>

#include "kv_world.hpp"

using namespace hixl;
using namespace hixl::kv;
using namespace hixl::kv::test;

TEST_CASE("open: options outside their ranges, by place; one to a runtime") {
  World world(1);
  const auto refused = [&](auto&& change, std::uint64_t place) {
    DataDistOptions options;
    change(options);
    const auto dist = DataDist::open(world[0], options);
    REQUIRE_FALSE(dist);
    CHECK(dist.error().code == ErrorCode::invalid_argument);
    CHECK(dist.error().detail.length == place);
  };
  refused([](auto& at) { at.role = static_cast<Role>(0); }, 0);
  refused([](auto& at) { at.default_timeout = std::chrono::milliseconds(0); }, 1);
  refused([](auto& at) { at.caches_max = 0; }, 2);
  refused([](auto& at) { at.tensors_max = 65'537; }, 3);
  refused([](auto& at) { at.links_max = 4'097; }, 4);
  refused([](auto& at) { at.leases_max = 0; }, 5);
  refused([](auto& at) { at.arrivals_max = 4'097; }, 6);
  refused([](auto& at) { at.sequences_max = 0; }, 7);
  auto first = DataDist::open(world[0]);
  require_ok(first);
  CHECK(code_of(DataDist::open(world[0])) == ErrorCode::busy);
  require_ok((*first)->close());
  require_ok((*first)->close());
  CHECK(DataDist::open(world[0]).has_value());
}

TEST_CASE("register_cache: shapes, places, names, numbers") {
  DataDistOptions few;
  few.caches_max = 2;
  few.tensors_max = 8;
  KvWorld world(1, {}, few);
  TestCache memory(world.runtime(0), paged());
  const auto code = [&](auto&& change) {
    CacheDesc desc = paged();
    std::vector<TensorPlace> places = memory.places();
    change(desc, places);
    return code_of(world[0].register_cache(desc, places));
  };
  CHECK(code([](auto& desc, auto&) { desc.blocks = 0; }) == ErrorCode::invalid_argument);
  CHECK(code([](auto& desc, auto&) { desc.layout.kv_heads = 0; }) == ErrorCode::invalid_argument);
  CHECK(code([](auto& desc, auto&) { desc.shard.heads_first = 9; }) == ErrorCode::invalid_argument);
  CHECK(code([](auto&, auto& places) { places.pop_back(); }) == ErrorCode::invalid_argument);
  CHECK(code([](auto&, auto& places) { places.clear(); }) == ErrorCode::invalid_argument);
  CHECK(code([](auto&, auto& places) { places[3].region = {}; }) == ErrorCode::invalid_argument);
  CHECK(code([](auto&, auto& places) { places[7].offset += 200; }) == ErrorCode::out_of_range);
  CHECK(code([](auto&, auto& places) { places[1].offset = std::numeric_limits<std::uint64_t>::max(); }) ==
        ErrorCode::out_of_range);
  CHECK(code([](auto& desc, auto&) { desc.blocks = 17; }) == ErrorCode::out_of_range);
  CHECK(code([](auto& desc, auto& places) { desc.layout.layers = 5, places.resize(10, places[0]); }) ==
        ErrorCode::limit_reached);
  const auto gone = world.runtime(0).allocate(1 << 20);
  require_ok(gone);
  require_ok(world.runtime(0).deregister(*gone));
  CHECK(code([&](auto&, auto& places) { places[0].region = *gone; }) == ErrorCode::stale);
  const auto first = world[0].register_cache(paged(), memory.places());
  require_ok(first);
  CHECK(world[0].describe(*first).value().blocks == 16);
  CHECK(code([](auto&, auto&) {}) == ErrorCode::already_exists);
  CHECK(code([](auto& desc, auto&) { desc.key.name = 1; }) == ErrorCode::ok);
  CHECK(code([](auto& desc, auto&) { desc.key.name = 2; }) == ErrorCode::limit_reached);
  require_ok(world[0].unregister_cache(*first));
  CHECK(code_of(world[0].unregister_cache(*first)) == ErrorCode::cache_stale);
  CHECK(code_of(world[0].unregister_cache({})) == ErrorCode::cache_stale);
  CHECK(code_of(world[0].describe(*first)) == ErrorCode::cache_stale);
  CHECK(code_of(world[0].unregister_cache({.slot = 4'000'000, .version = 1})) == ErrorCode::cache_stale);
  CHECK(code_of(world[0].register_cache(paged(), memory.places(), -std::chrono::seconds(1))) ==
        ErrorCode::invalid_argument);
}

TEST_CASE("push and pull: nothing is moved when anything is wrong, and the error says what") {
  Couple couple;
  DataDist& sender = couple.world[0];
  const auto code = [&](auto&& change) {
    Slice slice = two_blocks(k_here);
    TransferOptions options;
    RemoteCache to = couple.target_seen;
    CacheId from = couple.from;
    change(slice, options, to, from);
    return code_of(sender.push(from, to, slice, options));
  };
  const std::vector<std::uint32_t> outside{3, 16};
  CHECK(code([&](auto& slice, auto&, auto&, auto&) { slice.target = outside; }) == ErrorCode::out_of_range);
  CHECK(code([](auto& slice, auto&, auto&, auto&) { slice.tokens = Range{0, 33}; }) == ErrorCode::out_of_range);
  CHECK(code([](auto& slice, auto&, auto&, auto&) { slice.layers = Range{0, 5}; }) == ErrorCode::out_of_range);
  CHECK(code([](auto&, auto& options, auto&, auto&) { options.timeout = -std::chrono::seconds(3); }) ==
        ErrorCode::invalid_argument);
  CHECK(code([](auto&, auto&, auto& to, auto&) { to = {}; }) == ErrorCode::invalid_argument);
  CHECK(code([](auto&, auto&, auto&, auto& from) { from = {}; }) == ErrorCode::cache_stale);
  CHECK(code([](auto&, auto& options, auto&, auto&) { options.release = true; }) == ErrorCode::invalid_argument);
  LeaseTicket foreign;
  CHECK(code([&](auto&, auto& options, auto&, auto&) { options.ticket = &foreign; }) == ErrorCode::invalid_argument);
  CHECK(couple.target.unchanged());
  const auto late = sender.push(couple.from, couple.target_seen, two_blocks(k_here), {.timeout = Timeout{}});
  CHECK(end_of(late) == ErrorCode::deadline_exceeded);
  CHECK(couple.target.unchanged());

  // Another model's cache under the same name.
  CacheDesc other = paged();
  other.key.name = 5;
  other.layout.head_dim = 16;
  TestCache small(couple.world.runtime(1), other);
  require_ok(couple.world[1].register_cache(other, small.places()));
  const auto seen = sender.find(1, other.key);
  require_ok(seen);
  const auto mismatch = sender.push(couple.from, *seen, two_blocks(k_here));
  REQUIRE_FALSE(mismatch);
  CHECK(mismatch.error().code == ErrorCode::layout_mismatch);
  CHECK(mismatch.error().detail.rank == 1);
  const std::string text = mismatch.error().message();
  CHECK(text.find("here: 4 layers, 4 KV heads of 32") != std::string::npos);
  CHECK(text.find("there: 4 layers, 4 KV heads of 16") != std::string::npos);
}

TEST_CASE("an empty Transfer, and one whose DataDist is gone") {
  const Transfer empty;
  CHECK(code_of(empty.query()) == ErrorCode::invalid_request);
  CHECK(code_of(empty.wait()) == ErrorCode::invalid_request);
  CHECK(code_of(empty.ready(0)) == ErrorCode::invalid_request);
  CHECK(empty.progress().bytes_total == 0);
  empty.cancel();
  Transfer kept;
  {
    Couple couple;
    const auto open = couple.world[0].push(couple.from, couple.target_seen, two_blocks(k_here), {.layered = true});
    require_ok(open);
    kept = *open;
    require_ok(couple.world[0].close(k_patience));
    CHECK(code_of(kept.query()) == ErrorCode::stopped);
    CHECK(code_of(kept.ready(0)) == ErrorCode::stopped);
    // After close everything says so, and the other side is told.
    CHECK(code_of(couple.world[0].push(couple.from, couple.target_seen, two_blocks(k_here))) == ErrorCode::stopped);
    CHECK(code_of(couple.world[0].find(1, {})) == ErrorCode::stopped);
    CHECK(code_of(couple.world[0].register_cache(paged(), couple.source.places())) == ErrorCode::stopped);
    CHECK(code_of(couple.world[0].grant(couple.from, {})) == ErrorCode::stopped);
    CHECK(code_of(couple.world[0].switch_role(Role::both)) == ErrorCode::stopped);
    CHECK(code_of(couple.world[0].release({})) == ErrorCode::stopped);
    const Rank one = 1;
    CHECK(code_of(couple.world[0].link({&one, 1}).front()) == ErrorCode::stopped);
    CHECK(code_of(couple.world[0].unlink(1)) == ErrorCode::stopped);
    CHECK(couple.world[0].link_state(1) == LinkState::none);
    const ErrorCode pulled = end_of(couple.world[1].pull(couple.to, couple.source_seen, two_blocks(k_here)));
    CHECK((pulled == ErrorCode::stale || pulled == ErrorCode::not_linked));
  }
  CHECK(code_of(kept.query()) == ErrorCode::stopped);
  CHECK(code_of(kept.wait(std::chrono::seconds(1))) == ErrorCode::stopped);
}

TEST_CASE("P56 many threads push, pull, lease, register and look at once; every block is right at the end") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Couple couple(links, paged(64, 4));
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (std::uint32_t thread = 0; thread < 6; ++thread) {
      threads.emplace_back([&, thread] {
        for (int round = 0; round < rounds(40); ++round) {
          // Blocks of its own: thread i moves 8 i … 8 i + 7.
          std::vector<std::uint32_t> blocks(4);
          for (std::uint32_t i = 0; i < 4; ++i)
            blocks[i] = thread * 8 + (static_cast<std::uint32_t>(round) % 2) * 4 + i;
          Slice slice;
          slice.source = blocks;
          slice.target = blocks;
          Result<Transfer> moved = tl::unexpected<Error>(Error(ErrorCode::busy));
          if (thread % 3 == 2) {
            const auto lease = couple.world[1].grant(
                couple.to,
                {.holder = 0, .access = Access::push, .blocks = blocks, .layer_arrivals = true, .on_end = {}});
            if (!lease) {
              wrong += 1;
              continue;
            }
            moved = couple.world[0].push(couple.from, couple.target_seen, slice, {.ticket = &lease->ticket});
            for (std::uint32_t layer = 0; layer < 4; ++layer) {
              if (!couple.world[1].wait_layer(lease->id, layer, k_patience)) wrong += 1;
            }
            if (end_of(moved) != ErrorCode::ok) wrong += 1;
            if (!couple.world[1].end_lease(lease->id)) wrong += 1;
            continue;
          }
          moved = thread % 3 == 0 ? couple.world[0].push(couple.from, couple.target_seen, slice)
                                  : couple.world[1].pull(couple.to, couple.source_seen, slice);
          if (moved) static_cast<void>(moved->progress());
          if (end_of(moved) != ErrorCode::ok) wrong += 1;
          if (!couple.world[thread % 2].find(1 - thread % 2, paged().key)) wrong += 1;
          if (couple.world[0].link_state(1) != LinkState::linked) wrong += 1;
        }
      });
    }
    threads.emplace_back([&] {
      CacheDesc other = paged();
      other.key.name = 77;
      for (int round = 0; round < rounds(20); ++round) {
        const auto id = couple.world[0].register_cache(other, couple.source.places());
        if (!id || !couple.world[1].find(0, other.key) || !couple.world[0].unregister_cache(*id)) wrong += 1;
      }
    });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong.load() == 0);
    for (std::uint32_t block = 0; block < 48; ++block) CHECK(couple.same_block(block, block));
    CHECK_FALSE(couple.same_block(50, 50));
  }
}

TEST_CASE("a runtime with few slots: what finds no room waits, and all of it moves") {
  auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  std::unique_ptr<Runtime> runtimes[2];
  for (Rank rank = 0; rank < 2; ++rank) {
    RuntimeOptions options = options_for(rank, 2, (*store)->url());
    options.requests_max = 4;
    auto runtime = Runtime::create(options);
    require_ok(runtime);
    runtimes[rank] = std::move(*runtime);
  }
  const CacheDesc desc = paged(16, 16);
  TestCache source(*runtimes[0], desc);
  TestCache target(*runtimes[1], desc);
  {
    auto one = DataDist::open(*runtimes[0]);
    auto two = DataDist::open(*runtimes[1]);
    require_ok(one);
    require_ok(two);
    std::thread other([&] {
      const Rank zero = 0;
      require_ok((*two)->link({&zero, 1}, k_patience).front());
    });
    const Rank peer = 1;
    require_ok((*one)->link({&peer, 1}, k_patience).front());
    other.join();
    const auto from = (*one)->register_cache(desc, source.places());
    const auto to = (*two)->register_cache(desc, target.places());
    require_ok(from);
    require_ok(to);
    const auto seen = (*one)->find(1, desc.key);
    require_ok(seen);
    const auto lease = (*two)->grant(
        *to, {.holder = 0, .access = Access::push, .blocks = k_here, .layer_arrivals = true, .on_end = {}});
    require_ok(lease);
    // Sixteen layers, a batch each, and four slots.
    const auto pushed = (*one)->push(*from, *seen, two_blocks(k_here), {.ticket = &lease->ticket});
    require_ok(pushed);
    require_ok(pushed->wait(k_patience));
    CHECK(pushed->progress().layers_done == 16);
    CHECK((*one)->close(k_patience));
    CHECK((*two)->close(k_patience));
  }
}
