// SPDX-License-Identifier: Apache-2.0
//
// What doctor looks at in the machine: RDMA, NUMA, routes.
#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "doctor.hpp"

namespace hixl::cli {

namespace {

/// Numbers of "0-3,8".
std::set<std::uint32_t> numbers_of(const std::string& list) {
  constexpr std::uint32_t k_cpus_max = 65'536;  // beyond what any kernel has; a broken file shall not fill memory
  std::set<std::uint32_t> all;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    std::uint32_t first = 0;
    const char* const end = word.data() + word.size();
    const auto [dash, error] = std::from_chars(word.data(), end, first);
    if (error != std::errc{}) continue;
    std::uint32_t last = first;
    if (dash != end && *dash == '-') std::from_chars(dash + 1, end, last);
    for (std::uint32_t cpu = first; cpu <= std::min(last, k_cpus_max); ++cpu) all.insert(cpu);
  }
  return all;
}

/// The one node on which this process' processors, and with them its memory, all are; k_no_node: on several.
int home_node(const System& system, const std::vector<Node>& nodes) {
  const auto allowed = numbers_of(system.field("/proc/self/status", "Cpus_allowed_list"));
  int home = k_no_node;
  for (const Node& node : nodes) {
    const auto cpus = numbers_of(node.cpus);
    const bool ours = std::ranges::any_of(allowed, [&](std::uint32_t cpu) { return cpus.contains(cpu); });
    if (!ours) continue;
    if (home != k_no_node) return k_no_node;
    home = node.id;
  }
  return home;
}

/// F181: memory on one node and a card on another.
void look_at_card(const std::string& card, int node, int home, Findings& out) {
  if (node == k_no_node || node == home) return;
  const std::string there = std::to_string(node);
  if (home == k_no_node) {
    out.push_back({"numa", Health::note, card + " is on node " + there + "; this process may run on several nodes",
                   "keep a rank and its buffers beside its card: numactl --cpunodebind=" + there +
                       " --membind=" + there + " PROGRAM"});
    return;
  }
  out.push_back(
      {"numa", Health::warn,
       card + " is on node " + there + ", and this process with its buffers on node " + std::to_string(home) +
           ": every byte goes between the nodes",
       "numactl --cpunodebind=" + there + " --membind=" + there + " PROGRAM, or allocate with numa_node = " + there});
}

}  // namespace

void look_at_rdma(const System& system, Findings& out) {
  const auto ports = system.rdma_ports();
  if (ports.empty()) {
    out.push_back({"rdma", Health::note, "no RDMA device: links of kind roce are not to be had", ""});
    return;
  }
  for (const RdmaPort& port : ports) {
    const std::string name = port.device + " port " + std::to_string(port.port);
    if (port.state != "ACTIVE") {
      const std::string interface = port.interfaces.empty() ? "INTERFACE" : port.interfaces.front();
      out.push_back({"rdma", Health::bad, name + " is " + port.state + " (" + port.physical_state + ")",
                     "ip link set " + interface + " up, and check cable and switch (rdma link show)"});
    } else if (port.link_layer != "Ethernet") {
      out.push_back(
          {"rdma", Health::note, name + " is of " + port.link_layer + ": links of kind roce are on Ethernet", ""});
    } else {
      out.push_back({"rdma", Health::ok, name + " is active, " + port.rate, ""});
    }
  }
}

void look_at_nodes(const System& system, Findings& out) {
  const auto nodes = system.nodes();
  const auto before = out.size();
  const int home = home_node(system, nodes);
  if (nodes.size() > 1) {
    std::set<std::string> told;
    for (const RdmaPort& port : system.rdma_ports()) {
      if (told.insert(port.device).second) look_at_card(port.device, port.numa_node, home, out);
    }
    for (const Nic& nic : system.nics()) {
      if (nic.state == "up" && !nic.driver.empty()) look_at_card(nic.name, nic.numa_node, home, out);
    }
  }
  if (out.size() > before) return;
  out.push_back({"numa", Health::ok,
                 nodes.size() > 1 ? "the cards are near this process' memory, or do not tell where they are"
                                  : "one node: all memory is near",
                 ""});
}

void look_at_routes(const System& system, Findings& out) {
  // Destination 0 and its mask in the kernel's table, whose first line is a heading.
  std::istringstream table(system.text("/proc/net/route"));
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string interface, destination, gateway, flags, references, use, metric, mask;
    words >> interface >> destination >> gateway >> flags >> references >> use >> metric >> mask;
    if (destination != "00000000" || mask != "00000000") continue;
    out.push_back({"route", Health::ok, "a default route by " + interface, ""});
    return;
  }
  out.push_back(
      {"route", Health::note, "no default IPv4 route: only hosts of this host's own networks are reached",
       "ip route add default via GATEWAY, or a route to the others' network; hixl_diag doctor HOST names it"});
}

}  // namespace hixl::cli
