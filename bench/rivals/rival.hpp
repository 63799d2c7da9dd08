// SPDX-License-Identifier: Apache-2.0
//
// What hixl_rivals asks of each rival: the questions that hixl_pair_bench answers for the library (pair_flow.hpp), in
// the same words and with the same figures.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "measure.hpp"

namespace hixl::bench {

struct Ask {
  std::string text;  ///< as it was asked
  std::string what;  ///< put, flight, batch or streams
  std::uint64_t size = 0;
  std::uint64_t count = 1;
  std::uint64_t rounds = 5;  ///< measured; a tenth as many go before
  [[nodiscard]] std::uint64_t bytes() const { return what == "put" ? size : size * count; }
};

/// The row of an answer. `time` has one sample a round; `cpu_seconds_used` is of all processes that took part.
[[nodiscard]] nlohmann::json row(const Ask& ask, Samples& time, double cpu_seconds_used);

/// Rounds one after the other, timed. `cpu` gives the processor time so far.
[[nodiscard]] nlohmann::json timed(const Ask& ask, const std::function<void()>& round,
                                   const std::function<double()>& cpu);

[[noreturn]] void give_up(const std::string& why, int code = 1);
/// Ends the program with k_exit_wrong_bytes.
void need_bytes(bool right);

// ---- rivals: one row an answer ----
/// A copy inside this process by so many threads, 1 or 2: what the memory gives.
[[nodiscard]] nlohmann::json copied(const Ask& ask, int threads);

/// How a stream socket between two processes is used.
struct SocketStyle {
  bool framed = false;       ///< each message is serialised into a buffer and taken apart again; else bare bytes
  bool tuned = true;         ///< Nagle off, 4 MiB of buffers, memory used again, one call a message
  bool answer_each = false;  ///< each message of a batch is answered; else the last one
};
[[nodiscard]] nlohmann::json socketed(const Ask& ask, const SocketStyle& style);

struct StorePlace {
  bool memcached = false;   ///< else redis
  std::string address;      ///< a path, or a port of 127.0.0.1
  std::uint64_t piece = 0;  ///< largest value; what is larger is stored in pieces
};
/// One connection stores the bytes, another one then fetches them.
[[nodiscard]] nlohmann::json stored(const Ask& ask, const StorePlace& place);

}  // namespace hixl::bench
