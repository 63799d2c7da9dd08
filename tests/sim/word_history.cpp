// SPDX-License-Identifier: Apache-2.0
#include "word_history.hpp"

#include <fmt/core.h>

#include <map>
#include <set>

namespace hixl::sim {

using Fate = WordHistory::Entry::Fate;

std::size_t WordHistory::begin(const Entry& entry) {
  entries_.push_back(entry);
  return entries_.size() - 1;
}

void WordHistory::end(std::size_t index, Entry::Fate fate, std::uint64_t before) {
  entries_[index].fate = fate;
  entries_[index].before = before;
}

std::string WordHistory::complaint(const std::array<std::uint64_t, k_words>& now) const {
  std::string text = count_complaint(now[0]);
  if (text.empty()) text = compare_swap_complaint(now[1]);
  return text.empty() ? swap_complaint(now[2]) : text;
}

/// The sum is what was done, and at most all that nobody knows of; no value before comes twice.
std::string WordHistory::count_complaint(std::uint64_t now) const {
  std::uint64_t done = 0;
  std::uint64_t unknown = 0;
  std::set<std::uint64_t> seen;
  for (const Entry& entry : entries_) {
    if (entry.use != WordUse::count) continue;
    unknown += entry.fate == Fate::unknown ? 1 : 0;
    if (entry.fate != Fate::done) continue;
    done += 1;
    if (!seen.insert(entry.before).second) return fmt::format("two adds were told {}", entry.before);
  }
  if (now < done || now > done + unknown) return fmt::format("{} adds made {}, {} are unknown", done, now, unknown);
  if (!seen.empty() && *seen.rbegin() >= now) return fmt::format("an add was told {} of {}", *seen.rbegin(), now);
  return {};
}

/// Backwards from the value now, author by author: all that stored must be on that way, and nobody else.
std::string WordHistory::compare_swap_complaint(std::uint64_t now) const {
  std::map<std::uint64_t, const Entry*> authors;
  std::size_t stored = 0;
  for (const Entry& entry : entries_) {
    if (entry.use != WordUse::compare_swap) continue;
    authors[entry.stored] = &entry;
    stored += entry.fate == Fate::done && entry.stores() ? 1 : 0;
  }
  std::set<std::uint64_t> held{0};
  for (std::uint64_t value = now; value != 0;) {
    const auto author = authors.find(value);
    if (author == authors.end() || !held.insert(value).second) return fmt::format("nobody can have stored {}", value);
    const Entry& entry = *author->second;
    if (entry.fate == Fate::not_done || (entry.fate == Fate::done && !entry.stores())) {
      return fmt::format("{} was stored by a compare_swap that says it did not", value);
    }
    stored -= entry.fate == Fate::done ? 1 : 0;
    value = entry.expected;
  }
  if (stored != 0) return fmt::format("{} compare_swaps that stored have left no trace", stored);
  for (const auto& [value, entry] : authors) {
    if (entry->fate == Fate::done && !held.contains(entry->before)) {
      return fmt::format("a compare_swap was told {}, which was never there", entry->before);
    }
  }
  return {};
}

/// Each value is taken out by one swap; those that are missing were taken out by swaps that nobody knows of.
std::string WordHistory::swap_complaint(std::uint64_t now) const {
  std::set<std::uint64_t> put_in{0};
  std::set<std::uint64_t> may_be_in;
  std::set<std::uint64_t> taken_out{now};
  std::size_t unknown = 0;
  for (const Entry& entry : entries_) {
    if (entry.use != WordUse::swap || entry.fate == Fate::not_done) continue;
    (entry.fate == Fate::done ? put_in : may_be_in).insert(entry.stored);
    unknown += entry.fate == Fate::unknown ? 1 : 0;
    if (entry.fate == Fate::done && !taken_out.insert(entry.before).second) {
      return fmt::format("{} was taken out twice, or is there still", entry.before);
    }
  }
  for (const std::uint64_t value : taken_out) {
    if (!put_in.contains(value) && !may_be_in.contains(value)) return fmt::format("nobody put {} in", value);
    put_in.erase(value);
  }
  return put_in.size() <= unknown ? std::string() : fmt::format("{} swaps have left no trace", put_in.size());
}

}  // namespace hixl::sim
