// SPDX-License-Identifier: Apache-2.0
//
// What the user asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pd {

struct Kill {
  std::uint32_t decode = 0;
  double after_s = 0;
};

/// The second tcp link of every pair is cut from then to then; both 0: in the middle of the run.
struct Cut {
  double from_s = 0;
  double to_s = 0;
};

struct Options {
  std::uint32_t prefill = 1;
  std::uint32_t decode = 1;
  std::string model = "llama3-70b";
  std::string trace;
  std::size_t requests = 0;  ///< 0: all of the file, or 400 made up
  std::uint64_t seed = 1;
  std::string policy = "least_loaded";
  double prefill_tokens_per_s = 16'000;  ///< of one Prefill; an 8-card node with a 70B model
  double decode_tokens_per_s = 50;       ///< of one sequence; what a reader likes
  double scale = 0;                      ///< KV bytes are divided by it; 0: chosen
  double speedup = 0;                    ///< the trace's clock runs so much faster; 0: chosen
  double seconds_max = 55;               ///< the run ends by then; with start and stop a minute
  std::string json;
  std::optional<Kill> kill;
  std::optional<Cut> cut;
};

/// Gives the options, or the exit code of a run that ends here (--help, wrong arguments).
struct Parsed {
  Options options;
  std::optional<int> exit_code;
  int rank_fd = -1;  ///< this process is a rank, started by a launcher that listens there
};
[[nodiscard]] Parsed parse_options(int argc, char** argv);

}  // namespace pd
