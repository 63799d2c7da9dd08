// SPDX-License-Identifier: Apache-2.0
//
// Addresses that a transfer must refuse: each has its own code and numbers, no byte moves, and afterwards everything
// works.
#include <limits>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_size = 1U << 20U;
constexpr std::byte k_canary{0x5a};
constexpr std::uint64_t k_top = std::numeric_limits<std::uint64_t>::max();

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

/// Three ranks; 0 and 1 know each other's window, 2 is known to nobody.
struct Field {
  explicit Field(const std::vector<LinkKind>& links) : world(3, links) {
    auto mine = world[0].allocate(k_size);
    auto theirs = world[1].allocate(k_size);
    require_ok(mine);
    require_ok(theirs);
    local = *mine;
    target = *theirs;
    remote = meet({local}, {target}).front();
    std::memset(target.data, static_cast<int>(k_canary), k_size);
    fill_pattern(local.data, k_size, 1);
    before = world[0].counters();
  }

  /// Ranks 0 and 1 exchange; what 0 learned of 1.
  std::vector<RemoteRegion> meet(const std::vector<Region>& mine, const std::vector<Region>& theirs) {
    const Rank zero[] = {0};
    const Rank one[] = {1};
    Answer<std::vector<PeerAddresses>> answer;
    require_ok(world[1].exchange_async(theirs, zero, k_patience, store_answers, &answer));
    auto learned = world[0].exchange(mine, one, k_patience);
    REQUIRE(answer.wait());
    require_ok(answer.value.front().result);
    require_ok(learned.front().result);
    return learned.front().regions;
  }

  void check_refusal(const Result<void>& result, ErrorCode code) {
    CHECK_MESSAGE(code_of(result) == code, "got ", name(code_of(result)), ", want ", name(code));
    CHECK(all_bytes(target.data, k_size, k_canary));
    CHECK(holds_pattern(local.data, k_size, 1));
  }
  /// Nothing was moved, lost or leaked by what came before.
  void check_works() {
    CHECK(moved_bytes(world[0].counters()) == moved_bytes(before));
    for (const Form form : k_forms) {
      std::memset(target.data, 0, k_size);
      require_ok(transfer(world[0], form, TransferVerb::put, local.data, remote.at(0), k_size));
      CHECK(holds_pattern(target.data, k_size, 1));
    }
    CHECK(world[0].counters().link_failures == before.link_failures);
    CHECK(world[0].counters().peers_lost == 0);
  }

  World world;
  Region local, target;
  RemoteRegion remote;
  Counters before;
};

struct LocalCase {
  const char* text;
  std::uint64_t address;
  std::uint64_t size;
  ErrorCode code;
  std::uint64_t limit;
};

}  // namespace

TEST_CASE("P39 local memory that a transfer may not use") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Field field(links);
    std::vector<std::byte> plain(4096, std::byte{7});
    const auto plain_address = reinterpret_cast<std::uint64_t>(plain.data());
    const std::uint64_t base = field.local.address();
    const LocalCase cases[] = {
        {"unregistered", plain_address, 65, ErrorCode::not_registered, 0},
        {"starts inside, ends outside", base + k_size - 10, 100, ErrorCode::out_of_range, 10},
        {"ends at the first byte after the region", base + 1, k_size, ErrorCode::out_of_range, k_size - 1},
        {"starts one byte before the region", base - 1, 100, ErrorCode::not_registered, 0},
        {"starts at the end of the region", base + k_size, 100, ErrorCode::not_registered, 0},
        {"wraps around", k_top - 10, 4096, ErrorCode::not_registered, 0},
        {"null", 0, 4096, ErrorCode::not_registered, 0},
    };
    for (const LocalCase& item : cases) {
      CAPTURE(item.text);
      for (const Form form : k_forms) {
        for (const TransferVerb verb : {TransferVerb::put, TransferVerb::get}) {
          const auto result =
              transfer(field.world[0], form, verb, pointer(item.address), field.remote.at(0), item.size);
          field.check_refusal(result, item.code);
          const ErrorDetail& detail = result.error().detail;
          CHECK(detail.stage == Stage::local_check);
          CHECK(detail.address == item.address);
          CHECK(detail.length == item.size);
          CHECK(detail.limit == item.limit);
          CHECK(detail.nearest_base == base);
          CHECK(detail.nearest_length == k_size);
          CHECK(result.error().kind() == ErrorKind::fix_call);
        }
      }
    }
    // Small enough to be copied by the post, but there is nothing to copy.
    for (const Form form : {Form::sync, Form::async}) {
      field.check_refusal(transfer(field.world[0], form, TransferVerb::put, nullptr, field.remote.at(0), 64),
                          ErrorCode::invalid_argument);
    }
    // Inlined bytes need no registration, the memory for a get always does.
    require_ok(field.world[0].put_sync(plain.data(), field.remote.at(0), 64));
    CHECK(all_bytes(field.target.data, 64, std::byte{7}));
    std::memset(field.target.data, static_cast<int>(k_canary), 64);
    field.check_refusal(field.world[0].get_sync(plain.data(), field.remote.at(0), 8), ErrorCode::not_registered);
    field.before = field.world[0].counters();
    field.check_works();
  }
}

TEST_CASE("S3 P39 remote places that a transfer may not use") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Field field(links);
    const std::uint64_t base = field.target.address();
    const RegionKey key = field.remote.key;
    const std::uint64_t life = field.remote.incarnation;
    struct Case {
      const char* text;
      RemoteAddress at;
      std::uint64_t size;
      ErrorCode code;
    };
    const RegionKey later{key.id, key.generation + 1};
    const Case cases[] = {
        {"no such rank", {3, base, key, life}, 8, ErrorCode::rank_out_of_range},
        {"no rank at all", {}, 8, ErrorCode::rank_out_of_range},
        {"a rank that never exchanged", {2, base, key, 0}, 8, ErrorCode::not_exchanged},
        {"no region there", {1, base - (1U << 30U), {}, 0}, 8, ErrorCode::not_registered},
        {"just before the region", {1, base - 1, {}, 0}, 8, ErrorCode::not_registered},
        {"just behind the region", {1, base + k_size, {}, 0}, 8, ErrorCode::not_registered},
        {"a region that was never there", {1, base, {key.id + 500, 1}, life}, 8, ErrorCode::not_registered},
        {"an id beyond every table", {1, base, {0xfffffffeU, 1}, life}, 8, ErrorCode::not_registered},
        {"ends outside, by address", {1, base + k_size - 10, {}, 0}, 11, ErrorCode::out_of_range},
        {"ends outside, by key", {1, base + k_size - 10, key, life}, 11, ErrorCode::out_of_range},
        {"starts before, by key", {1, base - 1, key, life}, 8, ErrorCode::out_of_range},
        {"address and size wrap, by key", {1, k_top - 3, key, life}, 8, ErrorCode::out_of_range},
        {"address and size wrap", {1, k_top - 3, {}, 0}, 8, ErrorCode::not_registered},
        {"size wraps, by key", {1, base + 8, key, life}, k_top - 4, ErrorCode::out_of_range},
        {"size wraps", {1, base + 8, {}, 0}, k_top - 4, ErrorCode::out_of_range},
        {"another generation", {1, base, later, life}, 8, ErrorCode::stale},
        {"another life of the rank", {1, base, key, life + 1}, 8, ErrorCode::stale},
        {"another life, by address", {1, base, {}, life + 1}, 8, ErrorCode::stale},
    };
    for (const Case& item : cases) {
      CAPTURE(item.text);
      for (const Form form : k_forms) {
        for (const TransferVerb verb : {TransferVerb::put, TransferVerb::get}) {
          const auto result = transfer(field.world[0], form, verb, field.local.data, item.at, item.size);
          field.check_refusal(result, item.code);
          const ErrorDetail& detail = result.error().detail;
          CHECK(detail.rank == item.at.rank);
          if (item.code == ErrorCode::rank_out_of_range) {
            CHECK(detail.limit == 3);
            continue;
          }
          CHECK(detail.address == item.at.address);
          CHECK(detail.length == item.size);
          if (item.code == ErrorCode::not_exchanged) continue;
          CHECK(detail.nearest_base == base);
          CHECK(detail.nearest_length == k_size);
        }
      }
    }
    CHECK(code_of(field.world[0].flush(3)) == ErrorCode::rank_out_of_range);
    // Nothing at all may be moved anywhere inside, at the end, and from nowhere.
    for (const Form form : k_forms) {
      require_ok(transfer(field.world[0], form, TransferVerb::put, nullptr, field.remote.at(0), 0));
      require_ok(transfer(field.world[0], form, TransferVerb::get, nullptr, field.remote.at(k_size), 0));
    }
    field.check_works();
  }
}

TEST_CASE("a rank refuses bad places in its own memory too") {
  World world(1);
  const auto a = world[0].allocate(k_size);
  require_ok(a);
  std::vector<std::byte> readable(4096);
  const auto guarded = world[0].register_memory(readable.data(), readable.size(), {.rights = Rights::read});
  require_ok(guarded);
  for (const Form form : k_forms) {
    const auto put = [&](const RemoteAddress& to, std::uint64_t size) {
      return code_of(transfer(world[0], form, TransferVerb::put, a->data, to, size));
    };
    CHECK(put({0, a->address() + k_size - 4, {}, 0}, 8) == ErrorCode::out_of_range);
    CHECK(put({0, a->address() + k_size - 4, a->key, 0}, 8) == ErrorCode::out_of_range);
    CHECK(put({0, k_top - 3, a->key, 0}, 8) == ErrorCode::out_of_range);
    CHECK(put({0, 64, {}, 0}, 8) == ErrorCode::not_registered);
    CHECK(put({0, a->address(), {a->key.id, a->key.generation + 1}, 0}, 8) == ErrorCode::stale);
    CHECK(put({0, a->address(), a->key, world[0].incarnation() + 1}, 8) == ErrorCode::stale);
    CHECK(put({0, guarded->address(), {}, 0}, 8) == ErrorCode::access_denied);
    require_ok(transfer(world[0], form, TransferVerb::put, a->data, {0, a->address() + k_size, a->key, 0}, 0));
    require_ok(transfer(world[0], form, TransferVerb::get, a->data, {0, guarded->address(), {}, 0}, 4096));
  }
}

TEST_CASE("S3 P25 a deregistered region is STALE however it is reached, and its memory may be registered anew") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Field field(links);
    // A part of a window, so that the memory is still there to be looked at.
    constexpr std::size_t k_at = 4096, k_part = 256U << 10U;
    auto part = field.world[1].register_memory(field.target.data + k_at, k_part);
    require_ok(part);
    RemoteRegion old = field.meet({}, {*part}).front();
    for (const Form form : k_forms) {
      require_ok(transfer(field.world[0], form, TransferVerb::put, field.local.data, old.at(0), 8));
    }
    std::memset(field.target.data, static_cast<int>(k_canary), k_size);
    for (int life = 0; life < 3; ++life) {
      CAPTURE(life);
      require_ok(field.world[1].deregister(*part));
      CHECK(code_of(field.world[1].deregister(*part)) == ErrorCode::stale);
      for (const std::uint64_t size : {std::uint64_t{8}, std::uint64_t{4096}, std::uint64_t{k_part}}) {
        CAPTURE(size);
        for (const Form form : k_forms) {
          for (const TransferVerb verb : {TransferVerb::put, TransferVerb::get}) {
            const auto result = transfer(field.world[0], form, verb, field.local.data, old.at(0), size);
            field.check_refusal(result, ErrorCode::stale);
            if (!result) CHECK(result.error().detail.rank == 1);
            if (!result) CHECK(result.error().kind() == ErrorKind::reconnect);
          }
        }
      }
      auto again = field.world[1].register_memory(field.target.data + k_at, k_part);
      require_ok(again);
      CHECK(again->key != part->key);
      part = again;
      const RemoteRegion fresh = field.meet({}, {*part}).front();
      for (const Form form : k_forms) {
        field.check_refusal(transfer(field.world[0], form, TransferVerb::put, field.local.data, old.at(0), 8),
                            ErrorCode::stale);
        require_ok(transfer(field.world[0], form, TransferVerb::put, field.local.data, fresh.at(0), k_part));
        CHECK(holds_pattern(field.target.data + k_at, k_part, 1));
        std::memset(field.target.data, static_cast<int>(k_canary), k_size);
      }
      old = fresh;
    }
    field.before = field.world[0].counters();
    field.check_works();
  }
}

TEST_CASE("a region gives only the rights it was registered with") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Field field(links);
    const auto readable = field.world[1].register_memory(field.target.data, 65536, {.rights = Rights::read});
    const auto writable = field.world[1].register_memory(field.target.data + 65536, 65536, {.rights = Rights::write});
    require_ok(readable);
    require_ok(writable);
    const auto known = field.meet({}, {*readable, *writable});
    REQUIRE(known.size() == 2);
    for (const Form form : k_forms) {
      for (const std::uint64_t size : {8U, 65536U}) {
        const auto put = transfer(field.world[0], form, TransferVerb::put, field.local.data, known[0].at(0), size);
        field.check_refusal(put, ErrorCode::access_denied);
        CHECK(put.error().detail.address == readable->address());
        CHECK(put.error().detail.rank == 1);
        const auto get = transfer(field.world[0], form, TransferVerb::get, field.local.data, known[1].at(0), size);
        field.check_refusal(get, ErrorCode::access_denied);
      }
    }
    const auto signalled =
        field.world[0].put_with_signal(field.local.data, field.remote.at(0), 8, {.word = known[0].at(8)});
    CHECK(code_of(signalled) == ErrorCode::access_denied);
    CHECK(all_bytes(field.target.data, k_size, k_canary));
    require_ok(field.world[0].get_sync(field.local.data, known[0].at(0), 65536));
    fill_pattern(field.local.data, k_size, 1);
    require_ok(field.world[0].put_sync(field.local.data, known[1].at(0), 65536));
    CHECK(holds_pattern(field.target.data + 65536, 65536, 1));
  }
}

TEST_CASE("signals and batches are checked as a whole before the first byte") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Field field(links);
    const auto signal = [&](const RemoteAddress& word, std::uint64_t size) {
      const auto request = field.world[0].put_with_signal(field.local.data, field.remote.at(0), size, {.word = word});
      return request ? Result<void>() : Result<void>(fail(request.error()));
    };
    field.check_refusal(signal(field.remote.at(4100), 64), ErrorCode::unaligned);
    field.check_refusal(signal(field.remote.at(56), 64), ErrorCode::overlap);
    field.check_refusal(signal(field.remote.at(0), 1), ErrorCode::overlap);
    field.check_refusal(signal({2, field.remote.base, {}, 0}, 64), ErrorCode::invalid_argument);
    field.check_refusal(signal({0, field.local.address(), {}, 0}, 64), ErrorCode::invalid_argument);
    field.check_refusal(signal(field.remote.at(k_size), 64), ErrorCode::out_of_range);

    const auto run = [&](std::vector<BatchEntry> entries) { return field.world[0].batch_sync(entries); };
    const BatchEntry good{TransferVerb::put, field.local.data, field.remote.at(0), 4096};
    field.check_refusal(run({}), ErrorCode::invalid_argument);
    BatchEntry other = good;
    other.remote.rank = 2;
    const auto two_ranks = run({good, other});
    field.check_refusal(two_ranks, ErrorCode::invalid_argument);
    CHECK(two_ranks.error().detail.rank == 2);
    for (const std::size_t place : {std::size_t{0}, std::size_t{63}, std::size_t{200}}) {
      std::vector<BatchEntry> entries(201, good);
      entries[place].remote = field.remote.at(k_size - 1);
      field.check_refusal(run(entries), ErrorCode::out_of_range);
      entries[place] = good;
      entries[place].local = field.local.data + k_size - 1;
      field.check_refusal(run(entries), ErrorCode::out_of_range);
    }
    field.check_works();
  }
}

TEST_CASE("memory outside windows: a forced window kind says so, automatic selection goes by another kind") {
  for (const bool forced : {true, false}) {
    Field field(forced ? std::vector<LinkKind>{LinkKind::hccs} : std::vector<LinkKind>{});
    std::vector<std::byte> plain(65536);
    const auto region = field.world[1].register_memory(plain.data(), plain.size());
    require_ok(region);
    const RemoteRegion known = field.meet({}, {*region}).front();
    for (const Form form : k_forms) {
      const auto result = transfer(field.world[0], form, TransferVerb::put, field.local.data, known.at(0), 65536);
      if (forced) {
        field.check_refusal(result, ErrorCode::transport_unavailable);
        CHECK(all_bytes(plain.data(), plain.size(), std::byte{0}));
      } else {
        require_ok(result);
        CHECK(holds_pattern(plain.data(), plain.size(), 1));
      }
    }
    field.before = field.world[0].counters();
    field.check_works();
  }
}
