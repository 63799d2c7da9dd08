// SPDX-License-Identifier: Apache-2.0
//
// The launcher: hosts the store, starts the ranks, hands out requests as the trace says, and collects what came of
// them. It lives on when a rank dies: what that rank had is an error, what comes later goes to others.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "children.hpp"
#include "event_queue.hpp"
#include "link_cut.hpp"
#include "plan.hpp"
#include "policy.hpp"
#include "progress.hpp"
#include "report.hpp"

namespace pd {

class Launcher {
 public:
  Launcher(const Options& options, const Plan& plan, std::vector<Request> requests);
  /// Everything; the exit code.
  [[nodiscard]] int run();

 private:
  struct Open {
    std::uint32_t prefill = 0;
    std::uint32_t decode = 0;
    std::uint64_t blocks = 0;
    std::uint64_t input_tokens = 0;
    Clock::time_point arrival;
    Clock::time_point computed;
    bool sent = false;  // the Prefill has nothing more to do with it
    bool arrived = false;
  };

  [[nodiscard]] bool start_ranks(const std::string& store_url);
  [[nodiscard]] bool wait_until_ready();
  void serve();
  void start_due_requests();
  void start_request(const Request& request, Clock::time_point arrival);
  void poll_children(Clock::time_point until);
  void on_line(std::uint32_t rank, const Json& line);
  void on_death(std::uint32_t rank);
  void end_with_error(std::uint32_t id, const std::string& text, Clock::time_point at);
  void wait_for_link();
  void finish_ranks();
  [[nodiscard]] bool is_prefill(std::uint32_t rank) const { return rank < plan_.prefill; }
  [[nodiscard]] std::optional<std::uint32_t> choose_prefill() const;
  [[nodiscard]] std::optional<std::uint32_t> choose_decode();

  const Options options_;
  const Plan plan_;
  const std::vector<Request> requests_;
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<LinkCut> cut_;  // before children_: the relay outlives the ranks
  Children children_;
  std::size_t ready_ = 0;
  std::size_t next_request_ = 0;
  std::uint32_t next_id_ = 1;
  std::unordered_map<std::uint32_t, Open> open_;
  std::vector<std::uint64_t> prefill_tokens_;  // given to it and not sent yet
  std::vector<std::uint64_t> decode_blocks_;
  Clock::time_point begun_;
  std::optional<Clock::time_point> killed_at_;
  Report report_;
};

}  // namespace pd
