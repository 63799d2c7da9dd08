// SPDX-License-Identifier: Apache-2.0
//
// The window link and a peer that lies: every lie ends the link with a reason, and never this process. And a peer that
// dies.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <functional>
#include <optional>

#include <doctest/doctest.h>

#include "../plain_sink.hpp"
#include "hccs_world.hpp"
#include "links/pidfd.hpp"
#include "links/sequencer.hpp"

using namespace hixl;
using namespace hixl::hccs_test;

namespace {

/// A peer that speaks frames by hand.
struct Liar final : hixl::test::PlainSink {
  Side& side;
  links::FrameStream stream;
  links::Sequencer sequencer;
  std::optional<wire::HccsOffer> offer;  ///< the victim's
  std::vector<runtime::Fd> fds;          ///< that came with it
  std::vector<wire::FrameType> seen;

  // What an honest peer would offer; tests spoil parts of it.
  std::uint64_t challenge = 99;
  std::unique_ptr<memory::LaneDoor> door = std::move(*memory::LaneDoor::create(99));
  runtime::Fd process = std::move(*links::own_pidfd());

  Liar(Side& owner, runtime::Fd fd)
      : side(owner),
        stream(owner.port.adopt(std::move(fd)), owner.loop),
        sequencer(stream, {k_session, k_link_id, k_link_gen}, 1024, owner.loop) {
    stream.set_sink(this);
  }
  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& came) override {
    seen.push_back(header.type);
    wire::Ack ack;
    if (header.type == wire::FrameType::ack && decode_body(body, ack)) CHECK(sequencer.on_ack(ack.upto));
    if (header.type == wire::FrameType::hccs_offer) {
      wire::HccsOffer message;
      REQUIRE(decode_body(body, message));
      offer = message;
      fds = std::move(came);
    }
  }

  template <class Message>
  void say(wire::FrameType type, const Message& message, std::span<const int> with = {}) {
    std::array<std::byte, 4096> buffer;
    ByteWriter writer(buffer);
    encode(message, writer);
    CHECK(sequencer.send_control(type, writer.written(), with));
  }
  [[nodiscard]] std::array<int, 4> honest_fds() {
    return {side.regions->board().window().read_only_fd(), door->window().fd(), side.signals->window().fd(),
            process.get()};
  }
  void offer_with(std::span<const int> with, std::uint32_t regions_max = 64) {
    say(wire::FrameType::hccs_offer, wire::HccsOffer{challenge, regions_max}, with);
  }
  void offer_honestly() { offer_with(honest_fds()); }
  void answer_honestly() { say(wire::FrameType::hccs_ready, wire::HccsReady{offer->challenge}); }
};

struct Attack {
  Side victim{0, 21};
  Side attacker{1, 22};
  std::unique_ptr<Liar> liar;

  Attack() {
    auto pair = socket_pair();
    victim.connect(std::move(pair[0]));
    liar = std::make_unique<Liar>(attacker, std::move(pair[1]));
    REQUIRE(until([&] { return liar->offer.has_value(); }));
    REQUIRE(liar->fds.size() == 4);
  }
  template <class Done>
  [[nodiscard]] bool until(Done&& done) {
    Side* const sides[] = {&victim, &attacker};
    return drive(sides, done);
  }
  void set_up() {
    liar->offer_honestly();
    liar->answer_honestly();
    REQUIRE(until([&] { return victim.record.up == 1; }));
  }
  [[nodiscard]] ErrorCode end() {
    REQUIRE(until([&] { return victim.record.down == 1; }));
    return victim.record.error.code;
  }
};

runtime::Fd unsealed_memfd(std::size_t bytes) {
  runtime::Fd fd(memfd_create("hixl-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  return fd;
}

}  // namespace

TEST_CASE("hccs set-up: an honest peer, for comparison") {
  Attack attack;
  attack.set_up();
  CHECK(attack.victim.link->lane() != nullptr);
  CHECK(attack.victim.link->bell() != nullptr);
  CHECK(attack.victim.record.down == 0);
}

TEST_CASE("P35 hccs set-up: nothing is usable before both halves are done") {
  Attack attack;
  Liar& liar = *attack.liar;
  const auto heard = [&] { return liar.sequencer.acked() == 1; };
  SUBCASE("only the offer") {
    liar.offer_honestly();
    REQUIRE(attack.until(heard));
    // This side has answered; the peer, which may be up with that, stores from now on.
    REQUIRE(liar.seen.back() != wire::FrameType::hccs_offer);
    auto lane = std::move(*memory::Lane::open(liar.fds[1].get(), liar.fds[0].get(), 64, k_link_gen));
    const auto region = *attack.victim.regions->allocate(8, {});
    CHECK(lane->run(region.key, [] {}) == memory::Lane::Outcome::done);
  }
  SUBCASE("only the answer") {
    liar.answer_honestly();
    REQUIRE(attack.until(heard));
  }
  CHECK(attack.victim.record.up == 0);
  CHECK(attack.victim.record.down == 0);
  CHECK(attack.victim.link->lane() == nullptr);
  CHECK(attack.victim.link->bell() == nullptr);
  links::Post post;
  CHECK(attack.victim.link->post(post) == links::Answer::busy);
}

TEST_CASE("hccs set-up: what this side shares can be written only where it must") {
  Attack attack;
  CHECK(!memory::MappedWindow::map(attack.liar->fds[0].get(), 64 * 4, true));  // the board
  CHECK(memory::MappedWindow::map(attack.liar->fds[0].get(), 64 * 4, false));
  CHECK(memory::MappedWindow::map(attack.liar->fds[1].get(), 4096, true));
}

TEST_CASE("hccs set-up: lies") {
  Attack attack;
  Liar& liar = *attack.liar;
  std::array<int, 4> fds = liar.honest_fds();
  ErrorCode expected = ErrorCode::malformed_frame;
  SUBCASE("wrong answer to the challenge") {
    liar.offer_honestly();
    liar.say(wire::FrameType::hccs_ready, wire::HccsReady{liar.offer->challenge + 1});
    expected = ErrorCode::access_denied;
  }
  SUBCASE("a page with another number than offered") {
    liar.challenge = 98;
    liar.offer_honestly();
    expected = ErrorCode::access_denied;
  }
  SUBCASE("no descriptors") { liar.offer_with({}); }
  SUBCASE("one too few") { liar.offer_with(std::span(fds).first(3)); }
  SUBCASE("one too many") {
    const std::array<int, 5> five{fds[0], fds[1], fds[2], fds[3], fds[3]};
    liar.offer_with(five);
  }
  SUBCASE("descriptors in another order") {
    std::swap(fds[0], fds[3]);
    liar.offer_with(fds);
    expected = ErrorCode::access_denied;
  }
  SUBCASE("an unsealed board") {
    const auto fd = unsealed_memfd(4096);
    fds[0] = fd.get();
    liar.offer_with(fds);
    expected = ErrorCode::access_denied;
  }
  SUBCASE("an unsealed lane page") {
    const auto fd = unsealed_memfd(4096);
    fds[1] = fd.get();
    liar.offer_with(fds);
    expected = ErrorCode::access_denied;
  }
  SUBCASE("an unsealed signal page") {
    const auto fd = unsealed_memfd(4096);
    fds[2] = fd.get();
    liar.offer_with(fds);
    expected = ErrorCode::access_denied;
  }
  SUBCASE("a board shorter than it says") {
    liar.offer_with(fds, 1U << 20U);
    expected = ErrorCode::access_denied;
  }
  SUBCASE("a board beyond all limits") { liar.offer_with(fds, ~0U); }
  SUBCASE("a board of nothing") { liar.offer_with(fds, 0); }
  SUBCASE("something that is no process") {
    const runtime::Fd event(eventfd(1, EFD_CLOEXEC));
    fds[3] = event.get();
    liar.offer_with(fds);
    expected = ErrorCode::access_denied;
  }
  SUBCASE("two offers") {
    liar.offer_honestly();
    liar.offer_honestly();
  }
  SUBCASE("two answers") {
    liar.answer_honestly();
    liar.answer_honestly();
  }
  SUBCASE("a body that is too short") { liar.say(wire::FrameType::hccs_offer, wire::WindowRequest{1}, fds); }
  SUBCASE("speaks before it has answered") { liar.say(wire::FrameType::barrier, wire::Barrier{}); }
  CHECK(attack.end() == expected);
  CHECK(attack.victim.record.up == 0);
  CHECK(attack.victim.record.error.detail.rank == 1);
  CHECK(attack.victim.record.error.detail.link == k_link_id);
  attack.victim.link->close();
  CHECK(attack.until([&] { return attack.victim.link->drained(); }));
}

TEST_CASE("hccs: lies after set-up") {
  Attack attack;
  attack.set_up();
  Liar& liar = *attack.liar;
  std::array<std::byte, 16> payload{};
  SUBCASE("another set-up") { liar.offer_honestly(); }
  SUBCASE("a window that nobody asked for") {
    const int fd = liar.door->window().fd();
    liar.say(wire::FrameType::window, wire::WindowBody{3, 4096, 0}, {&fd, 1});
  }
  SUBCASE("a write, which this kind does not have") { liar.say(wire::FrameType::write, wire::Ack{0}); }
  SUBCASE("a nack") { liar.say(wire::FrameType::nack, wire::Nack{}); }
  SUBCASE("acknowledges what was never sent") { liar.say(wire::FrameType::ack, wire::Ack{1000}); }
  SUBCASE("a window request without a window") { liar.say(wire::FrameType::window_request, wire::Ack{1}); }
  SUBCASE("bulk payload") {
    const iovec piece{payload.data(), payload.size()};
    const wire::FrameHeader header = liar.sequencer.next_header(wire::FrameType::barrier);
    CHECK(liar.stream.send(header, {}, std::span(&piece, 1), 0));
  }
  CHECK(attack.end() == ErrorCode::malformed_frame);
  CHECK(attack.victim.record.control.empty());
}

TEST_CASE("S31 hccs: answers about windows that do not hold water") {
  Attack attack;
  attack.set_up();
  Liar& liar = *attack.liar;
  wire::RegionDescriptor region;
  region.key = {1, 1};
  region.window_id = 5;
  region.length = 4096;
  REQUIRE(attack.victim.remotes.add({1, 1, region.key, {}, 4096, 4096, Rights::all, 0}));
  REQUIRE(attack.victim.link->attach(region) == links::Answer::posted);
  const auto attached = [&] {
    REQUIRE(attack.until([&] { return attack.victim.record.attached.size() == 1; }));
    CHECK(attack.victim.remotes.mapping(region.key) == nullptr);
    CHECK(attack.victim.record.down == 0);
    return attack.victim.record.attached[0].second.error().code;
  };
  SUBCASE("unsealed") {
    const auto fd = unsealed_memfd(4096);
    const int raw = fd.get();
    liar.say(wire::FrameType::window, wire::WindowBody{5, 4096, 0}, {&raw, 1});
    CHECK(attached() == ErrorCode::access_denied);
  }
  SUBCASE("shorter than said") {
    const int raw = liar.door->window().fd();
    liar.say(wire::FrameType::window, wire::WindowBody{5, 1ULL << 40U, 0}, {&raw, 1});
    CHECK(attached() == ErrorCode::access_denied);
  }
  SUBCASE("no bytes") {
    const int raw = liar.door->window().fd();
    liar.say(wire::FrameType::window, wire::WindowBody{5, 0, 0}, {&raw, 1});
    CHECK(attack.end() == ErrorCode::malformed_frame);
  }
  SUBCASE("smaller than its region") {
    region.length = 4097;
    const int raw = liar.door->window().fd();
    REQUIRE(attack.victim.link->attach(region) == links::Answer::posted);
    liar.say(wire::FrameType::window, wire::WindowBody{5, 4096, 0}, {&raw, 1});
    REQUIRE(attack.until([&] { return attack.victim.record.attached.size() == 2; }));
    CHECK(attack.victim.record.attached[0].second);
    CHECK(attack.victim.record.attached[1].second.error().code == ErrorCode::out_of_range);
  }
  SUBCASE("no descriptor") {
    liar.say(wire::FrameType::window, wire::WindowBody{5, 4096, 0});
    CHECK(attack.end() == ErrorCode::malformed_frame);
  }
  SUBCASE("an error that is none") {
    liar.say(wire::FrameType::window, wire::WindowBody{5, 4096, 9999});
    CHECK(attack.end() == ErrorCode::malformed_frame);
  }
}

TEST_CASE("hccs: a flood of requests ends the link, not this process") {
  Attack attack;
  attack.set_up();
  // The answers are never acknowledged, so they wait for credit.
  std::uint32_t asked = 0;
  CHECK(attack.until([&] {
    for (int i = 0; i < 64 && attack.victim.record.down == 0; ++i) {
      std::array<std::byte, 8> body;
      ByteWriter writer(body);
      encode(wire::WindowRequest{++asked}, writer);
      const wire::FrameHeader header = attack.liar->sequencer.next_header(wire::FrameType::window_request);
      if (!attack.liar->stream.send(header, writer.written())) return true;
    }
    return attack.victim.record.down == 1;
  }));
  CHECK(attack.victim.record.error.code == ErrorCode::limit_reached);
}

TEST_CASE("hccs: a peer that scribbles over its lane page") {
  Attack attack;
  attack.set_up();
  auto page = std::move(*memory::MappedWindow::map(attack.liar->fds[1].get(), 4096, true));
  std::fill_n(page->data(), page->size(), std::byte{1});
  // It only makes this side wait, until the peer is known to be dead: here both are this process, which lives.
  CHECK(!attack.victim.link->revoke({0x01010100, 1}));
  attack.victim.link->close();
  CHECK(!attack.victim.link->drained());
}

TEST_CASE("hccs: a peer that is killed: its pidfd tells, and its slots block nobody") {
  auto pair = socket_pair();
  int ready[2];
  REQUIRE(pipe2(ready, O_CLOEXEC) == 0);
  Side side(0, 31);
  const auto region = *side.regions->allocate(4096, {});
  const RegionKey region_key = region.key;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Side theirs(1, 32);
    theirs.connect(std::move(pair[1]));
    pair[0] = {};
    Side* const sides[] = {&theirs};
    static_cast<void>(drive(sides, [&] { return theirs.record.up == 1; }));
    // Dies with its announcement standing, in the middle of a copy so to say.
    static_cast<void>(theirs.link->lane()->run(region_key, [&] {
      static_cast<void>(!::write(ready[1], "r", 1));
      for (;;) pause();
    }));
    static_cast<void>(!::write(ready[1], "x", 1));
    _exit(1);
  }
  pair[1] = {};
  side.connect(std::move(pair[0]));
  Side* const sides[] = {&side};
  REQUIRE(drive(sides, [&] { return side.record.up == 1; }));
  char state = 0;
  REQUIRE(::read(ready[0], &state, 1) == 1);
  REQUIRE(state == 'r');
  REQUIRE(side.link->pidfd() >= 0);
  CHECK(!links::process_ended(side.link->pidfd()));
  REQUIRE(*side.regions->close(region.key));
  CHECK(!side.link->revoke(region.key));

  kill(child, SIGKILL);
  pollfd died{side.link->pidfd(), POLLIN, 0};
  CHECK(::poll(&died, 1, -1) == 1);
  CHECK(side.link->revoke(region.key));
  CHECK(drive(sides, [&] { return side.record.down == 1; }));
  side.link->close();
  CHECK(side.link->drained());
  REQUIRE(waitpid(child, nullptr, 0) == child);
  close(ready[0]);
  close(ready[1]);
}
