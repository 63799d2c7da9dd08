// SPDX-License-Identifier: Apache-2.0
//
// DrivenGroup: the group of a rank that is driven by lines (rank_program.cpp says which).
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hixl/runtime.hpp>

#include "../api/pattern.hpp"
#include "lines.hpp"

namespace hixl::test {

class DrivenGroup {
 public:
  /// The answer to a line; nothing: it is not about groups.
  std::optional<std::string> act(const std::string& verb, Rank first, Rank second, Runtime& runtime,
                                 const Region& region, const Region& source) {
    if (verb == "make") return make(runtime, first, second);
    if (verb == "barrier") return say(group_.barrier(k_patience));
    if (verb == "send") return send(first, region, source);
    if (verb != "close") return std::nullopt;
    group_.close();
    return "ok";
  }

 private:
  static std::string say(const Result<void>& result) {
    if (result) return "ok";
    std::fprintf(stderr, "%s\n", result.error().message().c_str());
    return std::string(name(result.error().code)) + " " + std::to_string(result.error().detail.rank);
  }

  std::string make(Runtime& runtime, Rank first, Rank last) {
    std::vector<Rank> ranks;
    for (Rank rank = first; rank < last; ++rank) ranks.push_back(rank);
    auto made = runtime.create_group(ranks, {}, k_patience);
    if (!made) return say(fail(made.error()));
    group_ = std::move(*made);
    return "ok";
  }

  std::string send(Rank place, const Region& region, const Region& source) {
    constexpr std::size_t k_bytes = 4096;
    const auto answers = group_.exchange(std::span(&region, 1), k_patience);
    for (const PeerAddresses& answer : answers) {
      if (!answer.result) return say(answer.result);
    }
    fill_pattern(source.data, k_bytes, group_.rank());
    const auto put = group_.put_sync(source.data, answers[place].regions.front().at(0), k_bytes, k_patience);
    return say(put ? group_.barrier(k_patience) : put);
  }

  Group group_;
};

}  // namespace hixl::test
