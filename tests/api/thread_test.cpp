// SPDX-License-Identifier: Apache-2.0
//
// Any thread, any call, at any time: sixteen at once on one runtime, regions coming and going, callbacks that post, and
// a stop in the middle of it.
#include <atomic>
#include <barrier>
#include <optional>
#include <random>
#include <thread>

#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t k_threads = 16;
constexpr std::size_t k_area = 128U << 10U;

/// The link kinds whose ways through the runtime differ: with an express lane and without.
std::vector<std::vector<LinkKind>> kinds() { return {{LinkKind::hccs}, {LinkKind::tcp}}; }

/// Posts until there is room. doctest's macros are for the main thread; others count what is wrong.
template <class Post>
Result<Request> insist(Post post) {
  for (;;) {
    auto request = post();
    if (request || request.error().code != ErrorCode::busy) return request;
    std::this_thread::yield();
  }
}

/// One thread's part: its own areas of both ranks' memory, so that it knows every byte.
class Worker {
 public:
  Worker(World& world, const Region& a, const Region& b, const RemoteRegion& remote, std::size_t index)
      : runtime_(world[0]),
        target_(world[1]),
        here_(a.data + index * k_area),
        there_(b.data + index * k_area),
        remote_(remote),
        at_(index * k_area),
        random_(base_seed() * 1000 + index) {
    fill_pattern(there_ + k_half, k_half, index);
  }

  void run(int steps) {
    for (int step = 0; step < steps && wrong == 0; ++step) {
      const std::uint64_t size = random_() % 3 == 0 ? random_() % (k_half + 1) : random_() % 200;
      const std::uint64_t offset = random_() % (k_half - size + 1);
      switch (random_() % 6) {
        case 0:
          put(size, offset, Form::sync);
          break;
        case 1:
          put(size, offset, Form::async);
          break;
        case 2:
          put(size, offset, Form::batch);
          break;
        case 3:
          get(size, offset);
          break;
        case 4:
          signal(size);
          break;
        case 5:
          crowd();
          break;
      }
    }
  }
  int wrong = 0;

 private:
  // The first half is put from and to. The second is got to here, and got from there, where it never changes but for
  // the signal's word at its end.
  static constexpr std::uint64_t k_half = k_area / 2;
  static constexpr std::uint64_t k_word = k_area - 8;

  void expect(bool good) { wrong += good ? 0 : 1; }
  void put(std::uint64_t size, std::uint64_t offset, Form form) {
    fill_pattern(here_, size, ++seed_);
    expect(transfer(runtime_, form, TransferVerb::put, here_, remote_.at(at_ + offset), size).has_value());
    expect(holds_pattern(there_ + offset, size, seed_));
  }
  void get(std::uint64_t size, std::uint64_t offset) {
    if (offset + size > k_half - 8) return;
    std::memset(here_ + k_half, 0, size);
    const Form form = k_forms[random_() % 3];
    expect(transfer(runtime_, form, TransferVerb::get, here_ + k_half, remote_.at(at_ + k_half + offset), size)
               .has_value());
    expect(std::memcmp(here_ + k_half, there_ + k_half + offset, size) == 0);
  }
  void signal(std::uint64_t size) {
    fill_pattern(here_, size, ++seed_);
    auto request = insist([&] {
      return runtime_.put_with_signal(here_, remote_.at(at_), size, {.word = remote_.at(at_ + k_word), .value = seed_});
    });
    if (!request) return expect(false);
    expect(target_.wait_signal(there_ + k_word, Compare::equal, seed_, k_patience).has_value());
    expect(holds_pattern(there_, size, seed_));
    expect(request->wait().has_value());  // only now the source is ours again
  }
  /// Several at once: looked at while under way, waited for in any order, some dropped, and flushed.
  void crowd() {
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 6; ++i) {
      auto request = insist([&] { return runtime_.put(here_ + i * 1024, remote_.at(at_ + i * 1024), 1024); });
      if (!request) return expect(false);
      static_cast<void>(request->query());
      requests.push_back(std::move(*request));
    }
    requests.resize(5);
    Request copy = requests.front();
    const auto first = wait_any(requests);
    expect(first.has_value());
    expect(runtime_.flush(1).has_value());
    for (Request& request : requests) expect(request.done());
    expect(wait_all(requests).has_value());
    const auto late = copy.query();
    expect(late || late.error().code == ErrorCode::invalid_request);
    expect(std::memcmp(here_, there_, 6 * 1024) == 0);
  }

  Runtime& runtime_;
  Runtime& target_;
  std::byte* here_;
  std::byte* there_;
  RemoteRegion remote_;
  std::uint64_t at_;
  std::minstd_rand random_;
  std::uint64_t seed_ = 0;
};

/// Posts the next put in the callback of the one before.
struct Chain {
  Runtime& runtime;
  const std::byte* source;
  RemoteAddress place;
  int left;
  int failed = 0;
  Events done;

  void post() {
    const auto request = runtime.put(source, place, 3000, {.callback = {next, this}});
    if (request) return;
    failed += 1;
    done.add();
  }
  static void next(void* context, const Completion& completion) {
    auto& chain = *static_cast<Chain*>(context);
    chain.failed += completion.result ? 0 : 1;
    if (--chain.left > 0) {
      chain.post();
    } else {
      chain.done.add();
    }
  }
};

/// Registers and deregisters, plain memory and windows, beside all the transfers.
int churn(Runtime& runtime, const std::atomic<bool>& over) {
  int wrong = 0;
  std::vector<std::byte> plain(64U << 10U);
  while (!over.load()) {
    const auto window = runtime.allocate(32U << 10U);
    const auto region = runtime.register_memory(plain.data(), plain.size());
    const auto part = runtime.register_memory(plain.data() + 4096, 4096);
    if (!window || !region || !part) return 1;
    // Used and ended at once: the transfer sees either the region or that it is gone.
    const auto used = runtime.put_sync(part->data, {runtime.rank(), window->address(), window->key, 0}, 4096);
    if (!used) wrong += 1;
    for (const Region& item : {*part, *region, *window}) wrong += runtime.deregister(item) ? 0 : 1;
    if (code_of(runtime.deregister(*region)) != ErrorCode::stale) wrong += 1;
  }
  return wrong;
}

}  // namespace

TEST_CASE("sixteen threads transfer, wait, flush and look while regions come and go") {
  MESSAGE("seed ", base_seed());
  for (const auto& links : kinds()) {
    CAPTURE(text(links));
    World world(2, links);
    const auto a = world[0].allocate((k_threads + 1) * k_area);
    const auto b = world[1].allocate((k_threads + 1) * k_area);
    const auto table = world.exchange_all({*a, *b});
    std::vector<Worker> workers;
    for (std::size_t i = 0; i < k_threads; ++i) workers.emplace_back(world, *a, *b, table[0][1], i);
    Chain chain{world[0], a->data + k_threads * k_area, table[0][1].at(k_threads * k_area), rounds(8000), 0, {}};
    fill_pattern(a->data + k_threads * k_area, 3000, 99);
    std::atomic<bool> over{false};
    std::vector<int> churned(2, 0);
    std::vector<std::thread> threads, churners;
    for (std::size_t i = 0; i < 2; ++i) churners.emplace_back([&, i] { churned[i] = churn(world[i], over); });
    for (Worker& worker : workers) threads.emplace_back([&worker] { worker.run(rounds(800)); });
    chain.post();
    while (!over.load()) {
      static_cast<void>(world[0].counters());
      static_cast<void>(world[0].links());
      if (chain.done.count() == 1) break;
    }
    for (std::thread& thread : threads) thread.join();
    over.store(true);
    for (std::thread& thread : churners) thread.join();
    for (std::size_t i = 0; i < k_threads; ++i) {
      CAPTURE(i);
      CHECK(workers[i].wrong == 0);
    }
    CHECK(churned[0] == 0);
    CHECK(churned[1] == 0);
    CHECK(chain.done.wait_for(1));
    CHECK(chain.failed == 0);
    CHECK(holds_pattern(b->data + k_threads * k_area, 3000, 99));
    CHECK(world[0].counters().link_failures == 0);
    if (links.front() == LinkKind::hccs) CHECK(world[0].counters().lane_operations > 0);
    for (Rank rank = 0; rank < 2; ++rank) require_ok(world[rank].stop());
  }
}

TEST_CASE("a source that is deregistered under its transfers: each ends as done or STALE, and is not read afterwards") {
  for (const auto& links : kinds()) {
    CAPTURE(text(links));
    World world(2, links);
    constexpr std::size_t k_size = 512U << 10U;
    const auto b = world[1].allocate(k_size);
    const auto anchor = world[0].allocate(4096);
    const auto table = world.exchange_all({*anchor, *b});
    for (int round = 0; round < rounds(60); ++round) {
      const auto a = world[0].allocate(k_size);
      require_ok(a);
      std::vector<Request> requests;
      for (int i = 0; i < 12; ++i) requests.push_back(*world[0].put(a->data, table[0][1].at(0), k_size));
      const auto gone = world[0].deregister(*a);  // unmaps: a read that came later would crash
      require_ok(gone);
      for (Request& request : requests) {
        CHECK(request.done());
        const ErrorCode code = code_of(request.wait());
        CHECK((code == ErrorCode::ok || code == ErrorCode::stale));
      }
    }
    require_ok(world[0].put_sync(anchor->data, table[0][1].at(0), 4096));
  }
}

namespace {

thread_local bool inside_post = false;

/// What stopping under load may do: callbacks only outside of posts and before stop has returned.
struct Stopping {
  std::atomic<std::uint64_t> posted{0}, called{0}, inside{0}, late{0};
  std::atomic<ErrorCode> bad{ErrorCode::ok};
  std::atomic<bool> stopped{false};

  static void on_end(void* context, const Completion& completion) {
    auto& self = *static_cast<Stopping*>(context);
    self.called.fetch_add(1);
    if (inside_post) self.inside.fetch_add(1);
    if (self.stopped.load()) self.late.fetch_add(1);
    self.judge(code_of(completion.result));
  }
  void judge(ErrorCode code) {
    if (code != ErrorCode::ok && code != ErrorCode::stopped && code != ErrorCode::busy) bad.store(code);
  }
};

/// Each small transfer has a place of its own among those that can be under way. A thread's long ones share a place
/// that is the thread's own: they are either waited for one by one or copied in order by the one copy engine.
void post_until_stopped(Runtime& runtime, const Region& a, const RemoteRegion& region, Stopping& state,
                        std::size_t kind) {
  constexpr std::size_t k_long = 100'000, k_short = 40, k_places = 512, k_sink = 512U << 10U;
  const std::size_t long_at = (1U << 20U) + kind * k_long;
  std::vector<Request> kept;
  for (std::uint64_t i = 0;; ++i) {
    const std::uint64_t size = i % 7 == 0 ? k_long : k_short;
    const std::uint64_t at = i % 7 == 0 ? long_at : (kind * k_places + i % k_places) * 64;
    const RemoteAddress place = region.at(at);
    ErrorCode code = ErrorCode::ok;
    if (kind % 4 == 0) {
      inside_post = true;
      const auto request = runtime.put(a.data, place, size, {.callback = {Stopping::on_end, &state}});
      inside_post = false;
      if (request) state.posted.fetch_add(1);
      code = code_of(request);
    } else if (kind % 4 == 1) {
      auto request = runtime.put(a.data, place, size);
      code = code_of(request);
      if (request && kept.size() < 100) kept.push_back(std::move(*request));
      if (kept.size() == 100) {
        for (Request& item : kept) state.judge(code_of(item.wait()));
        kept.clear();
      }
    } else if (kind % 4 == 2) {
      code = code_of(runtime.put_sync(a.data, place, size));
    } else {
      const BatchEntry entries[] = {{TransferVerb::put, a.data, place, size},
                                    {TransferVerb::get, a.data + k_sink + at, region.at(k_sink), size}};
      code = i % 3 == 0   ? code_of(runtime.batch_sync(entries))
             : i % 3 == 1 ? code_of(runtime.flush(1))
                          : code_of(runtime.wait_signal(a.data, Compare::not_equal, 77));
    }
    state.judge(code);
    if (code == ErrorCode::stopped) break;
  }
  for (Request& item : kept) {
    state.judge(code_of(item.wait()));
    if (code_of(item.query()) == ErrorCode::busy) state.bad.store(ErrorCode::busy);
  }
}

}  // namespace

TEST_CASE("stop while eight threads post: every post ends, as done or STOPPED") {
  for (const auto& links : kinds()) {
    CAPTURE(text(links));
    for (int round = 0; round < rounds(25); ++round) {
      World world(2, links);
      const auto a = world[0].allocate(3U << 20U);
      const auto b = world[1].allocate(3U << 20U);
      const auto table = world.exchange_all({*a, *b});
      Stopping state;
      std::barrier start(9);
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < 8; ++i) {
        threads.emplace_back([&, i] {
          start.arrive_and_wait();
          post_until_stopped(world[0], *a, table[0][1], state, i);
        });
      }
      start.arrive_and_wait();
      while (state.posted.load() < static_cast<std::uint64_t>(round * 20)) std::this_thread::yield();
      const auto stopped = world[0].stop(round % 3 == 0 ? Timeout(0) : Timeout(k_patience));
      state.stopped.store(true);
      CHECK((stopped || code_of(stopped) == ErrorCode::deadline_exceeded));
      for (std::thread& thread : threads) thread.join();
      CHECK(state.called == state.posted);
      CHECK(state.inside == 0);
      CHECK(state.late == 0);
      CHECK_MESSAGE(state.bad == ErrorCode::ok, "ended with ", name(state.bad));
      world.slot(0).reset();
      CHECK(state.called == state.posted);
    }
  }
}
