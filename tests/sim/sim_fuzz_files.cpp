// SPDX-License-Identifier: Apache-2.0
//
// Gives files to the fuzzer's entry, and a number of inputs that are made up here: --made-up N.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/random.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t k_bytes_max = 20'000;  // of an input that is made up: 10 000 choices

void make_up(std::uint64_t count) {
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    hixl::Random random(seed);
    std::vector<std::uint8_t> input(random.below(random.between(1, k_bytes_max)));
    for (std::uint8_t& byte : input) byte = static_cast<std::uint8_t>(random.next());
    std::printf("made up: %llu, %zu bytes\n", static_cast<unsigned long long>(seed), input.size());
    std::fflush(stdout);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--made-up") == 0) return make_up(std::strtoull(argv[2], nullptr, 10)), 0;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file) return std::fprintf(stderr, "%s cannot be read\n", argv[i]), 2;
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(content.data()), content.size());
  }
  return 0;
}
