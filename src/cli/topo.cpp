// SPDX-License-Identifier: Apache-2.0
//
// hixl_diag topo: what there is on this host (NUMA nodes, network cards, RDMA devices, accelerators), and what the
// library makes of it: which kind of link it takes between two ranks here, and why.
#include <cstdio>
#include <memory>

#include <hixl/inspect_text.hpp>

#include "links.hpp"
#include "system.hpp"
#include "verbs.hpp"

namespace hixl::cli {

namespace {

struct Topo {
  std::string root;
  std::string links;
};

std::string nodes_text(const std::vector<Node>& nodes) {
  if (nodes.empty()) return "the kernel tells of no NUMA node\n";
  std::string text;
  for (const Node& node : nodes) {
    text += "node " + std::to_string(node.id) + ": processors " + (node.cpus.empty() ? "none" : node.cpus) + ", " +
            bytes_text(node.total_bytes) + ", " + bytes_text(node.free_bytes) + " free\n";
  }
  return text;
}

std::string accelerators_text(const std::vector<Accelerator>& all) {
  if (all.empty()) return "no accelerator on the PCI bus\n";
  std::string text;
  for (const Accelerator& one : all) {
    text += one.address + ": vendor " + one.vendor + ", class " + one.pci_class;
    if (one.numa_node != k_no_node) text += ", node " + std::to_string(one.numa_node);
    text += "\n";
  }
  return text;
}

/// Links are this machine's alone.
void run(const Topo& topo, Common& common) {
  const System system(topo.root);
  Json json = {{"nodes", to_json(system.nodes())},
               {"nics", to_json(system.nics())},
               {"rdma_ports", to_json(system.rdma_ports())},
               {"accelerators", to_json(system.accelerators())}};
  if (!common.json) {
    std::printf("%s%s%s%s", nodes_text(system.nodes()).c_str(), to_text(system.nics()).c_str(),
                to_text(system.rdma_ports()).c_str(), accelerators_text(system.accelerators()).c_str());
  }
  if (system.here()) {
    const auto links = links_of_this_host(topo.links);
    if (!links) {
      json["links"] = to_json(links.error());
      common.exit_code = static_cast<int>(links.error().step);
      if (!common.json) report(links.error(), common);
    } else {
      json["links"] = Json::parse(hixl::to_json(*links));
      if (!common.json) std::printf("between two ranks of this host:\n%s", hixl::to_text(*links).c_str());
    }
  }
  if (common.json) std::printf("%s\n", to_text(json).c_str());
}

}  // namespace

void add_topo(CLI::App& app, Common& common) {
  auto* const verb = app.add_subcommand("topo", "NUMA nodes, cards, RDMA, accelerators, and the links chosen here");
  const auto topo = std::make_shared<Topo>();
  verb->add_option("--links", topo->links, "kinds of links that may be used, as HIXL_LINKS");
  add_root_option(*verb, topo->root);
  add_json_option(*verb, common);
  verb->callback([topo, &common] { common.run = [topo, &common] { run(*topo, common); }; });
}

}  // namespace hixl::cli
