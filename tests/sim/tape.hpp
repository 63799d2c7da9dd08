// SPDX-License-Identifier: Apache-2.0
//
// Tape: the choice sequence of one run, in lanes, so that a choice taken out of one does not shift the others. From a
// seed it makes the choices up; a recorded one gives them again; bytes that a fuzzer made up decide as well.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <hixl/result.hpp>

#include "base/choices.hpp"

namespace hixl::sim {

/// Who chooses: the kind of world, the load, what the cluster does to its ranks, network and card, what happens to
/// messages between peer room and links.
enum class Lane : std::uint8_t { shape, load, trouble, world, taps };
inline constexpr std::size_t k_lanes = 5;
inline constexpr std::array<const char*, k_lanes> k_lane_names{"shape", "load", "trouble", "world", "taps"};

/// What a run has chosen, or is to choose.
struct Record {
  std::array<std::vector<std::uint64_t>, k_lanes> lanes;
  /// Places of the chances that came true, by lane: most of them are faults.
  std::array<std::vector<std::uint32_t>, k_lanes> yes;
  /// Settings that the run had on top: knobs of the shape, and the planted bug.
  std::vector<std::string> settings;

  [[nodiscard]] Result<void> save(const std::string& path) const;
  [[nodiscard]] static Result<Record> load(const std::string& path);
};

class Tape {
 public:
  struct Seeds {
    std::uint64_t run = 1;
    std::uint64_t shape = 0;  ///< of the kind of world; 0: the same
  };
  explicit Tape(const Seeds& seeds);         ///< the fast one: nothing is kept
  Tape(const Seeds& seeds, Record& record);  ///< the same choices, kept in `record`
  explicit Tape(const Record& record);       ///< gives them again, then 0
  explicit Tape(std::span<const std::byte> bytes);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// To be asked for once each.
  [[nodiscard]] Choices lane(Lane which);

 private:
  class Source;
  class Recorder;
  class Player;
  class Bytes;
  [[nodiscard]] std::uint64_t seed_of(std::size_t lane) const noexcept;

  Seeds seeds_{};
  std::array<std::unique_ptr<Source>, k_lanes> sources_;  // null: from the seed alone
  std::span<const std::byte> bytes_;
};

}  // namespace hixl::sim
