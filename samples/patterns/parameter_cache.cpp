// SPDX-License-Identifier: Apache-2.0
//
// Parameters that live at rank 0 and are pulled by who needs them: a rank keeps what it has read, looks with a get of
// 8 bytes whether it is still current, and pulls again only what has changed. Rank 0 does nothing for it. An odd
// version is one that is being written; a copy counts if its version was even and the same before and behind the pull.
//   hixl_run -n 3 parameter_cache
#include <atomic>

#include "ranks.hpp"

namespace {

constexpr std::size_t k_keys = 16, k_entry_words = 8 * 1024;  // of an entry, its version first
constexpr std::uint64_t k_updates = 200;

std::uint64_t parameter(std::size_t key, std::uint64_t version, std::size_t i) { return key * 1000 + version * 7 + i; }

void write(std::uint64_t* entry, std::size_t key, std::uint64_t version) {
  std::atomic_ref(entry[0]).store(version - 1);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (std::size_t i = 1; i < k_entry_words; ++i) {
    std::atomic_ref(entry[i]).store(parameter(key, version, i), std::memory_order_relaxed);
  }
  std::atomic_ref(entry[0]).store(version, std::memory_order_release);
}

/// What a rank has pulled lies where the same key lies at rank 0.
class Cache {
 public:
  Cache(hixl::Runtime& runtime, const Shared& memory) : runtime_(runtime), memory_(memory) {}
  const std::uint64_t* operator[](std::size_t key) {
    std::uint64_t* const kept = memory_.word(key * k_entry_words);
    for (std::uint64_t now = version(key); now != kept_[key]; now = version(key)) {
      if (now % 2 != 0) continue;
      need(runtime_.get_sync(kept, memory_.word_of(0, key * k_entry_words), k_entry_words * 8));
      pulls_ += 1;
      kept_[key] = version(key) == now ? now : 0;
    }
    return kept;
  }
  [[nodiscard]] std::uint64_t pulls() const { return pulls_; }

 private:
  std::uint64_t version(std::size_t key) {
    std::uint64_t* const seen = memory_.word(k_keys * k_entry_words);
    need(runtime_.get_sync(seen, memory_.word_of(0, key * k_entry_words), sizeof *seen));
    return *seen;
  }
  hixl::Runtime& runtime_;
  const Shared& memory_;
  std::uint64_t kept_[k_keys] = {};
  std::uint64_t pulls_ = 0;
};

}  // namespace

int main() {
  auto runtime = start(2);
  const Shared memory(*runtime, (k_keys * k_entry_words + 1) * 8);
  const auto entry = [&](std::size_t key) { return memory.word(key * k_entry_words); };
  if (runtime->rank() == 0) {
    for (std::size_t key = 0; key < k_keys; ++key) write(entry(key), key, 2);
  }
  need(runtime->barrier());
  Cache cache(*runtime, memory);
  std::uint64_t wrong = 0, reads = 0;
  if (runtime->rank() == 0) {
    for (std::uint64_t n = 0; n < k_updates; ++n) write(entry(n % 3), n % 3, 4 + n / 3 * 2);  // three of them change
  } else {
    for (; reads < 20 * k_keys; ++reads) {
      const std::uint64_t* const kept = cache[reads % k_keys];
      for (std::size_t i = 1; i < k_entry_words; ++i) wrong += kept[i] != parameter(reads % k_keys, kept[0], i);
    }
    const bool saved = cache.pulls() < reads;
    std::printf("rank %u: every read was right, most were not pulled: %s\n", runtime->rank(),
                wrong == 0 && saved ? "yes" : "NO");
  }
  need(runtime->barrier());
  return wrong == 0 ? 0 : 1;
}
