// SPDX-License-Identifier: Apache-2.0
//
// hixl_diag doctor [HOST]: what of this host stands in the way of the library, and the command that mends it; with a
// host, also whether that one is reached.
#include "doctor.hpp"

#include <algorithm>
#include <cstdio>
#include <memory>

#include <hixl/diagnosis.hpp>

#include "checks.hpp"
#include "reach.hpp"
#include "verbs.hpp"

namespace hixl::cli {

namespace {

struct Doctor {
  std::string root;
  std::string host;
  std::uint16_t port = k_diagnosis_port;
  double timeout_s = 5;
};

void look_at_host(const Doctor& doctor, Findings& out) {
  const auto timeout =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(doctor.timeout_s));
  const auto reached = reach(doctor.host, doctor.port, timeout);
  if (reached) {
    out.push_back(
        {"host", Health::ok, reached->place(doctor.port) + " accepts connections; hixl_diag --ping goes on", ""});
  } else {
    out.push_back({"host", Health::bad, std::string(name(reached.error().step)) + ": " + reached.error().message,
                   reached.error().remedy});
  }
}

void run(const Doctor& doctor, Common& common) {
  const System system(doctor.root);
  Findings all;
  look_at_limits(system, all);
  look_at_memory(system, all);
  look_at_rdma(system, all);
  look_at_nodes(system, all);
  look_at_routes(system, all);
  look_at_ports(all);
  if (!doctor.host.empty()) look_at_host(doctor, all);
  const bool well = std::ranges::none_of(all, [](const Finding& one) { return one.health == Health::bad; });
  common.exit_code = well ? 0 : 1;
  if (common.json) {
    Json rows = Json::array();
    for (const Finding& one : all) {
      rows.push_back({{"subject", one.subject},
                      {"health", name(one.health)},
                      {"found", one.found},
                      {"remedy", one.remedy.empty() ? Json() : Json(one.remedy)}});
    }
    std::printf("%s\n", to_text(Json{{"ok", well}, {"findings", rows}}).c_str());
    return;
  }
  for (const Finding& one : all) {
    std::printf("%-4s  %s: %s\n", std::string(name(one.health)).c_str(), one.subject.c_str(), one.found.c_str());
    if (!one.remedy.empty()) std::printf("      %s\n", one.remedy.c_str());
  }
}

}  // namespace

std::string_view name(Health health) noexcept {
  switch (health) {
    case Health::ok:
      return "ok";
    case Health::note:
      return "note";
    case Health::warn:
      return "warn";
    case Health::bad:
      return "bad";
  }
  return "unknown";
}

void add_doctor(CLI::App& app, Common& common) {
  auto* const verb = app.add_subcommand("doctor", "what stands in the way here, and the command that mends it");
  const auto doctor = std::make_shared<Doctor>();
  verb->add_option("host", doctor->host, "look also whether this host is reached")->transform(host_alone());
  verb->add_option("--port", doctor->port, "its port")->capture_default_str()->check(whole(1, 65'535));
  verb->add_option("--timeout", doctor->timeout_s, "seconds allowed for that")
      ->capture_default_str()
      ->check(real(0.01, 600));
  add_root_option(*verb, doctor->root);
  add_json_option(*verb, common);
  verb->callback([verb, doctor, &common] {
    if (doctor->host.empty()) refuse_without_host(*verb);
    common.run = [doctor, &common] { run(*doctor, common); };
  });
}

}  // namespace hixl::cli
