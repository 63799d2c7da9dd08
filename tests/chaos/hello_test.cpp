// SPDX-License-Identifier: Apache-2.0
//
// Hellos said again, old ones and wrong ones; and frames that end anywhere. The link that stands stays.
#include <doctest/doctest.h>

#include "scene.hpp"

using namespace hixl;
using namespace hixl::test;

using wire::FrameType;

TEST_CASE(
    "P36 S18 hellos that are said again, and those of an earlier life, are rejected; the link that stands stays") {
  Scene scene;
  const ByteVector first = scene.session().hello_bytes;
  scene.come_back();
  const ByteVector second = scene.session().hello_bytes;
  const auto reason_of = [&](ConstBytes hello) {
    Wire wire(scene.impostor().target());
    const auto answer = scene.impostor().ask(wire, hello);
    REQUIRE(answer.has_value());
    REQUIRE(answer->header.type == FrameType::reject);
    wire::Reject reject;
    REQUIRE(decode_body(ConstBytes(answer->body), reject));
    return reject.reason;
  };
  const auto failures = scene.link().failures;
  for (int i = 0; i < 20; ++i) {
    CHECK(reason_of(first) == wire::RejectReason::duplicate_dial);
    CHECK(reason_of(second) == wire::RejectReason::old_generation);
  }
  wire::Hello other = scene.session().hello;
  other.session = scene.session().welcome.session + 1;
  CHECK(reason_of(Impostor::bytes_of(other)) == wire::RejectReason::dead);
  CHECK(scene.link().up);
  CHECK(scene.link().failures == failures);
  CHECK_FALSE(scene.session().wire.ended());

  scene.be_born_again();
  for (const ByteVector* hello : {&first, &second}) CHECK(reason_of(*hello) == wire::RejectReason::dead);
  // For somebody else, or from nobody.
  wire::Hello wrong = scene.session().hello;
  wrong.target_incarnation += 1;
  CHECK(reason_of(Impostor::bytes_of(wrong)) == wire::RejectReason::wrong_incarnation);
  wrong = scene.session().hello;
  wrong.target_peer_id.low += 1;
  CHECK(reason_of(Impostor::bytes_of(wrong)) == wire::RejectReason::wrong_peer);
  wrong = scene.session().hello;
  wrong.rank = 70'000;
  CHECK(reason_of(Impostor::bytes_of(wrong)) == wire::RejectReason::bad_rank);
  wrong = scene.session().hello;
  wrong.link_gen = 0xffffffffU;
  CHECK(reason_of(Impostor::bytes_of(wrong)) == wire::RejectReason::bad_rank);
  CHECK(scene.link().up);
  CHECK_FALSE(scene.session().wire.ended());
  scene.require_bystander_well();
  CHECK(scene.bystander().finish() == "ok");
}

TEST_CASE("S15 frames cut at any byte: nothing of it is executed, and no byte outside its range has changed") {
  Scene scene;
  constexpr std::uint64_t k_at = 4096;
  const auto frames = [&](Session& session, int which) {
    switch (which) {
      case 0:
        return frame_of(session.header(FrameType::write, true), body_of(access_to(scene, k_at, 8)), k_eight);
      case 1:
        return frame_of(session.header(FrameType::atomic, true), body_of(atomic_at(scene, k_at, 1, 0)));
      default:
        return frame_of(
            session.header(FrameType::signal, true),
            body_of(wire::SignalBody{
                .region = scene.granted().key, .token = scene.granted().token, .offset = k_at, .value = 1}));
    }
  };
  for (int which = 0; which < 3; ++which) {
    const std::size_t whole = frames(scene.session(), which).size();
    scene.come_back();
    for (std::size_t cut = 1; cut < whole; cut += 1 + cut % 3) {
      CAPTURE(which);
      CAPTURE(cut);
      const std::uint64_t failures = scene.link().failures;
      ByteVector frame = frames(scene.session(), which);
      frame.resize(cut);
      scene.session().wire.send(frame);
      const LinkGen generation = scene.session().welcome.link_gen;
      scene.come_back();
      REQUIRE(eventually([&] { return scene.link().failures > failures && scene.link().up; }));
      // What the fence of the old generation says: it executed nothing.
      CHECK((scene.session().welcome.executed_gen < generation || scene.session().welcome.executed.highest == 0));
      if (which == 0 && cut > whole - 8) scene.restore(k_at, 8);  // part of a write that is still open may lie there
      scene.require_untouched();
    }
  }
  scene.bystander().require_going_on();
  CHECK(scene.bystander().finish() == "ok");
}
