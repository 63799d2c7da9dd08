// SPDX-License-Identifier: Apache-2.0
//
// The mailbox's promises: FIFO per sender, all or nothing, no allocation after a thread's first post, one wake-up a
// sleep and none lost.
#include "runtime/mailbox.hpp"

#include <doctest/doctest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <latch>
#include <thread>
#include <vector>

#include "fake_port.hpp"

using namespace hixl;
using namespace hixl::runtime;

namespace {

/// Checks that each sender's numbers (b) come in order; `a` is the sender.
class Inbox final : public MailTarget {
 public:
  explicit Inbox(std::size_t senders) : next_(senders) {}
  void on_mail(const Mail& mail) override {
    if (mail.kind != 7 || mail.b != next_[mail.a]) ++faults;
    next_[mail.a] = mail.b + 1;
    ++received;
  }
  [[nodiscard]] std::uint64_t from(std::size_t sender) const { return next_[sender]; }
  std::uint64_t received = 0;
  std::uint64_t faults = 0;

 private:
  std::vector<std::uint64_t> next_;
};

Mail letter(Inbox& inbox, std::size_t sender, std::uint64_t number) {
  return {&inbox, 7, static_cast<std::uint32_t>(sender), number};
}

/// Bytes that malloc has given out; never falls in these tests, which free nothing.
std::size_t allocated_bytes() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

/// A sanitizer's allocator does not show in mallinfo.
bool allocations_are_seen() {
  const std::size_t before = allocated_bytes();
  void* volatile probe = std::malloc(5000);
  const bool seen = allocated_bytes() > before;
  std::free(probe);
  return seen;
}

}  // namespace

TEST_CASE("mailbox: delivers in order, at most the budget") {
  test::FakePort port;
  Mailbox mailbox(port, 100);
  Inbox inbox(1);
  CHECK(mailbox.empty());
  for (std::uint64_t i = 0; i < 100; ++i) REQUIRE(mailbox.post(letter(inbox, 0, i)));
  CHECK_FALSE(mailbox.empty());
  CHECK(mailbox.drain(33) == 33);
  CHECK(inbox.received == 33);
  CHECK(mailbox.drain(1000) == 67);
  CHECK(mailbox.drain(1000) == 0);
  CHECK(mailbox.empty());
  CHECK(inbox.faults == 0);
}

TEST_CASE("mailbox: holds its capacity, then refuses, and loses nothing") {
  for (const std::size_t capacity : {1U, 100U, 128U, 5000U}) {
    CAPTURE(capacity);
    test::FakePort port;
    Mailbox mailbox(port, capacity);
    Inbox inbox(1);
    std::uint64_t posted = 0;
    for (int round = 0; round < 3; ++round) {
      const std::uint64_t before = posted;
      while (posted - before < 1'000'000 && mailbox.post(letter(inbox, 0, posted))) ++posted;
      CHECK(posted - before >= capacity);
      CHECK(posted - before < 1'000'000);
      while (mailbox.drain(1000) > 0) {
      }
      CHECK(inbox.received == posted);
    }
    CHECK(inbox.faults == 0);
  }
}

TEST_CASE("mailbox: posting allocates nothing after a thread's first post") {
  if (!allocations_are_seen()) {
    MESSAGE("skipped: this build's allocator does not tell what it gives out");
    return;
  }
  constexpr std::size_t k_capacity = 131'072 + 4'096;
  test::FakePort port;
  Mailbox mailbox(port, k_capacity);
  Inbox inbox(1);
  REQUIRE(mailbox.post(letter(inbox, 0, 0)));
  const std::size_t before = allocated_bytes();
  std::uint64_t number = 1;
  for (int round = 0; round < 3; ++round) {
    while (number - inbox.received < k_capacity) {
      if (!mailbox.post(letter(inbox, 0, number))) break;
      ++number;
    }
    CHECK(number - inbox.received == k_capacity);
    while (mailbox.drain(1000) > 0) {
    }
  }
  CHECK(allocated_bytes() == before);
  CHECK(inbox.faults == 0);
}

TEST_CASE("mailbox: sixteen senders, each in order, nothing lost") {
  constexpr std::size_t k_senders = 16;
  constexpr std::uint64_t k_letters = 20'000;
  test::FakePort port;
  Mailbox mailbox(port, 1000);
  Inbox inbox(k_senders);
  std::atomic<std::uint64_t> refused{0};
  std::vector<std::thread> senders;
  for (std::size_t sender = 0; sender < k_senders; ++sender) {
    senders.emplace_back([&, sender] {
      for (std::uint64_t i = 0; i < k_letters;) {
        if (mailbox.post(letter(inbox, sender, i))) {
          ++i;
        } else {
          refused.fetch_add(1);
          std::this_thread::yield();
        }
      }
    });
  }
  while (inbox.received < k_senders * k_letters) {
    if (mailbox.drain(100) == 0) std::this_thread::yield();
  }
  for (std::thread& sender : senders) sender.join();
  CHECK(mailbox.empty());
  CHECK(inbox.faults == 0);
  for (std::size_t sender = 0; sender < k_senders; ++sender) CHECK(inbox.from(sender) == k_letters);
  MESSAGE("refused as full: ", refused.load());
}

TEST_CASE("mailbox: more threads than planned for can still post") {
  constexpr std::size_t k_senders = 150;
  test::FakePort port;
  Mailbox mailbox(port, 1000);
  Inbox inbox(k_senders);
  std::latch all_posted(k_senders);  // every thread lives until all have posted, so none takes another's place
  std::atomic<int> refused{0};
  std::vector<std::thread> senders;
  for (std::size_t sender = 0; sender < k_senders; ++sender) {
    senders.emplace_back([&, sender] {
      if (!mailbox.post(letter(inbox, sender, 0))) refused.fetch_add(1);
      all_posted.arrive_and_wait();
      if (!mailbox.post(letter(inbox, sender, 1))) refused.fetch_add(1);
    });
  }
  for (std::thread& sender : senders) sender.join();
  CHECK(refused == 0);
  CHECK(mailbox.drain(1000) == 2 * k_senders);
  CHECK(inbox.faults == 0);
}

TEST_CASE("mailbox: a busy sender does not starve another") {
  constexpr std::size_t k_busy = 1;  // the middle one of three, so that both neighbours are tested
  test::FakePort port;
  Mailbox mailbox(port, 20'000);
  Inbox inbox(3);
  std::latch leave(1);  // all live until the end, so none takes another's place
  std::atomic<std::size_t> posted{0};
  std::vector<std::thread> threads;
  for (std::size_t sender = 0; sender < 3; ++sender) {
    threads.emplace_back([&, sender] {
      for (std::uint64_t i = 0; i < (sender == k_busy ? 10'000 : 10); ++i) {
        if (!mailbox.post(letter(inbox, sender, i))) break;
      }
      posted.store(sender + 1);
      posted.notify_all();
      leave.wait();
    });
    posted.wait(sender);
  }
  std::size_t delivered = 0;
  while (inbox.from(0) < 10 || inbox.from(2) < 10) {
    const std::size_t count = mailbox.drain(16);
    delivered += count;
    if (count == 0) break;
  }
  CHECK(delivered < 1000);
  CHECK(inbox.from(0) == 10);
  CHECK(inbox.from(2) == 10);
  CHECK(inbox.faults == 0);
  leave.count_down();
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("mailbox: wakes a sleeping loop once, an awake one never") {
  test::FakePort port;
  Mailbox mailbox(port, 100);
  SUBCASE("the sender pays for the order") {}
  SUBCASE("the sleeper pays") {
    if (!mailbox.wakeup().let_sleeper_pay()) MESSAGE("no process-wide barrier in this kernel: the sender pays");
  }
  Inbox inbox(1);
  REQUIRE(mailbox.post(letter(inbox, 0, 0)));
  CHECK(port.wakes() == 0);
  REQUIRE(mailbox.drain(10) == 1);
  bool message_seen = false;
  port.on_wake = [&] { message_seen = !mailbox.empty(); };
  mailbox.wakeup().asleep();
  REQUIRE(mailbox.post(letter(inbox, 0, 1)));
  CHECK(message_seen);  // a loop that wakes before the message is there sleeps again
  REQUIRE(mailbox.post(letter(inbox, 0, 2)));
  CHECK(port.wakes() == 1);
  mailbox.wakeup().asleep();
  mailbox.wakeup().awake();
  REQUIRE(mailbox.post(letter(inbox, 0, 3)));
  CHECK(port.wakes() == 1);
}

TEST_CASE("mailbox: no wake-up is lost between the last look and the sleep") {
  constexpr std::uint64_t k_letters = 5'000;
  test::FakePort port;
  Mailbox mailbox(port, 100);
  SUBCASE("the sender pays for the order") {}
  SUBCASE("the sleeper pays") {
    if (!mailbox.wakeup().let_sleeper_pay()) MESSAGE("no process-wide barrier in this kernel: the sender pays");
  }
  Inbox inbox(2);
  std::vector<std::thread> senders;
  std::atomic<std::uint64_t> answered{0};
  // Each sender waits for its letter's delivery, so that the loop sleeps all the time and a lost wake-up hangs.
  for (std::size_t sender = 0; sender < 2; ++sender) {
    senders.emplace_back([&, sender] {
      for (std::uint64_t i = 0; i < k_letters; ++i) {
        while (!mailbox.post(letter(inbox, sender, i))) std::this_thread::yield();
        for (std::uint64_t seen = answered.load(); seen < i; seen = answered.load()) answered.wait(seen);
      }
    });
  }
  while (inbox.received < 2 * k_letters) {
    const int seen = port.wakes();
    if (mailbox.drain(10) > 0) {
      answered.store(std::min(inbox.from(0), inbox.from(1)));
      answered.notify_all();
      continue;
    }
    mailbox.wakeup().asleep();
    if (mailbox.empty()) port.wait_for_wake(seen);
    mailbox.wakeup().awake();
  }
  answered.store(k_letters);
  answered.notify_all();
  for (std::thread& sender : senders) sender.join();
  CHECK(inbox.faults == 0);
}

TEST_CASE("mailbox: a message and a last look that meet: one of the two sees the other") {
  constexpr std::uint64_t k_rounds = 10'000;
  test::FakePort port;
  Mailbox mailbox(port, 100);
  SUBCASE("the sender pays for the order") {}
  SUBCASE("the sleeper pays") {
    if (!mailbox.wakeup().let_sleeper_pay()) MESSAGE("no process-wide barrier in this kernel: the sender pays");
  }
  Inbox inbox(1);
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> posted{0};
  // Both begin a round together, the sender after a number of steps that differs from round to round.
  std::thread sender([&] {
    for (std::uint64_t round = 1; round <= k_rounds; ++round) {
      for (int looks = 0; begun.load(std::memory_order_acquire) < round; ++looks) {
        if (looks > 1000) std::this_thread::yield();  // fewer processors than threads
      }
      for (volatile std::uint64_t steps = round % 64; steps > 0;) steps = steps - 1;
      static_cast<void>(mailbox.post(letter(inbox, 0, round - 1)));
      posted.store(round, std::memory_order_release);
    }
  });
  std::uint64_t unseen = 0;
  for (std::uint64_t round = 1; round <= k_rounds; ++round) {
    const int wakes = port.wakes();
    CHECK(mailbox.empty());  // also takes the sender's cache line, so that its message is slow to come through
    begun.store(round, std::memory_order_release);
    mailbox.wakeup().asleep();
    const bool looked_in_vain = mailbox.empty();
    for (int looks = 0; posted.load(std::memory_order_acquire) < round; ++looks) {
      if (looks > 1000) std::this_thread::yield();
    }
    mailbox.wakeup().awake();
    if (looked_in_vain && port.wakes() == wakes) ++unseen;
    REQUIRE(mailbox.drain(10) == 1);
  }
  sender.join();
  CHECK(unseen == 0);
  CHECK(inbox.faults == 0);
}
