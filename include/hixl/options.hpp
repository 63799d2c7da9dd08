// SPDX-License-Identifier: Apache-2.0
//
// Options of a runtime: typed, with ranges and the reason of each default. validate() names the first that is wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <hixl/inspect.hpp>
#include <hixl/result.hpp>
#include <hixl/types.hpp>

namespace hixl {

enum class PollMode : std::uint8_t {
  adaptive,  ///< spin for spin_us after work, then sleep. No spin when the host runs more ranks than cores.
  busy,      ///< never sleep: lowest latency, one core.
  event,     ///< sleep at once: lowest CPU use.
};

/// Where rank 0 hosts the store of a job that names only a host. Below the range from which the kernel takes ports for
/// outgoing connections (32 768 and up), and not torch's 29 500.
inline constexpr std::uint16_t k_store_port = 29'571;

struct RuntimeOptions {
  // ---- who and where ----
  Rank rank = 0;
  std::uint32_t world_size = 1;  ///< 1 … 65 536. Ranks may come late.
  /// The rendezvous store: "tcp://host:port", "unix:@name" (this host only), or "file:///path" of a file that all ranks
  /// reach (one user; locks must work on its file system). Empty: only for world_size 1.
  std::string store;
  /// This runtime hosts the store (one rank of a job, usually rank 0; nobody for a file). When it stops, the others go
  /// on among themselves, and nobody can join until somebody hosts it again.
  bool host_store = false;
  /// Ranks of two jobs, by this name, that come to one store do not meet: WRONG_JOB. Empty: not compared.
  std::string job;
  /// Address to listen on, a literal or a name. Anything beyond loopback needs `insecure`.
  std::string bind = "127.0.0.1";
  /// Address (literal or name) that others are told; empty: the bound one, or when that is 0.0.0.0 or [::], the one by
  /// which this host reaches the store.
  std::string advertise;
  bool insecure = false;

  // ---- links ----
  /// Kinds that may be used, best first by the library's own order. Empty: automatic selection among all.
  /// Exactly one: forced; unavailable is then an error, never another kind.
  std::vector<LinkKind> links;
  std::uint32_t tx_depth = 32;  ///< 1 … 1 024 chunks posted and not acknowledged, a link; more wait at the peer
  std::uint32_t rx_depth = 32;  ///< 1 … 1 024 control messages not yet read, a link; the sender has no credit beyond
  std::uint32_t max_inline = 64;  ///< 0 … 256 bytes that a post copies, so their source needs no registration
  std::uint32_t chunk_bytes =
      1U << 20;  ///< 4 KiB … 4 MiB; a link failure replays at most tx_depth of these, 8 MiB at most

  // ---- requests ----
  std::uint32_t requests_max = 4096;  ///< 2 … 131 072 in flight; slots are made at start; beyond: BUSY
  std::uint32_t regions_max = 65536;  ///< 1 … 1 048 576 registered regions
  std::uint32_t peers_max = 1024;     ///< 1 … 65 536

  // ---- memory ----
  std::uint64_t hbm_bytes = 0;  ///< 0 … 1 TiB of emulated device memory, taken from the host's as it is allocated
  /// Bytes of regions that ended with HELD (a stopped peer may still write there). Beyond: allocate() is LIMIT_REACHED.
  std::uint64_t held_bytes_max = std::uint64_t{1} << 30U;

  // ---- time ----
  std::chrono::milliseconds default_timeout{30'000};  ///< 1 ms … 1 h, for calls that name none
  std::chrono::milliseconds connect_timeout{5'000};   ///< 10 ms … 10 min: rendezvous and each connection
  /// Silence after which a peer across hosts counts as dead; 500 ms … 60 s. 0: 2 s on one host, 5 s across,
  /// 30 s when the loop is the host program's, since a scheduler may compute for seconds between two turns.
  std::chrono::milliseconds lease{0};

  // ---- loop ----
  PollMode poll = PollMode::adaptive;
  std::uint32_t spin_us = 50;      ///< 0 … 10 000: a wake-up of a sleeping loop costs about 12 µs, so a few of those
  std::uint32_t copy_engines = 1;  ///< 1 … 8 threads that make the long copies of window links
  std::uint64_t seed = 0;          ///< for tests; 0: from the system

  // ---- seeing inside ----
  /// The sweeper looks at all requests once in this time, and tells `sweep_hook`; 10 ms … 1 h. 0: never.
  std::chrono::milliseconds sweep_period{0};
  std::chrono::milliseconds sweep_age{10'000};  ///< 0 … 24 h: what is still open and older than this is told
  SweepHook sweep_hook{};                       ///< with a period, it must have a function

  /// First option outside its range, or nothing.
  [[nodiscard]] Result<void> validate() const;
  /// Defaults, overridden by the environment; the log names a variable that cannot be read or contradicts another.
  /// Rank and size: the first complete pair of HIXL_RANK/HIXL_WORLD_SIZE (which silences the others), RANK/WORLD_SIZE
  /// (torchrun), OMPI_COMM_WORLD_RANK/_SIZE, SLURM_PROCID/SLURM_NTASKS, PMI_RANK/PMI_SIZE. Store: HIXL_STORE; else rank
  /// 0 hosts it at MASTER_ADDR, port HIXL_PORT (default k_store_port, never MASTER_PORT, which is torch's own); else,
  /// where the launcher says that all ranks are on this host, rank 0 hosts it at a local name made from the job's.
  /// HIXL_JOB, HIXL_LINKS (comma list), HIXL_BIND, HIXL_ADVERTISE, HIXL_INSECURE, HIXL_POLL.
  [[nodiscard]] static Result<RuntimeOptions> from_environment();
};

}  // namespace hixl
