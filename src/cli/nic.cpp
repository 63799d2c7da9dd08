// SPDX-License-Identifier: Apache-2.0
//
// hixl_diag nic: the state of network cards and RDMA ports, as the kernel tells it to everybody.
#include <cstdio>
#include <memory>

#include "system.hpp"
#include "verbs.hpp"

namespace hixl::cli {

void add_nic(CLI::App& app, Common& common) {
  auto* const verb = app.add_subcommand("nic", "state of network cards and RDMA ports; needs no rights");
  const auto root = std::make_shared<std::string>();
  add_root_option(*verb, *root);
  add_json_option(*verb, common);
  verb->callback([root, &common] {
    common.run = [root, &common] {
      const System system(*root);
      if (common.json) {
        const Json json = {{"nics", to_json(system.nics())}, {"rdma_ports", to_json(system.rdma_ports())}};
        std::printf("%s\n", to_text(json).c_str());
      } else {
        std::printf("%s%s", to_text(system.nics()).c_str(), to_text(system.rdma_ports()).c_str());
      }
    };
  });
}

}  // namespace hixl::cli
