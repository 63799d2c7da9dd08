// SPDX-License-Identifier: Apache-2.0
//
// Bystander: an honest rank whose stream into this process goes on, checked block by block, while something happens to
// others. It must not notice.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "../process/home.hpp"
#include "stream.hpp"

namespace hixl::test {

/// Owner: the test. Close: finish(), or destruction, which gives up the verdict.
class Bystander {
 public:
  static constexpr std::uint64_t k_block_bytes = 64U << 10U;
  /// Of the region of each side, from `base` on.
  static constexpr std::uint64_t k_room = Stream::room(k_block_bytes);

  Bystander(Runtime& home, const Region& region, Child& writer, const RemoteRegion& remote, std::uint64_t base = 0)
      : home_(home), region_(region), writer_(writer), remote_(remote), base_(base), thread_([this] { run(); }) {
    const bool began = eventually([this] { return blocks_.load() > 0 || over_.load(); });
    if (!began) static_cast<void>(finish());  // nobody else would wait for the thread
    REQUIRE(began);
  }
  ~Bystander() { static_cast<void>(finish()); }
  Bystander(const Bystander&) = delete;
  Bystander& operator=(const Bystander&) = delete;

  [[nodiscard]] std::uint64_t blocks() const noexcept { return blocks_.load(); }
  /// Some more blocks have come since this was called.
  void require_going_on() {
    const std::uint64_t before = blocks_.load();
    REQUIRE_MESSAGE(eventually([&] { return blocks_.load() >= before + 2 * k_round || over_.load(); }),
                    "the bystander stands still");
    REQUIRE_MESSAGE(!over_.load(), verdict_);
  }
  /// "ok", or what went wrong. The last call to it.
  [[nodiscard]] std::string finish() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
    return verdict_;
  }

 private:
  static constexpr std::uint64_t k_round = 16;

  void run() {
    Stream stream{.base = base_, .bytes = k_block_bytes, .blocks = k_round, .patience = k_patience};
    while (!stop_.load() && verdict_ == "ok") {
      static_cast<void>(writer_.try_tell("pour " + std::to_string(home_.rank()) + " " + std::to_string(base_) + " " +
                                         std::to_string(stream.bytes) + " " + std::to_string(stream.blocks) + " " +
                                         std::to_string(stream.first)));
      verdict_ = receive_stream(home_, region_, remote_, stream);
      const std::string sent = writer_.hear();
      if (verdict_ == "ok" && sent != "ok") verdict_ = "the writer: " + sent;
      stream.first += stream.blocks;
      blocks_.fetch_add(stream.blocks);
    }
    over_.store(true);
  }

  Runtime& home_;
  const Region& region_;
  Child& writer_;
  const RemoteRegion& remote_;
  const std::uint64_t base_;
  std::string verdict_ = "ok";
  std::atomic<bool> stop_{false};
  std::atomic<bool> over_{false};
  std::atomic<std::uint64_t> blocks_{0};
  std::thread thread_;  // last: it uses the others
};

}  // namespace hixl::test
