// SPDX-License-Identifier: Apache-2.0
//
// The calling side of a diagnosis: joins the answering side's world as a rank, makes the links, and finds the memory
// that it may use there. Says of each stage how long it took, and at which one it ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <hixl/diagnosis.hpp>

#include "failure.hpp"

namespace hixl::cli {

/// Whom to call, and how.
struct Dial {
  std::string host;
  std::uint16_t port = k_diagnosis_port;
  double timeout_s = 5;  ///< for all stages together
  std::string job;
  std::string links;  ///< "tcp,hccs"; empty: HIXL_LINKS, or automatic
};
/// All options but the host.
void add_dial_options(CLI::App& app, Dial& dial);

/// Names of stages that went well, with their times, in their order.
using Stages = std::vector<std::pair<std::string, std::chrono::nanoseconds>>;
[[nodiscard]] Json to_json(const Stages& stages);  ///< {"resolve_us": 80.1, …}
[[nodiscard]] std::string to_text(const Stages& stages);

struct Caller {
  std::string place;  ///< "10.0.1.25:9999", the address that answered
  std::unique_ptr<Runtime> runtime;
  RemoteRegion memory;  ///< of the answering rank, which is rank 0
  Stages stages;

  [[nodiscard]] static tl::expected<Caller, Failure> call(const Dial& dial);
  /// The link that the library takes for what it puts there.
  [[nodiscard]] LinkInfo link() const;
  /// What the answering side tells about the runtime that it is for.
  [[nodiscard]] tl::expected<std::string, Failure> ask(Diagnosis::Subject subject,
                                                       std::chrono::nanoseconds timeout) const;
};

/// A call and a question.
[[nodiscard]] tl::expected<std::string, Failure> answer_of(const Dial& dial, Diagnosis::Subject subject);

}  // namespace hixl::cli
