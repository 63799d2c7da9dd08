// SPDX-License-Identifier: Apache-2.0
//
// A stream of blocks between two ranks, checked by the oracle: at the notice of each block, and once more after its
// receiver has used the memory for something else, so that a byte which moves after an end is seen. Whatever happens
// to connections meanwhile, every block must come whole and in order, and nothing may fail.
//
// Both sides keep the same places in their regions, from `base` on:
//   8 words     notices: slot i holds the number of the newest block that came into it
//   1 word      (the sender's) the newest block that the receiver is done with
//   then 8 slots of `bytes` each, and behind them, at the sender, 8 sources
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <hixl/runtime.hpp>

#include "oracle.hpp"

namespace hixl::test {

struct Stream {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;  ///< of a block; a multiple of 8
  std::uint64_t blocks = 0;
  Timeout patience{};
  std::uint64_t first = 1;  ///< number of the first block; one that goes on where another one ended goes on counting

  static constexpr std::uint64_t k_slots = 8;
  /// A block is given back this many later: its slot holds other bytes of the receiver until then, and must keep them.
  static constexpr std::uint64_t k_watched = 4;
  static constexpr std::uint64_t k_words_bytes = 4096;

  [[nodiscard]] std::uint64_t last() const noexcept { return first + blocks - 1; }
  [[nodiscard]] std::uint64_t notice(std::uint64_t block) const noexcept { return base + block % k_slots * 8; }
  [[nodiscard]] std::uint64_t done() const noexcept { return base + k_slots * 8; }
  [[nodiscard]] std::uint64_t slot(std::uint64_t block) const noexcept {
    return base + k_words_bytes + block % k_slots * bytes;
  }
  [[nodiscard]] std::uint64_t source(std::uint64_t block) const noexcept { return slot(block) + k_slots * bytes; }
  [[nodiscard]] static constexpr std::uint64_t room(std::uint64_t bytes) noexcept {
    return k_words_bytes + 2 * k_slots * bytes;
  }
  /// What the receiver puts into a slot that it has taken.
  [[nodiscard]] static constexpr std::uint64_t mark(std::uint64_t block) noexcept { return ~block; }
};

/// "ok", or what went wrong first.
[[nodiscard]] inline std::string send_stream(Runtime& runtime, const Region& own, const RemoteRegion& to,
                                             const Stream& stream) {
  std::array<Request, Stream::k_slots> open;
  const auto told = [](const char* what, std::uint64_t block, const Error& error) {
    return std::string(what) + " " + std::to_string(block) + ": " + error.message();
  };
  for (std::uint64_t block = stream.first; block <= stream.last(); ++block) {
    Request& request = open[block % Stream::k_slots];
    if (block >= stream.first + Stream::k_slots) {
      if (const auto ended = request.wait(stream.patience); !ended) return told("put of", block, ended.error());
      const auto free = runtime.wait_signal(own.data + stream.done(), Compare::greater_equal, block - Stream::k_slots,
                                            stream.patience);
      if (!free) return told("no room for", block, free.error());
    }
    fill_block(own.data + stream.source(block), stream.bytes, block);
    auto posted =
        runtime.put_with_signal(own.data + stream.source(block), to.at(stream.slot(block)), stream.bytes,
                                {.word = to.at(stream.notice(block)), .value = block}, {.timeout = stream.patience});
    if (!posted) return told("post of", block, posted.error());
    request = *posted;
  }
  for (Request& request : open) {
    if (request.empty()) continue;
    if (const auto ended = request.wait(stream.patience); !ended) return told("the last", 0, ended.error());
  }
  const auto all =
      runtime.wait_signal(own.data + stream.done(), Compare::greater_equal, stream.last(), stream.patience);
  return all ? "ok" : told("not taken:", stream.last(), all.error());
}

[[nodiscard]] inline std::string receive_stream(Runtime& runtime, const Region& own, const RemoteRegion& from,
                                                const Stream& stream) {
  const auto give_back = [&](std::uint64_t block) -> std::string {
    std::string fault = fault_of(own.data + stream.slot(block), stream.bytes, Stream::mark(block));
    if (!fault.empty()) return "bytes moved after the end of block " + std::to_string(block) + "; " + fault;
    auto told = runtime.put_with_signal(own.data, from.at(stream.base), 0,
                                        {.word = from.at(stream.done()), .value = block}, {.timeout = stream.patience});
    // In order: the word holds the newest that was given back, so none may overtake another.
    const auto ended = told ? told->wait(stream.patience) : Result<void>(tl::unexpected(told.error()));
    return ended ? "" : "giving back " + std::to_string(block) + ": " + ended.error().message();
  };
  for (std::uint64_t block = stream.first; block <= stream.last(); ++block) {
    const auto notice =
        runtime.wait_signal(own.data + stream.notice(block), Compare::greater_equal, block, stream.patience);
    if (!notice) return "waiting for " + std::to_string(block) + ": " + notice.error().message();
    if (*notice != block) return "notice " + std::to_string(*notice) + " instead of " + std::to_string(block);
    std::byte* const slot = own.data + stream.slot(block);
    if (std::string fault = fault_of(slot, stream.bytes, block); !fault.empty()) return "at the notice: " + fault;
    fill_block(slot, stream.bytes, Stream::mark(block));
    if (block < stream.first + Stream::k_watched) continue;
    if (std::string fault = give_back(block - Stream::k_watched); !fault.empty()) return fault;
  }
  const std::uint64_t watched = std::min(Stream::k_watched, stream.blocks);
  for (std::uint64_t block = stream.last() - watched + 1; block <= stream.last(); ++block) {
    if (std::string fault = give_back(block); !fault.empty()) return fault;
  }
  return "ok";
}

}  // namespace hixl::test
