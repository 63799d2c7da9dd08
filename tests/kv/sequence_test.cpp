// SPDX-License-Identifier: Apache-2.0
//
// Sequences that grow: what moves is what is new, to the byte; and re-sharding between ranks of different cuts.
#include <thread>

#include <hixl/kv/reshard.hpp>

#include "kv_world.hpp"

using namespace hixl;
using namespace hixl::kv;
using namespace hixl::kv::test;

namespace {

std::vector<std::uint32_t> first_blocks(std::uint32_t count) {
  std::vector<std::uint32_t> blocks(count);
  for (std::uint32_t i = 0; i < count; ++i) blocks[i] = i;
  return blocks;
}

/// Payload that both ranks have moved, as the links count it.
std::uint64_t payload(KvWorld& world) {
  std::uint64_t bytes = 0;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Counters counters = world.runtime(rank).counters();
    for (std::size_t kind = 0; kind < k_link_kinds; ++kind) bytes += counters.bytes_out[kind] + counters.bytes_in[kind];
  }
  return bytes;
}

}  // namespace

TEST_CASE("F117 twenty turns of chat: the bytes moved are the sum of the new tokens, exactly") {
  for (const auto& links : link_sets()) {
    for (const bool push : {true, false}) {
      CAPTURE(text(links));
      CAPTURE(push);
      const CacheDesc desc = paged(64, 4);
      Couple couple(links, desc);
      const std::uint64_t token = kv_bytes(desc.layout, 1).value();
      std::uint32_t tokens = 0;
      std::uint64_t moved = 0;
      const std::uint64_t before = payload(couple.world);
      for (int turn = 0; turn < 20; ++turn) {
        const std::uint32_t fresh = 5 + static_cast<std::uint32_t>(turn * 7 % 60);
        tokens += fresh;
        const auto blocks = first_blocks((tokens + 15) / 16);
        Slice slice;
        slice.source = blocks;
        slice.target = blocks;
        slice.tokens = Range{0, tokens};
        const TransferOptions options{.sequence = 42};
        const auto transfer = push ? couple.world[0].push(couple.from, couple.target_seen, slice, options)
                                   : couple.world[1].pull(couple.to, couple.source_seen, slice, options);
        require_ok(transfer);
        require_ok(transfer->wait());
        CHECK(transfer->progress().bytes_done == fresh * token);
        moved += fresh * token;
      }
      CHECK(moved == tokens * token);
      // Gates are words of 8 bytes, and no payload.
      CHECK(payload(couple.world) - before == moved);
      for (std::uint32_t block = 0; block < tokens / 16; ++block) CHECK(couple.same_block(block, block));
      CHECK_FALSE(couple.same_block(tokens / 16 + 1, tokens / 16 + 1));
    }
  }
}

TEST_CASE("what may not be taken for moved is moved again: other blocks, a rewind, another registration, a failure") {
  Couple couple;
  const std::uint64_t token = kv_bytes(paged().layout, 1).value();
  const auto bytes = [&](const std::vector<std::uint32_t>& target, std::uint32_t tokens, std::uint64_t sequence = 7) {
    const auto source = first_blocks(static_cast<std::uint32_t>(target.size()));
    Slice slice;
    slice.source = source;
    slice.target = target;
    slice.tokens = Range{0, tokens};
    const auto pushed = couple.world[0].push(couple.from, couple.target_seen, slice, {.sequence = sequence});
    require_ok(pushed);
    require_ok(pushed->wait());
    return pushed->progress().bytes_done / token;
  };
  CHECK(bytes({0, 1, 2}, 40) == 40);
  CHECK(bytes({0, 1, 2}, 40) == 0);
  CHECK(bytes({0, 1, 2}, 48) == 8);
  CHECK(bytes({0, 5, 2}, 48) == 32);
  CHECK(bytes({0, 5, 2}, 48, 8) == 48);
  couple.world[0].rewind(7, 20);
  CHECK(bytes({0, 5, 2}, 48) == 28);
  CHECK(bytes({0, 5}, 10) == 0);
  couple.world[0].rewind(99, 0);

  Slice gap;
  const auto two = first_blocks(2);
  gap.source = two;
  gap.target = two;
  gap.tokens = Range{4, 20};
  CHECK(code_of(couple.world[0].push(couple.from, couple.target_seen, gap, {.sequence = 7})) ==
        ErrorCode::invalid_argument);

  // One open at a time; what was cancelled counts for nothing.
  gap.tokens = Range{0, 20};
  const auto open = couple.world[0].push(couple.from, couple.target_seen, gap, {.layered = true, .sequence = 11});
  require_ok(open);
  CHECK(code_of(couple.world[0].push(couple.from, couple.target_seen, gap, {.sequence = 11})) == ErrorCode::busy);
  require_ok(open->ready(0));
  open->cancel();
  CHECK(code_of(open->wait(k_patience)) == ErrorCode::cancelled);
  CHECK(bytes(two, 20, 11) == 20);

  require_ok(couple.world[1].unregister_cache(couple.to));
  const auto again = couple.world[1].register_cache(paged(), couple.target.places());
  require_ok(again);
  const auto seen = couple.world[0].find(1, paged().key);
  require_ok(seen);
  couple.target_seen = *seen;
  CHECK(bytes({0, 5, 2}, 48) == 48);
}

TEST_CASE("what is seen to have ended may be moved again, and its cache taken back, in the same moment") {
  Couple couple;
  const auto two = first_blocks(2);
  Slice slice;
  slice.source = two;
  slice.target = two;
  slice.tokens = Range{0, 20};
  for (int i = 0; i < rounds(3000); ++i) {
    const auto pushed = couple.world[0].push(couple.from, couple.target_seen, slice, {.sequence = 5});
    require_ok(pushed);
    while (code_of(pushed->query()) == ErrorCode::busy) {
    }
    require_ok(pushed->query());
    if (i % 4 != 0) continue;
    require_ok(couple.world[0].unregister_cache(couple.from));
    const auto again = couple.world[0].register_cache(paged(), couple.source.places());
    require_ok(again);
    couple.from = *again;
  }
}

TEST_CASE("what was pushed under a lease that has ended is moved again: its blocks were somebody else's in between") {
  Couple couple;
  const std::uint64_t token = kv_bytes(paged().layout, 1).value();
  const auto leased = [&] {
    const auto lease =
        couple.world[1].grant(couple.to, {.holder = 0, .access = Access::push, .blocks = k_there, .on_end = {}});
    require_ok(lease);
    return *lease;
  };
  const auto tokens = [&](bool push, const LeaseTicket* ticket) {
    const TransferOptions options{.ticket = ticket, .sequence = 3};
    const auto moved = push ? couple.world[0].push(couple.from, couple.target_seen, two_blocks(), options)
                            : couple.world[1].pull(couple.to, couple.source_seen, two_blocks(), options);
    require_ok(moved);
    require_ok(moved->wait());
    return moved->progress().bytes_done / token;
  };
  const Lease first = leased();
  CHECK(tokens(true, &first.ticket) == 32);
  CHECK(tokens(true, &first.ticket) == 0);
  require_ok(couple.world[1].end_lease(first.id));
  while (couple.world[1].lease_state(first.id) != LeaseState::ended) std::this_thread::yield();
  couple.target.load(make_memory(paged()));  // another sequence takes the blocks
  const Lease second = leased();
  CHECK(tokens(true, &second.ticket) == 32);
  CHECK(couple.same_block(3, 0));
  CHECK(tokens(true, nullptr) == 32);
  // What was pulled lies in blocks of one's own, whatever it was pulled by.
  CHECK(tokens(false, nullptr) == 32);
  const auto lent = couple.world[0].grant(couple.from, {.holder = 1, .blocks = k_here, .on_end = {}});
  require_ok(lent);
  CHECK(tokens(false, &lent->ticket) == 0);
}

TEST_CASE("F52: of a cache that is sent in shards one fails, and is sent again; the others are there all the same") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Couple couple(links);
    const CacheDesc desc = paged();
    Memory wanted = couple.target.store();
    const auto push = [&](std::uint32_t head, bool layered) {
      Slice slice = two_blocks();
      slice.heads = Range{head, head + 1};
      const auto pushed = couple.world[0].push(couple.from, couple.target_seen, slice, {.layered = layered});
      require_ok(pushed);
      return *pushed;
    };
    const auto want = [&](std::uint32_t head) {
      copy_by_number(desc, couple.filled, desc, wanted, two_blocks(),
                     {.layers = {0, 4}, .heads = {head, head + 1}, .tokens = {0, 32}, .target_layer = 0});
    };
    constexpr std::uint32_t k_failing = 2;
    std::vector<Transfer> shards;
    for (std::uint32_t head = 0; head < desc.layout.kv_heads; ++head) shards.push_back(push(head, true));
    shards[k_failing].cancel();
    for (std::uint32_t head = 0; head < shards.size(); ++head) {
      if (head == k_failing) continue;
      for (std::uint32_t layer = 0; layer < desc.layout.layers; ++layer) require_ok(shards[head].ready(layer));
      want(head);
    }
    for (std::uint32_t head = 0; head < shards.size(); ++head) {
      CHECK(code_of(shards[head].wait(k_patience)) == (head == k_failing ? ErrorCode::cancelled : ErrorCode::ok));
    }
    CHECK(couple.target.store() == wanted);
    require_ok(push(k_failing, false).wait(k_patience));
    want(k_failing);
    CHECK(couple.target.store() == wanted);
    CHECK(couple.target.canaries_live());
  }
}

TEST_CASE("F127 re-sharding over ranks: TP 4 to 2, 2 to 4, grouped heads on many ranks, MLA; every head is there") {
  struct Cut {
    std::uint32_t heads, from, to;
    bool latent;
  };
  for (const Cut& cut : {Cut{8, 4, 2, false}, Cut{8, 2, 4, false}, Cut{2, 4, 2, false}, Cut{2, 2, 4, false},
                         Cut{1, 4, 2, true}, Cut{1, 2, 4, true}}) {
    CAPTURE(cut.heads);
    CAPTURE(cut.from);
    CAPTURE(cut.to);
    KvWorld world(cut.from + cut.to);
    for (Rank source = 0; source < cut.from; ++source) {
      for (Rank target = 0; target < cut.to; ++target) world.link(source, cut.from + target);
    }
    // The model, whole, and what each rank holds of it: sources are paged by tokens, targets by heads.
    Maker maker(cut.heads * 100 + cut.from);
    CacheDesc model = paged(4, 3);
    if (cut.latent) model.layout.form = kv::Form::latent;
    model.layout.kv_heads = cut.heads;
    Memory numbers = make_memory(model);
    maker.fill(numbers);
    const auto blocks = first_blocks(4);
    Slice whole;
    whole.source = blocks;
    whole.target = blocks;
    const Range tokens{0, 64};
    const auto shard_of = [&](std::uint32_t ranks, std::uint32_t place, Order order) {
      CacheDesc desc = model;
      const Range heads = head_shard(cut.heads, ranks, place).value();
      desc.layout.order = order;
      desc.layout.kv_heads = heads.size();
      desc.shard = {.layers_first = 0, .layers_total = 0, .heads_first = heads.first, .heads_total = cut.heads};
      return desc;
    };
    std::vector<std::unique_ptr<TestCache>> caches;
    std::vector<CacheId> ids;
    std::vector<Memory> wanted;
    for (std::uint32_t rank = 0; rank < cut.from + cut.to; ++rank) {
      const bool source = rank < cut.from;
      const CacheDesc desc =
          source ? shard_of(cut.from, rank, Order::token_major) : shard_of(cut.to, rank - cut.from, Order::head_major);
      caches.push_back(std::make_unique<TestCache>(world.runtime(rank), desc));
      Memory mine = make_memory(desc);
      const Range heads{desc.shard.heads_first, desc.shard.heads_first + desc.layout.kv_heads};
      copy_by_number(model, numbers, desc, mine, whole,
                     {.layers = {0, 3}, .heads = heads, .tokens = tokens, .target_layer = 0});
      wanted.push_back(mine);
      if (source) caches.back()->load(mine);
      const auto id = world[rank].register_cache(desc, caches.back()->places());
      require_ok(id);
      ids.push_back(*id);
    }
    std::vector<Transfer> open;
    const auto moves = reshard(cut.heads, cut.from, cut.to);
    require_ok(moves);
    for (const HeadMove& move : *moves) {
      const auto seen = world[move.source].find(cut.from + move.target, model.key);
      require_ok(seen);
      Slice slice = whole;
      slice.heads = move.heads;
      const auto pushed = world[move.source].push(ids[move.source], *seen, slice);
      require_ok(pushed);
      open.push_back(*pushed);
    }
    for (const Transfer& transfer : open) require_ok(transfer.wait());
    for (std::uint32_t target = cut.from; target < cut.from + cut.to; ++target) {
      CHECK(caches[target]->store() == wanted[target]);
      CHECK(caches[target]->canaries_live());
    }
  }
}
