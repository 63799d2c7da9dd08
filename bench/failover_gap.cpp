// SPDX-License-Identifier: Apache-2.0
//
// What a program sees when one of two links breaks under its traffic.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "failover.hpp"
#include "measure.hpp"

namespace hixl::bench {
namespace {

constexpr std::size_t k_slots = 16;
constexpr std::size_t k_slot_bytes = 64U << 10U;

const char* name(Relay::Break how) {
  if (how == Relay::Break::reset) return "reset";
  return how == Relay::Break::silent ? "silent" : "stuck";
}

/// The longest time without an end, among the ends from the last one before `from` to the first one after `to`.
std::uint64_t longest_gap(std::vector<std::uint64_t> ends, std::uint64_t from, std::uint64_t to) {
  std::sort(ends.begin(), ends.end());
  auto at = std::lower_bound(ends.begin(), ends.end(), from);
  if (at == ends.begin()) give_up("no traffic before the break");
  std::uint64_t longest = 0;
  for (; at != ends.end() && *(at - 1) <= to; ++at) longest = std::max(longest, *at - *(at - 1));
  return longest;
}

/// The same from then on, over some more puts.
std::uint64_t longest_gap_since(Traffic& traffic, std::uint64_t from) {
  traffic.run(4 * k_slots);
  return longest_gap(traffic.ends(), from, traffic.ends().back());
}

}  // namespace

nlohmann::json gap(const FailoverSettings& settings, Relay::Break how, std::chrono::milliseconds stall) {
  std::mt19937_64 random(settings.seed);
  Samples gaps(settings.rounds), takeovers(settings.rounds), quiet(settings.rounds);
  std::uint64_t bytes = 0;
  for (std::size_t round = 0; round < settings.rounds; ++round) {
    // Two new ranks each time: a link that broke several times a minute is held back, and that is another question.
    TwoLinks pair({.bytes = k_slots * k_slot_bytes, .stall = stall, .relayed = true});
    Traffic traffic(pair, k_slots, k_slot_bytes);
    traffic.run(8 * k_slots);
    // The same length of time without a break, to know what the machine itself does.
    const std::uint64_t calm = now_ns();
    quiet.add(longest_gap_since(traffic, calm));
    traffic.run(random() % (2 * k_slots));
    traffic.mark();
    const std::uint64_t broken = pair.relay().break_one(how, random());
    if (broken == 0) give_up("no connection to break");
    while (traffic.marked_end() == 0) traffic.run(1);
    takeovers.add(std::max(traffic.marked_end(), broken) - broken);
    gaps.add(longest_gap_since(traffic, broken));
    traffic.drain();
    bytes += traffic.bytes();
  }
  return {{"bench", "failover_gap"},
          {"link", "tcp"},
          {"break", name(how)},
          {"stall_ms", stall.count()},
          {"breaks", settings.rounds},
          {"size", k_slot_bytes},
          {"depth", k_slots},
          {"gap_p50_ms", gaps.us(500) / 1000},
          {"gap_p99_ms", gaps.us(990) / 1000},
          {"takeover_p50_ms", takeovers.us(500) / 1000},
          {"takeover_p99_ms", takeovers.us(990) / 1000},
          {"quiet_p50_ms", quiet.us(500) / 1000},
          {"quiet_p99_ms", quiet.us(990) / 1000},
          {"verified_bytes", bytes},
          {"seed", settings.seed}};
}

namespace {

/// The longest time without an end from the start of a command to some puts after its end.
std::uint64_t longest_gap_around(Traffic& traffic, const std::string& command) {
  const std::uint64_t start = now_ns();
  std::atomic<bool> over{false};
  std::thread other([&] {
    if (std::system(command.c_str()) != 0) give_up("this failed: " + command);
    over.store(true);
  });
  while (!over.load()) traffic.run(1);
  other.join();
  return longest_gap_since(traffic, start);
}

}  // namespace

nlohmann::json command_gap(const FailoverSettings& settings, const Commands& commands) {
  Samples gaps(settings.rounds), quiet(settings.rounds);
  std::uint64_t bytes = 0;
  for (std::size_t round = 0; round < settings.rounds; ++round) {
    TwoLinks pair({.bytes = k_slots * k_slot_bytes, .kind = commands.kind});
    Traffic traffic(pair, k_slots, k_slot_bytes);
    traffic.run(8 * k_slots);
    // The same work without a break, to know what the machine itself does.
    quiet.add(longest_gap_around(traffic, commands.calm));
    gaps.add(longest_gap_around(traffic, commands.break_one));
    if (pair.links_up() != 1) give_up("the command broke no link, or both");
    traffic.drain();
    bytes += traffic.bytes();
    if (std::system(commands.heal.c_str()) != 0) give_up("this failed: " + commands.heal);
  }
  return {{"bench", "failover_gap"},
          {"link", std::string(hixl::name(commands.kind))},
          {"break", commands.break_one},
          {"breaks", settings.rounds},
          {"size", k_slot_bytes},
          {"depth", k_slots},
          {"gap_p50_ms", gaps.us(500) / 1000},
          {"gap_p99_ms", gaps.us(990) / 1000},
          {"quiet_p50_ms", quiet.us(500) / 1000},
          {"quiet_p99_ms", quiet.us(990) / 1000},
          {"verified_bytes", bytes}};
}

namespace {

struct Rate {
  double mbps = 0;
  nlohmann::json by_link = nlohmann::json::array();
  std::uint64_t verified_bytes = 0;
};

constexpr std::size_t k_large_slots = 16;
constexpr std::size_t k_large_bytes = 1U << 20U;

Rate rate_with(const FailoverSettings& settings, const std::vector<std::uint64_t>& caps) {
  TwoLinks pair({.bytes = k_large_slots * k_large_bytes, .bandwidth = caps});
  Traffic traffic(pair, k_large_slots, k_large_bytes);
  const auto run_for = [&](double seconds) {
    const std::uint64_t until = now_ns() + static_cast<std::uint64_t>(seconds * 1e9);
    while (now_ns() < until) traffic.run(1);
  };
  const auto bytes_by_link = [&] {
    std::vector<std::uint64_t> bytes;
    for (const LinkInfo& link : pair.initiator().links()) {
      if (link.rank == 1 && link.kind == LinkKind::tcp) bytes.push_back(link.bytes_out);
    }
    return bytes;
  };
  run_for(settings.smoke ? 0.1 : 1);  // the bursts that the limits allow are over then
  const std::uint64_t start = now_ns();
  const std::uint64_t before = traffic.bytes();
  const std::vector<std::uint64_t> links_before = bytes_by_link();
  run_for(settings.smoke ? 0.2 : 5);
  const double seconds = static_cast<double>(now_ns() - start) / 1e9;
  Rate rate;
  rate.mbps = static_cast<double>(traffic.bytes() - before) / seconds / 1e6;
  const std::vector<std::uint64_t> links_after = bytes_by_link();
  for (std::size_t i = 0; i < std::min(links_before.size(), links_after.size()); ++i) {
    rate.by_link.push_back(static_cast<double>(links_after[i] - links_before[i]) / seconds / 1e6);
  }
  traffic.drain();
  rate.verified_bytes = traffic.bytes();
  return rate;
}

}  // namespace

nlohmann::json bandwidth(const FailoverSettings& settings, const std::vector<std::uint64_t>& caps) {
  double sum = 0;
  nlohmann::json limits = nlohmann::json::array();
  for (const std::uint64_t cap : caps) {
    sum += static_cast<double>(cap) / 1e6;
    limits.push_back(static_cast<double>(cap) / 1e6);
  }
  const Rate free = rate_with(settings, {});  // what the machine gives; where that is less than the sum, so is the rest
  const Rate rate = rate_with(settings, caps);
  return {{"bench", "two_links"},         {"link", "tcp"},
          {"caps_mbps", limits},          {"mbps", rate.mbps},
          {"by_link_mbps", rate.by_link}, {"ratio", rate.mbps / sum},
          {"uncapped_mbps", free.mbps},   {"size", k_large_bytes},
          {"depth", k_large_slots},       {"verified_bytes", free.verified_bytes + rate.verified_bytes}};
}

}  // namespace hixl::bench
