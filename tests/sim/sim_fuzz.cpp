// SPDX-License-Identifier: Apache-2.0
//
// The simulated world for a fuzzer: every input is a run, and every violation a crash. Built for libFuzzer where the
// compiler has it, and with sim_fuzz_files.cpp for inputs that are files.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "trial.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static_cast<void>(::setenv("HIXL_LOG", "off", 0));
  const auto report = hixl::sim::run_bytes(std::as_bytes(std::span(data, size)));
  if (!report.violation) return 0;
  std::fprintf(stderr, "%s: %s\n", report.violation->invariant.c_str(), report.violation->text.c_str());
  std::abort();
}
