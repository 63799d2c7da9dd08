// SPDX-License-Identifier: Apache-2.0
#include "tape.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>

namespace hixl::sim {

namespace {

constexpr const char* k_first_line = "hixl choices 1";
/// Of a fuzzer's bytes, a choice takes two: enough for every chance, and a short input goes far.
constexpr std::size_t k_choice_bytes = 2;
/// Longest record that is read: a run of a few thousand events has some 10^5 choices.
constexpr std::size_t k_choices_max = 100'000'000;

tl::unexpected<Error> broken(std::uint64_t line) {
  return fail(ErrorCode::invalid_argument, {.stage = Stage::local_check, .length = line});
}

}  // namespace

class Tape::Source : public ChoiceSource {
 public:
  virtual ~Source() = default;
  void on_yes() noexcept override {}
};

class Tape::Recorder final : public Source {
 public:
  Recorder(std::uint64_t seed, std::vector<std::uint64_t>& values, std::vector<std::uint32_t>& yes)
      : random_(seed), values_(values), yes_(yes) {
    values_.clear();
    yes_.clear();
  }
  [[nodiscard]] std::uint64_t next() noexcept override { return values_.emplace_back(random_.next()); }
  void on_yes() noexcept override { yes_.push_back(static_cast<std::uint32_t>(values_.size() - 1)); }

 private:
  Random random_;
  std::vector<std::uint64_t>& values_;
  std::vector<std::uint32_t>& yes_;
};

class Tape::Player final : public Source {
 public:
  explicit Player(const std::vector<std::uint64_t>& values) : values_(values) {}
  [[nodiscard]] std::uint64_t next() noexcept override { return at_ < values_.size() ? values_[at_++] : 0; }

 private:
  const std::vector<std::uint64_t>& values_;
  std::size_t at_ = 0;
};

/// All lanes eat from one string.
class Tape::Bytes final : public Source {
 public:
  explicit Bytes(std::span<const std::byte>& rest) : rest_(rest) {}
  [[nodiscard]] std::uint64_t next() noexcept override {
    std::uint64_t value = 0;
    const std::size_t count = std::min(rest_.size(), k_choice_bytes);
    for (std::size_t i = 0; i < count; ++i) value = value << 8U | static_cast<std::uint64_t>(rest_[i]);
    rest_ = rest_.subspan(count);
    return value << (64 - 8 * k_choice_bytes);
  }

 private:
  std::span<const std::byte>& rest_;
};

/// Different seeds and lanes have nothing in common.
std::uint64_t Tape::seed_of(std::size_t lane) const noexcept {
  const bool of_shape = seeds_.shape != 0 && lane == static_cast<std::size_t>(Lane::shape);
  return Random(Random(of_shape ? seeds_.shape : seeds_.run).next() ^ lane).next();
}

Tape::Tape(const Seeds& seeds) : seeds_(seeds) {}

Tape::Tape(const Seeds& seeds, Record& record) : seeds_(seeds) {
  for (std::size_t i = 0; i < k_lanes; ++i) {
    sources_[i] = std::make_unique<Recorder>(seed_of(i), record.lanes[i], record.yes[i]);
  }
}

Tape::Tape(const Record& record) {
  for (std::size_t i = 0; i < k_lanes; ++i) sources_[i] = std::make_unique<Player>(record.lanes[i]);
}

Tape::Tape(std::span<const std::byte> bytes) : bytes_(bytes) {
  for (auto& source : sources_) source = std::make_unique<Bytes>(bytes_);
}

Tape::~Tape() = default;

Choices Tape::lane(Lane which) {
  const auto index = static_cast<std::size_t>(which);
  return sources_[index] != nullptr ? Choices(*sources_[index]) : Choices(seed_of(index));
}

// ---- files ----

Result<void> Record::save(const std::string& path) const {
  std::ofstream out(path);
  out << k_first_line << '\n';
  for (const std::string& setting : settings) out << "set " << setting << '\n';
  for (std::size_t lane = 0; lane < k_lanes; ++lane) {
    out << "lane " << k_lane_names[lane] << ' ' << lanes[lane].size() << '\n' << std::hex;
    for (std::size_t i = 0; i < lanes[lane].size(); ++i) {
      out << lanes[lane][i] << (i % 8 == 7 || i + 1 == lanes[lane].size() ? '\n' : ' ');
    }
    out << std::dec;
  }
  out.close();
  if (!out) return fail(ErrorCode::os_error, {.os_error = errno});
  return {};
}

Result<Record> Record::load(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  if (!std::getline(in, word) || word != k_first_line) return broken(1);
  Record record;
  std::size_t lane = 0;
  while (in >> word) {
    if (word == "set" && lane == 0 && in >> word) {
      record.settings.push_back(word);
      continue;
    }
    std::string name;
    std::size_t count = 0;
    if (word != "lane" || lane == k_lanes || !(in >> name >> count) || name != k_lane_names[lane] ||
        count > k_choices_max) {
      return broken(lane);
    }
    in >> std::hex;
    for (std::uint64_t value = 0; count > 0; --count) {
      if (!(in >> value)) return broken(lane);
      record.lanes[lane].push_back(value);
    }
    in >> std::dec;
    ++lane;
  }
  if (lane != k_lanes) return broken(lane);
  return record;
}

}  // namespace hixl::sim
