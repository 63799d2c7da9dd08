// SPDX-License-Identifier: Apache-2.0
//
// Calls that must be refused: absurd memory, requests of another life, full tables, blocking where it cannot end, ranks
// that never come, and everything after stop.
#include <sys/mman.h>
#include <unistd.h>

#include <limits>
#include <optional>
#include <stdexcept>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k_size = 1U << 20U;

/// Two ranks that know each other's window.
struct Pair {
  explicit Pair(const std::vector<LinkKind>& links = {}, std::uint32_t size = 2) : world(size, links) {
    a = *world[0].allocate(k_size);
    b = *world[1].allocate(k_size);
    Answer<std::vector<PeerAddresses>> answer;
    const Rank zero[] = {0}, one[] = {1};
    require_ok(world[1].exchange_async(std::span(&b, 1), zero, k_patience, store_answers, &answer));
    const auto learned = world[0].exchange(std::span(&a, 1), one, k_patience);
    require_ok(learned.front().result);
    REQUIRE(answer.wait());
    remote = learned.front().regions.front();
  }
  World world;
  Region a, b;
  RemoteRegion remote;
};

/// Runs `inside` on a rank's loop thread, in the callback of a put whose request nobody holds any more.
template <class Inside>
void run_on_loop(Runtime& runtime, const RemoteAddress& place, Inside inside) {
  struct Call {
    Inside& inside;
    Events posted, done;
  } call{inside, {}, {}};
  const std::uint64_t word = 0;
  require_ok(runtime.put(&word, place, sizeof(word),
                         {.callback = {[](void* context, const Completion&) {
                                         auto& c = *static_cast<Call*>(context);
                                         if (c.posted.wait_for(1)) c.inside();
                                         c.done.add();
                                       },
                                       &call}}));
  call.posted.add();
  REQUIRE(call.done.wait_for(1));
}

}  // namespace

TEST_CASE("memory that cannot be had is an error, never a signal") {
  World world(1);
  const std::size_t available = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * 4096;
  for (const std::size_t size :
       {available * 2, std::size_t{1} << 60U, std::size_t{1} << 63U, std::numeric_limits<std::size_t>::max() - 4096,
        std::numeric_limits<std::size_t>::max()}) {
    CAPTURE(size);
    const auto region = world[0].allocate(size);
    CHECK((code_of(region) == ErrorCode::no_memory || code_of(region) == ErrorCode::no_space));
    CHECK(region.error().detail.length >= size - 4096);
    CHECK(region.error().detail.stage == Stage::memory);
  }
  CHECK(code_of(world[0].allocate(0)) == ErrorCode::invalid_argument);
  const auto bad_rights = static_cast<Rights>(8);
  CHECK(code_of(world[0].allocate(4096, {.rights = bad_rights})) == ErrorCode::invalid_argument);

  auto* pages =
      static_cast<std::byte*>(::mmap(nullptr, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(pages != MAP_FAILED);
  ::munmap(pages + 4096, 4096);
  CHECK(code_of(world[0].register_memory(pages, 4096, {.rights = bad_rights})) == ErrorCode::invalid_argument);
  CHECK(code_of(world[0].register_memory(pages, 0)) == ErrorCode::invalid_argument);
  const auto hole = world[0].register_memory(pages, 3 * 4096);
  CHECK(code_of(hole) == ErrorCode::memory_unmapped);
  CHECK(hole.error().detail.address == reinterpret_cast<std::uint64_t>(pages));
  CHECK(hole.error().detail.length == 3 * 4096);
  CHECK(code_of(world[0].register_memory(pages + 4096, 1)) == ErrorCode::memory_unmapped);
  CHECK(code_of(world[0].register_memory(nullptr, 64)) == ErrorCode::memory_unmapped);
  CHECK(code_of(world[0].register_memory(pages, std::numeric_limits<std::size_t>::max())) == ErrorCode::out_of_range);
  const auto first = world[0].register_memory(pages, 4096);
  require_ok(first);
  // The same again is the same region; it lasts until both have been given back.
  const auto again = world[0].register_memory(pages, 4096);
  require_ok(again);
  CHECK(again->key == first->key);
  require_ok(world[0].deregister(*first));
  require_ok(world[0].put_sync(pages, {0, first->address(), first->key, 0}, 4096));
  require_ok(world[0].deregister(*first));
  CHECK(code_of(world[0].put_sync(pages, {0, first->address(), first->key, 0}, 4096)) == ErrorCode::stale);
  CHECK(code_of(world[0].deregister(Region{})) == ErrorCode::stale);
  ::munmap(pages, 4096);
  ::munmap(pages + 2 * 4096, 4096);
}

TEST_CASE("the region limit is told, and room comes back") {
  auto options = options_for(0, 1, "");
  options.regions_max = 3;
  auto runtime = Runtime::create(options);
  require_ok(runtime);
  for (int round = 0; round < 3; ++round) {
    std::vector<Region> regions;
    for (int i = 0; i < 3; ++i) regions.push_back(*(*runtime)->allocate(4096));
    const auto more = (*runtime)->allocate(4096);
    CHECK(code_of(more) == ErrorCode::limit_reached);
    CHECK(more.error().detail.limit == 3);
    for (const Region& region : regions) require_ok((*runtime)->deregister(region));
  }
}

TEST_CASE("a peer's region beyond the limit here: the exchange names it and the limit; the others can be used") {
  const auto store = Store::create("tcp://127.0.0.1:0");
  require_ok(store);
  std::unique_ptr<Runtime> ranks[2];
  for (Rank rank = 0; rank < 2; ++rank) {
    auto options = options_for(rank, 2, (*store)->url());
    if (rank == 0) options.regions_max = 2;
    auto made = Runtime::create(options);
    require_ok(made);
    ranks[rank] = std::move(*made);
  }
  std::vector<Region> theirs;
  for (int i = 0; i < 3; ++i) {
    const auto region = ranks[1]->allocate(4096);
    require_ok(region);
    theirs.push_back(*region);
  }
  // The third one alone, and as one of more than there may be.
  for (const std::vector<Region>& told : {std::vector{theirs[0], theirs[2]}, theirs}) {
    CAPTURE(told.size());
    const Rank zero[] = {0};
    const Rank one[] = {1};
    Answer<std::vector<PeerAddresses>> other;
    require_ok(ranks[1]->exchange_async(told, zero, k_patience, store_answers, &other));
    const auto answer = ranks[0]->exchange({}, one, k_patience).front();
    REQUIRE(other.wait());
    REQUIRE_FALSE(answer.result.has_value());
    const Error error = answer.result.error();
    CHECK(error.code == ErrorCode::limit_reached);
    CHECK(error.detail.rank == 1);
    CHECK(error.detail.address == theirs[2].address());
    CHECK(error.detail.length == 4096);
    CHECK(error.detail.limit == 2);
    REQUIRE(answer.regions.size() == 2);
    std::byte bytes[64]{};
    require_ok(ranks[0]->put_sync(bytes, answer.regions[0].at(0), 64));
    const auto second = ranks[0]->put_sync(bytes, answer.regions[1].at(0), 64);
    CHECK(code_of(second) == (told.size() == 2 ? ErrorCode::not_registered : ErrorCode::ok));
  }
}

TEST_CASE("requests: empty, looked at, of an earlier life, and waited for in vain") {
  Request none;
  CHECK(none.empty());
  CHECK(none.done());
  CHECK(code_of(none.query()) == ErrorCode::invalid_request);
  CHECK(code_of(none.wait()) == ErrorCode::invalid_request);
  CHECK(code_of(none.wait(0ns)) == ErrorCode::invalid_request);
  CHECK(code_of(wait_any({})) == ErrorCode::invalid_argument);
  require_ok(wait_all({}));

  Pair pair;
  Runtime& runtime = pair.world[0];
  auto request = runtime.put(pair.a.data, pair.remote.at(0), 8);
  require_ok(request);
  std::vector<Request> copies(8, *request);
  require_ok(request->wait());
  // The slot lives many more lives; the copies never answer for one of those.
  for (int i = 0; i < 600; ++i) require_ok(runtime.put(pair.a.data, pair.remote.at(0), 8)->wait());
  for (Request& copy : copies) {
    CHECK(copy.done());
    CHECK(code_of(copy.query()) == ErrorCode::invalid_request);
    CHECK(code_of(copy.wait()) == ErrorCode::invalid_request);
  }
  require_ok(request->query());

  // Requests outlive their runtime.
  std::vector<Request> late;
  for (int i = 0; i < 8; ++i) late.push_back(*runtime.put(pair.a.data, pair.remote.at(0), k_size));
  pair.world.slot(0).reset();
  for (Request& item : late) {
    CHECK(item.done());
    const ErrorCode code = code_of(item.query());
    CHECK((code == ErrorCode::ok || code == ErrorCode::stopped));
  }
}

TEST_CASE("timeouts: negative is refused, zero does not wait") {
  Pair pair({}, 3);
  Runtime& runtime = pair.world[0];
  const auto& r = pair.remote;
  const BatchEntry entry{TransferVerb::put, pair.a.data, r.at(0), 8};
  const Timeout negative = -2ns;  // -1 ns stands for the default
  CHECK(code_of(runtime.put(pair.a.data, r.at(0), 8, {.timeout = negative})) == ErrorCode::invalid_argument);
  CHECK(code_of(runtime.get(pair.a.data, r.at(0), 8, {.timeout = negative})) == ErrorCode::invalid_argument);
  CHECK(code_of(runtime.put_sync(pair.a.data, r.at(0), k_size, negative)) == ErrorCode::invalid_argument);
  CHECK(code_of(runtime.batch_sync(std::span(&entry, 1), negative)) == ErrorCode::invalid_argument);
  CHECK(code_of(runtime.flush(1, negative)) == ErrorCode::invalid_argument);
  CHECK(code_of(runtime.barrier(negative)) == ErrorCode::invalid_argument);
  CHECK(code_of(runtime.deregister(pair.a, negative)) == ErrorCode::invalid_argument);
  CHECK(code_of(runtime.wait_signal(pair.a.data, Compare::equal, 1, negative)) == ErrorCode::invalid_argument);
  const Rank one[] = {1};
  CHECK(code_of(runtime.exchange({}, one, negative).front().result) == ErrorCode::invalid_argument);

  CHECK(code_of(runtime.wait_signal(pair.a.data, Compare::equal, 1, 0ns)) == ErrorCode::deadline_exceeded);
  CHECK(code_of(runtime.wait_signal(pair.a.data + 1, Compare::equal, 1)) == ErrorCode::unaligned);
  std::uint64_t word = 0;
  CHECK(code_of(runtime.wait_signal(&word, Compare::equal, 0)) == ErrorCode::not_registered);
  const auto alone = runtime.barrier(0ns);
  CHECK(code_of(alone) == ErrorCode::deadline_exceeded);
  CHECK(alone.error().detail.missing_count == 2);
  for (const Timeout timeout : {Timeout(0), Timeout(1), Timeout(std::numeric_limits<std::int64_t>::max())}) {
    CAPTURE(timeout.count());
    for (int i = 0; i < 20; ++i) {
      auto request = runtime.put(pair.a.data, r.at(0), k_size, {.timeout = timeout});
      require_ok(request);
      const ErrorCode code = code_of(request->wait());
      CHECK((code == ErrorCode::ok || (code == ErrorCode::deadline_exceeded && timeout < 1s)));
    }
  }
  require_ok(runtime.flush(1));
  require_ok(runtime.put_sync(pair.a.data, r.at(0), k_size, Timeout::max()));
}

TEST_CASE("a full table is BUSY at exactly its size, whatever went wrong before") {
  Pair pair;
  Runtime& runtime = pair.world[0];
  const auto& r = pair.remote;
  // Errors of all sorts, here and at the target, and requests that nobody looks at.
  const auto gone = *pair.world[1].register_memory(pair.b.data, 4096);
  for (int i = 0; i < 300; ++i) {
    static_cast<void>(runtime.put(nullptr, r.at(0), 8));
    static_cast<void>(runtime.put(pair.a.data, r.at(k_size), 8));
    static_cast<void>(runtime.put(pair.a.data, {1, gone.address(), {gone.key.id, gone.key.generation + 1}, 0}, 8));
    const BatchEntry bad[] = {{TransferVerb::put, pair.a.data, r.at(0), 8},
                              {TransferVerb::put, pair.a.data, r.at(k_size), 8}};
    static_cast<void>(runtime.batch(bad));
    static_cast<void>(runtime.put(pair.a.data, r.at(0), 8));
    if (i % 50 == 0) require_ok(runtime.flush(1));
  }
  require_ok(runtime.flush(1));
  // The loop stands still in a callback, so nothing ends meanwhile.
  run_on_loop(runtime, r.at(0), [&] {
    std::vector<Request> taken;
    for (;;) {
      auto request = runtime.put(pair.a.data, r.at(0), 8);
      if (!request) {
        CHECK(code_of(request) == ErrorCode::busy);
        CHECK(request.error().kind() == ErrorKind::retry_later);
        CHECK(request.error().detail.limit == 256);
        break;
      }
      taken.push_back(*request);
      if (taken.size() > 256) break;
    }
    CHECK(taken.size() == 256);
    CHECK(code_of(runtime.flush_async(1)) == ErrorCode::busy);
    CHECK(code_of(runtime.put_with_signal(nullptr, r.at(0), 0, {.word = r.at(64)})) == ErrorCode::busy);
    CHECK(code_of(runtime.fetch_add(r.at(64), 1)) == ErrorCode::busy);
  });
  require_ok(runtime.flush(1));  // the blocking form waits for room
  require_ok(runtime.put_sync(pair.a.data, r.at(0), k_size));
}

TEST_CASE("every blocking call answers WOULD_DEADLOCK in a callback, the others work there") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links);
    Runtime& runtime = pair.world[0];
    const auto& r = pair.remote;
    std::optional<Request> posted;
    Answer<Result<void>> gone;
    run_on_loop(runtime, r.at(0), [&] {
      const BatchEntry entry{TransferVerb::put, pair.a.data, r.at(0), 8};
      const Rank one[] = {1};
      CHECK(code_of(runtime.put_sync(pair.a.data, r.at(0), k_size)) == ErrorCode::would_deadlock);
      CHECK(code_of(runtime.get_sync(pair.a.data, r.at(0), k_size)) == ErrorCode::would_deadlock);
      CHECK(code_of(runtime.batch_sync(std::span(&entry, 1))) == ErrorCode::would_deadlock);
      CHECK(code_of(runtime.flush(1)) == ErrorCode::would_deadlock);
      CHECK(code_of(runtime.barrier()) == ErrorCode::would_deadlock);
      CHECK(code_of(runtime.deregister(pair.a)) == ErrorCode::would_deadlock);
      CHECK(code_of(runtime.exchange({}, one).front().result) == ErrorCode::would_deadlock);
      CHECK(code_of(runtime.stop()) == ErrorCode::would_deadlock);
      CHECK(code_of(runtime.wait_signal(pair.a.data, Compare::equal, 99)) == ErrorCode::would_deadlock);
      auto request = runtime.put(pair.a.data, r.at(0), k_size);
      require_ok(request);
      CHECK(code_of(request->query()) == ErrorCode::busy);
      CHECK(code_of(request->wait()) == ErrorCode::would_deadlock);
      CHECK(code_of(request->wait(0ns)) == ErrorCode::would_deadlock);
      CHECK(code_of(wait_all(std::span(&*request, 1))) == ErrorCode::would_deadlock);
      CHECK(code_of(wait_any(std::span(&*request, 1))) == ErrorCode::would_deadlock);
      posted = *request;
      CHECK(runtime.counters().operations > 0);
      CHECK(!runtime.links().empty());
      // What can be answered at once is.
      require_ok(runtime.wait_signal(pair.a.data, Compare::not_equal, 99));
      const auto lane = runtime.put_sync(pair.a.data, r.at(0), 8);
      const bool has_lane = links.empty() || links.front() == LinkKind::hccs;
      CHECK(code_of(lane) == (has_lane ? ErrorCode::ok : ErrorCode::would_deadlock));
      const auto extra = runtime.allocate(4096);
      require_ok(extra);
      require_ok(runtime.deregister_async(*extra, k_patience, store_result, &gone));
    });
    require_ok(posted->wait());
    REQUIRE(gone.wait());
    require_ok(gone.value);
  }
}

TEST_CASE("a callback that throws is counted, and the loop goes on") {
  Pair pair;
  Runtime& runtime = pair.world[0];
  for (int i = 0; i < 10; ++i) {
    require_ok(runtime.put(
        pair.a.data, pair.remote.at(0), 8,
        {.callback = {[](void*, const Completion&) { throw std::runtime_error("a user's mistake"); }, nullptr}}));
  }
  require_ok(runtime.flush(1));
  require_ok(runtime.put_sync(pair.a.data, pair.remote.at(0), k_size));
  CHECK(runtime.counters().callback_errors == 10);
}

TEST_CASE("a rank that never comes costs only its own answer") {
  Pair pair({}, 4);
  require_ok(pair.world[3].stop());
  Answer<std::vector<PeerAddresses>> other;
  const Rank zero[] = {0};
  require_ok(pair.world[1].exchange_async(std::span(&pair.b, 1), zero, k_patience, store_answers, &other));
  const Rank ranks[] = {0, 1, 2, 3, 4};  // 2 lives and does not exchange, 3 has left, 4 does not exist
  const auto answers = pair.world[0].exchange(std::span(&pair.a, 1), ranks, 400ms);
  REQUIRE(answers.size() == 5);
  for (Rank rank = 0; rank < 5; ++rank) CHECK(answers[rank].rank == rank);
  require_ok(answers[0].result);
  CHECK(answers[0].regions.size() == 1);
  require_ok(answers[1].result);
  CHECK(answers[1].regions.size() == 1);
  CHECK(code_of(answers[2].result) == ErrorCode::deadline_exceeded);
  CHECK(answers[2].result.error().detail.rank == 2);
  CHECK(answers[2].regions.empty());
  CHECK(code_of(answers[3].result) == ErrorCode::deadline_exceeded);
  CHECK(answers[3].result.error().detail.stage == Stage::rendezvous);
  CHECK(code_of(answers[4].result) == ErrorCode::rank_out_of_range);
  REQUIRE(other.wait());
  require_ok(other.value.front().result);
  require_ok(pair.world[0].put_sync(pair.a.data, pair.remote.at(0), k_size));
  // A region that is none of this rank's, or no more.
  const Rank one[] = {1};
  CHECK(code_of(pair.world[0].exchange(std::span(&pair.b, 1), one, 1s).front().result) == ErrorCode::stale);
  CHECK(code_of(pair.world[0].deregister(pair.b)) == ErrorCode::stale);
}

TEST_CASE("a barrier names who is missing, and refuses groups that are none") {
  Pair pair({}, 4);
  Answer<Result<void>> second;
  require_ok(pair.world[1].barrier_async({}, 2s, store_result, &second));
  const auto result = pair.world[0].barrier(300ms);
  CHECK(code_of(result) == ErrorCode::deadline_exceeded);
  const ErrorDetail& detail = result.error().detail;
  CHECK(detail.stage == Stage::barrier);
  CHECK(detail.missing_count == 2);
  CHECK(detail.missing[0] == 2);
  CHECK(detail.missing[1] == 3);
  // The others come, and so does rank 0, again.
  Answer<Result<void>> late[2];
  for (Rank rank : {2U, 3U}) require_ok(pair.world[rank].barrier_async({}, k_patience, store_result, &late[rank - 2]));
  require_ok(pair.world[0].barrier(k_patience));
  for (auto& answer : late) {
    REQUIRE(answer.wait());
    require_ok(answer.value);
  }
  REQUIRE(second.wait());
  const auto refused = [&](std::vector<Rank> ranks) { return code_of(pair.world[0].barrier(1s, ranks)); };
  CHECK(refused({0, 1, 1}) == ErrorCode::invalid_argument);
  CHECK(refused({0, 0}) == ErrorCode::invalid_argument);
  CHECK(refused({1, 2}) == ErrorCode::invalid_argument);  // without the caller
  CHECK(refused({0, 4}) == ErrorCode::rank_out_of_range);
  const Rank self[] = {0};
  require_ok(pair.world[0].barrier(1s, self));
}
