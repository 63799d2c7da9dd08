// SPDX-License-Identifier: Apache-2.0
//
// Shape: what kind of world a seed is. Every kind of load and of trouble is switched on or off first and then gets a
// rate, so that quiet runs, storms of one kind and storms of all kinds occur.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/random.hpp"
#include "base/time.hpp"

namespace hixl::sim {

/// What happens to fence requests and fence answers on their way, beyond the links' own trouble.
struct ControlFaults {
  std::uint32_t lost_per_mille = 0;
  std::uint32_t twice_per_mille = 0;
  std::uint32_t held_per_mille = 0;  ///< comes again, behind the next one: an old answer to an old question
};

struct Shape {
  std::uint32_t size = 2;    ///< ranks
  bool with_fabric = false;  ///< the simulated card is the better link, tcp the spare; else tcp alone
  Duration time{};           ///< of the faulty phase, at most
  std::uint64_t operations_max = 0;

  // Load.
  Duration look{};  ///< between two chances to post
  std::uint64_t open_max = 0;
  std::uint32_t post_per_mille = 0;
  std::uint32_t chain_per_mille = 0;  ///< of ended operations: the next is posted from the callback, into the same slot
  std::uint32_t get_per_mille = 0;
  std::uint32_t batch_per_mille = 0;
  std::uint32_t flush_per_mille = 0;
  std::uint32_t atomic_per_mille = 0;  ///< of chances to post: an atomic as well
  bool narrow_windows = false;         ///< for few atomics at a time
  std::uint32_t signal_per_mille = 0;
  std::uint32_t small_per_mille = 0;  ///< of sizes: up to 100 bytes
  std::uint32_t hurry_per_mille = 0;  ///< of deadlines: up to hurry_max, so that many are over in mid-transfer
  Duration hurry_max{};
  std::uint32_t cancel_per_mille = 0;   ///< of looks: some open operation is cancelled; of posts: at once
  std::uint32_t patient_per_mille = 0;  ///< of deadlines: far beyond the run, so that only an end helps

  std::uint32_t barrier_per_mille = 0;  ///< of looks: a rank that is in no barrier enters one

  // Trouble, a look; beyond what the plans of network and card bring.
  std::uint32_t kill_per_mille = 0;
  std::uint32_t leave_per_mille = 0;
  std::uint32_t replace_per_mille = 0;  ///< a new life takes the rank while the old one is only stopped: a zombie
  std::uint32_t restart_per_mille = 0;
  std::uint32_t pause_per_mille = 0;
  std::uint32_t clog_per_mille = 0;
  std::uint32_t reset_per_mille = 0;
  std::uint32_t long_per_mille = 0;      ///< of stops and clogs: up to 6 s, beyond every lease
  std::uint32_t turnover_per_mille = 0;  ///< a region is deregistered and registered again
  ControlFaults control{};
  std::uint32_t misuse_per_mille = 0;  ///< of looks: the program asks for what it may not
  std::uint32_t lie_per_mille = 0;     ///< of attempts: the initiator's library does

  [[nodiscard]] static Shape draw(Random& random);
  /// Switches one kind of trouble off, to find out which one matters; false: no such kind.
  [[nodiscard]] bool switch_off(std::string_view kind);
};

}  // namespace hixl::sim
