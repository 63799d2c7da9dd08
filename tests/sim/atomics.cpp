// SPDX-License-Identifier: Apache-2.0
//
// The cluster's atomics: counts, compare_swaps and swaps on the words of every memory.
#include <fmt/core.h>

#include "cluster_parts.hpp"

namespace hixl::sim {

void Cluster::post_atomic(Life& life, Rank to) {
  const Knowledge& known = life.pairs[to];
  auto made = std::make_unique<Operation>();
  Operation& operation = *made;
  operation.cluster = this;
  operation.life = &life;
  operation.number = operations_.size() + 1;
  operation.to = to;
  operation.remote = known.memory;
  operation.region = *known.region;
  operation.behind = known.fence;
  operation.atomic.emplace();
  WordHistory::Entry& entry = *operation.atomic;
  entry.use = static_cast<WordUse>(random_.below(k_words));
  entry.stored = entry.use == WordUse::count ? 1 : unique() | 1U;  // a value of its own, never 0
  // A good guess mostly: what the word holds now.
  if (entry.use == WordUse::compare_swap) {
    entry.expected = random_.chance(800) ? operation.remote->words()[static_cast<std::size_t>(entry.use)] : unique();
  }
  if (const auto posted = submit(operation); !posted) return on_refused_post(operation, posted.error());
  operation.history_index = operation.remote->history().begin(entry);
  open_.push_back(&operation);
  operations_.push_back(std::move(made));
  say("{}: rank {} {} word of rank {}", operation.number, life.rank,
      entry.use == WordUse::count  ? "counts on the first"
      : entry.use == WordUse::swap ? "swaps the third"
                                   : "compares and swaps the second",
      to);
}

Result<Request> Cluster::submit_atomic(const Operation& operation, const OpOptions& options) {
  const WordHistory::Entry& entry = *operation.atomic;
  const RemoteAddress word = operation.region.at(Memory::word_offset(static_cast<std::size_t>(entry.use)));
  const links::Verb verb = entry.use == WordUse::count  ? links::Verb::atomic_add
                           : entry.use == WordUse::swap ? links::Verb::atomic_swap
                                                        : links::Verb::atomic_compare_swap;
  return operation.life->core->post_atomic(word, {.verb = verb, .value = entry.stored, .expected = entry.expected},
                                           options);
}

void Cluster::judge_atomic(Operation& operation, const Completion& completion) {
  const ErrorCode code = completion.result ? ErrorCode::ok : completion.result.error().code;
  WordHistory& history = operation.remote->history();
  using Fate = WordHistory::Entry::Fate;
  if (code == ErrorCode::ok) {
    count(Rare::atomics);
    if (world_.now() > operation.deadline) count(Rare::late_atomics);
    if (operation.cancelled) count(Rare::cancelled_in_vain);
    history.end(operation.history_index, Fate::done, completion.value);
  } else if (code == ErrorCode::outcome_unknown) {
    count(Rare::outcome_unknown);
  } else {
    // Every other error says that it was not executed and never will be.
    operation.life->pairs[operation.to].last_error = completion.result.error();
    history.end(operation.history_index, Fate::not_done);
    judge_failure(operation, code);
  }
  check_words(*operation.remote, operation.to);
  Life& life = *operation.life;
  if (random_.chance(shape_.chain_per_mille) && posts(life) && life.pairs[operation.to].region &&
      open_.size() < shape_.open_max) {
    post_atomic(life, operation.to);
  }
}

/// S5: the words are what the ends of their operations say.
void Cluster::check_words(const Memory& memory, Rank rank) {
  if (memory.lost()) return;
  const std::string complaint = memory.history().complaint(memory.words());
  if (!complaint.empty()) violate("S5", fmt::format("the words of rank {}: {}", rank, complaint));
}

}  // namespace hixl::sim
