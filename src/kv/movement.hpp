// SPDX-License-Identifier: Apache-2.0
//
// Transfer::State: one push or pull under way. It enters the gate at the other rank, posts batches of pieces layer by
// layer while there is room, and leaves the gate when the last of them has ended. Callers, the loop (ends of batches)
// and the keeper (deadlines, what found no room) take turns under its mutex; the program is called without it.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <hixl/kv/transfer.hpp>
#include <hixl/request.hpp>
#include <hixl/transfer.hpp>

#include "byte_plan.hpp"
#include "find.hpp"
#include "state.hpp"

namespace hixl::kv {

class Transfer::State : public std::enable_shared_from_this<Transfer::State> {
 public:
  struct Parts {
    std::shared_ptr<DataDist::State> home;
    TransferVerb verb = TransferVerb::put;
    BytePlan plan;
    std::shared_ptr<LocalCache> local;
    std::shared_ptr<const RemoteCache::State> remote;
    GateThere gate{};
    std::optional<RemoteAddress> arrivals{};  // the word of the cache's first layer there
    std::uint32_t arrivals_first = 0;         // that layer, the target's number
    std::optional<MarkKey> mark{};
    std::uint32_t mark_tokens = 0;  // there with success
    TransferOptions options{};
    Instant deadline{};
  };
  explicit State(Parts&& parts);

  /// Posts the entry. An error has begun nothing.
  [[nodiscard]] Result<void> begin();
  /// begin() was refused: takes back what was counted for it. Nobody is told.
  void never_began();

  // ---- Transfer's ----
  [[nodiscard]] Result<void> query();
  [[nodiscard]] Result<void> wait(Timeout timeout);
  [[nodiscard]] Progress progress();
  [[nodiscard]] Result<void> ready(std::uint32_t layer);
  void end_early(const Error& why);

  /// The keeper's look. True: something is there that found no room.
  [[nodiscard]] bool look(Instant now);
  [[nodiscard]] Rank rank() const noexcept { return parts_.remote->rank; }
  [[nodiscard]] TransferVerb verb() const noexcept { return parts_.verb; }

 private:
  enum class Stage : std::uint8_t { entering, moving, ending, ended };
  struct Flight {
    State* owner = nullptr;
    Request request;
    std::uint64_t bytes = 0;
    bool tells = false;                 // of the layer's arrival
    std::vector<std::uint32_t> layers;  // places
  };
  struct Layer {
    bool named = false;       // by ready()
    bool posted_all = false;  // no piece of it is left to be posted
    std::uint32_t flights = 0;
  };
  using Lock = std::unique_lock<std::mutex>;

  static void on_entered(void* context, const Completion& completion);
  static void on_flight(void* context, const Completion& completion);
  void entered(const Completion& completion);
  void landed(Flight& flight, const Completion& completion);
  void advance();
  void fill();
  void add_to_batch(const Piece& piece);
  [[nodiscard]] bool completes_layer() const noexcept;
  [[nodiscard]] Result<Request> post(Flight& flight);
  void stop_with(const Error& why);
  [[nodiscard]] bool all_there() const noexcept;
  [[nodiscard]] bool over() const noexcept;
  /// Ends it if it is over; the program is told on the loop thread. Gives the lock back.
  void finish_if_over(Lock lock, bool on_loop);
  [[nodiscard]] bool layer_by_layer() const noexcept;
  [[nodiscard]] Progress progress_locked() const noexcept;
  [[nodiscard]] Timeout time_left() const { return DataDist::State::left(parts_.deadline); }

  Parts parts_;
  std::mutex mutex_;
  Stage stage_ = Stage::entering;
  bool inside_ = false;  // the gate counts us
  Request entry_;
  std::optional<Error> error_;
  std::vector<Layer> layers_;
  std::deque<std::uint32_t> queue_;    // places of layers that may move
  std::deque<std::uint32_t> to_tell_;  // places of layers whose bytes are there, all of them, in more than one batch
  bool cutting_ = false;               // a layer of which not all pieces are in batches
  std::uint32_t layer_cut_ = 0;
  BytePlan::Cut cut_{};
  bool cut_over_ = false;
  std::vector<Piece> pieces_;  // cut, and in no batch before piece_at_
  std::size_t piece_at_ = 0;
  std::vector<BatchEntry> batch_;  // filled, and not posted yet
  std::uint64_t batch_bytes_ = 0;
  std::vector<std::uint32_t> batch_layers_;
  bool starved_ = false;
  bool telling_ = false;  // the program is being told of layers, after which the end may come
  std::list<Flight> flights_;
  std::uint64_t bytes_in_flight_ = 0;
  std::uint64_t bytes_done_ = 0;
  std::uint32_t layers_done_ = 0;
};

}  // namespace hixl::kv
