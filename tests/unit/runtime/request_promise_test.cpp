// SPDX-License-Identifier: Apache-2.0
//
// What a Request asks of the loop: to end it early, and to call a callback that comes late. One thread at a time, and
// then against the end itself.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "fake_port.hpp"
#include "runtime/loop.hpp"
#include "runtime/request_table.hpp"

using namespace hixl;
using namespace hixl::runtime;

namespace {

template <class T>
ErrorCode code(const Result<T>& result) { return result ? ErrorCode::ok : result.error().code; }

/// Plays core: a loop that ends operations, hears cancels and tells callbacks.
class Keeper final : public RequestKeeper, public MailTarget {
 public:
  explicit Keeper(RequestTable& table, std::size_t capacity = 1000) : mailbox(port, capacity), table_(table) {
    table_.attach(*this);
  }
  ~Keeper() { table_.detach(); }

  Result<void> cancel_later(std::uint32_t slot, std::uint32_t generation) override {
    return answer(mailbox.post({this, k_cancel, slot, generation}));
  }
  Result<void> deliver_later(std::uint32_t slot) override { return answer(mailbox.post({this, k_deliver, slot, 0})); }
  void on_mail(const Mail& mail) override {
    if (mail.kind == k_end) {
      // Its own mail may come after the cancel that overtook it; an end of the life is due exactly once.
      const auto life = static_cast<std::uint32_t>(mail.b);
      if (table_.pending(mail.a, life)) end(mail.a, {});
      return;
    }
    if (mail.kind == k_deliver) {
      const auto [callback, completion] = table_.take_delivery(mail.a);
      callback.function(callback.context, completion);
      return;
    }
    cancels += 1;
    if (table_.pending(mail.a, static_cast<std::uint32_t>(mail.b))) end(mail.a, fail(ErrorCode::cancelled));
  }
  bool post_end(std::uint32_t slot, std::uint32_t generation) { return mailbox.post({this, k_end, slot, generation}); }
  void end(std::uint32_t slot, const Result<void>& result) {
    ends += 1;
    const auto ended = table_.finish(slot, result, false, {.bytes = 7, .value = 9});
    const Completion completion{.result = result, .user_data = ended.user_data, .bytes = 7, .value = 9};
    if (ended.callback.function != nullptr) ended.callback.function(ended.callback.context, completion);
  }
  std::size_t turn() { return mailbox.drain(64); }

  static constexpr std::uint32_t k_end = 0, k_cancel = 1, k_deliver = 2;
  test::FakePort port;
  Mailbox mailbox;
  int cancels = 0;
  std::uint64_t ends = 0;

 private:
  static Result<void> answer(bool posted) { return posted ? Result<void>() : Result<void>(fail(ErrorCode::busy)); }
  RequestTable& table_;
};

struct Posted {
  std::uint32_t slot = 0;
  Request request;
};

Posted post(RequestTable& table, const Callback& callback = {}, std::uint64_t user_data = 0) {
  const auto acquired = table.acquire();
  REQUIRE(acquired);
  table.prepare(acquired->slot, callback, user_data);
  return {acquired->slot, Request(table, acquired->slot, acquired->generation)};
}

struct Told {
  int calls = 0;
  Completion completion{};
  Callback callback() {
    return {[](void* context, const Completion& seen) {
              auto& told = *static_cast<Told*>(context);
              told.calls += 1;
              told.completion = seen;
            },
            this};
  }
};

}  // namespace

TEST_CASE("then: while it is under way, the end calls it once, with the poster's number and the bytes") {
  RequestTable table(2, nullptr);
  Keeper keeper(table);
  Posted op = post(table, {}, 42);
  Told told, second;
  CHECK(op.request.then(told.callback()).has_value());
  CHECK(code(op.request.then(second.callback())) == ErrorCode::invalid_argument);
  CHECK(told.calls == 0);
  CHECK_FALSE(op.request.done());
  keeper.end(op.slot, fail(ErrorCode::peer_lost, {.address = 5}));
  CHECK(told.calls == 1);
  CHECK(told.completion.result.error().detail.address == 5);
  CHECK(told.completion.user_data == 42);
  CHECK(told.completion.bytes == 7);
  CHECK(told.completion.value == 9);
  CHECK(code(op.request.query()) == ErrorCode::peer_lost);  // both ways may be used
  CHECK(table.in_use() == 0);
  // Without anybody who holds it, the slot is free at the end, and the failure was seen.
  Posted dropped = post(table);
  CHECK(dropped.request.then(told.callback()).has_value());
  dropped.request = Request();
  keeper.end(dropped.slot, fail(ErrorCode::peer_lost));
  CHECK(told.calls == 2);
  CHECK(table.in_use() == 0);
  CHECK(table.failed_unseen() == 0);
  CHECK(second.calls == 0);
  CHECK(keeper.turn() == 0);
}

TEST_CASE("then: after the end it is told by the loop, never inline, and holds the slot until then") {
  RequestTable table(1, nullptr);
  Keeper keeper(table);
  Posted op = post(table, {}, 9);
  Request copy = op.request;
  keeper.end(op.slot, fail(ErrorCode::peer_lost, {.address = 6}));
  Told told;
  CHECK(op.request.then(told.callback()).has_value());
  CHECK(told.calls == 0);
  CHECK(table.in_use() == 1);
  CHECK(code(op.request.query()) == ErrorCode::peer_lost);
  CHECK(code(copy.query()) == ErrorCode::invalid_request);  // the end was seen by the other
  CHECK(code(copy.then(told.callback())) == ErrorCode::invalid_request);
  CHECK(code(op.request.then(told.callback())) == ErrorCode::invalid_request);
  CHECK_FALSE(table.acquire());
  op.request = Request();
  CHECK(keeper.turn() == 1);
  CHECK(told.calls == 1);
  CHECK(told.completion.result.error().detail.address == 6);
  CHECK(told.completion.user_data == 9);
  CHECK(table.in_use() == 0);
  CHECK(table.failed_unseen() == 0);
}

TEST_CASE("the value of an end: by the request, by a callback before it and after it; a failure has none") {
  RequestTable table(2, nullptr);
  Keeper keeper(table);
  Request empty;
  CHECK(code(empty.value()) == ErrorCode::invalid_request);
  Posted op = post(table);
  CHECK(code(op.request.value()) == ErrorCode::busy);
  const Request stale = op.request;
  keeper.end(op.slot, {});
  CHECK(op.request.value() == 9U);
  CHECK(op.request.value() == 9U);
  Request copy = op.request;
  const Request moved = std::move(op.request);
  CHECK(copy.value() == 9U);
  CHECK(Request(moved).value() == 9U);
  CHECK(code(Request(stale).value()) == ErrorCode::invalid_request);

  Posted failed = post(table);
  keeper.end(failed.slot, fail(ErrorCode::stale));
  CHECK(code(failed.request.value()) == ErrorCode::stale);

  for (const bool late : {false, true}) {
    Told told;
    Posted with = post(table);
    if (late) keeper.end(with.slot, {});
    CHECK(with.request.then(told.callback()).has_value());
    if (!late) keeper.end(with.slot, {});
    CHECK(keeper.turn() == (late ? 1 : 0));
    CHECK(told.calls == 1);
    CHECK(told.completion.value == 9);
    CHECK(with.request.value() == 9U);
  }
  CHECK(table.in_use() == 0);
}

TEST_CASE("then: what is refused is never called") {
  RequestTable table(4, nullptr);
  Told told, of_the_post;
  Request empty;
  CHECK(code(empty.then(told.callback())) == ErrorCode::invalid_request);
  auto keeper = std::make_unique<Keeper>(table, 1);
  Posted op = post(table, of_the_post.callback());
  CHECK(code(op.request.then({})) == ErrorCode::invalid_argument);
  CHECK(code(op.request.then(told.callback())) == ErrorCode::invalid_argument);
  keeper->end(op.slot, {});
  CHECK(of_the_post.calls == 1);
  CHECK(code(op.request.then(told.callback())) == ErrorCode::invalid_argument);
  CHECK(op.request.query().has_value());
  Posted stale = post(table);
  Request copy = stale.request;
  keeper->end(stale.slot, {});
  CHECK(stale.request.query().has_value());
  CHECK(code(copy.then(told.callback())) == ErrorCode::invalid_request);
  CHECK(copy.done());

  SUBCASE("the loop has no room") {
    while (keeper->cancel_later(0, 0)) {
    }
    Posted late = post(table);
    keeper->end(late.slot, fail(ErrorCode::peer_lost));
    CHECK(code(late.request.then(told.callback())) == ErrorCode::busy);
    CHECK(code(late.request.query()) == ErrorCode::peer_lost);
  }
  SUBCASE("the loop is gone") {
    Posted late = post(table);
    keeper->end(late.slot, {});
    keeper.reset();
    CHECK(code(late.request.then(told.callback())) == ErrorCode::stopped);
    CHECK(late.request.query().has_value());
  }
  CHECK(table.in_use() == 0);
  CHECK(told.calls == 0);
}

TEST_CASE("cancel: asks once, and only the life that it means") {
  RequestTable table(1, nullptr);
  Keeper keeper(table, 1);
  Request empty;
  CHECK(code(empty.cancel()) == ErrorCode::invalid_request);
  Posted op = post(table);
  Request copy = op.request, stale = op.request;
  CHECK(op.request.cancel().has_value());
  CHECK(table.cancel_asked(op.slot));
  CHECK(copy.cancel().has_value());
  // It ends by itself before the question is read, and the slot lives again.
  keeper.end(op.slot, {});
  CHECK(copy.cancel().has_value());
  CHECK(op.request.query().has_value());
  CHECK(op.request.cancel().has_value());
  CHECK(op.request.query().has_value());
  CHECK(code(stale.cancel()) == ErrorCode::invalid_request);
  Posted next = post(table);
  CHECK(code(copy.cancel()) == ErrorCode::invalid_request);
  CHECK_FALSE(table.cancel_asked(next.slot));
  CHECK(keeper.turn() == 1);
  CHECK(keeper.cancels == 1);
  CHECK_FALSE(next.request.done());
  // No room: the question may be asked again.
  while (keeper.cancel_later(0, 0)) {
  }
  CHECK(code(next.request.cancel()) == ErrorCode::busy);
  CHECK_FALSE(table.cancel_asked(next.slot));
  while (keeper.turn() > 0) {
  }
  CHECK(next.request.cancel().has_value());
  CHECK(keeper.turn() == 1);
  CHECK(code(next.request.query()) == ErrorCode::cancelled);
  CHECK(table.in_use() == 0);
}

namespace {

/// A place where two threads swap copies of requests, so that they meet at one slot.
struct Box {
  std::atomic<Request*> held{nullptr};
  ~Box() { delete held.load(); }
  std::unique_ptr<Request> swap(std::unique_ptr<Request> request) {
    return std::unique_ptr<Request>(held.exchange(request.release(), std::memory_order_acq_rel));
  }
};

/// One program thread: posts, and then at once does to the request, or to a copy from another thread, what may hit the
/// very moment of its end.
class Racer {
 public:
  Racer(RequestTable& table, Keeper& keeper, Box& box, std::uint64_t seed, std::size_t operations)
      : table_(table),
        keeper_(keeper),
        box_(box),
        random_(seed),
        operations_(operations),
        calls_(2 * operations),
        promised_(2 * operations) {}

  void run() {
    for (std::size_t i = 0; i < operations_; ++i) one(i);
  }
  /// After the loop has come to rest.
  [[nodiscard]] std::size_t wrong_calls() const {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < calls_.size(); ++i) wrong += calls_[i].load() == (promised_[i] ? 1 : 0) ? 0U : 1U;
    return wrong;
  }
  std::size_t made = 0, late = 0, faults = 0;

 private:
  void one(std::size_t i) {
    auto acquired = table_.acquire();
    while (!acquired) {
      box_.swap(nullptr);
      std::this_thread::yield();
      acquired = table_.acquire();
    }
    table_.prepare(acquired->slot, {}, i);
    Request request(table_, acquired->slot, acquired->generation);
    while (!keeper_.post_end(acquired->slot, acquired->generation)) std::this_thread::yield();
    auto other = box_.swap(std::make_unique<Request>(request));
    treat(request, 2 * i);
    if (other != nullptr) treat(*other, 2 * i + 1);
  }
  void treat(Request& request, std::size_t at) {
    switch (random_.below(5)) {
      case 0: {
        const auto asked = request.cancel();
        if (!asked && code(asked) != ErrorCode::invalid_request && code(asked) != ErrorCode::busy) ++faults;
        break;
      }
      case 1:
      case 2: {
        const bool was_done = request.done();
        const auto asked = request.then({&Racer::on_end, &calls_[at]});
        promised_[at] = asked.has_value();
        made += asked.has_value() && !was_done ? 1 : 0;
        late += code(asked) == ErrorCode::invalid_argument ? 1 : 0;
        break;
      }
      case 3:
        static_cast<void>(request.query());
        break;
      default:
        break;  // dropped
    }
  }
  static void on_end(void* context, const Completion& completion) {
    static_cast<std::atomic<int>*>(context)->fetch_add(completion.bytes == 7 ? 1 : 100);
  }

  RequestTable& table_;
  Keeper& keeper_;
  Box& box_;
  Random random_;
  std::size_t operations_;
  std::vector<std::atomic<int>> calls_;
  std::vector<char> promised_;
};

}  // namespace

TEST_CASE("S39: cancel, then, look and drop against the end, 10^5 times: one end and one call each") {
  constexpr std::size_t k_threads = 2;
  constexpr std::size_t k_operations = 50'000;
  RequestTable table(16, nullptr);
  Keeper keeper(table, 64);
  Box box;
  std::vector<std::unique_ptr<Racer>> racers;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < k_threads; ++i) {
    racers.push_back(std::make_unique<Racer>(table, keeper, box, 300 + i, k_operations));
    threads.emplace_back([racer = racers.back().get()] { racer->run(); });
  }
  while (keeper.ends < k_threads * k_operations) {
    if (keeper.turn() == 0) std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  while (keeper.turn() > 0) {
  }
  delete box.held.exchange(nullptr);
  std::size_t made = 0;
  for (const auto& racer : racers) {
    CHECK(racer->wrong_calls() == 0);
    CHECK(racer->faults == 0);
    made += racer->made;
  }
  CHECK(made > 0);
  CHECK(keeper.ends == k_threads * k_operations);
  CHECK(table.in_use() == 0);
}
