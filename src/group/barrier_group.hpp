// SPDX-License-Identifier: Apache-2.0
//
// One group at one of its members: its barrier calls and, at the collector (the lowest rank), what the others have
// entered. barrier_group.cpp says how the barrier works; BarrierActor owns the groups.
#pragma once

#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include <hixl/result.hpp>

#include "memory/barrier_page.hpp"
#include "peer/address_book.hpp"
#include "runtime/loop.hpp"
#include "wire/messages.hpp"

namespace hixl::group {

/// One barrier call.
struct BarrierCall {
  Instant deadline;
  void (*done)(void* context, const Result<void>& result);  ///< once, never inline
  void* context;
};

/// What a group needs of the actor that owns it.
class BarrierHost {
 public:
  virtual void end(const BarrierCall& call, const Result<void>& result) = 0;

 protected:
  ~BarrierHost() = default;
};

/// Loop-bound. Owner: BarrierActor.
class BarrierGroup final : public runtime::Timer {
 public:
  struct Place {
    runtime::Loop& loop;
    peer::ControlPlane& control;
    BarrierHost& host;
    Rank self;
  };
  BarrierGroup(const Place& place, std::uint64_t name) : place_(place), name_(name) {}

  /// The members, self among them; of a made group with their lives. Notes may have come before.
  void know(std::vector<Rank> ranks, const std::vector<Incarnation>& lives);
  /// A made group's page; used once the collector has seen that all have it.
  void use(std::shared_ptr<memory::BarrierPage> page) { page_ = std::move(page); }
  /// The last to enter by the page: tells those who wait by message.
  void tell_released();
  /// A thread waits by the page: asks the collector whether somebody is lost.
  void ask();
  [[nodiscard]] bool known() const noexcept { return known_; }

  void enter(const BarrierCall& call);
  void on_note(peer::PeerLife from, const wire::Barrier& note);
  void on_peer_down(peer::PeerLife who, peer::PeerEnd end);
  /// The program has closed the group: its calls end with CANCELLED. A collector answers on until closed() is true.
  void close();
  [[nodiscard]] bool closed() const noexcept;
  /// Ends all calls.
  void end_all(const Error& error);

 private:
  /// A verdict for whatever call a member is in.
  static constexpr std::uint64_t k_all_calls = std::numeric_limits<std::uint64_t>::max();
  struct Open final : runtime::Timer {
    Open(BarrierGroup& of, const BarrierCall& what) : group(of), call(what) {}
    void on_timer() override { group.on_deadline(*this); }
    BarrierGroup& group;
    BarrierCall call;
  };
  struct Member {
    Rank rank = 0;
    std::size_t place = 0;          ///< made groups: in their order
    Incarnation life = 0;           ///< made groups: the agreed one. Others: who spoke last; 0: nobody yet
    Incarnation ended = 0;          ///< the last life of it that is known to be over
    std::uint64_t heard = 0;        ///< highest number that this life has entered, as far as known here
    std::uint64_t call = 0;         ///< collector: its newest call
    std::uint64_t failed_call = 0;  ///< collector: its calls up to here have ended with `verdict`
    Error verdict{};
    ErrorCode over = ErrorCode::ok;  ///< made groups: why it will never enter again
  };

  // ---- by the page (barrier_group_page.cpp) ----
  [[nodiscard]] bool paged() const noexcept { return page_ && page_->started(); }
  void begin_paged();
  void check_page();
  void give_turn();
  void on_timer_paged();
  void break_page(const Error& error);
  void mark_over(Member& member, ErrorCode code);

  void on_timer() override;  // asks
  void begin();
  void proceed();
  void collect();
  void number_members();
  void pass();
  void end_first(const Result<void>& result);
  void on_deadline(Open& open);

  void on_arrived(Member& member, const wire::Barrier& note);
  void on_answer(Member& collector, const wire::Barrier& note);
  void lose(Member& member, ErrorCode code);
  void judge(const Error& error);
  void tell_verdict(const Member& member);
  void tell_next(const Member& member, std::uint64_t asked);
  void poll_missing();
  void linger();

  [[nodiscard]] bool made() const noexcept;
  /// With members unknown: whoever is told things collects them.
  [[nodiscard]] bool collects() const noexcept { return !known_ || others_.empty() || place_.self < others_[0].rank; }
  [[nodiscard]] bool calling_roll() const noexcept { return passed_ == 0; }
  [[nodiscard]] bool missing(const Member& member) const noexcept {
    return has_turn_ ? !page_->has_entered(member.place) : member.heard < entered_;
  }
  [[nodiscard]] Member* find(Rank rank) noexcept;
  [[nodiscard]] const Member* first_over() const noexcept;
  void tell(const Member& member, wire::BarrierNote note, std::uint64_t number);
  void send(const Member& member, wire::Barrier note);

  Place place_;
  const std::uint64_t name_;
  bool known_ = false;
  bool closing_ = false;
  std::size_t own_place_ = 0;   // made groups
  bool page_agreed_ = false;    // the collector saw that all have the page
  bool has_turn_ = false;       // our first call is in the barrier by the page
  bool answered_ = true;        // the collector has, since our last question
  std::size_t poll_from_ = 0;   // where the next round of polls begins
  std::vector<Member> others_;  // by rank
  std::uint64_t entered_ = 0;   // highest number that we have said
  std::uint64_t passed_ = 0;    // highest number that we have left; 0: this life is new to the group
  std::uint64_t call_ = 0;      // counts our calls
  std::uint64_t released_ = 0;  // collector: highest number that everybody has entered; 0: not known yet
  std::shared_ptr<memory::BarrierPage> page_;
  std::list<Open> calls_;  // the first is in the barrier, the others wait for it
};

}  // namespace hixl::group
