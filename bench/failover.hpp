// SPDX-License-Identifier: Apache-2.0
//
// What the questions of failover_bench share.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <hixl/runtime.hpp>
#include <hixl/store.hpp>

#include "relay.hpp"

namespace hixl::bench {

template <class T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  std::cerr << "failover_bench: " << result.error().message() << "\n";
  std::exit(1);
}
inline void need(const Result<void>& result) {
  if (result) return;
  std::cerr << "failover_bench: " << result.error().message() << "\n";
  std::exit(1);
}
[[noreturn]] inline void give_up(const std::string& why) {
  std::cerr << "failover_bench: " << why << "\n";
  std::exit(1);
}

/// Rank 0, which puts, and rank 1, with a region of `bytes` each; both links stand.
class TwoLinks {
 public:
  struct Settings {
    std::size_t bytes = 0;
    std::vector<std::uint64_t> bandwidth{};
    std::chrono::milliseconds stall{200};
    bool relayed = false;
    LinkKind kind = LinkKind::tcp;  ///< roce: over two devices that this host has
  };
  explicit TwoLinks(const Settings& settings);
  [[nodiscard]] Runtime& initiator() { return *ranks_[0]; }
  [[nodiscard]] std::byte* local() { return regions_[0].data; }
  [[nodiscard]] std::byte* target() { return regions_[1].data; }
  [[nodiscard]] const RemoteRegion& remote() const { return remote_; }
  [[nodiscard]] Relay& relay() { return *relay_; }
  [[nodiscard]] std::size_t links_up();

 private:
  LinkKind kind_;
  std::unique_ptr<Relay> relay_;  ///< ends last
  std::unique_ptr<Store> store_;
  std::unique_ptr<Runtime> ranks_[2];
  Region regions_[2];
  RemoteRegion remote_;
};

/// Puts of one slot each, all slots at once, over and over; each is verified when it has ended, and its slot filled
/// anew. Loop-driven by turn(); ends are stamped on the runtime's own thread.
class Traffic {
 public:
  Traffic(TwoLinks& pair, std::size_t slots, std::size_t slot_bytes);
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;
  /// Posts to every free slot; takes, checks and stamps what has ended. The count of ended ones.
  std::size_t turn();
  /// Until so many more have ended.
  void run(std::size_t ended);
  void drain();
  [[nodiscard]] std::uint64_t ended() const { return ends_.size(); }
  [[nodiscard]] std::uint64_t bytes() const { return ends_.size() * slot_bytes_; }
  /// When each put ended, in the order in which they were taken.
  [[nodiscard]] const std::vector<std::uint64_t>& ends() const { return ends_; }
  /// Those that are under way now; later, when the last of them ended, or 0 while one is open.
  void mark();
  [[nodiscard]] std::uint64_t marked_end() const;

 private:
  struct Slot;
  void post(Slot& slot);
  TwoLinks& pair_;
  const std::size_t slot_bytes_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::uint64_t> ends_;
  std::uint64_t seed_ = 0;
  bool draining_ = false;
};

struct FailoverSettings {
  bool smoke = false;
  std::size_t rounds = 200;
  std::uint64_t seed = 1;
};

[[nodiscard]] nlohmann::json bandwidth(const FailoverSettings& settings, const std::vector<std::uint64_t>& caps);
[[nodiscard]] nlohmann::json gap(const FailoverSettings& settings, Relay::Break how, std::chrono::milliseconds stall);
/// Shell commands that break one of two links of that kind and make it whole again, and one as costly that does
/// nothing.
struct Commands {
  LinkKind kind = LinkKind::roce;
  std::string break_one;
  std::string heal;
  std::string calm = ":";
};
[[nodiscard]] nlohmann::json command_gap(const FailoverSettings& settings, const Commands& commands);
[[nodiscard]] nlohmann::json kill_peer(const FailoverSettings& settings, const std::string& links);
/// The other process of kill_peer().
[[nodiscard]] int victim();

}  // namespace hixl::bench
