// SPDX-License-Identifier: Apache-2.0
//
// Shape: what kind of world a seed is. Every kind of load and of trouble is switched on or off first and then gets a
// rate, so that quiet runs, storms of one kind and storms of all kinds occur.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <hixl/result.hpp>

#include "base/choices.hpp"
#include "base/time.hpp"
#include "links/sim/fabric.hpp"
#include "links/sim/rdma_plan.hpp"
#include "runtime/virtual_port.hpp"

namespace hixl::sim {

/// What happens to fence requests and fence answers on their way, beyond the links' own trouble.
struct ControlFaults {
  std::uint32_t lost_per_mille = 0;
  std::uint32_t twice_per_mille = 0;
  std::uint32_t held_per_mille = 0;  ///< comes again, before or behind the next one: an old answer to an old question
};

struct Shape {
  std::uint32_t size = 2;        ///< ranks
  bool with_fabric = false;      ///< the simulated card is the better link, tcp the spare; else tcp alone
  std::uint32_t card_links = 1;  ///< to each peer, when there is a card
  std::uint32_t tcp_links = 1;
  std::uint32_t rails = 0;              ///< RDMA cards of each host, each a roce link to every peer
  std::uint32_t stall_ms = 200;         ///< RuntimeOptions::stall
  std::uint32_t limited_per_mille = 0;  ///< of links: they have a bandwidth limit
  bool payload_check = false;           ///< then bits of payload may flip as well
  Duration time{};                      ///< of the faulty phase, at most
  std::uint64_t operations_max = 0;

  // Load.
  Duration look{};  ///< between two chances to post
  std::uint64_t open_max = 0;
  std::uint64_t depth_max = 8;  ///< of links, in attempts; each life draws its own below that
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
  std::uint32_t squeeze_per_mille = 0;
  std::uint32_t flip_per_mille = 0;              ///< of frames: a bit of their header or body
  std::uint32_t flap_per_mille = 0;              ///< the port of an RDMA card goes down for a while
  std::uint32_t pull_per_mille = 0;              ///< an RDMA card is taken away for a while
  std::uint32_t inherit_per_mille = 0;           ///< of kills: a forked child holds the connections open
  std::uint32_t stop_in_callback_per_mille = 0;  ///< of ends: the program stops its runtime there and then

  // What the network, and the card if there is one, bring.
  runtime::FaultPlan net{};
  links::SimPlan card{};
  links::RdmaPlan rdma{};

  [[nodiscard]] static Shape draw(Choices& choices);
  /// "kill=0": a knob turned; "kill": switched off.
  [[nodiscard]] Result<void> set(std::string_view setting);
};

/// One number of a shape by its name, so that a run can be made smaller from outside.
struct Knob {
  enum class Kind : std::uint8_t {
    size,     ///< how much there is of everything: smaller is simpler
    load,     ///< a kind of load
    trouble,  ///< a kind of trouble
  };
  std::string_view name;
  Kind kind;
  std::uint64_t calm;  ///< switched off; of a size: the least
  std::uint64_t (*get)(const Shape&);
  void (*set)(Shape&, std::uint64_t);
};
[[nodiscard]] std::span<const Knob> knobs() noexcept;
/// What is not calm: "kill=3 reset=12".
[[nodiscard]] std::string text_of(const Shape& shape, Knob::Kind kind);

}  // namespace hixl::sim
