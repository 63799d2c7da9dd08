// SPDX-License-Identifier: Apache-2.0
//
// Two rank programs of one machine that reach each other by its RDMA devices rxe0 and rxe1 (file `devices` says what
// they are), and what a test does to those devices meanwhile.
#pragma once

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <hixl/store.hpp>

#include <doctest/doctest.h>

#include "../api/world.hpp"
#include "../chaos/stream.hpp"
#include "../process/child.hpp"
#include "../process/proc.hpp"
#include "../process/settings.hpp"

namespace hixl::test {

/// One command of the script `devices`, such as "down 1".
inline void devices(const std::string& words) {
  const char* const script = std::getenv("HIXL_TEST_DEVICES");
  REQUIRE_MESSAGE(script != nullptr, "runs in the virtual machine only: tests/rdma/run");
  Child child("/bin/bash", {"-c", std::string(script) + " " + words});
  const int code = child.wait();
  REQUIRE_MESSAGE(code == 0, "devices " << words << ": " << child.log());
}

/// Of what the card counts at its port; 0 while there is no such card.
inline std::uint64_t counted(int rail, const std::string& what) {
  std::ifstream file("/sys/class/infiniband/rxe" + std::to_string(rail) + "/ports/1/hw_counters/" + what);
  std::uint64_t number = 0;
  file >> number;
  return number;
}
inline std::uint64_t packets(int rail) { return counted(rail, "sent_pkts"); }

/// Returns when more packets of that rail have gone out.
inline void await_packets(int rail, std::uint64_t count) {
  const std::uint64_t goal = packets(rail) + count;
  REQUIRE_MESSAGE(eventually([&] { return packets(rail) >= goal; }), "rxe" << rail << " stands still");
}

struct Row {
  std::string kind;
  std::string state;
  std::uint64_t bytes_out = 0;
  std::uint64_t failures = 0;
  [[nodiscard]] bool stands() const { return state == "UP" || state == "DEGRADED" || state == "PROBATION"; }
};

struct TwinOptions {
  std::string links = "roce";
  long lease_ms = 30'000;
  std::size_t bytes = 0;                 ///< of a region; 0: room for the stream
  std::vector<std::string> arguments{};  ///< of both rank programs, on top
  /// Bytes a second of each rail, below what the emulated processors manage: one rail alone cannot keep up, so that
  /// both have to carry, and a stream lasts longer than what is done to it.
  std::string max_bandwidth = "8000000,8000000";
  std::vector<std::string> environment{};        ///< of both, on top
  std::vector<std::string> environment_of[2]{};  ///< of each, on top
  std::vector<std::string> prefix{};             ///< before the command of each: a program that starts it
};

constexpr std::uint64_t k_block = 256U << 10U;

/// Ranks 0 and 1 in processes of their own; they have met.
class Twins {
 public:
  explicit Twins(TwinOptions options = {}) : options_(std::move(options)) {
    auto store = Store::create("tcp://127.0.0.1:0");
    require_ok(store);
    store_ = std::move(*store);
    ranks_[0] = start(0);
    ranks_[1] = start(1);
    meet();
  }
  Child& operator[](std::size_t rank) { return *ranks_[rank]; }
  /// Another life of rank 1.
  void restart() {
    ranks_[1] = start(1);
    meet();
  }
  void meet() {
    ranks_[0]->tell("exchange 1");
    ranks_[1]->tell("exchange 0");
    for (const auto& rank : ranks_) REQUIRE_MESSAGE(rank->hear() == "ok", rank->log());
  }

  std::vector<Row> table(std::size_t rank, const std::string& kind) {
    std::vector<Row> rows;
    for (const auto& row : nlohmann::json::parse(ranks_[rank]->ask("links"))) {
      if (row.at("kind") != kind) continue;
      rows.push_back({kind, row.at("state"), row.at("bytes_out"), row.at("failures")});
    }
    return rows;
  }
  /// Links of RDMA that stand at both ends.
  std::size_t rails_up() {
    std::size_t least = 99;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      std::size_t count = 0;
      for (const Row& row : table(rank, "roce")) count += row.stands() ? 1 : 0;
      least = std::min(least, count);
    }
    return least;
  }
  /// The wait between dials doubles while they are in vain, up to 30 s: twice the usual patience.
  void require_rails(std::size_t count) {
    const auto there = [&] { return rails_up() == count; };
    const bool are_there = eventually(there) || eventually(there);
    REQUIRE_MESSAGE(are_there, "rank 0: " << ranks_[0]->ask("links") << "\nrank 1: " << ranks_[1]->ask("links") << "\n"
                                          << ranks_[0]->log());
  }
  std::uint64_t bytes_out(std::size_t rank, const std::string& kind) {
    std::uint64_t sum = 0;
    for (const Row& row : table(rank, kind)) sum += row.bytes_out;
    return sum;
  }

  void begin_stream(std::uint64_t blocks, std::size_t from = 0) {
    const auto words = [&](const char* verb, std::size_t other) {
      return std::string(verb) + " " + std::to_string(other) + " 0 " + std::to_string(k_block) + " " +
             std::to_string(blocks) + " " + std::to_string(next_[from]);
    };
    sender_ = from;
    ranks_[1 - from]->tell(words("drain", from));
    ranks_[from]->tell(words("pour", 1 - from));
    next_[from] += blocks;
  }
  /// No block is missing, wrong or late, and nobody lost anybody.
  void require_stream_whole() {
    const std::string sent = ranks_[sender_]->hear();
    const std::string received = ranks_[1 - sender_]->hear();
    CHECK_MESSAGE(sent == "ok", sent << "\n" << ranks_[sender_]->log());
    CHECK_MESSAGE(received == "ok", received << "\n" << ranks_[1 - sender_]->log());
    for (const auto& rank : ranks_) CHECK(rank->ask("lost") == "0");
    REQUIRE(sent == "ok");
    REQUIRE(received == "ok");
  }
  void require_traffic() {
    const std::string what = " 64 1048592 ";
    for (std::size_t from = 0; from < 2; ++from) {
      const std::string seed = std::to_string(next_[from] + 1000 * from);
      REQUIRE_MESSAGE(ranks_[from]->ask("put " + std::to_string(1 - from) + what + seed) == "ok", ranks_[from]->log());
      REQUIRE(ranks_[1 - from]->ask("check" + what + seed) == "ok");
    }
  }

 private:
  std::unique_ptr<Child> start(Rank rank) {
    std::vector<std::string> words = options_.prefix;
    const std::size_t bytes = options_.bytes != 0 ? options_.bytes : Stream::room(k_block);
    for (const std::string& word : {settings().rank_program, std::string("--bytes"), std::to_string(bytes),
                                    std::string("--lease-ms"), std::to_string(options_.lease_ms)}) {
      words.push_back(word);
    }
    words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
    std::vector<std::string> environment = {"HIXL_RANK=" + std::to_string(rank), "HIXL_WORLD_SIZE=2",
                                            "HIXL_STORE=" + store_->url(), "HIXL_LINKS=" + options_.links,
                                            "HIXL_MAX_BANDWIDTH=" + options_.max_bandwidth};
    environment.insert(environment.end(), options_.environment.begin(), options_.environment.end());
    const auto& own = options_.environment_of[rank];
    environment.insert(environment.end(), own.begin(), own.end());
    const std::string program = words.front();
    words.erase(words.begin());
    return std::make_unique<Child>(program, words, environment);
  }

  TwinOptions options_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Child> ranks_[2];
  std::uint64_t next_[2] = {1, 1};
  std::size_t sender_ = 0;
};

}  // namespace hixl::test
