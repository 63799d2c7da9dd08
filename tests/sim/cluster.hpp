// SPDX-License-Identifier: Apache-2.0
//
// A simulated cluster: real cores of the library on virtual ports, a store, memory under an oracle, and a workload of
// random operations. One seed decides everything.
//
// cluster.cpp has birth, death and the clock, trouble.cpp the faults and their healing, workload.cpp the operations,
// atomics.cpp those on words, barriers.cpp the barriers, misuse.cpp requests that must be refused, checks.cpp what is
// looked at in between.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/core.hpp"
#include "corruptor.hpp"
#include "group/store_server.hpp"
#include "links/sim/factory.hpp"
#include "oracle.hpp"
#include "rare.hpp"
#include "rdma_cards.hpp"
#include "runtime/virtual_port.hpp"
#include "shape.hpp"
#include "tap.hpp"
#include "tape.hpp"

namespace hixl::sim {

struct Report {
  std::uint64_t events = 0;
  std::uint64_t operations = 0;
  std::uint64_t trace_hash = 0;  ///< of every event of the world and every end of an operation
  Duration simulated{};
  RareCounts rare{};
  std::optional<Violation> violation;
  Shape shape{};
};

using Story = std::function<void(std::string&& line)>;

class Cluster final : private runtime::FaultWitness {
 public:
  struct Settings {
    std::vector<std::string> set{};  ///< knobs of the shape that are turned: see Shape::set
    Story story{};                   ///< takes a line for every post, end and fault
  };
  Cluster(Tape& tape, const Settings& settings);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  /// Safety under faults, then heal and liveness. Once.
  [[nodiscard]] Report run();

 private:
  struct Life;       // one life of a rank
  struct Operation;  // one operation of the workload
  struct Part;       // one entry of it
  struct ExchangeNote;
  struct Turnover;
  struct BarrierCall;
  enum class Load : std::uint8_t { none, missing_pairs, full };

  // ---- birth, death, time ----
  void make_store();
  [[nodiscard]] static std::uint64_t first_life(Rank rank) noexcept;
  [[nodiscard]] Life& start(Rank rank);
  void kill(Rank rank);
  void replace(Rank rank);
  void bury(Life& life);
  void end_zombies(Rank rank);
  void leave(Rank rank);
  void on_left(Life& life);
  void take_down();
  /// Turns the world; true when nothing was open at the end (without load: as soon as nothing is open).
  bool drive(Duration time, Load load);

  // ---- trouble ----
  void on_fault(std::string_view what, std::uint64_t connection) override;
  void idle();
  [[nodiscard]] std::uint64_t peers_lost();
  void inject_faults();
  void disturb_cards();
  void turn_over(Life& life);
  void on_turned_over(const Turnover& note, const Result<void>& result);
  [[nodiscard]] bool is_zombie(const Life& life) const;
  void heal();
  [[nodiscard]] bool every_pair_works() const;

  // ---- workload ----
  [[nodiscard]] bool posts(Life& life) const;
  void turn_workload(Load load);
  [[nodiscard]] bool waits_for(Rank waiting, Rank other) const;
  void want_addresses(Life& life, Rank with);
  void on_addresses(const ExchangeNote& note, PeerAddresses&& answer);
  void forget_addresses(Rank a, Rank b);
  /// `remote_slot`: into that one; nothing: any.
  void post(Life& life, Rank to, std::optional<std::size_t> remote_slot);
  void post_order(Life& life, Rank to);
  void post_atomic(Life& life, Rank to);
  [[nodiscard]] static Result<Request> submit_atomic(const Operation& operation, const OpOptions& options);
  [[nodiscard]] bool add_part(Operation& operation, std::optional<std::size_t> remote_slot);
  void draw_signal(Operation& operation);
  [[nodiscard]] Result<void> submit(Operation& operation);
  void cancel(Operation& operation);
  void on_refused_post(Operation& operation, const Error& error);
  void on_end(Operation& operation, const Completion& completion);
  void release(Operation& operation);
  void judge_end(Operation& operation, const Completion& completion);
  void judge_success(Operation& operation);
  void judge_failure(Operation& operation, ErrorCode code);
  void judge_retries(const Operation& operation);
  [[nodiscard]] static std::uint64_t broken_links(const Life& life, Rank to);
  void note_settled();
  void judge_order(Operation& operation, const Completion& completion);
  void judge_atomic(Operation& operation, const Completion& completion);
  [[nodiscard]] const Operation* open_before(const Life& life, Rank to, std::uint64_t number) const;
  void reuse(Operation& operation, ErrorCode code);
  void orphan(Operation& operation);

  // ---- requests that must be refused ----
  void misuse(Life& life, Rank to);
  void check_lies();

  // ---- barriers ----
  void turn_barriers();
  void enter_barrier(Life& life, Duration timeout);
  void on_barrier_end(BarrierCall& call, const Result<void>& result);
  void forget_entered(Rank rank);
  [[nodiscard]] std::uint64_t entered(Rank rank, std::uint64_t group) const;
  void check_releases();
  void check_barrier_deadlines();
  [[nodiscard]] bool barriers_work() const;
  void require_barriers();

  // ---- checks ----
  void check_signals();
  void check_fences();
  void complain(const char* invariant, const Memory& memory, std::size_t slot, Rank rank);
  void check_memory(const Life& life);
  void check_words(const Memory& memory, Rank rank);
  void check_deadlines();
  void check_links(Life& life);
  void check_round();
  void check_left(const Life& life);
  void count_cards();
  void check_baseline();
  void violate(const std::string& invariant, const std::string& text);
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    if (!story_) return;
    story_(fmt::format("{:>12.6f} {}", std::chrono::duration<double>(world_.now() - Instant{}).count(),
                       fmt::format(format, std::forward<Args>(args)...)));
  }
  void count(Rare which, std::uint64_t by = 1) noexcept { rare_.add(which, by); }

  /// A number that no other call gives: values that must be told apart, which are no choices.
  [[nodiscard]] std::uint64_t unique() noexcept { return Random(++uniques_).next(); }

  const Story story_;
  Choices random_;   // of the load
  Choices trouble_;  // of what the cluster does to its ranks
  Random contents_;  // of memory
  Shape shape_;
  RareCounts rare_;
  runtime::VirtualWorld world_;
  std::optional<links::SimFabric> fabric_;
  std::unique_ptr<RdmaCards> rdma_;  // null: none
  TapBoard taps_;
  Corruptor corruptor_;
  bool faults_ = true;
  Instant settled_at_ = k_never;  // from then on nothing of the faults is under way any more
  bool settled_ = false;          // what had broken by then is noted
  runtime::EventPort* store_port_ = nullptr;
  std::unique_ptr<runtime::Loop> store_loop_;
  std::unique_ptr<group::StoreServer> store_;
  std::string store_url_;
  std::vector<std::unique_ptr<Life>> lives_;                   // all, dead ones too
  std::vector<Life*> ranks_;                                   // the living, by rank; null: nobody
  std::vector<std::uint32_t> births_;                          // by rank
  std::vector<Instant> restart_at_;                            // by rank: not before
  std::map<std::uint64_t, std::shared_ptr<Memory>> memories_;  // by incarnation
  std::vector<std::unique_ptr<Operation>> operations_;         // all: a callback that comes twice finds its operation
  std::vector<Operation*> open_;                               // in order of posting
  std::vector<std::unique_ptr<BarrierCall>> barriers_;         // all
  struct Past {
    Rank rank;
    std::uint64_t group;
    std::uint64_t entered;
    Instant until;
  };
  std::vector<Past> past_entered_;  // what dead lives had entered
  std::uint64_t uniques_ = 0;
  std::uint64_t ends_hash_ = 0;
  std::uint64_t looks_ = 0;
  std::optional<Violation> violation_;
};

}  // namespace hixl::sim
