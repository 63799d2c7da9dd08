// SPDX-License-Identifier: Apache-2.0
#define DOCTEST_CONFIG_IMPLEMENT
#include <cstdio>
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "settings.hpp"

namespace hixl::test {

namespace {

Settings& given() {
  static Settings settings;
  return settings;
}

}  // namespace

const Settings& settings() { return given(); }

}  // namespace hixl::test

int main(int argc, char** argv) {
  auto& settings = hixl::test::given();
  for (int i = 1; i + 1 < argc; ++i) {
    const std::string_view option = argv[i];
    // Absolute, since a child that enters another mount namespace begins at its root.
    if (option == "--rank") settings.rank_program = std::filesystem::absolute(argv[i + 1]);
    if (option == "--run") settings.launcher_program = std::filesystem::absolute(argv[i + 1]);
    if (option == "--seconds") settings.at_least = std::chrono::seconds(std::atol(argv[i + 1]));
  }
  if (settings.rank_program.empty() || settings.launcher_program.empty()) {
    std::fprintf(stderr, "needs --rank PATH and --run PATH\n");
    return 2;
  }
  return doctest::Context(argc, argv).run();
}
