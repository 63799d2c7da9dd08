// SPDX-License-Identifier: Apache-2.0
//
// New weights for ranks that go on generating with the old ones: the trainer (rank 0) puts a version into the half that
// is not in use, and a signal behind it names the version; a rollout rank looks between two steps and switches. It
// never sees a mixture, and never waits for the 1 GiB to arrive.
//   hixl_run -n 2 weight_switch [MIB]
#include <atomic>

#include "ranks.hpp"

namespace {

constexpr std::uint64_t k_versions = 3;
constexpr std::size_t k_data = 4096 / 8;  // words before the weights
// Words: the newest version (at a rollout rank), and what each rollout rank uses (at the trainer).
enum Word : std::size_t { newest, in_use };

std::uint64_t weight(std::uint64_t version, std::size_t i) { return version * 0x9e3779b97f4a7c15 + i; }

bool is_version(const std::uint64_t* weights, std::size_t words, std::uint64_t version) {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < words; ++i) wrong |= weights[i] ^ weight(version, i);
  return wrong == 0;
}

}  // namespace

int main(int argc, char** argv) {
  auto runtime = start(2, 500);
  const hixl::Rank me = runtime->rank(), rollouts = runtime->world_size() - 1;
  const std::size_t mib = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1024;
  if (mib == 0 || mib > 65536) return std::fprintf(stderr, "%s: MIB is 1 … 65536\n", argv[1]), 1;
  const std::size_t words = (mib << 20U) / 8;
  // The trainer has one copy, rollout ranks have two halves.
  const Shared memory(*runtime, (k_data + (me == 0 ? 1 : 2) * words) * 8);
  bool right = true;
  if (me == 0) {
    for (std::uint64_t version = 1; version <= k_versions; ++version) {
      for (std::size_t i = 0; i < words; ++i) memory.word(k_data)[i] = weight(version, i);
      std::vector<hixl::Request> puts;
      for (hixl::Rank to = 1; to <= rollouts; ++to) {
        // The half that this version goes to held the one before the last.
        need(runtime->wait_signal(memory.word(in_use + to), hixl::Compare::greater_equal, version - 1));
        puts.push_back(
            need(runtime->put_with_signal(memory.word(k_data), memory.word_of(to, k_data + version % 2 * words),
                                          words * 8, {memory.word_of(to, newest), version})));
      }
      need(hixl::wait_all(puts));
    }
  } else {
    need(runtime->wait_signal(memory.word(newest), hixl::Compare::not_equal, 0));
    for (std::uint64_t version = 0; version < k_versions && right;) {  // a step
      if (const std::uint64_t now = std::atomic_ref(*memory.word(newest)).load(); now != version) {
        version = now;
        need(need(runtime->put_with_signal(nullptr, memory.of[0].at(0), 0, {memory.word_of(0, in_use + me), version}))
                 .wait());
      }
      right = is_version(memory.word(k_data + version % 2 * words), words, version);
    }
    std::printf("rollout %u: %s\n", me, right ? "every step saw one whole version" : "a step saw a mixture");
  }
  need(runtime->barrier());
  return right ? 0 : 1;
}
