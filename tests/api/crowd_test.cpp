// SPDX-License-Identifier: Apache-2.0
//
// Many at once: ranks that start together, threads in every function, a thousand registrations, ranks that leave a
// crowd.
#include <atomic>
#include <barrier>
#include <fstream>
#include <optional>
#include <thread>

#include <hixl/completion_queue.hpp>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

std::size_t number_in_status(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stoul(line.substr(name.size() + 1));
  }
  FAIL("no " << name);
  return 0;
}

/// Runs `work(i)` on `count` threads that begin together.
template <class Work>
void together(std::size_t count, Work&& work) {
  std::barrier start(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      work(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("P54 sixteen threads make, use and stop their ranks at the same time") {
  constexpr std::uint32_t k_ranks = 16;
  const auto store = std::move(*Store::create("tcp://127.0.0.1:0"));
  for (int round = 0; round < rounds(2); ++round) {
    std::atomic<int> wrong{0};
    together(k_ranks, [&](std::size_t i) {
      const auto rank = static_cast<Rank>(i);
      const auto expect = [&wrong](bool good) { wrong += good ? 0 : 1; };
      auto runtime = Runtime::create(options_for(rank, k_ranks, store->url(), {LinkKind::hccs, LinkKind::tcp}));
      if (!runtime) return expect(false);
      const auto mine = (*runtime)->allocate(4096);
      if (!mine) return expect(false);
      // A world of its own beside it.
      const auto alone = Runtime::create(options_for(0, 1, ""));
      expect(alone && (*alone)->allocate(4096));
      const Rank both[] = {(rank + 1) % k_ranks, (rank + k_ranks - 1) % k_ranks};
      const auto answers = (*runtime)->exchange(std::span(&*mine, 1), both, k_patience);
      if (!answers[0].result || !answers[1].result) return expect(false);
      std::memset(mine->data, static_cast<int>(rank + 1), 1024);
      expect((*runtime)->put_sync(mine->data, answers[0].regions.front().at(2048), 1024, k_patience).has_value());
      expect((*runtime)->barrier(k_patience).has_value());
      expect(all_bytes(mine->data + 2048, 1024, static_cast<std::byte>((rank + k_ranks - 1) % k_ranks + 1)));
      expect((*runtime)->stop(k_patience).has_value());
    });
    REQUIRE(wrong == 0);
  }
}

namespace {

/// One thread's use of every function that a runtime has for its own memory and one other rank. Its areas are its own.
class Everything {
 public:
  Everything(Runtime& runtime, const Region& here, const Region& there, const RemoteRegion& remote, std::size_t at,
             CompletionQueue& queue)
      : runtime_(runtime), here_(here), there_(there), remote_(remote), at_(at), queue_(queue) {}

  void round() {
    std::byte* const source = here_.data + at_;
    std::byte* const sink = source + k_half;
    std::byte* const target = there_.data + at_;
    const RemoteAddress place = remote_.at(at_);
    fill_pattern(source, k_half, ++seed_);
    const std::vector<LocalPiece> pieces{{source, 1000}, {source + 1000, 24}, {source + 1024, 1024}};
    const Strided columns{source, 128, place, 128, 64, 32};
    const BatchEntry entry{TransferVerb::put, source, place, 2048};
    expect(runtime_.put_sync(source, place, k_half));
    expect(end(runtime_.put(source, place, 2048)));
    expect(end(runtime_.put_gathered(pieces, place)));
    expect(end(runtime_.put_strided(columns)));
    expect(end(runtime_.batch(std::span(&entry, 1))));
    expect(runtime_.batch_sync(std::span(&entry, 1)));
    const Signal signal{remote_.at(at_ + 2 * k_half - 8), seed_};
    expect(end(runtime_.put_with_signal(source, place, 2048, signal)));
    expect(end(runtime_.batch_with_signal(std::span(&entry, 1), signal)));
    expect(end(runtime_.fence(remote_.rank)));
    expect(end(runtime_.flush_async(remote_.rank)));
    expect(runtime_.flush(remote_.rank));
    expect(runtime_.quiet());
    good(holds_pattern(target, k_half, seed_));

    expect(runtime_.get_sync(sink, place, k_half - 8));
    expect(end(runtime_.get(sink, place, 2048)));
    const std::vector<LocalPiece> parts{{sink, 512}, {sink + 512, 512}};
    expect(end(runtime_.get_scattered(parts, place)));
    expect(end(runtime_.get_strided({sink, 128, place, 128, 64, 16})));
    good(holds_pattern(sink, k_half - 8, seed_));

    std::array<std::byte, 100> copy{};
    expect(runtime_.copy_out(here_, at_, copy.data(), copy.size()));
    expect(runtime_.copy_in(here_, at_, copy.data(), copy.size()));
    good(std::memcmp(copy.data(), source, copy.size()) == 0);
    const auto region = runtime_.allocate(4096);
    const auto part = region ? runtime_.register_memory(region->data, 2048) : region;
    good(region && part && runtime_.deregister(*part) && runtime_.deregister(*region));
    std::memcpy(source, &seed_, sizeof seed_);
    good(runtime_.wait_signal(source, Compare::equal, seed_).has_value());

    const Request joined = runtime_.joined();
    good(!joined.empty() && runtime_.rank() == 0 && runtime_.world_size() == 2 && runtime_.incarnation() != 0);
    good(runtime_.fd() == -1 && runtime_.poll() == 0);
    static_cast<void>(runtime_.counters());
    static_cast<void>(runtime_.links());
    requests(source, place);
  }
  [[nodiscard]] int wrong() const noexcept { return wrong_; }

  static constexpr std::size_t k_half = 4096;

 private:
  void good(bool holds) { wrong_ += holds ? 0 : 1; }
  void expect(const Result<void>& result) { good(result.has_value()); }
  static Result<void> end(Result<Request>&& request) {
    return request ? request->wait(k_patience) : fail(request.error());
  }
  /// Cancelled, asked in every way, by callback and by queue.
  void requests(const std::byte* source, const RemoteAddress& place) {
    Events called;
    const Callback callback{[](void* context, const Completion&) { static_cast<Events*>(context)->add(); }, &called};
    auto first = runtime_.put(source, place, k_half, {.callback = callback, .queue = &queue_});
    auto second = runtime_.put(source, place, 100);
    if (!first || !second) return good(false);
    good(second->then(callback).has_value());
    Request copies[] = {*first, *second};
    good(first->cancel().has_value() || first->done());
    good(wait_any(copies, k_patience).has_value());
    static_cast<void>(wait_all(copies, k_patience));
    static_cast<void>(first->query());
    good(called.wait_for(2));
    std::array<Completion, 4> out;
    static_cast<void>(queue_.poll(out));
    static_cast<void>(queue_.in_use());
  }

  Runtime& runtime_;
  Region here_, there_;
  RemoteRegion remote_;
  std::size_t at_;
  CompletionQueue& queue_;
  std::uint64_t seed_ = 0;
  int wrong_ = 0;
};

}  // namespace

TEST_CASE("P56 eight threads in every function at once") {
  constexpr std::size_t k_threads = 8;
  constexpr std::size_t k_area = 4 * Everything::k_half;
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    World world(2, links);
    const Region a = *world[0].allocate(k_threads * k_area);
    const Region b = *world[1].allocate(k_threads * k_area);
    const RemoteRegion remote = world.exchange_all({a, b})[0][1];
    const auto queue = std::move(*CompletionQueue::create(64));
    std::atomic<int> wrong{0};
    std::atomic<std::size_t> using_them{k_threads};
    std::thread collective([&] {  // what only one thread of a rank can do sensibly, beside all that
      const Rank all[] = {0, 1};
      while (using_them.load() > 0) {
        Answer<Result<void>> met;
        wrong += world[1].barrier_async(all, k_patience, store_result, &met) ? 0 : 1;
        wrong += world[0].barrier(k_patience, all) && met.wait() && met.value ? 0 : 1;
        Answer<std::vector<PeerAddresses>> answer;
        wrong +=
            world[1].exchange_async(std::span(&b, 1), std::span(all, 1), k_patience, store_answers, &answer) ? 0 : 1;
        const auto learned = world[0].exchange(std::span(&a, 1), std::span(all + 1, 1), k_patience);
        wrong += learned.front().result && answer.wait() && answer.value.front().result ? 0 : 1;
      }
    });
    together(k_threads, [&](std::size_t i) {
      Everything everything(world[0], a, b, remote, i * k_area, *queue);
      for (int round = 0; round < rounds(60); ++round) everything.round();
      wrong += everything.wrong();
      using_them -= 1;
    });
    collective.join();
    CHECK(wrong == 0);
    CHECK(world[0].counters().callback_errors == 0);
    CHECK(world[0].counters().link_failures == 0);
  }
}

TEST_CASE("P22 a thousand registrations by four threads need no thread more, and each of them can be used") {
  constexpr std::size_t k_threads = 4;
  constexpr std::size_t k_each = 250;
  constexpr std::size_t k_bytes = 4096;
  World world(2);
  const Region mine = *world[0].allocate(k_bytes);
  const Region anchor = *world[1].allocate(k_bytes);
  world.exchange_all({mine, anchor});
  std::vector<std::byte> memory(k_threads * k_each * k_bytes);
  std::vector<Region> regions(k_threads * k_each);
  std::atomic<int> wrong{0};
  const std::size_t threads = number_in_status("Threads");
  together(k_threads, [&](std::size_t i) {
    for (std::size_t at = i * k_each; at < (i + 1) * k_each; ++at) {
      const auto region = world[1].register_memory(memory.data() + at * k_bytes, k_bytes);
      if (!region) wrong += 1;
      if (region) regions[at] = *region;
    }
  });
  REQUIRE(wrong == 0);
  CHECK(number_in_status("Threads") == threads);
  const Rank zero[] = {0};
  const Rank one[] = {1};
  Answer<std::vector<PeerAddresses>> answer;
  require_ok(world[1].exchange_async(regions, zero, k_patience, store_answers, &answer));
  const auto learned = world[0].exchange({}, one, k_patience);
  REQUIRE(answer.wait());
  require_ok(learned.front().result);
  REQUIRE(learned.front().regions.size() == regions.size());
  for (std::size_t at = 0; at < regions.size(); ++at) {
    const auto seed = static_cast<std::uint64_t>(at);
    fill_pattern(mine.data, 200, seed);
    require_ok(world[0].put_sync(mine.data, learned.front().regions[at].at(at % 1000), 200, k_patience));
    static_cast<void>(world[1].rank());
    REQUIRE(holds_pattern(memory.data() + at * k_bytes + at % 1000, 200, seed));
  }
  CHECK(number_in_status("Threads") == threads);
  for (const Region& region : regions) require_ok(world[1].deregister(region));
}

TEST_CASE("P4 two of four receivers leave under load: what goes to them ends with PEER_GONE, others go on") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    constexpr std::size_t k_bytes = 1U << 20U;
    World world(5, links);
    std::vector<Region> regions;
    for (std::size_t rank = 0; rank < 5; ++rank) regions.push_back(*world[rank].allocate(k_bytes));
    const auto remote = world.exchange_all(regions)[0];
    struct Load {
      std::atomic<std::uint64_t> good{0}, failed{0}, strange{0};
      std::atomic<ErrorCode> what{ErrorCode::ok};
    };
    Load loads[5];
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (Rank rank = 1; rank < 5; ++rank) {
      threads.emplace_back([&, rank] {
        Load& load = loads[rank];
        std::byte* const source = regions[0].data + rank * (k_bytes / 8);
        while (!over.load()) {
          std::vector<Request> open;
          ErrorCode code = ErrorCode::ok;
          for (const std::size_t size : {std::size_t{8}, k_bytes / 8}) {
            auto request = world[0].put(source, remote[rank].at(0), size, {.timeout = k_patience});
            if (request) open.push_back(*request);
            if (!request) code = request.error().code;
          }
          const ErrorCode end = code_of(wait_all(open, k_patience));
          if (code == ErrorCode::ok) code = end;
          (code == ErrorCode::ok ? load.good : load.failed) += 1;
          // PEER_LOST: it left with this one unanswered, and could not be asked any more.
          if (code != ErrorCode::ok && code != ErrorCode::peer_gone && code != ErrorCode::peer_lost &&
              code != ErrorCode::stale && code != ErrorCode::not_exchanged) {
            load.strange += 1;
            load.what = code;
          }
        }
      });
    }
    const auto wait_until = [&](Rank rank, auto&& count) {
      const auto end = std::chrono::steady_clock::now() + k_patience;
      const std::uint64_t before = count(loads[rank]);
      while (count(loads[rank]) < before + 5 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      CHECK(count(loads[rank]) >= before + 5);
    };
    const auto good = [](const Load& load) { return load.good.load(); };
    const auto failed = [](const Load& load) { return load.failed.load(); };
    for (Rank rank = 1; rank < 5; ++rank) wait_until(rank, good);
    for (const Rank leaver : {1U, 3U}) {
      require_ok(world[leaver].stop());
      wait_until(leaver, failed);
    }
    for (const Rank stayer : {2U, 4U}) wait_until(stayer, good);
    over.store(true);
    for (std::thread& thread : threads) thread.join();
    for (Rank rank = 1; rank < 5; ++rank) {
      CAPTURE(rank);
      CHECK_MESSAGE(loads[rank].strange == 0, name(loads[rank].what.load()));
      if (rank % 2 == 0) CHECK(loads[rank].failed == 0);
    }
    CHECK(world[0].counters().peers_lost == 0);
  }
}

TEST_CASE("P48 operations of every kind, a hundred thousand of them, leave no memory behind") {
  World world(2);
  const Region a = *world[0].allocate(1U << 20U);
  const Region b = *world[1].allocate(1U << 20U);
  const RemoteRegion remote = world.exchange_all({a, b})[0][1];
  const auto work = [&](int count) {
    std::vector<Request> open;
    for (int i = 0; i < count; ++i) {
      const OpOptions options{.timeout = i % 11 == 0 ? Timeout(0) : Timeout(k_patience)};
      const BatchEntry entries[] = {{TransferVerb::put, a.data, remote.at(0), 100},
                                    {TransferVerb::get, a.data + 4096, remote.at(4096), 100}};
      auto request = i % 4 == 0   ? world[0].put(a.data, remote.at(0), 300, options)
                     : i % 4 == 1 ? world[0].get(a.data + 4096, remote.at(4096), 300, options)
                     : i % 4 == 2
                         ? world[0].batch(entries, options)
                         : world[0].put_with_signal(nullptr, remote.at(0), 0, {.word = remote.at(8192)}, options);
      if (request && i % 3 != 0) open.push_back(std::move(*request));
      if (i % 64 != 63) continue;
      static_cast<void>(wait_all(open, k_patience));
      open.clear();
      require_ok(world[0].flush(1, k_patience));
    }
  };
  work(rounds(20'000));  // caches fill
  const std::size_t before_kib = number_in_status("VmRSS");
  work(rounds(100'000));
  const std::size_t after_kib = number_in_status("VmRSS");
  MESSAGE("resident " << before_kib << " -> " << after_kib << " KiB");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(after_kib <= before_kib + 1024);  // ten bytes an operation would show
#endif
}
