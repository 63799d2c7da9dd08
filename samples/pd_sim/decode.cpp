// SPDX-License-Identifier: Apache-2.0
//
// A Decode rank: gives places in its paged KV pool, checks every block of every layer as it is told of it, "decodes" at
// the stated speed, and gives the places back. It never asks for bytes: they are put under its nose.
#include <cstdio>
#include <deque>
#include <queue>
#include <unordered_map>

#include "block_pool.hpp"
#include "pattern.hpp"
#include "rank.hpp"

namespace pd {

namespace {

struct Sequence {
  hixl::Rank prefill = 0;
  std::uint32_t tokens = 0;
  std::vector<std::uint64_t> names;
  std::vector<BlockPool::Place> places;
  bool arrived = false;  // every layer is there
  std::uint64_t verified_bytes = 0;
  std::uint64_t corrupt = 0;
};

struct Alarm {
  Clock::time_point at;
  std::uint32_t id = 0;
  bool last = false;  // the sequence ends; otherwise its first token is there
  friend bool operator>(const Alarm& a, const Alarm& b) { return a.at > b.at; }
};

class Decode {
 public:
  Decode(Rank& rank, const hixl::Region& pool) : rank_(rank), memory_(pool), pool_(rank.plan.pool_blocks) {}

  void run() {
    while (!finish_) {
      const auto until = alarms_.empty() ? Clock::now() + std::chrono::hours(1) : alarms_.top().at;
      if (const auto event = rank_.events.pop_until(until)) take(*event);
      ring_alarms();
    }
  }

 private:
  void take(const Event& event) {
    const Message& message = event.message;
    if (event.from == hixl::k_no_rank) {
      finish_ = finish_ || event.line.contains("finish");
      if (event.line.contains("dead")) forget_prefill(event.line.at("dead").get<hixl::Rank>());
      return;
    }
    switch (message.subject) {
      case Subject::reserve:
        sequences_[message.request] = {
            .prefill = event.from, .tokens = message.number, .names = message.values, .places = {}};
        waiting_.push_back(message.request);
        return grant();
      case Subject::layer:
        return on_layer(message.request, message.number);
      case Subject::abort:
        return end(message.request);
      case Subject::granted:
        return;
    }
  }

  /// In order of arrival: a large request is not starved by small ones.
  void grant() {
    while (!waiting_.empty()) {
      const std::uint32_t id = waiting_.front();
      const auto found = sequences_.find(id);
      if (found == sequences_.end()) {  // aborted meanwhile
        waiting_.pop_front();
        continue;
      }
      Sequence& sequence = found->second;
      auto places = pool_.take(sequence.names);
      if (!places) return;  // when a sequence ends
      waiting_.pop_front();
      sequence.places = std::move(*places);
      Message answer{Subject::granted, id, 0, {}};
      for (const BlockPool::Place& place : sequence.places) {
        answer.values.push_back(place.block | (place.reused ? k_reused_bit : 0));
      }
      if (const auto sent = rank_.mailroom.send(sequence.prefill, answer); !sent) end(id);
    }
  }

  void on_layer(std::uint32_t id, std::uint32_t layer) {
    const auto found = sequences_.find(id);
    if (found == sequences_.end()) return;
    Sequence& sequence = found->second;
    for (std::size_t i = 0; i < sequence.places.size(); ++i) {
      if (!sequence.places[i].reused) sequence.verified_bytes += check(sequence, i, layer);
    }
    if (layer + 1 == rank_.plan.layers) on_arrived(id, sequence);
  }

  /// Bytes that are as they must be.
  std::uint64_t check(Sequence& sequence, std::size_t index, std::uint32_t layer) {
    const std::uint64_t size = rank_.plan.block_layer_bytes;
    const std::uint64_t offset = (std::uint64_t{layer} * rank_.plan.pool_blocks + sequence.places[index].block) * size;
    const auto* words = reinterpret_cast<const std::uint64_t*>(memory_.data + offset);
    if (check_block({words, size / sizeof(std::uint64_t)}, sequence.names[index], layer) == BlockState::good)
      return size;
    ++sequence.corrupt;
    return 0;
  }

  void on_arrived(std::uint32_t id, Sequence& sequence) {
    // Blocks from an earlier request must still be what they were: nobody may have written there since.
    for (std::size_t i = 0; i < sequence.places.size(); ++i) {
      if (!sequence.places[i].reused) continue;
      for (std::uint32_t layer = 0; layer < rank_.plan.layers; ++layer) static_cast<void>(check(sequence, i, layer));
    }
    if (sequence.corrupt == 0) {
      for (const BlockPool::Place& place : sequence.places) {
        if (!place.reused) pool_.publish(place.block);
      }
    }
    sequence.arrived = true;
    const auto now = Clock::now();
    rank_.pipe.write(
        {{"arrived", id}, {"at", to_wire(now)}, {"verified", sequence.verified_bytes}, {"corrupt", sequence.corrupt}});
    alarms_.push({now + seconds(rank_.plan.token_decode_s), id, false});
    alarms_.push({now + seconds(rank_.plan.token_decode_s * sequence.tokens), id, true});
  }

  void ring_alarms() {
    while (!alarms_.empty() && alarms_.top().at <= Clock::now()) {
      const Alarm alarm = alarms_.top();
      alarms_.pop();
      if (!alarm.last) {
        rank_.pipe.write({{"first_token", alarm.id}, {"at", to_wire(Clock::now())}});
        continue;
      }
      rank_.pipe.write({{"done", alarm.id}});
      end(alarm.id);
    }
  }

  void end(std::uint32_t id) {
    const auto found = sequences_.find(id);
    if (found == sequences_.end()) return;
    pool_.release(found->second.places);
    sequences_.erase(found);
    grant();
  }

  /// What a dead Prefill was sending stays unfinished. Its places are not used again: this program does not ask the
  /// library whether the last byte of that life has been fenced already.
  void forget_prefill(hixl::Rank prefill) {
    if (prefill >= rank_.plan.prefill) return;
    rank_.mailroom.forget(prefill);
    std::erase_if(sequences_,
                  [&](const auto& entry) { return entry.second.prefill == prefill && !entry.second.arrived; });
    grant();
  }

  Rank& rank_;
  const hixl::Region memory_;
  BlockPool pool_;
  std::unordered_map<std::uint32_t, Sequence> sequences_;
  std::deque<std::uint32_t> waiting_;  // for places
  std::priority_queue<Alarm, std::vector<Alarm>, std::greater<>> alarms_;
  bool finish_ = false;
};

}  // namespace

int run_decode(Rank& rank) {
  const auto pool = rank.runtime->allocate(rank.plan.block_bytes() * rank.plan.pool_blocks, {.tag = k_tag_pool});
  if (!pool) {
    std::fprintf(stderr, "hixl_pd_sim: Decode %u: %s\n", rank.runtime->rank(), pool.error().message().c_str());
    return 1;
  }
  if (const auto met = rank.meet(*pool); !met) {
    std::fprintf(stderr, "hixl_pd_sim: Decode %u: %s\n", rank.runtime->rank(), met.error().message().c_str());
    return 1;
  }
  Decode(rank, *pool).run();
  return 0;
}

}  // namespace pd
