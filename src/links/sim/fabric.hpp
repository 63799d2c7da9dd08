// SPDX-License-Identifier: Apache-2.0
//
// SimFabric: the network card and the wires of the simulated link. It carries the bytes of every post in small pieces,
// which land in any order, at any time, some twice, and go on landing when the initiator has given up or died: the
// weakest link that link.hpp allows. Only what the target itself closes (its link, a region) stops a piece.
//
// Owner: the test. Bound to the thread of its world; outlives every link that it carries.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "links/link.hpp"
#include "runtime/virtual_port.hpp"

namespace hixl::links {

/// How bad the fabric is. As constructed: nothing fails, but the order of bytes is still anything.
struct SimPlan {
  Duration delay_min{1'000};  ///< of a piece and of a completion, from the post
  Duration delay_max{50'000};
  std::uint32_t piece_bytes_max = 4096;  ///< a page: what a card may write at once
  std::uint32_t twice_per_mille = 100;   ///< of pieces: land a second time before the completion
  std::uint32_t early_per_mille = 500;   ///< of pieces: their bytes are taken at the post, the others' when they land
  std::uint32_t late_per_mille = 0;      ///< of pieces: up to late_max instead (an attempt that stalls)
  Duration late_max{2'000'000'000};
  std::uint32_t stall_per_mille = 0;  ///< of posts: nothing that this end sends lands for up to late_max, then all does
  std::uint32_t busy_per_mille = 0;   ///< of posts: busy although there is credit
  std::uint32_t break_per_mille = 0;  ///< of posts: the link breaks soon after
  std::uint32_t one_sided_per_mille = 0;  ///< of breaks: one end learns of it only after late_max at most
  std::uint32_t hesitate_per_mille = 0;   ///< revoke() and abandon() answer false while pieces are under way
  Duration drain_max{100'000};            ///< drained() comes this late after close()

  [[nodiscard]] static SimPlan draw(Choices& choices);
};

class SimFabric;

/// One link's place in the fabric: what the fabric knows of that end. Owner: the link.
struct SimSeat {
  const LinkServices* services = nullptr;
  SimSeat* other = nullptr;  ///< null until the peer's link is made, and after it is gone
  bool joined = false;       ///< both ends were there at some time
  bool closed = false;       ///< close(): no piece lands here any more
  bool broken = false;       ///< this end's half of a break
  Instant drained_at{};
  Instant stalled_until{};  ///< what is posted here lands after that
  LinkSeq last_seq = 0;
  wire::ExecutedSet executed{};         ///< of the other end's posts
  std::vector<Completion> completions;  ///< not yet taken by poll()
  struct Flight {
    LinkSeq seq = 0;
    std::uint64_t transfer = 0;
    std::uint64_t bytes = 0;
    Verb verb = Verb::write;
    bool completed = false;
  };
  std::map<std::uint64_t, Flight> flights;  ///< by cookie, until poll() has given the completion
};

class SimFabric final : private runtime::WorldEvents {
 public:
  explicit SimFabric(runtime::VirtualWorld& world, const SimPlan& plan = {}) : world_(world), plan_(plan) {}
  SimFabric(const SimFabric&) = delete;
  SimFabric& operator=(const SimFabric&) = delete;

  void set_plan(const SimPlan& plan) { plan_ = plan; }
  [[nodiscard]] const SimPlan& plan() const noexcept { return plan_; }
  /// Pieces that landed although their initiator had closed: what fencing is for.
  [[nodiscard]] std::uint64_t ghosts_landed() const noexcept { return ghosts_landed_; }
  [[nodiscard]] std::uint64_t ghosts_refused() const noexcept { return ghosts_refused_; }
  /// The end of the world: nothing lands any more and every card is at rest, so that links can be destroyed although
  /// the clock stands still.
  void halt();

  // ---- for links ----
  /// Seats find each other by the connection over which their links were made (its remote_text(), equal at both ends).
  /// Numbers would not do: sessions, links and generations of a dead life come again.
  void join(SimSeat& seat, const std::string& connection);
  [[nodiscard]] bool post(SimSeat& seat, const Post& post);  ///< false: busy
  [[nodiscard]] static bool has_credit(const SimSeat& seat) noexcept;
  void close(SimSeat& seat);
  void leave(SimSeat& seat);  ///< the link is destroyed
  [[nodiscard]] bool abandon(SimSeat& seat, std::uint64_t cookie);
  [[nodiscard]] bool revoke(const SimSeat& seat, RegionKey key);  ///< false: pieces may still land
  [[nodiscard]] bool drained(const SimSeat& seat) const noexcept {
    return seat.closed && (halted_ || world_.now() >= seat.drained_at);
  }

 private:
  struct Piece {
    std::byte* local = nullptr;
    std::byte* place = nullptr;  ///< at the target, once the transfer was found allowed
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    bool carried = false;  ///< a write's bytes are on the wire, in `data`
    bool dropped = false;
    std::vector<std::byte> data;
  };
  struct Transfer {
    Post post;  ///< without its segments, which are the poster's
    std::vector<Piece> pieces;
    SimSeat* initiator = nullptr;  ///< null: destroyed
    SimSeat* target = nullptr;
    LinkSeq seq = 0;
    std::size_t landings_left = 0;
    memory::Device* device = nullptr;  ///< of the target's region; set when the whole access was found allowed
    bool dead = false;                 ///< will never be executed whole
    Error refused{};
    bool executed = false;    ///< an atomic
    std::uint64_t value = 0;  ///< its word before
  };
  void on_world_event(std::uint64_t token) override;
  void schedule_break(SimSeat& seat);
  void cut(Transfer& transfer, std::span<const Segment> segments);
  static void carry(Transfer& transfer, Piece& piece);
  [[nodiscard]] static Error admit(Transfer& transfer);
  void land(Transfer& transfer, Piece& piece);
  static void execute(Transfer& transfer, const Piece& piece);
  void landed_all(std::uint64_t id, Transfer& transfer);
  static void complete(Transfer& transfer);
  [[nodiscard]] Duration delay(std::uint32_t late_per_mille);

  runtime::VirtualWorld& world_;
  SimPlan plan_;
  std::map<std::string, SimSeat*> waiting_;  // seats whose other end has not come, by connection
  std::map<std::uint64_t, Transfer> transfers_;
  std::map<std::uint64_t, SimSeat*> breaks_;
  std::uint64_t next_id_ = 1;
  std::uint64_t ghosts_landed_ = 0;
  std::uint64_t ghosts_refused_ = 0;
  bool halted_ = false;
};

}  // namespace hixl::links
