// SPDX-License-Identifier: Apache-2.0
//
// Memory of the program's own, between processes of one host: it goes by cross-memory attach where the system allows
// that, and by tcp where it does not.
#include <algorithm>

#include <doctest/doctest.h>

#include "home.hpp"
#include "mirrored.hpp"

using namespace hixl;
using namespace hixl::test;

namespace {

constexpr std::size_t k_huge = 512U << 20U;

std::uint64_t sent_by(Home& home, LinkKind kind) { return home->counters().bytes_out[static_cast<std::size_t>(kind)]; }
std::uint64_t got_by(Home& home, LinkKind kind) { return home->counters().bytes_in[static_cast<std::size_t>(kind)]; }

LinkInfo link_of(Home& home, LinkKind kind) {
  for (const LinkInfo& link : home->links()) {
    if (link.kind == kind) return link;
  }
  return {};
}

/// The spare kinds come up one after another, behind the first.
void require_up(Home& home, LinkKind kind) {
  REQUIRE_MESSAGE(eventually([&] { return link_of(home, kind).up; }), link_of(home, kind).reason);
}

}  // namespace

TEST_CASE("P69 memory of the program's own goes by cross-memory attach, its signals and atomics by another link") {
  Home home(2);
  Guest guest(home, 1, {"--registered"});
  require_up(home, LinkKind::pcie);
  require_up(home, LinkKind::tcp);
  const std::uint64_t tcp_before = sent_by(home, LinkKind::tcp);
  require_traffic_both_ways(home, guest, 11);
  CHECK(sent_by(home, LinkKind::pcie) > 1U << 20U);
  CHECK(got_by(home, LinkKind::pcie) > 1U << 20U);
  CHECK(sent_by(home, LinkKind::tcp) == tcp_before);

  constexpr std::size_t k_bytes = 300'000;
  constexpr std::uint64_t k_word = 4U << 20U;
  for (std::uint64_t round = 1; round <= 50; ++round) {
    fill_pattern(home.data(), k_bytes, round);
    auto sent = home->put_with_signal(home.data(), guest.remote().at(64), k_bytes,
                                      {.word = guest.remote().at(k_word), .value = round});
    require_ok(sent);
    require_ok(sent->wait());
    REQUIRE(guest->ask("wait " + std::to_string(k_word) + " " + std::to_string(round)) == std::to_string(round));
    REQUIRE(guest->ask("check 64 " + std::to_string(k_bytes) + " " + std::to_string(round)) == "ok");
  }
  for (std::uint64_t round = 0; round < 50; ++round) {
    const auto before = home->fetch_add_sync(guest.remote().at(k_word), 1, k_patience);
    require_ok(before);
    REQUIRE(*before == 50 + round);
  }
  CHECK(sent_by(home, LinkKind::tcp) - tcp_before <= 100 * sizeof(std::uint64_t));
  CHECK(home->counters().fallbacks == 0);
}

TEST_CASE("F3 pcie forced: data and control need no other link; signals and atomics have none and say so") {
  Home home(2, "pcie");
  Guest guest(home, 1, {"--registered"});
  require_traffic_both_ways(home, guest, 12);
  const Error refused = [&] {
    auto sent = home->put_with_signal(home.data(), guest.remote().at(0), 8, {.word = guest.remote().at(64)});
    require_ok(sent);
    const auto ended = sent->wait(k_patience);
    return ended ? Error() : ended.error();
  }();
  CHECK(refused.code == ErrorCode::transport_unavailable);
  CHECK(refused.detail.rank == 1);
  const auto added = home->fetch_add_sync(guest.remote().at(64), 1, k_patience);
  CHECK(code_of(added) == ErrorCode::transport_unavailable);
  if (!added) CHECK(added.error().detail.rank == 1);
  CHECK(code_of(home->swap_sync(guest.remote().at(64), 1, k_patience)) == ErrorCode::transport_unavailable);
  require_ok(home->put_sync(home.data(), guest.remote().at(0), 8, k_patience));
  guest->tell("quit");
  CHECK(guest->wait() == 0);
}

TEST_CASE("F109 a stopped receiver gets what goes by cross-memory attach, for longer than its lease") {
  Home home(2, "pcie");
  Guest guest(home, 1, {"--registered"});
  guest->stop();
  const auto end = std::chrono::steady_clock::now() + 3 * k_lease;
  std::uint64_t round = 0;
  do {
    ++round;
    for (const std::size_t bytes : {std::size_t{4096}, (std::size_t{1} << 20U) + 5}) {
      fill_pattern(home.data(), bytes, round);
      require_ok(home->put_sync(home.data(), guest.remote().at(0), bytes));
      std::byte* const back = home.data() + (4U << 20U);
      std::memset(back, 0, bytes);
      require_ok(home->get_sync(back, guest.remote().at(0), bytes));
      REQUIRE(holds_pattern(back, bytes, round));
    }
  } while (std::chrono::steady_clock::now() < end);
  guest->resume();
  CHECK(guest->ask("check 0 1048581 " + std::to_string(round)) == "ok");
  CHECK(guest->ask("lost") == "0");
  CHECK(home->counters().peers_lost == 0);
  CHECK(home->counters().failed == 0);
}

TEST_CASE("S13 S49 a target killed under a put of 512 MiB by cross-memory attach: PEER_LOST, and a next life works") {
  Home home(2, "pcie");
  Mirrored source(k_huge);
  REQUIRE(source.data() != nullptr);
  const auto registered = home->register_memory(source.data(), k_huge);
  require_ok(registered);
  std::memset(source.data(), 1, Mirrored::k_pages_bytes);
  {
    Guest victim(home, 1, {"--mirrored", "--bytes", std::to_string(k_huge)});
    std::vector<Request> open;
    for (int i = 0; i < 8; ++i) {
      auto put = home->put(source.data(), victim.remote().at(0), k_huge, {.timeout = std::chrono::minutes(1)});
      require_ok(put);
      open.push_back(*put);
    }
    REQUIRE(eventually([&] { return sent_by(home, LinkKind::pcie) > 0; }));
    victim->kill();
    for (Request& request : open) CHECK(code_of(request.wait(k_patience)) == ErrorCode::peer_lost);
  }
  REQUIRE(eventually([&] { return home->counters().peers_lost == 1; }));
  require_ok(home->deregister(*registered, k_patience));
  Guest next(home, 1, {"--registered"});
  require_traffic_both_ways(home, next, 13);
}

TEST_CASE("P16 P25 deregister while the initiator stands still in a cross-memory put: clean, or HELD until it runs") {
  Home home(2, "pcie");
  constexpr std::size_t k_bytes = 4U << 20U;
  int clean = 0, held = 0;
  for (int round = 0; round < 6; ++round) {
    CAPTURE(round);
    const std::unique_ptr<std::byte[]> memory = std::make_unique<std::byte[]>(k_bytes);
    const auto target = home->register_memory(memory.get(), k_bytes);
    require_ok(target);
    Guest initiator(home, 1);
    initiator->tell("renew 0 4096");
    home.meet(1, *target);
    REQUIRE(initiator->hear() == "ok");
    REQUIRE(initiator->ask("hammer 0 " + std::to_string(k_bytes)) == "hammering");
    REQUIRE(eventually([&] { return reinterpret_cast<volatile std::byte&>(memory[0]) != std::byte{0}; }));
    initiator->stop();
    const ErrorCode code = code_of(home->deregister(*target, std::chrono::milliseconds(300)));
    REQUIRE((code == ErrorCode::ok || code == ErrorCode::held));
    (code == ErrorCode::ok ? clean : held) += 1;
    if (code == ErrorCode::ok) std::memset(memory.get(), 0xee, k_bytes);
    if (round % 2 == 0) {
      initiator->resume();
      static_cast<void>(initiator->ask("on"));
      CHECK(initiator->ask("put 0 0 4096 1") == "STALE");
    } else {
      initiator->kill();
    }
    // What was held is given back by itself, before the memory goes.
    REQUIRE(eventually(
        [&] { return code_of(home->deregister(*target, std::chrono::milliseconds(1))) == ErrorCode::stale; }));
    if (code == ErrorCode::ok) {
      CHECK(std::all_of(memory.get(), memory.get() + k_bytes, [](std::byte byte) { return byte == std::byte{0xee}; }));
    }
  }
  MESSAGE(clean << " clean, " << held << " held");
}

TEST_CASE("P69 S61 where cross-memory attach is forbidden, memory of the program's own goes by tcp, with one warning") {
  Home home(2);
  Guest guest(home, 1, {"--registered", "--forbid-attach"});
  if (guest->ask("forbidden") != "yes") {
    MESSAGE("skipped: this system lets no process install a filter of system calls");
    return;
  }
  require_up(home, LinkKind::tcp);
  REQUIRE(eventually([&] { return link_of(home, LinkKind::pcie).state == "BACKOFF"; }));
  const LinkInfo pcie = link_of(home, LinkKind::pcie);
  CHECK(!pcie.up);
  CAPTURE(pcie.reason);
  CHECK(pcie.reason.find("TRANSPORT_UNAVAILABLE") != std::string::npos);
  require_traffic_both_ways(home, guest, 14);
  require_traffic_both_ways(home, guest, 15);
  CHECK(sent_by(home, LinkKind::pcie) == 0);
  CHECK(sent_by(home, LinkKind::tcp) > 1U << 20U);
  CHECK(home->counters().fallbacks == 1);
  CHECK(home->counters().failed == 0);
}

TEST_CASE("P69 F3 pcie forced where it is forbidden: an error with the reason, never another kind") {
  Home home(2, "pcie");
  Child child(settings().rank_program, {"--registered", "--forbid-attach", "--patience-ms", "1500"},
              home.environment(1));
  if (child.ask("forbidden") != "yes") {
    MESSAGE("skipped: this system lets no process install a filter of system calls");
    return;
  }
  child.tell("exchange 0");
  const Region mine[] = {home.region()};
  const Rank one[] = {1};
  const auto answers = home->exchange(mine, one, std::chrono::milliseconds(1500));
  REQUIRE(answers.size() == 1);
  CHECK(code_of(answers.front().result) == ErrorCode::transport_unavailable);
  CHECK(child.hear() == "TRANSPORT_UNAVAILABLE");
}
