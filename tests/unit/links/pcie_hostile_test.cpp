// SPDX-License-Identifier: Apache-2.0
//
// The cross-memory link and a peer that lies, cannot be reached, or dies: the link ends with a reason, and a third
// process is never touched.
#include <signal.h>
#include <sys/wait.h>

#include <optional>

#include <doctest/doctest.h>

#include "../plain_sink.hpp"
#include "links/pidfd.hpp"
#include "links/sequencer.hpp"
#include "pcie_world.hpp"

using namespace hixl;
using namespace hixl::pcie_test;
using wire::FrameType;

namespace {

/// A peer that speaks frames by hand.
struct Liar final : hixl::test::PlainSink {
  Side& side;
  links::FrameStream stream;
  links::Sequencer sequencer;
  std::optional<wire::PcieOffer> offer;  ///< the victim's
  std::optional<wire::PcieProof> proof;
  std::vector<runtime::Fd> fds;  ///< that came with the offer

  // What an honest peer would offer; tests spoil parts of it.
  std::array<std::uint64_t, 2> words{0x1234567890abcdefU, 0};
  std::uint64_t challenge = 99;
  std::unique_ptr<memory::LaneDoor> door = std::move(*memory::LaneDoor::create(99));
  runtime::Fd process = std::move(*links::own_pidfd());

  Liar(Side& owner, runtime::Fd fd)
      : side(owner),
        stream(owner.port.adopt(std::move(fd)), owner.loop),
        sequencer(stream, {k_session, k_link_id, k_link_gen}, 1024, owner.loop) {
    stream.set_sink(this);
    door->open(k_link_gen);
  }
  void on_frame(const wire::FrameHeader& header, ConstBytes body, std::vector<runtime::Fd>& came) override {
    wire::Ack ack;
    if (header.type == FrameType::ack && decode_body(body, ack)) CHECK(sequencer.on_ack(ack.upto));
    if (header.type == FrameType::pcie_offer) {
      REQUIRE(decode_body(body, offer.emplace()));
      fds = std::move(came);
    }
    if (header.type == FrameType::pcie_proof) REQUIRE(decode_body(body, proof.emplace()));
  }

  template <class Message>
  void say(FrameType type, const Message& message, std::span<const int> with = {}) {
    std::array<std::byte, 4096> buffer;
    ByteWriter writer(buffer);
    encode(message, writer);
    CHECK(sequencer.send_control(type, writer.written(), with));
  }
  [[nodiscard]] std::array<int, 3> honest_fds() {
    return {side.regions->board().window().read_only_fd(), door->window().fd(), process.get()};
  }
  void offer_with(std::span<const int> with, std::uint32_t regions_max = 64) {
    say(FrameType::pcie_offer, wire::PcieOffer{challenge, regions_max, reinterpret_cast<std::uint64_t>(words.data())},
        with);
  }
  void offer_honestly() { offer_with(honest_fds()); }
  void answer_honestly() { say(FrameType::pcie_ready, wire::PcieReady{offer->challenge}); }
  /// Writes into the victim's words, which are of this process, as the kernel would.
  void prove_honestly() {
    const auto* question = reinterpret_cast<const std::uint64_t*>(offer->word_address);
    const_cast<volatile std::uint64_t&>(question[1]) = ~question[0];
    say(FrameType::pcie_proof, wire::PcieProof{});
  }
};

struct Attack {
  std::unique_ptr<Side> victim = make_side(0, 21);
  std::unique_ptr<Side> attacker = make_side(1, 22);
  std::unique_ptr<Liar> liar;

  Attack() {
    auto pair = socket_pair();
    victim->connect(std::move(pair[0]));
    liar = std::make_unique<Liar>(*attacker, std::move(pair[1]));
    REQUIRE(until([&] { return liar->offer.has_value(); }));
    REQUIRE(liar->fds.size() == 3);
  }
  template <class Done>
  [[nodiscard]] bool until(Done&& done) {
    Side* const sides[] = {victim.get(), attacker.get()};
    return drive(sides, done);
  }
  [[nodiscard]] Error end() {
    REQUIRE(until([&] { return victim->record.down == 1; }));
    CHECK(victim->record.up == 0);
    CHECK(victim->record.error.detail.rank == 1);
    CHECK(victim->record.error.detail.link == k_link_id);
    victim->link->close();
    CHECK(until([&] { return victim->link->drained(); }));
    return victim->record.error;
  }
};

/// A process that only waits to be killed.
class Bystander {
 public:
  Bystander() : pid_(fork()) {
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      for (;;) pause();
    }
  }
  ~Bystander() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Bystander(const Bystander&) = delete;
  Bystander& operator=(const Bystander&) = delete;
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  pid_t pid_;
};

}  // namespace

TEST_CASE("pcie set-up: an honest peer, for comparison; nothing is usable before the last step") {
  Attack attack;
  Liar& liar = *attack.liar;
  links::Post post;
  liar.offer_honestly();
  liar.answer_honestly();
  REQUIRE(attack.until([&] { return liar.proof.has_value(); }));
  CHECK(liar.proof->code == 0);
  CHECK(liar.words[1] == ~liar.words[0]);
  CHECK(attack.victim->record.up == 0);
  CHECK(attack.victim->link->post(post) == links::Answer::busy);
  liar.prove_honestly();
  REQUIRE(attack.until([&] { return attack.victim->record.up == 1; }));
  CHECK(attack.victim->record.down == 0);
}

TEST_CASE("pcie set-up: lies") {
  Attack attack;
  Liar& liar = *attack.liar;
  std::array<int, 3> fds = liar.honest_fds();
  ErrorCode expected = ErrorCode::malformed_frame;
  SUBCASE("wrong answer to the challenge") {
    liar.offer_honestly();
    liar.say(FrameType::pcie_ready, wire::PcieReady{liar.offer->challenge + 1});
    expected = ErrorCode::access_denied;
  }
  SUBCASE("a page with another number than offered") {
    liar.challenge = 98;
    liar.offer_honestly();
    expected = ErrorCode::access_denied;
  }
  SUBCASE("no descriptors") { liar.offer_with({}); }
  SUBCASE("one too few") { liar.offer_with(std::span(fds).first(2)); }
  SUBCASE("a board of nothing") { liar.offer_with(fds, 0); }
  SUBCASE("something that is no process") {
    const runtime::Fd event(eventfd(1, EFD_CLOEXEC));
    fds[2] = event.get();
    liar.offer_with(fds);
    expected = ErrorCode::access_denied;
  }
  SUBCASE("words where nothing is mapped") {
    liar.say(FrameType::pcie_offer, wire::PcieOffer{liar.challenge, 64, 4096}, fds);
    liar.answer_honestly();
    expected = ErrorCode::access_denied;
  }
  SUBCASE("a proof without the word") {
    liar.offer_honestly();
    liar.answer_honestly();
    liar.say(FrameType::pcie_proof, wire::PcieProof{});
    expected = ErrorCode::access_denied;
  }
  SUBCASE("a proof before the answer") {
    liar.offer_honestly();
    liar.prove_honestly();
  }
  SUBCASE("an answer before the offer") { liar.answer_honestly(); }
  SUBCASE("two offers") {
    liar.offer_honestly();
    liar.offer_honestly();
  }
  SUBCASE("two answers") {
    liar.offer_honestly();
    liar.answer_honestly();
    liar.answer_honestly();
  }
  SUBCASE("speaks before it has proved itself") {
    liar.offer_honestly();
    liar.answer_honestly();
    liar.say(FrameType::barrier, wire::Barrier{});
  }
  CHECK(attack.end().code == expected);
}

TEST_CASE("pcie set-up: a pidfd of a third process is refused, and that process is left alone") {
  Attack attack;
  const Bystander bystander;  // a copy of this process, with the words at the same place
  const runtime::Fd other(static_cast<int>(syscall(434, bystander.pid(), 0)));  // pidfd_open
  REQUIRE(links::pid_of(other.get()) == bystander.pid());
  auto fds = attack.liar->honest_fds();
  fds[2] = other.get();
  attack.liar->offer_with(fds);
  attack.liar->answer_honestly();
  CHECK(attack.end().code == ErrorCode::access_denied);
  std::array<std::uint64_t, 2> seen{1, 1};
  const memory::ForeignMemory memory(bystander.pid(), other.get());
  const memory::ForeignSegment words{reinterpret_cast<std::byte*>(seen.data()),
                                     reinterpret_cast<std::uint64_t>(attack.liar->words.data()), sizeof seen};
  const auto moved = memory.move(memory::ForeignMemory::Direction::from_peer, memory::host_device(), {&words, 1});
  CHECK(moved.outcome == memory::ForeignMemory::Outcome::done);
  CHECK(seen == std::array<std::uint64_t, 2>{attack.liar->words[0], 0});
}

TEST_CASE("P69 S61 pcie set-up: a peer whose process cannot be named from here: TRANSPORT_UNAVAILABLE on both sides") {
  auto pair = socket_pair();
  auto a = make_side(0, 41), b = make_side(1, 42);
  a->port.peer_pid = 0;  // as the kernel says of a process of another pid namespace
  a->connect(std::move(pair[0]));
  b->connect(std::move(pair[1]));
  Side* const sides[] = {a.get(), b.get()};
  REQUIRE(drive(sides, [&] { return a->record.down == 1 && b->record.down == 1; }));
  for (const Side* side : sides) {
    CHECK(side->record.up == 0);
    CHECK(side->record.error.code == ErrorCode::transport_unavailable);
    CHECK(side->record.error.detail.stage == Stage::handshake);
    CHECK(side->record.error.detail.os_error == ESRCH);
  }
}

TEST_CASE("P69 pcie set-up: the peer is not allowed to reach us: TRANSPORT_UNAVAILABLE with its error number") {
  Attack attack;
  Liar& liar = *attack.liar;
  liar.offer_honestly();
  liar.answer_honestly();
  liar.say(FrameType::pcie_proof, wire::PcieProof{static_cast<std::uint16_t>(ErrorCode::transport_unavailable), EPERM});
  const Error error = attack.end();
  CHECK(error.code == ErrorCode::transport_unavailable);
  CHECK(error.detail.os_error == EPERM);
}

TEST_CASE("P69 pcie set-up: a peer that has refused and closed its gate already is still heard out") {
  Attack attack;
  Liar& liar = *attack.liar;
  liar.door->close();
  liar.offer_honestly();
  liar.answer_honestly();
  liar.say(FrameType::pcie_proof, wire::PcieProof{static_cast<std::uint16_t>(ErrorCode::transport_unavailable), EPERM});
  CHECK(attack.end().code == ErrorCode::transport_unavailable);
  CHECK(liar.words[1] == 0);
}

TEST_CASE("pcie: a peer killed under a stream of copies: each ends, the link breaks, nothing counts afterwards") {
  constexpr std::size_t k_bytes = 64U << 20U;
  auto pair = socket_pair();
  const Plain memory(k_bytes);
  auto side = make_side(0, 31);
  const pid_t parent = getpid();
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    auto theirs = make_side(1, 32);
    theirs->port.peer_pid = parent;
    const auto info = theirs->regions->add(memory.data(), k_bytes, {});
    theirs->connect(std::move(pair[1]));
    pair[0] = {};
    Side* const sides[] = {theirs.get()};
    static_cast<void>(drive(sides, [&] { return theirs->record.up == 1; }));
    if (info) pause();
    _exit(1);
  }
  pair[1] = {};
  side->port.peer_pid = child;
  side->connect(std::move(pair[0]));
  Side* const sides[] = {side.get()};
  REQUIRE(drive(sides, [&] { return side->record.up == 1; }));

  // The child's first region of its table, at the address that it inherited: its board tells the generation.
  const RegionKey key{0, 1};
  const auto base = reinterpret_cast<std::uint64_t>(memory.data());
  REQUIRE(side->remotes.add({1, 1, key, {}, base, k_bytes, Rights::all, 0}));
  std::vector<std::byte> source(k_bytes, std::byte{1});
  const links::Segment segment{source.data(), 0, k_bytes};
  links::Post post;
  post.region = key;
  post.segments = {&segment, 1};
  for (post.cookie = 1; post.cookie <= 4; ++post.cookie) REQUIRE(side->link->post(post) == links::Answer::posted);
  REQUIRE(drive(sides, [&] { return side->record.completion(1) != nullptr; }));
  CHECK(side->record.completion(1)->error.code == ErrorCode::ok);
  kill(child, SIGKILL);
  pollfd died{side->link->pidfd(), POLLIN, 0};
  CHECK(::poll(&died, 1, -1) == 1);
  // One more, posted when the process is known to be dead but its number still means it: it must not count.
  ++post.cookie;
  const links::Answer late = side->link->post(post);
  REQUIRE(drive(sides, [&] { return side->record.completion(4) != nullptr; }));
  REQUIRE(drive(sides, [&] { return side->record.down == 1; }));
  if (late == links::Answer::posted) {
    REQUIRE(drive(sides, [&] { return side->record.completion(post.cookie) != nullptr; }));
    CHECK(side->record.completion(post.cookie)->error.code == ErrorCode::link_failed);
  }
  for (std::uint64_t cookie = 1; cookie <= 4; ++cookie) {
    const ErrorCode code = side->record.completion(cookie)->error.code;
    CHECK((code == ErrorCode::ok || code == ErrorCode::link_failed));
  }
  side->link->close();
  CHECK(drive(sides, [&] { return side->link->drained(); }));
  REQUIRE(waitpid(child, nullptr, 0) == child);
}
