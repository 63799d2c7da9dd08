// SPDX-License-Identifier: Apache-2.0
//
// A relay in front of the second address of every rank, so that the second tcp link of every pair can be cut. It is the
// program hixl_relay, which lies beside this one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pd {

class Relays {
 public:
  /// Null: standard error says why.
  [[nodiscard]] static std::unique_ptr<Relays> start(std::uint32_t ranks);
  ~Relays();
  Relays(const Relays&) = delete;
  Relays& operator=(const Relays&) = delete;

  /// Environment of a rank, "NAME=value": two tcp links to each peer, both limited, the second by way of the relay.
  [[nodiscard]] std::vector<std::string> settings_of(std::uint32_t rank) const;
  /// "cut" or "heal", for all ranks; it has been done when this returns. False: the relay does not answer.
  [[nodiscard]] bool tell(const std::string& command);

 private:
  Relays() = default;
  [[nodiscard]] bool choose_addresses(std::uint32_t ranks);
  [[nodiscard]] bool run();
  [[nodiscard]] bool read_line(std::string& line);

  std::string second_host_;
  std::vector<std::uint16_t> second_ports_;  // where each rank listens
  std::vector<std::uint16_t> relay_ports_;   // what its peers are told
  pid_t pid_ = -1;
  int input_ = -1;   // the relay's commands
  int output_ = -1;  // and its answers
  std::string buffer_;
};

}  // namespace pd
