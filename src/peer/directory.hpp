// SPDX-License-Identifier: Apache-2.0
//
// Directory: all peers of a runtime. Finds or makes the actor of a rank, greets who connects, and gives callers'
// threads a peer's memory without a lock.
//
// Loop-bound, but for memory(). Owner: core. Close: stop(), then release() once stopped() is true.
#pragma once

#include <memory>
#include <vector>

#include "memory/peer_memory.hpp"
#include "peer/peer_actor.hpp"

namespace hixl::peer {

class Directory final : public ControlPlane,
                        public runtime::ListenerEvents,
                        private GreetingEvents,
                        private runtime::LateWatch,
                        private runtime::Task {
 public:
  Directory(PeerServices& services, std::uint32_t peers_max);
  ~Directory();

  /// The actor of a rank, made at the first call. Null: peers_max is reached, or the rank is this one or out of range.
  [[nodiscard]] PeerActor* peer(Rank rank);
  /// Any thread. Null while nothing was ever done with that rank.
  [[nodiscard]] memory::PeerMemory* memory(Rank rank) const noexcept { return memories_.find(rank); }
  [[nodiscard]] const std::vector<std::unique_ptr<PeerActor>>& peers() const noexcept { return peers_; }

  bool send_control(Rank rank, wire::FrameType type, ConstBytes body) override;
  void on_accept(std::unique_ptr<runtime::Stream> stream) override;

  /// Closes our regions to everybody first, some a turn. Who connects from then on is told so. A peer to which no link
  /// stands gets its goodbye that way, if it comes before `farewell_until` (and k_farewell).
  void stop(Instant farewell_until);
  [[nodiscard]] bool stopped();
  /// Ends everything now, without asking anybody.
  void abort();
  /// After stopped() or abort(), on the loop: ends the actors. What memory() gave stays valid until destruction.
  void release();

 private:
  void on_hello(Greeting& greeting, const wire::Hello& hello) override;
  void on_greeting_over(Greeting& greeting) override;
  void on_late(Duration lag) override;
  void run() override;
  void close_regions();
  void note_stranger(ErrorCode offence);

  PeerServices& services_;
  const std::uint32_t peers_max_;
  memory::PeerMemoryTable memories_;
  DialSlots dial_slots_;  // before those who take them
  std::vector<PeerActor*> by_rank_;
  std::vector<std::unique_ptr<PeerActor>> peers_;
  std::vector<std::unique_ptr<Greeting>> greetings_;
  std::vector<std::unique_ptr<Greeting>> over_;
  std::vector<RegionKey> to_close_;
  Instant farewell_until_{};
  std::uint64_t strangers_ = 0;
  bool stopping_ = false;
  bool released_ = false;
};

}  // namespace hixl::peer
