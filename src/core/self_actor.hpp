// SPDX-License-Identifier: Apache-2.0
//
// SelfActor: operations of a rank to itself. Same checks and ends as any other; the bytes are copied by the loop in
// pieces, so that a long copy does not hold it up.
//
// Loop-bound.
#pragma once

#include "memory/region_table.hpp"
#include "memory/signal_page.hpp"
#include "peer/arrivals.hpp"
#include "peer/operation.hpp"
#include "peer/services.hpp"

namespace hixl::core {

class SelfActor final : private runtime::Task, private peer::OperationTimer::Events {
 public:
  SelfActor(runtime::Loop& loop, memory::RegionTable& regions, memory::SignalPage& signals,
            peer::PeerListener& listener, Rank rank, const memory::PostingOrder& order)
      : loop_(loop),
        regions_(regions),
        signals_(signals),
        listener_(listener),
        rank_(rank),
        arrivals_(order, loop.mailbox()) {}

  /// With `over` nothing of it begins: it ends with that error.
  void post(peer::Operation& operation, const Error* over = nullptr);
  /// An open operation ends with CANCELLED. Never told inline.
  void cancel(peer::Operation& operation);
  void end_operations_on(std::uint32_t region_id);
  void stop();
  [[nodiscard]] bool idle() noexcept { return open_.empty() && over_.empty(); }

 private:
  void run() override;
  void on_operation_timer(peer::OperationTimer& timer) override;
  [[nodiscard]] Result<void> copy_piece(peer::Operation& operation, std::uint64_t bytes_max);
  [[nodiscard]] Result<void> signal(const peer::Operation& operation);
  void end_later(peer::Operation& operation, const Error& error);
  [[nodiscard]] Result<void> execute(peer::Operation& operation);
  void finish(peer::Operation& operation, const Result<void>& result);

  runtime::Loop& loop_;
  memory::RegionTable& regions_;
  memory::SignalPage& signals_;
  peer::PeerListener& listener_;
  const Rank rank_;
  List<peer::Operation, peer::OpenTag> open_;  // runs in this order, so that fences and flushes need nothing more
  List<peer::Operation, peer::OpenTag> over_;  // have their ends, which are told before anything behind them ends
  peer::Arrivals arrivals_;
};

}  // namespace hixl::core
