// SPDX-License-Identifier: Apache-2.0
//
// Messages of the built-in rendezvous store: a membership table, rank → the newest life and how to reach it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"

namespace hixl::wire {

inline constexpr std::size_t k_addresses_max = 16;  ///< tcp addresses of one rank
inline constexpr std::size_t k_address_bytes_max = 255;
inline constexpr std::size_t k_unix_name_bytes_max = 107;  ///< sun_path without the leading NUL
/// Above every clock in microseconds (146 000 years), and with room above it, so that one more never wraps.
inline constexpr Birth k_birth_max = Birth{1} << 62U;

/// How to reach one life of a rank.
struct Endpoints {
  PeerId peer_id{};
  Incarnation incarnation = 0;
  Rank rank = 0;
  Birth birth = 0;                     ///< in a claim: 0 before the first answer
  std::string unix_name;               ///< abstract unix socket, without the leading NUL; empty: none
  std::vector<std::string> addresses;  ///< "host:port" or "[v6]:port"
};
/// When a life began.
struct LifeStart {
  /// By its host's wall clock (µs). A first birth is not below this, which keeps the order when the rendezvous has
  /// forgotten everything; 0: none.
  Birth born = 0;
  /// Names one boot of one host; 0: not known. Lives with the same number are ordered by `since_boot`, for certain.
  std::uint64_t host = 0;
  std::uint64_t since_boot = 0;  ///< by that boot's clock (µs), which no one sets
  /// For certain: on one host, by one clock.
  [[nodiscard]] bool precedes(const LifeStart& other) const noexcept {
    return host != 0 && host == other.host && since_boot < other.since_boot;
  }
};
/// Client → store: this connection is rank r. Held until the connection ends.
struct StoreClaim {
  std::uint32_t world_size = 0;
  std::uint64_t job = 0;  ///< hash of the job's name; 0: not compared
  LifeStart start;
  std::uint8_t guest = 0;  ///< 1: where nobody holds a rank it is refused, with rendezvous_unreachable
  Endpoints endpoints;
};
/// Store → client. code ok, rank_conflict (another live connection holds it, or a newer life had it), rank_out_of_range
/// (limit: world size), invalid_argument (the others' world size: limit), wrong_job, rendezvous_unreachable (a guest,
/// where nobody is), or limit_reached (births have run out).
struct StoreClaimed {
  std::uint16_t code = 0;
  std::uint64_t limit = 0;
  Birth birth = 0;  ///< of the claimer from now on; 0 with an error
};
/// Client → store: tell me of this rank now or when it comes, and of every later change.
struct StoreLookup {
  Rank rank = 0;
};
/// Store → client. present = 0: it left (incarnation says which life).
struct StoreMember {
  std::uint8_t present = 0;
  Endpoints endpoints;
};
/// Client → store: leaves in order.
struct StoreLeave {
  std::uint16_t code = 0;
};

#define HIXL_STORE_MESSAGES(X) X(Endpoints) X(StoreClaim) X(StoreClaimed) X(StoreLookup) X(StoreMember) X(StoreLeave)
#define HIXL_WIRE_DECLARE(Message)                               \
  void encode(const Message& message, ByteWriter& out) noexcept; \
  [[nodiscard]] bool decode(ByteReader& in, Message& message);
HIXL_STORE_MESSAGES(HIXL_WIRE_DECLARE)
#undef HIXL_WIRE_DECLARE

}  // namespace hixl::wire
