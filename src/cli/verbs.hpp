// SPDX-License-Identifier: Apache-2.0
//
// The verbs of hixl_diag, one a file: each adds its command to the program, and sets the exit code when it has run.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include "failure.hpp"

namespace hixl::cli {

struct Common {
  bool json = false;          ///< one JSON value on standard output instead of text
  std::function<void()> run;  ///< what the command line asks for; called when all of it has been read
  int exit_code = 0;
};
void add_json_option(CLI::App& app, Common& common);
/// --port and --timeout of a verb are of a host: throws the usage error where they came without one.
void refuse_without_host(const CLI::App& verb);
/// On standard error, or with --json on standard output; the exit code is that of the step.
void report(const Failure& failure, Common& common);

void add_ping(CLI::App& app, Common& common);
void add_serve(CLI::App& app, Common& common);
void add_links(CLI::App& app, Common& common);
void add_regions(CLI::App& app, Common& common);
void add_topo(CLI::App& app, Common& common);
void add_nic(CLI::App& app, Common& common);
void add_mem(CLI::App& app, Common& common);
void add_doctor(CLI::App& app, Common& common);

}  // namespace hixl::cli
