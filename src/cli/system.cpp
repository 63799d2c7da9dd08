// SPDX-License-Identifier: Apache-2.0
#include "system.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>

namespace hixl::cli {

namespace {

namespace fs = std::filesystem;

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// Leading digits; nothing: there are none, or too many. A card without a carrier says -1 for its speed.
std::optional<std::uint64_t> number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end != text.data() ? std::optional(value) : std::nullopt;
}

/// "4: ACTIVE" without its number.
std::string word_of(const std::string& text) {
  const std::size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

std::vector<std::string> addresses_of(const std::string& interface) {
  std::vector<std::string> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || interface != one->ifa_name) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const void* bytes = &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    if (family == AF_INET6) bytes = &reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (inet_ntop(family, bytes, text.data(), text.size()) != nullptr) all.emplace_back(text.data());
  }
  return all;
}

Json node_json(int node) { return node == k_no_node ? Json() : Json(node); }

}  // namespace

std::string System::line(const std::string& path) const {
  std::ifstream file(root_ + path);
  std::string text;
  std::getline(file, text);
  return trimmed(text);
}

std::string System::text(const std::string& path) const {
  constexpr std::size_t k_bytes_max = 64U << 10U;  // tables of /proc: a thousand routes
  std::ifstream file(root_ + path);
  std::string all(k_bytes_max, '\0');
  file.read(all.data(), static_cast<std::streamsize>(all.size()));
  all.resize(static_cast<std::size_t>(file.gcount()));
  return all;
}

std::string System::field(const std::string& path, const std::string& key) const {
  std::ifstream file(root_ + path);
  for (std::string text; std::getline(file, text);) {
    // In a node's meminfo the key comes behind "Node 0".
    const std::size_t at = text.find(key + ":");
    if (at == 0 || (at != std::string::npos && text[at - 1] == ' ')) return trimmed(text.substr(at + key.size() + 1));
  }
  return {};
}

std::vector<std::string> System::names(const std::string& folder) const {
  std::vector<std::string> all;
  std::error_code error;
  for (fs::directory_iterator it(root_ + folder, error), end; !error && it != end; it.increment(error)) {
    all.push_back(it->path().filename().string());
  }
  std::ranges::sort(all);
  return all;
}

int System::node_of(const std::string& folder) const {
  const auto node = number(line(folder + "/numa_node"));
  return node ? static_cast<int>(*node) : k_no_node;
}

std::vector<Node> System::nodes() const {
  std::vector<Node> all;
  for (const std::string& name : names("/sys/devices/system/node")) {
    const auto id = name.starts_with("node") ? number(name.substr(4)) : std::nullopt;
    if (!id) continue;
    const std::string folder = "/sys/devices/system/node/" + name;
    const auto bytes = [&](const char* key) {
      return number(field(folder + "/meminfo", key)).value_or(0) << 10U;  // the file has KiB
    };
    all.push_back({static_cast<int>(*id), line(folder + "/cpulist"), bytes("MemTotal"), bytes("MemFree")});
  }
  std::ranges::sort(all, {}, &Node::id);
  return all;
}

std::vector<Nic> System::nics() const {
  std::vector<Nic> all;
  for (const std::string& name : names("/sys/class/net")) {
    const std::string folder = "/sys/class/net/" + name;
    Nic nic{.name = name,
            .state = line(folder + "/operstate"),
            .mtu = number(line(folder + "/mtu")).value_or(0),
            .speed_mbit = number(line(folder + "/speed")),
            .driver = {},
            .numa_node = node_of(folder + "/device"),
            .addresses = here() ? addresses_of(name) : std::vector<std::string>()};
    if (nic.state.empty()) continue;  // a file, such as bonding_masters
    std::error_code error;
    const fs::path driver = fs::read_symlink(root_ + folder + "/device/driver", error);
    if (!error) nic.driver = driver.filename().string();
    all.push_back(std::move(nic));
  }
  return all;
}

std::vector<RdmaPort> System::rdma_ports() const {
  std::vector<RdmaPort> all;
  for (const std::string& device : names("/sys/class/infiniband")) {
    const std::string folder = "/sys/class/infiniband/" + device;
    for (const std::string& name : names(folder + "/ports")) {
      const std::string port = folder + "/ports/" + name;
      RdmaPort& one = all.emplace_back(RdmaPort{.device = device,
                                                .port = static_cast<std::uint32_t>(number(name).value_or(0)),
                                                .state = word_of(line(port + "/state")),
                                                .physical_state = word_of(line(port + "/phys_state")),
                                                .rate = line(port + "/rate"),
                                                .link_layer = line(port + "/link_layer"),
                                                .firmware = line(folder + "/fw_ver"),
                                                .interfaces = {},
                                                .numa_node = node_of(folder + "/device")});
      for (const std::string& index : names(port + "/gid_attrs/ndevs")) {
        const std::string interface = line(port + "/gid_attrs/ndevs/" + index);
        if (!interface.empty() && std::ranges::find(one.interfaces, interface) == one.interfaces.end()) {
          one.interfaces.push_back(interface);
        }
      }
    }
  }
  return all;
}

std::vector<Accelerator> System::accelerators() const {
  std::vector<Accelerator> all;
  for (const std::string& address : names("/sys/bus/pci/devices")) {
    const std::string folder = "/sys/bus/pci/devices/" + address;
    const std::string pci_class = line(folder + "/class");
    // 3D controllers, and processing accelerators.
    if (!pci_class.starts_with("0x0302") && !pci_class.starts_with("0x12")) continue;
    all.push_back({address, line(folder + "/vendor"), pci_class, node_of(folder)});
  }
  return all;
}

void add_root_option(CLI::App& app, std::string& root) {
  app.add_option("--root", root, "read /sys and /proc below this folder: files copied from another machine")
      ->check(CLI::ExistingDirectory);
}

Json to_json(const Node& node) {
  return {{"node", node.id}, {"cpus", node.cpus}, {"total_bytes", node.total_bytes}, {"free_bytes", node.free_bytes}};
}

Json to_json(const Nic& nic) {
  return {{"name", nic.name},
          {"state", nic.state},
          {"mtu", nic.mtu},
          {"speed_mbit", nic.speed_mbit ? Json(*nic.speed_mbit) : Json()},
          {"driver", nic.driver.empty() ? Json() : Json(nic.driver)},
          {"numa_node", node_json(nic.numa_node)},
          {"addresses", nic.addresses}};
}

Json to_json(const RdmaPort& port) {
  return {{"device", port.device},
          {"port", port.port},
          {"state", port.state},
          {"physical_state", port.physical_state},
          {"rate", port.rate},
          {"link_layer", port.link_layer},
          {"firmware", port.firmware},
          {"interfaces", port.interfaces},
          {"numa_node", node_json(port.numa_node)}};
}

Json to_json(const Accelerator& accelerator) {
  return {{"address", accelerator.address},
          {"vendor", accelerator.vendor},
          {"class", accelerator.pci_class},
          {"numa_node", node_json(accelerator.numa_node)}};
}

std::string to_text(const std::vector<Nic>& nics) {
  if (nics.empty()) return "no network interface\n";
  std::string text;
  for (const Nic& nic : nics) {
    text += nic.name + ": " + nic.state + ", mtu " + std::to_string(nic.mtu);
    if (nic.speed_mbit) text += ", " + std::to_string(*nic.speed_mbit) + " Mbit/s";
    text += nic.driver.empty() ? ", virtual" : ", driver " + nic.driver;
    if (nic.numa_node != k_no_node) text += ", node " + std::to_string(nic.numa_node);
    for (const std::string& address : nic.addresses) text += ", " + address;
    text += "\n";
  }
  return text;
}

std::string to_text(const std::vector<RdmaPort>& ports) {
  if (ports.empty()) return "no RDMA device\n";
  std::string text;
  for (const RdmaPort& port : ports) {
    text += port.device + " port " + std::to_string(port.port) + ": " + port.state + " (" + port.physical_state +
            "), " + port.rate + ", " + port.link_layer;
    for (const std::string& interface : port.interfaces) text += ", " + interface;
    if (!port.firmware.empty()) text += ", firmware " + port.firmware;
    if (port.numa_node != k_no_node) text += ", node " + std::to_string(port.numa_node);
    text += "\n";
  }
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array k_units = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024 && unit + 1 < k_units.size(); ++unit) value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, k_units[unit]);
  return text.data();
}

}  // namespace hixl::cli
