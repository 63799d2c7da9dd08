// SPDX-License-Identifier: Apache-2.0
//
// Channel: messages in their order, whole, never overwritten while held, and the limits of a ring.
#include <doctest/doctest.h>

#include <cstring>
#include <thread>

#include <hixl/channel.hpp>

#include "channel_pair.hpp"
#include "support.hpp"

using namespace hixl;
using namespace hixl::test;
using namespace std::chrono_literals;

namespace {

std::byte pattern(std::uint64_t message, std::uint64_t at) {
  return static_cast<std::byte>(message * 131 + at * 7 + 1);
}

}  // namespace

TEST_CASE("messages of all sizes arrive whole and in order, over every link") {
  for (const auto& links : link_sets()) {
    CAPTURE(text(links));
    Pair pair(links, {.slots = 8, .bytes = 16384});
    auto source = pair.world[0].allocate(8192);
    require_ok(source);
    const int messages = rounds(2000);
    std::thread sending([&] {
      for (int i = 0; i < messages; ++i) {
        const std::uint64_t size = static_cast<std::uint64_t>(i) * 977 % 8193;
        for (std::uint64_t at = 0; at < size; ++at) source->data[at] = pattern(static_cast<std::uint64_t>(i), at);
        require_ok(pair.a->sender().send(source->data, size, k_patience));
      }
    });
    for (int i = 0; i < messages; ++i) {
      const auto message = pair.b->receiver().receive(k_patience);
      require_ok(message);
      const auto number = static_cast<std::uint64_t>(i);
      REQUIRE(message->number == number);
      REQUIRE(message->size == number * 977 % 8193);
      for (std::uint64_t at = 0; at < message->size; ++at) REQUIRE(message->data[at] == pattern(number, at));
      require_ok(pair.b->receiver().release(message->number));
    }
    sending.join();
  }
}

TEST_CASE("posted messages arrive in order, however their pieces travel") {
  Pair pair({LinkKind::tcp}, {.slots = 64, .bytes = 1U << 20U});
  auto source = pair.world[0].allocate(64 * 8192);
  require_ok(source);
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const std::uint64_t size = i % 2 == 0 ? 8192 : 8;
    std::memset(source->data + i * 8192, static_cast<int>(i + 1), size);
    auto request = pair.a->sender().post(source->data + i * 8192, size);
    require_ok(request);
    requests.push_back(*request);
  }
  for (std::uint64_t i = 0; i < 60; ++i) {
    const auto message = pair.b->receiver().receive(k_patience);
    require_ok(message);
    CHECK(all_bytes(message->data, message->size, static_cast<std::byte>(i + 1)));
  }
  require_ok(wait_all(requests, k_patience));
}

TEST_CASE("a full ring: post is BUSY, send waits until its deadline, and goes on when room was given back") {
  Pair pair({}, {.slots = 4, .bytes = 4096});
  const char text[8] = "message";
  for (int i = 0; i < 4; ++i) require_ok(pair.a->sender().send(text, sizeof text));
  CHECK(code_of(pair.a->sender().post(text, sizeof text)) == ErrorCode::busy);
  CHECK(code_of(pair.a->sender().send(text, sizeof text, 20ms)) == ErrorCode::deadline_exceeded);
  Message held[4];
  for (Message& message : held) message = *pair.b->receiver().receive(k_patience);
  require_ok(pair.b->receiver().release(held[2].number));  // out of order: still held by the first
  CHECK(code_of(pair.a->sender().send(text, sizeof text, 20ms)) == ErrorCode::deadline_exceeded);
  CHECK(std::memcmp(held[0].data, text, sizeof text) == 0);
  std::thread sending([&] { require_ok(pair.a->sender().send("another", 8, k_patience)); });
  require_ok(pair.b->receiver().release(held[0].number));
  const auto next = pair.b->receiver().receive(k_patience);
  sending.join();
  require_ok(next);
  CHECK(std::memcmp(next->data, "another", 8) == 0);
  CHECK(code_of(pair.b->receiver().release(held[0].number)) == ErrorCode::invalid_argument);
  CHECK(code_of(pair.b->receiver().release(99)) == ErrorCode::invalid_argument);
}

TEST_CASE("memory of the program is copied up to 4 KiB, and must be registered beyond") {
  Pair pair;
  std::vector<char> text(8192, 'x');
  require_ok(pair.a->sender().send(text.data(), 4096));
  CHECK(code_of(pair.a->sender().send(text.data(), 4097)) == ErrorCode::not_registered);
  CHECK(code_of(pair.a->sender().send(nullptr, 8)) == ErrorCode::invalid_argument);
  CHECK(code_of(pair.a->sender().send(text.data(), (4U << 20U) / 2 + 1)) == ErrorCode::invalid_argument);
  const auto message = pair.b->receiver().receive(k_patience);
  require_ok(message);
  CHECK(message->size == 4096);
  CHECK(code_of(pair.b->receiver().receive(0ms)) == ErrorCode::deadline_exceeded);
}

TEST_CASE("a sender that attaches anew goes on behind what nobody has read") {
  World world(2);
  const RingShape shape{.slots = 8, .bytes = 4096};
  auto region = world[1].allocate(shape.region_bytes());
  require_ok(region);
  const auto receiver = MessageReceiver::create(world[1], *region, 0, shape);
  require_ok(receiver);
  auto dummy = world[0].allocate(4096);
  require_ok(dummy);
  const auto known = world.exchange_all({*dummy, *region});
  const RemoteAddress ring = known[0][1].at(0);
  for (std::uint64_t life = 0; life < 20; ++life) {
    const auto sender = MessageSender::attach(world[0], ring, shape);
    require_ok(sender);
    for (std::uint64_t i = 0; i < 3; ++i) {
      const std::uint64_t value = life * 3 + i;
      require_ok((*sender)->send(&value, sizeof value));
    }
    for (std::uint64_t i = 0; i < 3 && life % 2 == 1; ++i) {  // six unread at most
      for (int twice = 0; twice < 2; ++twice) {
        const auto message = (*receiver)->receive(k_patience);
        require_ok(message);
        std::uint64_t value = 0;
        std::memcpy(&value, message->data, sizeof value);
        CHECK(value == message->number);
        require_ok((*receiver)->release(message->number));
      }
    }
  }
}

TEST_CASE("wrong shapes, a second channel, a peer that does not connect") {
  World world(2);
  CHECK(code_of(Channel::connect(world[0], 1, {.slots = 0}, 1s)) == ErrorCode::invalid_argument);
  CHECK(code_of(Channel::connect(world[0], 1, {.bytes = 100}, 1s)) == ErrorCode::invalid_argument);
  CHECK(code_of(Channel::connect(world[0], 2, {}, 1s)) == ErrorCode::rank_out_of_range);
  CHECK(code_of(Channel::connect(world[0], 1, {}, 50ms)) == ErrorCode::deadline_exceeded);
  Pair pair;
  CHECK(code_of(Channel::connect(pair.world[0], 1, {}, 1s)) == ErrorCode::invalid_argument);
}
