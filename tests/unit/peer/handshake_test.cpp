// SPDX-License-Identifier: Apache-2.0
//
// Hellos of strangers, of old lives, of liars; and what a fence request may do.
#include "peer_world.hpp"
#include "stranger.hpp"

using namespace hixl;
using namespace hixl::peer::test;

namespace {

constexpr Incarnation k_life = 4711;
constexpr Rank k_player = 2;  // the rank that strangers claim to be

wire::RejectReason reason_of(const Stranger& stranger) {
  REQUIRE(stranger.reject.has_value());
  REQUIRE_FALSE(stranger.welcome.has_value());
  return stranger.reject->reason;
}

}  // namespace

TEST_CASE("a hello that is meant for somebody else, or comes from nobody, is refused with the reason (P36)") {
  PeerWorld world(51, 2, false, 1);
  Stranger stranger(world, "stranger");
  wire::Hello hello = Stranger::hello_to(world[0], k_player, k_life);
  auto expected = wire::RejectReason::wrong_peer;
  SUBCASE("another peer on a reused port") { hello.target_peer_id.low += 1; }
  SUBCASE("an earlier life of this rank") {
    hello.target_incarnation += 1;
    expected = wire::RejectReason::wrong_incarnation;
  }
  SUBCASE("a rank out of range") {
    hello.rank = 3;
    expected = wire::RejectReason::bad_rank;
  }
  SUBCASE("this rank itself") {
    hello.rank = 0;
    expected = wire::RejectReason::bad_rank;
  }
  SUBCASE("the last generation, after which no other could come") {
    hello.link_gen = 0xffffffff;
    expected = wire::RejectReason::bad_rank;
  }
  SUBCASE("the last session") {
    hello.session = 0xffffffff;
    expected = wire::RejectReason::bad_rank;
  }
  SUBCASE("a link that does not exist here") {
    hello.link_id = 99;
    expected = wire::RejectReason::kind_off;
  }
  SUBCASE("a link of another kind") {
    hello.kind = LinkKind::hccs;
    expected = wire::RejectReason::kind_off;
  }
  stranger.say(world[0], hello);
  CHECK(reason_of(stranger) == expected);
  CHECK(world[0].downs.empty());
}

TEST_CASE("a hello that is played back harms nobody (P36)") {
  PeerWorld world(52, 2, false, 1);
  Stranger stranger(world, "stranger");
  const wire::Hello hello = Stranger::hello_to(world[0], k_player, k_life);
  stranger.say(world[0], hello);
  REQUIRE(stranger.welcome.has_value());
  const SessionId session = stranger.welcome->session;
  CHECK(session == 1);
  world.world.run_for(milliseconds(5));
  CHECK(world[0].links_up(k_player) == 1);
  {
    Stranger replay(world, "replay");
    replay.say(world[0], hello);
    CHECK(reason_of(replay) == wire::RejectReason::duplicate_dial);
    CHECK(replay.reject->session == session);
    // The same as a joiner, of this generation and of the one before.
    wire::Hello joining = hello;
    joining.join = 1;
    joining.session = session;
    replay.say(world[0], joining);
    CHECK(reason_of(replay) == wire::RejectReason::old_generation);
    CHECK(replay.reject->link_gen == 1);
    joining.session = session + 1;
    joining.link_gen = 2;
    replay.say(world[0], joining);
    CHECK(reason_of(replay) == wire::RejectReason::dead);
  }
  CHECK(world[0].links_up(k_player) == 1);
  CHECK_FALSE(stranger.down);
  CHECK(world[0].downs.empty());
}

TEST_CASE("a life that was replaced is refused for good") {
  PeerWorld world(53, 2, false, 1);
  Stranger old(world, "old");
  Stranger young(world, "young");
  old.say(world[0], Stranger::hello_to(world[0], k_player, k_life));
  REQUIRE(old.welcome.has_value());
  wire::Hello hello = Stranger::hello_to(world[0], k_player, k_life + 1, 2);
  hello.link_gen = 2;
  young.say(world[0], hello);
  REQUIRE(young.welcome.has_value());
  world.world.run_for(milliseconds(5));
  CHECK(old.down);
  CHECK(world[0].downs == std::vector{ErrorCode::peer_lost});
  hello = Stranger::hello_to(world[0], k_player, k_life);
  hello.link_gen = 3;
  old.say(world[0], hello);
  CHECK(reason_of(old) == wire::RejectReason::dead);
  CHECK_FALSE(young.down);
}

TEST_CASE("S9 a hello of a dead predecessor that was never heard of, however late, ends nothing") {
  PeerWorld world(59, 2, false, 1);
  Stranger young(world, "young");
  young.say(world[0], Stranger::hello_to(world[0], k_player, k_life, 7));
  REQUIRE(young.welcome.has_value());
  world.world.run_for(milliseconds(5));
  Stranger old(world, "old");
  for (const Birth birth : {Birth{1}, Birth{6}}) {
    for (const std::uint8_t join : {std::uint8_t{0}, std::uint8_t{1}}) {
      wire::Hello hello = Stranger::hello_to(world[0], k_player, k_life + birth, birth);
      hello.link_gen = 9;
      hello.session = 4;
      hello.join = join;
      old.say(world[0], hello);
      CHECK(reason_of(old) == wire::RejectReason::dead);
    }
  }
  // Nor does one that claims to be the life that is here.
  old.say(world[0], Stranger::hello_to(world[0], k_player, k_life + 1, 7));
  CHECK(reason_of(old) == wire::RejectReason::wrong_incarnation);
  CHECK_FALSE(young.down);
  CHECK(world[0].links_up(k_player) == 1);
  CHECK(world[0].downs.empty());
}

TEST_CASE("a rank that does not know its birth yet neither dials nor lets anybody in, and nothing is lost by it") {
  PeerWorld world(60);
  const Birth birth = std::exchange(world[0].services->birth, 0);
  auto& one = world[0].exchange(world[1]);
  auto& other = world[1].exchange(world[0]);
  world.world.run_for(seconds(3));
  CHECK(world[0].dials() == 0);
  CHECK(world[1].dials() > 0);
  CHECK(world[0].directory->peers().front()->reach().words == nullptr);
  CHECK((one.ends == 0 && other.ends == 0));
  world[0].services->birth = birth;
  REQUIRE(world.run([&] { return one.ends > 0 && other.ends > 0; }, seconds(10)));
  CHECK((one.answer.result.has_value() && other.answer.result.has_value()));
}

TEST_CASE("who joins a session that is not known here names it: its welcome to us is still on the way") {
  PeerWorld world(58, 2, false, 1);
  Stranger stranger(world, "stranger");
  wire::Hello hello = Stranger::hello_to(world[0], k_player, k_life);
  hello.join = 1;
  hello.session = 5;
  stranger.say(world[0], hello);
  REQUIRE(stranger.welcome.has_value());
  CHECK(stranger.welcome->session == 5);
}

TEST_CASE("a session whose links never come up ends as a connection that did not come about, not as a loss") {
  PeerWorld world(63, 2, true, 1);
  Stranger stranger(world, "stranger");
  stranger.say(world[0], Stranger::hello_to(world[0], k_player, k_life));  // and does nothing of its link's set-up
  REQUIRE(stranger.welcome.has_value());
  ExchangeJob wait;
  wait.life = &world[0];
  world[0].to(k_player).exchange({world[0].region}, {.deadline = world.world.now() + seconds(30),
                                                     .done =
                                                         [](void* context, PeerAddresses&& answer) {
                                                           static_cast<ExchangeJob*>(context)->ends += 1;
                                                           static_cast<ExchangeJob*>(context)->answer =
                                                               std::move(answer);
                                                         },
                                                     .context = &wait,
                                                     .stream = {.group = 0}});
  REQUIRE(world.run([&] { return wait.ends > 0; }, seconds(10)));
  const Error& error = wait.answer.result.error();
  CHECK(error.code == ErrorCode::connect_timeout);
  CHECK(error.detail.stage == Stage::handshake);
  CHECK(error.detail.rank == k_player);
  CHECK(world[0].downs == std::vector{ErrorCode::connect_timeout});
  CHECK(world[0].counters.peers_lost == 0);
}

TEST_CASE("numbers near their end: nothing wraps and nothing aborts") {
  PeerWorld world(54, 2, false, 1);
  Stranger liar(world, "liar");
  wire::Hello hello = Stranger::hello_to(world[0], k_player, k_life);
  hello.link_gen = 0xfffffffe;
  liar.say(world[0], hello);
  REQUIRE(liar.welcome.has_value());
  world.world.run_for(milliseconds(5));
  // The next life begins anew; its small number is told to be too small, whatever it makes of it.
  hello = Stranger::hello_to(world[0], k_player, k_life + 1, 2);
  liar.say(world[0], hello);
  CHECK(reason_of(liar) == wire::RejectReason::old_generation);
  hello.session = 0xfffffffe;
  hello.link_gen = 0xfffffffe;
  liar.say(world[0], hello);
  CHECK(reason_of(liar) == wire::RejectReason::old_generation);
}

TEST_CASE("fence requests: any link, any generation, any number of them") {
  PeerWorld world(55, 2, false, 1);
  Stranger liar(world, "liar");
  liar.say(world[0], Stranger::hello_to(world[0], k_player, k_life));
  REQUIRE(liar.welcome.has_value());
  world.world.run_for(milliseconds(5));
  for (std::uint32_t i = 0; i < 20; ++i) {
    const LinkId link = i % 2 == 0 ? 10 : 99;
    liar.send(wire::FrameType::fence_request,
              wire::FenceRequest{.link_id = link, .link_gen = 0xffffffff - i, .reason = 0, .executed = {}});
  }
  world.world.run_for(milliseconds(50));
  CHECK_FALSE(liar.down);
  for (const wire::FrameHeader& frame : liar.frames) {
    CHECK((frame.type == wire::FrameType::fence_answer || frame.type == wire::FrameType::ack ||
           frame.type == wire::FrameType::ping));
  }
  // A fence of the generation that stands closes it; the answer has nowhere to go on this only link.
  liar.send(wire::FrameType::fence_request,
            wire::FenceRequest{.link_id = 10, .link_gen = 1, .reason = 0, .executed = {}});
  REQUIRE(world.run([&] { return liar.down; }, seconds(1)));
  CHECK(world[0].links_up(k_player) == 0);
}

TEST_CASE("control frames that are not understood end their link, and no more") {
  PeerWorld world(56, 2, false, 1);
  Stranger liar(world, "liar");
  liar.say(world[0], Stranger::hello_to(world[0], k_player, k_life));
  REQUIRE(liar.welcome.has_value());
  world.world.run_for(milliseconds(5));
  liar.send(wire::FrameType::exchange, wire::ExchangeAck{.number = 1});  // the body of another message
  REQUIRE(world.run([&] { return liar.down; }, seconds(1)));
  CHECK(world[0].links_up(k_player) == 0);
  world.meet(0, 1);
}

TEST_CASE("connections that say nothing are bounded and end") {
  PeerWorld world(57);
  struct Silent final : runtime::StreamEvents {
    void on_connected(const Result<void>&) override {}
    void on_readable() override {
      std::byte room[8];
      const iovec piece{room, sizeof(room)};
      const auto result = stream->read(std::span(&piece, 1));
      ended =
          ended || result.state == runtime::IoResult::State::closed || result.state == runtime::IoResult::State::failed;
    }
    void on_writable() override {}
    std::unique_ptr<runtime::Stream> stream;
    bool ended = false;
  };
  runtime::EventPort& port = world.world.make_port("crowd");
  runtime::Loop loop(port, 1, 16);
  world.world.add(loop, port);
  std::deque<Silent> crowd(peer::k_greetings_max + 10);
  const auto come = [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      Silent& one = crowd[i];
      one.stream = *port.connect(*runtime::Address::parse(world[0].endpoints.addresses.front()), seconds(5), one);
    }
    world.world.run_for(milliseconds(100));
  };
  const auto ended = [](const Silent& one) { return one.ended; };
  come(0, peer::k_greetings_max);
  CHECK(std::none_of(crowd.begin(), crowd.end(), ended));
  // Whoever came first gives way to those who come last, so that a peer among them is heard.
  come(peer::k_greetings_max, crowd.size());
  CHECK(std::count_if(crowd.begin(), crowd.end() - 10, ended) == 10);
  CHECK(std::none_of(crowd.end() - 10, crowd.end(), ended));
  world.world.run_for(seconds(3));
  CHECK(std::all_of(crowd.begin(), crowd.end(), ended));
  world.meet(0, 1);
  crowd.clear();
  world.world.remove(port);
}

namespace {

/// A stranger with a region of its own, and work to it.
struct Target {
  explicit Target(PeerWorld& in) : world(in), stranger(in, "target") {
    hello = Stranger::hello_to(world[0], k_player, k_life);
    stranger.say(world[0], hello);
    REQUIRE(stranger.welcome.has_value());
    hello.session = stranger.welcome->session;
    hello.join = 1;
    wire::Exchange exchange;
    exchange.number = exchange.total = 1;
    exchange.regions.push_back(region);
    stranger.send(wire::FrameType::exchange, exchange);
    world.world.run_for(milliseconds(5));
  }
  Job& signal() {
    Job& job = *world[0].jobs.emplace_back(std::make_unique<Job>());
    job.operation.slot = static_cast<std::uint32_t>(world[0].jobs.size() - 1);
    job.operation.rank = k_player;
    job.operation.single = {.verb = TransferVerb::put,
                            .local = world[0].memory.data(),
                            .device = &memory::host_device(),
                            .region = region.key,
                            .token = region.token,
                            .size = 0};
    job.operation.signal = {.wanted = true,
                            .verb = links::Verb::signal_add,
                            .region = region.key,
                            .token = region.token,
                            .offset = 0,
                            .value = 1};
    job.operation.deadline = world.world.now() + seconds(30);
    peer::PeerActor& actor = world[0].to(k_player);
    job.operation.place = world[0].directory->memory(k_player)->order.place_of_transfer();
    actor.post(job.operation);
    world[0].wake();
    return job;
  }
  [[nodiscard]] std::size_t count(wire::FrameType type) const {
    return static_cast<std::size_t>(std::count_if(stranger.frames.begin(), stranger.frames.end(),
                                                  [&](const wire::FrameHeader& frame) { return frame.type == type; }));
  }
  PeerWorld& world;
  Stranger stranger;
  wire::Hello hello;
  wire::RegionDescriptor region{.key = {.id = 1, .generation = 1},
                                .token = {.high = 1, .low = 2},
                                .base = 4096,
                                .length = 4096,
                                .rights = Rights::read | Rights::write | Rights::atomic};
};

}  // namespace

TEST_CASE("H2, R3 a hello that was said before a generation was opened does not tell what became of that one") {
  PeerWorld world(61, 2, false, 1);
  Target target(world);
  Job& add = target.signal();
  REQUIRE(world.run([&] { return target.count(wire::FrameType::signal) == 1; }, seconds(1)));
  const LinkSeq sent_as = target.stranger.frames.back().link_seq;
  // It is executed there, the answer is lost, and a hello from before arrives.
  target.hello.link_gen = 5;
  target.hello.opened_gen = 0;
  target.stranger.say(world[0], target.hello);
  REQUIRE(target.stranger.welcome.has_value());
  REQUIRE(world.run([&] { return target.count(wire::FrameType::fence_request) > 0; }, seconds(1)));
  CHECK(target.count(wire::FrameType::signal) == 1);  // not once more
  CHECK_FALSE(add.ended());
  wire::FenceAnswer answer{.link_id = 10, .link_gen = 1, .executed = {}};
  answer.executed.record(sent_as, true);
  target.stranger.send(wire::FrameType::fence_answer, answer);
  REQUIRE(world.run([&] { return add.ended(); }, seconds(1)));
  CHECK(add.code == ErrorCode::ok);
  CHECK(target.count(wire::FrameType::signal) == 1);
}

TEST_CASE("R4 a hello that knows of the generation settles it: what it does not name was not executed") {
  PeerWorld world(62, 2, false, 1);
  Target target(world);
  Job& add = target.signal();
  REQUIRE(world.run([&] { return target.count(wire::FrameType::signal) == 1; }, seconds(1)));
  target.hello.link_gen = 2;
  target.hello.opened_gen = 1;
  target.stranger.say(world[0], target.hello);
  REQUIRE(target.stranger.welcome.has_value());
  REQUIRE(world.run([&] { return target.count(wire::FrameType::signal) == 2; }, seconds(1)));
  CHECK(target.count(wire::FrameType::fence_request) == 0);
  CHECK_FALSE(add.ended());
  // It has been heard to know generation 1, so an older word is no word: the link that stands is not given up for it.
  Stranger late(world, "late");
  target.hello.link_gen = 9;
  target.hello.opened_gen = 0;
  late.say(world[0], target.hello);
  CHECK(reason_of(late) == wire::RejectReason::old_generation);
  CHECK(world[0].links_up(k_player) == 1);
}
