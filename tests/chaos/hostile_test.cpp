// SPDX-License-Identifier: Apache-2.0
//
// A peer that has been let in and then says what no peer says: acknowledgements for things never sent, other people's
// generations, lengths near 2^64. Each has its own answer; nothing of it touches memory, and another peer's stream goes
// on meanwhile.
#include <functional>

#include <doctest/doctest.h>

#include "scene.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

using wire::FrameType;

struct Attack {
  const char* name;
  std::function<void(Scene&, Session&)> act;
  ErrorCode code = ErrorCode::malformed_frame;
};

/// A frame with a header that the test may falsify.
template <class Message>
void say_with(Session& session, FrameType type, const Message& message, bool numbered,
              const std::function<void(wire::FrameHeader&)>& change, ConstBytes payload = {}) {
  wire::FrameHeader header = session.header(type, numbered);
  change(header);
  session.wire.send(frame_of(header, body_of(message), payload));
}

std::vector<Attack> answers_to_nothing() {
  const auto ack = [](LinkSeq upto) {
    return [upto](Scene&, Session& session) { session.say(FrameType::ack, wire::Ack{upto}, false); };
  };
  const auto nack = [](LinkSeq seq) {
    return [seq](Scene&, Session& session) {
      session.say(FrameType::nack, wire::Nack{.seq = seq, .code = static_cast<std::uint16_t>(ErrorCode::stale)}, false);
    };
  };
  return {
      {"ack for the 1000th frame", ack(1000)},
      {"ack for 2^64 - 1", ack(k_most)},
      {"nack for a frame that was never sent", nack(5)},
      {"nack for 2^64 - 1", nack(k_most)},
      {"the result of an atomic that nobody asked for",
       [](Scene&, Session& session) {
         session.say(FrameType::atomic_result, wire::AtomicResult{.seq = 1, .value = 7}, false);
       }},
      {"the data of a read that nobody asked for",
       [](Scene&, Session& session) {
         session.say(FrameType::read_data, wire::ReadData{.read_seq = 1}, false, k_eight);
       }},
      {"no data, for a read that nobody asked for",
       [](Scene&, Session& session) { session.say(FrameType::read_data, wire::ReadData{.read_seq = k_most}, false); }},
  };
}

std::vector<Attack> foreign_numbers() {
  const auto with = [](std::function<void(wire::FrameHeader&)> change) {
    return [change](Scene& scene, Session& session) {
      say_with(session, FrameType::write, access_to(scene, 0, 8), true, change, k_eight);
    };
  };
  return {
      {"a frame of an earlier session", with([](auto& header) { header.session -= 1; })},
      {"a frame of a later session", with([](auto& header) { header.session += 1; })},
      {"a frame of an earlier generation", with([](auto& header) { header.link_gen -= 1; })},
      {"a frame of the last generation", with([](auto& header) { header.link_gen = 0xffffffffU; })},
      {"a frame of another link", with([](auto& header) { header.link_id += 1; })},
      {"a number that was there already", with([](auto& header) { header.link_seq -= 1; })},
      {"a number that skips one", with([](auto& header) { header.link_seq += 1; })},
      {"the number 2^64 - 1", with([](auto& header) { header.link_seq = k_most; })},
      {"no number where there must be one", with([](auto& header) { header.link_seq = 0; })},
      {"a hello on a link that stands", [](Scene&, Session& session) { session.wire.send(session.hello_bytes); }},
      {"a message of the store",
       [](Scene&, Session& session) { session.say(FrameType::store_lookup, wire::StoreLookup{1}); }},
      {"a message of another kind of link",
       [](Scene&, Session& session) {
         session.say(FrameType::hccs_offer, wire::HccsOffer{.challenge = 1, .regions_max = 1});
       }},
  };
}

std::vector<Attack> lengths() {
  const auto raw = [](std::function<void(wire::FrameHeader&)> change) {
    return [change](Scene&, Session& session) {
      wire::FrameHeader header = session.header(FrameType::write, true);
      change(header);
      ByteVector bytes(wire::k_header_bytes);
      encode(header, std::span<std::byte>(bytes).first<wire::k_header_bytes>());
      session.wire.send(bytes);
    };
  };
  const auto patched = [](std::size_t at, std::uint32_t value) {
    // The count of an access lies behind key and token.
    return [at, value](Scene& scene, Session& session) {
      ByteVector body = body_of(access_to(scene, 0, 8));
      std::memcpy(body.data() + at, &value, sizeof value);
      session.wire.send(frame_of(session.header(FrameType::write, true), body, k_eight));
    };
  };
  constexpr std::size_t k_count_at = 8 + 16;
  return {
      {"a body of 2^32 - 1 bytes", raw([](auto& header) { header.body_bytes = 0xffffffffU; })},
      {"a body of one byte too many", raw([](auto& header) { header.body_bytes = wire::k_body_bytes_max + 1; })},
      {"a payload of 2^32 - 1 bytes", raw([](auto& header) { header.payload_bytes = 0xffffffffU; })},
      {"a payload of one byte too many",
       raw([](auto& header) { header.payload_bytes = wire::k_payload_bytes_max + 1; })},
      {"2^32 - 1 segments", patched(k_count_at, 0xffffffffU)},
      {"no segments", patched(k_count_at, 0)},
      {"a segment at 2^64 - 8 that goes round",
       [](Scene& scene, Session& session) {
         session.say(FrameType::write, access_to(scene, k_most - 7, 16), true, ByteVector(16));
       }},
      {"less payload than the segments say",
       [](Scene& scene, Session& session) { session.say(FrameType::write, access_to(scene, 0, 16), true, k_eight); }},
      {"an exchange of 2^32 - 1 regions",
       [](Scene&, Session& session) {
         ByteVector body = body_of(wire::Exchange{
             .number = 2, .first = 0, .total = 0, .note = wire::ExchangeNote::exchange, .group = 0, .regions = {}});
         const std::uint32_t count = 0xffffffffU;
         std::memcpy(body.data() + body.size() - sizeof count, &count, sizeof count);
         session.wire.send(frame_of(session.header(FrameType::exchange, true), body));
       }},
      {"a region that ends behind 2^64",
       [](Scene&, Session& session) {
         wire::Exchange exchange{
             .number = 2, .first = 0, .total = 1, .note = wire::ExchangeNote::exchange, .group = 0, .regions = {}};
         exchange.regions.push_back({.key = {.id = 2, .generation = 1}, .base = k_most - 100, .length = 200});
         session.say(FrameType::exchange, exchange);
       }},
      {"an atomic that is acknowledged before it is asked for",
       [](Scene& scene, Session& session) { session.say(FrameType::atomic, atomic_at(scene, 0, 5, 5)); }},
      {"a body with a wrong checksum",
       [](Scene& scene, Session& session) {
         ByteVector bytes = frame_of(session.header(FrameType::write, true), body_of(access_to(scene, 0, 8)), k_eight);
         bytes[wire::k_header_bytes + 3] ^= std::byte{1};
         session.wire.send(bytes);
       },
       ErrorCode::corrupt},
  };
}

void require_broken_by(Scene& scene, const Attack& attack) {
  CAPTURE(std::string(attack.name));
  const std::uint64_t failures = scene.link().failures;
  attack.act(scene, scene.session());
  REQUIRE(scene.session().wire.ends());
  REQUIRE(eventually([&] { return scene.link().failures > failures; }));
  CHECK_MESSAGE(scene.link().last_error.code == attack.code, scene.link().last_error.message());
  scene.require_untouched();
  scene.come_back();
}

void require_all_break(const std::vector<Attack>& attacks) {
  Scene scene;
  for (const Attack& attack : attacks) require_broken_by(scene, attack);
  scene.require_bystander_well();
  CHECK(scene.home()->counters().peers_lost == 0);
  CHECK(scene.home()->counters().failed == 0);
  CHECK(scene.bystander().finish() == "ok");
}

}  // namespace

TEST_CASE("answers to things never sent end the connection, and nothing else") {
  require_all_break(answers_to_nothing());
}

TEST_CASE("frames of other sessions, generations, links and numbers end the connection, and nothing else") {
  require_all_break(foreign_numbers());
}

TEST_CASE("S10 lengths and counts near their ends are malformed, and nothing is allocated or touched for them") {
  require_all_break(lengths());
}

TEST_CASE("S10 S40 places that are not granted: each is refused with its own code, and the link stays") {
  Scene scene;
  Session& session = scene.session();
  const auto refused = [&](const char* what, ErrorCode wanted, FrameType type, const auto& message,
                           ConstBytes payload) {
    CAPTURE(what);
    REQUIRE(session.say(type, message, true, payload));
    const auto frame = session.wire.next(FrameType::nack);
    REQUIRE(frame.has_value());
    wire::Nack nack;
    REQUIRE(decode_body(ConstBytes(frame->body), nack));
    CHECK(nack.seq == session.sent);
    CHECK(static_cast<ErrorCode>(nack.code) == wanted);
    scene.require_untouched();
  };
  const auto write = [&](const char* what, ErrorCode wanted, std::uint64_t offset, auto&& change) {
    wire::Access access = access_to(scene, offset, 8);
    change(access);
    refused(what, wanted, FrameType::write, access, k_eight);
    refused(what, wanted, FrameType::read, access, {});
  };
  const auto as_is = [](auto&) {};
  write("a place near 2^64", ErrorCode::out_of_range, k_most - 8, as_is);
  write("one byte behind the end", ErrorCode::out_of_range, k_target_bytes - 7, as_is);
  write("a place that looks like a stack", ErrorCode::out_of_range, 0x7ffc00000000U, as_is);
  write("the region's own address", ErrorCode::out_of_range, scene.granted().base, as_is);
  write("a token that nobody gave", ErrorCode::access_denied, 0, [](wire::Access& access) { access.token.low ^= 1; });
  write("another generation", ErrorCode::stale, 0, [](wire::Access& access) { access.region.generation += 1; });
  write("a region that there is not", ErrorCode::stale, 0,
        [](wire::Access& access) { access.region.id = 0xffffffffU; });
  const auto signal = [&](const char* what, ErrorCode wanted, std::uint64_t offset) {
    refused(
        what, wanted, FrameType::signal,
        wire::SignalBody{.region = scene.granted().key, .token = scene.granted().token, .offset = offset, .value = 1},
        {});
  };
  signal("a signal near 2^64", ErrorCode::out_of_range, k_most - 3);
  signal("a signal that is not aligned", ErrorCode::unaligned, 4);
  refused("an atomic near 2^64", ErrorCode::out_of_range, FrameType::atomic, atomic_at(scene, k_most - 7, 1, 0), {});
  refused("an atomic with the number 2^64 - 1", ErrorCode::busy, FrameType::atomic, atomic_at(scene, 0, k_most, 0), {});
  CHECK(scene.link().up);
  CHECK(scene.link().failures == 0);
  scene.require_bystander_well();
  CHECK(scene.bystander().finish() == "ok");
}

TEST_CASE("an acknowledgement before the bytes have left: the connection ends, the put does not, until the life ends") {
  constexpr std::size_t k_large = 64U << 20U;
  Scene scene;
  auto source = scene.home()->allocate(k_large);
  require_ok(source);
  // Nobody reads it, so most of what is in flight waits on this side.
  auto put = scene.home()->put(source->data, scene.published().at(0), k_large, {.timeout = std::chrono::minutes(1)});
  require_ok(put);
  constexpr std::uint64_t k_enough = 6U << 20U;  // the kernel takes 4 MiB for one that does not read
  REQUIRE(eventually([&] { return scene.link().bytes_in_flight >= k_enough; }));
  Session& session = scene.session();
  const LinkSeq open = scene.link().in_flight;
  const auto first = session.wire.next(FrameType::write);
  REQUIRE(first.has_value());
  session.say(FrameType::ack, wire::Ack{.upto = first->header.link_seq + open - 1}, false);
  CHECK(session.wire.ends());
  REQUIRE(eventually([&] { return !scene.link().up; }));
  CHECK(scene.link().last_error.code == ErrorCode::malformed_frame);
  CHECK_FALSE(put->done());
  scene.be_born_again();
  CHECK(code_of(put->wait(k_patience)) == ErrorCode::peer_lost);
  require_ok(scene.home()->deregister(*source, k_patience));
  scene.require_bystander_well();
  CHECK(scene.bystander().finish() == "ok");
}
