// SPDX-License-Identifier: Apache-2.0
//
// hixl_diag: what a person or a program wants to know when something is slow or does not connect. See docs/diag.md.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include <CLI/CLI.hpp>

#include "verbs.hpp"

namespace hixl::cli {

void add_json_option(CLI::App& app, Common& common) {
  app.add_flag("--json", common.json, "one JSON value instead of text");
}

void report(const Failure& failure, Common& common) {
  common.exit_code = static_cast<int>(failure.step);
  if (common.json) {
    std::printf("%s\n", to_text(to_json(failure)).c_str());
  } else {
    std::fprintf(stderr, "hixl_diag: %s: %s\n  %s\n", std::string(name(failure.step)).c_str(), failure.message.c_str(),
                 failure.remedy.c_str());
  }
}

void refuse_without_host(const CLI::App& verb) {
  for (const char* const option : {"--port", "--timeout"}) {
    if (verb.get_option(option)->count() == 0) continue;
    throw CLI::ValidationError(option, "is of a host: hixl_diag " + verb.get_name() + " HOST " + option + " N");
  }
}

}  // namespace hixl::cli

namespace {

/// What was printed is out, or the exit code says that it is not.
int ended(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fprintf(stderr, "hixl_diag: local: standard output cannot be written: %s\n", std::strerror(errno));
  return code == 0 ? static_cast<int>(hixl::cli::Step::local) : code;
}

constexpr int k_exit_usage = 2;

constexpr const char* k_exit_codes =
    "Exit codes: 0 all well; 1 puts were lost, or doctor found something wrong; 2 wrong command line; and by the "
    "stage\n"
    "that failed: 10 resolve, 11 no_route, 12 refused, 13 filtered, 14 handshake, 15 version, 16 authentication,\n"
    "17 link, 18 busy, 19 local (limits and options of this host).";

}  // namespace

int main(int argc, char** argv) {
  hixl::cli::Common common;
  CLI::App app("Looks at links, memory and networks of this host and others, as the library HIXL sees them.");
  app.footer(k_exit_codes);
  app.require_subcommand(0, 1);
  hixl::cli::add_ping(app, common);
  hixl::cli::add_json_option(app, common);
  hixl::cli::add_serve(app, common);
  for (const auto add : {hixl::cli::add_links, hixl::cli::add_regions, hixl::cli::add_topo, hixl::cli::add_nic,
                         hixl::cli::add_mem, hixl::cli::add_doctor})
    add(app, common);
  try {
    app.parse(argc, argv);
    common.run();
  } catch (const CLI::ParseError& error) {
    return ended(app.exit(error) == 0 ? 0 : k_exit_usage);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hixl_diag: %s\n", error.what());
    return static_cast<int>(hixl::cli::Step::local);
  }
  return ended(common.exit_code);
}
