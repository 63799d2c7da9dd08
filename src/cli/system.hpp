// SPDX-License-Identifier: Apache-2.0
//
// What the kernel tells about this machine without asking for rights: NUMA nodes, network cards, RDMA devices,
// accelerators. Read from files below a folder, so that copies of another machine's files can be looked at, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "failure.hpp"

namespace hixl::cli {

inline constexpr int k_no_node = -1;  ///< not known, or the machine has only one

struct Node {
  int id = 0;
  std::string cpus;  ///< "0-15,32-47"
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
};

struct Nic {
  std::string name;
  std::string state;  ///< "up", "down", "unknown" (loopback, some virtual ones)
  std::uint64_t mtu = 0;
  std::optional<std::uint64_t> speed_mbit;  ///< what it tells, if it does
  std::string driver;                       ///< empty: a virtual one
  int numa_node = k_no_node;
  std::vector<std::string> addresses;  ///< of this host alone
};

struct RdmaPort {
  std::string device;
  std::uint32_t port = 0;
  std::string state;  ///< "ACTIVE", "DOWN"
  std::string physical_state;
  std::string rate;        ///< "100 Gb/sec (4X EDR)"
  std::string link_layer;  ///< "Ethernet", "InfiniBand"
  std::string firmware;
  std::vector<std::string> interfaces;  ///< network interfaces behind its GIDs
  int numa_node = k_no_node;
};

struct Accelerator {
  std::string address;  ///< on the PCI bus
  std::string vendor;   ///< "0x10de"
  std::string pci_class;
  int numa_node = k_no_node;
};

class System {
 public:
  /// Below `root`: "" is this machine.
  explicit System(std::string root) : root_(std::move(root)) {}
  [[nodiscard]] bool here() const noexcept { return root_.empty(); }
  [[nodiscard]] std::vector<Node> nodes() const;
  [[nodiscard]] std::vector<Nic> nics() const;
  [[nodiscard]] std::vector<RdmaPort> rdma_ports() const;
  [[nodiscard]] std::vector<Accelerator> accelerators() const;
  /// First line of a file, without blanks at its ends; empty: there is none.
  [[nodiscard]] std::string line(const std::string& path) const;
  [[nodiscard]] std::string text(const std::string& path) const;  ///< all of a file, 64 KiB at most
  /// What stands behind `key` and a colon in a file of such lines ("MemAvailable"); empty: nothing.
  [[nodiscard]] std::string field(const std::string& path, const std::string& key) const;
  /// Names in a folder, sorted; nothing if there is none.
  [[nodiscard]] std::vector<std::string> names(const std::string& folder) const;
  [[nodiscard]] int node_of(const std::string& folder) const;  ///< of a device: its numa_node

 private:
  std::string root_;
};

/// --root
void add_root_option(CLI::App& app, std::string& root);
[[nodiscard]] Json to_json(const Node& node);
[[nodiscard]] Json to_json(const Nic& nic);
[[nodiscard]] Json to_json(const RdmaPort& port);
[[nodiscard]] Json to_json(const Accelerator& accelerator);
template <class Item>
[[nodiscard]] Json to_json(const std::vector<Item>& items) {
  Json all = Json::array();
  for (const Item& item : items) all.push_back(to_json(item));
  return all;
}
/// A sentence when there is none.
[[nodiscard]] std::string to_text(const std::vector<Nic>& nics);
[[nodiscard]] std::string to_text(const std::vector<RdmaPort>& ports);
/// "3.2 GiB"
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

}  // namespace hixl::cli
