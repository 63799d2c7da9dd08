// SPDX-License-Identifier: Apache-2.0
//
// A Prefill rank: one request after the other, layer by layer. "Computing" a layer is waiting for as long as the stated
// speed takes; then its KV is written into a staging buffer and put to the Decode while the next layer is computed.
// When the bytes of a layer are there, the Decode gets a message. Nothing in here spins.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <set>

#include "pattern.hpp"
#include "rank.hpp"

namespace pd {

namespace {

/// Layers whose KV is in the staging buffer at a time: one computed, one on its way, and two for a hiccup.
constexpr std::uint32_t k_layers_ahead = 4;
/// A Decode whose pool is full answers when a sequence ends; beyond this something is wrong.
constexpr std::chrono::seconds k_grant_time{30};

struct Job {
  std::uint32_t id = 0;
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  hixl::Rank decode = 0;
  std::vector<std::uint64_t> names;
};

/// A block that the Decode does not hold yet.
struct NewBlock {
  std::uint64_t name = 0;
  std::uint64_t place = 0;
};

struct LayerInFlight {
  std::uint32_t layer = 0;
  hixl::Request request;
};

class Prefill {
 public:
  Prefill(Rank& rank, const hixl::Region& staging) : rank_(rank), staging_(staging) {}

  void run() {
    for (;;) {
      while (!jobs_.empty()) {
        while (const auto event = rank_.events.pop_until(Clock::now())) take(*event);
        const Job job = std::move(jobs_.front());
        jobs_.pop_front();
        if (const auto served = serve(job); !served) report_error(job, served.error());
      }
      if (finish_) return;
      if (auto event = rank_.events.pop_until(Clock::now() + std::chrono::hours(1))) take(*event);
    }
  }

 private:
  void take(const Event& event) {
    if (event.from != hixl::k_no_rank) {
      if (event.message.subject == Subject::granted && event.message.request == waiting_for_)
        granted_ = event.message.values;
      return;
    }
    const Json& line = event.line;
    if (line.contains("look")) rank_.pipe.write(line);
    if (line.contains("finish")) finish_ = true;
    if (line.contains("dead")) forget(line.at("dead"));
    if (line.contains("serve")) {
      jobs_.push_back({line.at("serve"), line.at("input"), line.at("output"), line.at("decode"), line.at("names")});
    }
  }

  void forget(hixl::Rank rank) {
    if (rank < rank_.plan.prefill) return;
    dead_.insert(rank);
    rank_.mailroom.forget(rank);
  }

  void report_error(const Job& job, const hixl::Error& error) {
    if (!dead_.contains(job.decode))
      static_cast<void>(rank_.mailroom.send(job.decode, {Subject::abort, job.id, 0, {}}));
    rank_.pipe.write({{"error", job.id}, {"at", to_wire(Clock::now())}, {"text", error.message()}});
  }

  hixl::Result<void> serve(const Job& job) {
    const auto blocks = reserve(job);
    if (!blocks) return hixl::fail(blocks.error());
    busy_ = {};
    const auto begun = Clock::now();
    const auto layer_time = seconds(rank_.plan.token_prefill_s * job.input_tokens / rank_.plan.layers);
    for (std::uint32_t layer = 0; layer < rank_.plan.layers; ++layer) {
      if (const auto waited = compute_until(job, begun + layer_time * (layer + 1)); !waited)
        return abandon(waited.error());
      if (blocks->empty()) continue;
      while (in_flight_.size() >= k_layers_ahead) {
        if (const auto ended = end_oldest(job, Clock::time_point::max()); !ended) return abandon(ended.error());
      }
      if (const auto posted = post_layer(job, layer, *blocks); !posted) return abandon(posted.error());
    }
    const auto computed = Clock::now();
    while (!in_flight_.empty()) {
      if (const auto ended = end_oldest(job, Clock::time_point::max()); !ended) return abandon(ended.error());
    }
    const auto sent = Clock::now();
    // With every block at the Decode already, one message says that all layers are there.
    if (blocks->empty()) {
      if (const auto told = tell_layer(job, rank_.plan.layers - 1); !told) return told;
    }
    const std::uint64_t bytes = blocks->size() * rank_.plan.block_bytes();
    rank_.pipe.write({{"sent", job.id},
                      {"bytes", bytes},
                      {"reused_bytes", job.names.size() * rank_.plan.block_bytes() - bytes},
                      {"begun", to_wire(begun)},
                      {"computed", to_wire(computed)},
                      {"exposed_ms", blocks->empty() ? 0.0 : to_ms(sent - computed)},
                      {"busy_ms", to_ms(busy_)}});
    return {};
  }

  /// Asks the Decode for places; the blocks that it does not hold.
  hixl::Result<std::vector<NewBlock>> reserve(const Job& job) {
    const auto lost = [&] {
      return hixl::fail(hixl::ErrorCode::peer_lost, {.rank = job.decode, .stage = hixl::Stage::transfer});
    };
    if (dead_.contains(job.decode)) return lost();
    waiting_for_ = job.id;
    granted_.reset();
    if (const auto sent = rank_.mailroom.send(job.decode, {Subject::reserve, job.id, job.output_tokens, job.names});
        !sent) {
      return hixl::fail(sent.error());
    }
    const auto deadline = Clock::now() + k_grant_time;
    while (!granted_) {
      if (dead_.contains(job.decode)) return lost();
      const auto event = rank_.events.pop_until(deadline);
      if (!event) return hixl::fail(hixl::ErrorCode::deadline_exceeded, {.rank = job.decode});
      take(*event);
    }
    std::vector<NewBlock> blocks;
    for (std::size_t i = 0; i < job.names.size() && i < granted_->size(); ++i) {
      if (((*granted_)[i] & k_reused_bit) == 0) blocks.push_back({job.names[i], (*granted_)[i]});
    }
    return blocks;
  }

  /// Waits, and sees to layers that arrive meanwhile.
  hixl::Result<void> compute_until(const Job& job, Clock::time_point time) {
    while (!in_flight_.empty() && Clock::now() < time) {
      if (const auto ended = end_oldest(job, time); !ended) return ended;
    }
    std::this_thread::sleep_until(time);
    return {};
  }

  hixl::Result<void> post_layer(const Job& job, std::uint32_t layer, const std::vector<NewBlock>& blocks) {
    const Plan& plan = rank_.plan;
    const std::uint64_t size = plan.block_layer_bytes;
    std::byte* const buffer = staging_.data + (layer % k_layers_ahead) * plan.request_blocks_max * size;
    const hixl::RemoteRegion& pool = rank_.pools[rank_.index_of(job.decode)];
    entries_.clear();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      std::byte* const local = buffer + i * size;
      fill_block({reinterpret_cast<std::uint64_t*>(local), size / sizeof(std::uint64_t)}, blocks[i].name, layer);
      // Neighbours in the pool travel as one piece.
      if (i > 0 && blocks[i].place == blocks[i - 1].place + 1) {
        entries_.back().size += size;
        continue;
      }
      const std::uint64_t offset = (std::uint64_t{layer} * plan.pool_blocks + blocks[i].place) * size;
      entries_.push_back({hixl::TransferVerb::put, local, pool.at(offset), size});
    }
    auto request = rank_.runtime->batch(entries_);
    if (!request) return hixl::fail(request.error());
    if (in_flight_.empty()) busy_since_ = Clock::now();
    in_flight_.push_back({layer, std::move(*request)});
    return {};
  }

  /// Waits until the oldest layer has arrived, at most until `time`, and tells the Decode.
  hixl::Result<void> end_oldest(const Job& job, Clock::time_point time) {
    LayerInFlight& oldest = in_flight_.front();
    const bool for_ever = time == Clock::time_point::max();
    const auto left = std::max(Clock::duration::zero(), time - Clock::now());
    static_cast<void>(oldest.request.wait(for_ever ? hixl::k_default_timeout : hixl::Timeout(left)));
    if (!oldest.request.done()) return {};  // the wait is over, not the transfer
    const auto ended = oldest.request.query();
    const std::uint32_t layer = oldest.layer;
    in_flight_.pop_front();
    if (in_flight_.empty()) busy_ += Clock::now() - busy_since_;
    if (!ended) return ended;
    return tell_layer(job, layer);
  }

  hixl::Result<void> tell_layer(const Job& job, std::uint32_t layer) {
    return rank_.mailroom.send(job.decode, {Subject::layer, job.id, layer, {}});
  }

  /// The buffers may be used again only when every transfer of them has ended.
  tl::unexpected<hixl::Error> abandon(const hixl::Error& error) {
    for (LayerInFlight& layer : in_flight_) static_cast<void>(layer.request.wait());
    in_flight_.clear();
    return hixl::fail(error);
  }

  Rank& rank_;
  const hixl::Region staging_;
  std::deque<Job> jobs_;
  std::set<hixl::Rank> dead_;
  bool finish_ = false;
  std::uint32_t waiting_for_ = 0;
  std::optional<std::vector<std::uint64_t>> granted_;
  std::deque<LayerInFlight> in_flight_;
  std::vector<hixl::BatchEntry> entries_;
  Clock::time_point busy_since_{};
  Clock::duration busy_{};  // time with a transfer under way, of the present request
};

}  // namespace

int run_prefill(Rank& rank) {
  const auto staging =
      rank.runtime->allocate(k_layers_ahead * rank.plan.request_blocks_max * rank.plan.block_layer_bytes);
  if (!staging) {
    std::fprintf(stderr, "hixl_pd_sim: Prefill %u: %s\n", rank.runtime->rank(), staging.error().message().c_str());
    return 1;
  }
  if (const auto met = rank.meet({}); !met) {
    std::fprintf(stderr, "hixl_pd_sim: Prefill %u: %s\n", rank.runtime->rank(), met.error().message().c_str());
    return 1;
  }
  Prefill(rank, *staging).run();
  return 0;
}

}  // namespace pd
