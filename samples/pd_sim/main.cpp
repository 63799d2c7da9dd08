// SPDX-License-Identifier: Apache-2.0
//
// hixl_pd_sim: a launcher and its rank program in one.
#include <cstdio>
#include <exception>

#include "launcher.hpp"
#include "rank.hpp"

namespace {

int run(int argc, char** argv) {
  const pd::Parsed parsed = pd::parse_options(argc, argv);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.rank_fd >= 0) return pd::run_rank(parsed.rank_fd);

  const pd::Options& options = parsed.options;
  const pd::Model model = *pd::find_model(options.model);
  std::vector<pd::Request> requests;
  if (!options.trace.empty()) {
    pd::TraceFile file = pd::load_trace(options.trace, options.requests);
    if (!file.problem.empty()) {
      std::fprintf(stderr, "hixl_pd_sim: %s\n", file.problem.c_str());
      return 2;
    }
    requests = std::move(file.requests);
  } else {
    pd::GeneratorOptions generator{.seed = options.seed};
    if (options.requests != 0) generator.requests = options.requests;
    requests = pd::generate_trace(generator);
  }
  const pd::Plan plan = pd::make_plan(options, model, requests);
  pd::print_plan(options, model, plan, requests);
  return pd::Launcher(options, plan, std::move(requests)).run();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = run(argc, argv);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    std::fprintf(stderr, "hixl_pd_sim: standard output cannot be written\n");
    return code == 0 ? 1 : code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hixl_pd_sim: %s\n", error.what());
    return 1;
  }
}
