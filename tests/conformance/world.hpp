// SPDX-License-Identifier: Apache-2.0
//
// Two ends and the world around them: the real one (libuv, sockets, shared memory, copy threads; both loops turned by
// the test's thread) or the simulated one. A test asks for the world of a kind and is written once.
#pragma once

#include <cstdint>
#include <memory>

#include "end.hpp"
#include "links/sim/fabric.hpp"

namespace conformance {

struct Hccs {
  static constexpr LinkKind kind = LinkKind::hccs;
};
struct Pcie {
  static constexpr LinkKind kind = LinkKind::pcie;
};
struct Tcp {
  static constexpr LinkKind kind = LinkKind::tcp;
};
struct Roce {
  static constexpr LinkKind kind = LinkKind::roce;
};
struct Sim {
  static constexpr LinkKind kind = LinkKind::sim;
};

class World {
 public:
  virtual ~World() = default;
  /// Why this machine has no such links, or nothing. The reason is printed once.
  [[nodiscard]] static bool skips(LinkKind kind);
  /// Two ends with links that are up. Stops the test when that fails.
  [[nodiscard]] static std::unique_ptr<World> make(LinkKind kind, std::uint64_t seed, const End::Depths& depths = {});

  /// Lets time pass until `done()`; fails the test loudly when it takes too long.
  template <class Predicate>
  void until(Predicate&& done) {
    start_waiting();
    while (!done()) {
      if (!step()) give_up();
    }
  }
  /// Lets a little time pass; `act` is called in between, and at both ends.
  template <class Act>
  void steps(std::uint64_t count, Act&& act) {
    start_waiting();
    act();
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!step()) give_up();
      act();
    }
  }
  /// How many steps lead somewhere into the middle of a few posts.
  [[nodiscard]] std::uint64_t some_steps(Random& random) const {
    return random.below(caps().kind == LinkKind::sim ? 4000 : 8);
  }
  /// Lets everything happen that is under way anywhere.
  virtual void settle() = 0;
  /// End b's loop is turned, or not.
  virtual void turn_b(bool on) = 0;
  /// A region of b that a may use, filled with zero.
  [[nodiscard]] Remote share(std::size_t size, Rights rights = Rights::all) { return share(*b_, *a_, size, rights); }
  [[nodiscard]] Remote share(End& owner, End& user, std::size_t size, Rights rights);
  /// Posts, waiting for credit as needed. Gives the number of the attempt.
  std::uint64_t post(End& end, Verb verb, const Remote& remote, std::vector<Segment> segments, std::uint64_t value = 0);
  /// Posts and waits for the end; its code.
  ErrorCode run(End& end, Verb verb, const Remote& remote, std::vector<Segment> segments, std::uint64_t value = 0);
  void wait_all(End& end);
  /// Closes both sides, waits until both are drained and takes the last completions.
  void close_both();
  /// What every test of a link ends with: nothing came twice, late or from inside a call.
  void check_manners();

  /// Of the simulated world; null elsewhere.
  [[nodiscard]] virtual links::SimFabric* fabric() noexcept { return nullptr; }
  [[nodiscard]] End& a() noexcept { return *a_; }
  [[nodiscard]] End& b() noexcept { return *b_; }
  [[nodiscard]] const links::LinkCaps& caps() const noexcept { return a_->factory->caps(); }

 protected:
  void ready();  ///< waits until both links are up
  std::unique_ptr<End> a_, b_;

 private:
  virtual void start_waiting() = 0;
  /// Something happens. False: that was long enough.
  virtual bool step() = 0;
  [[noreturn]] static void give_up();
};

/// Rounds of a loop, scaled by HIXL_TEST_SCALE (0 … 1); at least one.
[[nodiscard]] int rounds(int full);
/// HIXL_TEST_SEED, or the default; printed with a failure by the tests.
[[nodiscard]] std::uint64_t base_seed();

}  // namespace conformance
