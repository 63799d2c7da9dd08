// SPDX-License-Identifier: Apache-2.0
//
// GateBook: what this rank counts at gates of others, as far as it knows. A word belongs to one user, so when nobody
// can tell whether a step was executed (OUTCOME_UNKNOWN) the word is read once a session stands again, and put right.
// Pure; not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "gate.hpp"
#include "returns.hpp"

namespace hixl::kv {

class GateBook {
 public:
  static constexpr std::uint64_t k_entered = 1;
  static constexpr std::uint64_t k_left = ~std::uint64_t{0};  // is subtracted, as the word does it
  /// How a step ended: its part in the count, and whether the word may say something else.
  struct End {
    std::uint64_t inside = 0;  ///< k_entered, k_left, 0: not executed, or not known
    bool doubtful = false;
  };
  struct Question {
    GateThere gate;
    std::uint64_t steps = 0;  ///< of the gate, when it was asked
  };

  /// Before a step is posted.
  void begin(const GateThere& gate) {
    Entry& entry = entries_[key_of(gate)];
    entry.gate = gate;
    entry.open += 1;
    entry.steps += 1;
  }
  void end(const GateThere& gate, const End& how) {
    const auto at = entries_.find(key_of(gate));
    if (at == entries_.end()) return;  // of a life that is over
    Entry& entry = at->second;
    entry.open -= 1;
    entry.steps += 1;
    (gate.access == Access::pull ? entry.pulling : entry.pushing) += how.inside;
    entry.doubtful = entry.doubtful || how.doubtful;
    drop_if_settled(at);
  }
  template <class Test>
  [[nodiscard]] bool any_doubtful(Test&& test) const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const auto& row) { return row.second.doubtful && test(row.second.gate); });
  }
  [[nodiscard]] bool doubtful() const {
    return any_doubtful([](const GateThere&) { return true; });
  }
  /// Words to be read: of doubtful gates that can be reached, at which no step is under way. Forgets those that are
  /// over. `look`: RankLook of a gate.
  template <class Look>
  [[nodiscard]] std::vector<Question> ask(Look&& look) {
    std::vector<Question> questions;
    for (auto at = entries_.begin(); at != entries_.end();) {
      Entry& entry = at->second;
      const auto row = at++;
      if (!entry.doubtful || entry.asked || entry.open > 0) continue;
      const RankLook seen = look(entry.gate);
      if (seen == RankLook::over) {
        entries_.erase(row);
      } else if (seen == RankLook::reached) {
        entry.asked = true;
        questions.push_back({.gate = entry.gate, .steps = entry.steps});
      }
    }
    return questions;
  }
  /// What the word has to be instead. Nothing: it is right, or steps were taken meanwhile, and it is asked again.
  [[nodiscard]] std::optional<std::uint64_t> heard(const Question& question, std::uint64_t word) {
    const auto at = entries_.find(key_of(question.gate));
    if (at == entries_.end()) return std::nullopt;
    Entry& entry = at->second;
    const std::uint64_t right = gate::with_users_at_most(word, entry.pulling, entry.pushing);
    if (entry.is_still(question) && right != word) return right;
    settle(question, true);
    return std::nullopt;
  }
  /// `right`: the word was exchanged. Else no answer came, or it had changed before: it is asked again. So it is after
  /// steps that were taken meanwhile: they may be doubtful themselves.
  void settle(const Question& question, bool right) {
    const auto at = entries_.find(key_of(question.gate));
    if (at == entries_.end()) return;
    Entry& entry = at->second;
    entry.asked = false;
    if (right && entry.is_still(question)) entry.doubtful = false;
    drop_if_settled(at);
  }
  /// That life of a rank, or of its DataDist, is over.
  void forget(const RemoteAddress& directory) {
    std::erase_if(entries_, [&](const auto& row) { return same_life(row.second.gate.at, directory); });
  }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct Entry {
    GateThere gate;
    std::uint64_t pulling = 0;  // of ours, inside
    std::uint64_t pushing = 0;
    std::uint32_t open = 0;  // steps under way
    std::uint64_t steps = 0;
    bool doubtful = false;
    bool asked = false;
    [[nodiscard]] bool is_still(const Question& question) const noexcept {
      return open == 0 && steps == question.steps;
    }
  };
  using Key = std::tuple<Rank, std::uint64_t, std::uint32_t, std::uint32_t, std::uint64_t>;
  using Entries = std::map<Key, Entry>;
  [[nodiscard]] static Key key_of(const GateThere& gate) {
    return {gate.at.rank, gate.at.incarnation, gate.at.region.id, gate.at.region.generation, gate.at.address};
  }
  void drop_if_settled(Entries::iterator at) {
    const Entry& entry = at->second;
    if (entry.open == 0 && !entry.doubtful && entry.pulling == 0 && entry.pushing == 0) entries_.erase(at);
  }

  Entries entries_;  // of gates in use, or doubtful
};

}  // namespace hixl::kv
