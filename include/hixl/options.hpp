// SPDX-License-Identifier: Apache-2.0
//
// Options of a runtime: typed, with ranges and the reason of each default. validate() names the first that is wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <hixl/failover.hpp>
#include <hixl/inspect.hpp>
#include <hixl/rdma.hpp>
#include <hixl/result.hpp>
#include <hixl/types.hpp>

namespace hixl {

enum class PollMode : std::uint8_t {
  adaptive,  ///< spin for spin_us after work, then sleep. No spin when the host runs more ranks than cores.
  busy,      ///< never sleep: lowest latency, one core.
  event,     ///< sleep at once: lowest CPU use.
};

/// Whether the bytes of puts and gets travel with a checksum on links that go through a network.
enum class PayloadCheck : std::uint8_t {
  off,     ///< the network's own checksums only
  crc32c,  ///< what arrives changed is not accepted but sent again; costs a pass over the bytes at both ends
};

/// Where rank 0 hosts the store of a job that names only a host. Below the range from which the kernel takes ports for
/// outgoing connections (32 768 and up), and not torch's 29 500.
inline constexpr std::uint16_t k_store_port = 29'571;
inline constexpr std::uint32_t k_tcp_links_max = 16;  ///< as many as a rank may have addresses
/// Lowest limit of a link: one chunk of the default size in 16 s.
inline constexpr std::uint64_t k_bandwidth_min = 64U << 10U;

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
  /// Joins a world that others have begun, and never begins one: RENDEZVOUS_UNREACHABLE where nobody is. For who only
  /// asks, and must not keep a job out of its own store. Not of a file.
  bool guest = false;
  /// Ranks of two jobs, by this name, that come to one store do not meet: WRONG_JOB. Empty: not compared.
  std::string job;
  /// Addresses to listen on, separated by commas: one for each network that peers shall use, 16 at most. Each is a
  /// literal or a name, with ":port" or with a free one. Anything beyond loopback needs `insecure`.
  std::string bind = "127.0.0.1";
  /// What others are told instead, one for each of `bind` in the same order, with ":port" where that differs too (a
  /// relay, a container). Empty: the bound ones, or for 0.0.0.0 and [::] the one by which this host reaches the store.
  std::string advertise;
  bool insecure = false;
  /// Where hixl_diag is answered: "host:port", or "host:port+" for the port plus the rank, so that all ranks of a host
  /// can answer. Beyond loopback needs `insecure`. Empty: nowhere. See diagnosis.hpp.
  std::string diagnosis;

  // ---- links ----
  /// Kinds that may be used, best first by the library's own order. Empty: automatic selection among all.
  /// Exactly one: forced; unavailable is then an error, never another kind.
  std::vector<LinkKind> links;
  /// Tcp links to each peer, 1 … 16. The i-th goes to the peer's i-th address, over again when it has fewer; the
  /// smaller number of the two sides counts. 0: one for each address of `bind`.
  std::uint32_t tcp_links = 0;
  RdmaOptions rdma{};  ///< of links of kind roce: devices, timers
  Pooling pooling = Pooling::best_kind;
  /// Bytes a second of payload, puts and gets of this rank, that the i-th link of a kind takes to one peer; 64 KiB/s or
  /// more, 0 and those behind the end: no limit. A limited window link opens no express lane.
  std::vector<std::uint64_t> max_bandwidth;
  std::uint32_t tx_depth = 32;  ///< 1 … 1 024 chunks posted and not acknowledged, a link; more wait at the peer
  std::uint32_t rx_depth = 32;  ///< 1 … 1 024 control messages not yet read, a link; the sender has no credit beyond
  std::uint32_t max_inline = 64;  ///< 0 … 256 bytes that a post copies, so their source needs no registration
  std::uint32_t chunk_bytes =
      1U << 20;  ///< 4 KiB … 4 MiB; a link failure replays at most tx_depth of these, 8 MiB at most
  /// Of this rank's puts and gets, and what it sends for others' gets: to find a network that damages data. Memory that
  /// changes while it travels looks damaged too. On tcp; other kinds ignore it.
  PayloadCheck payload_check = PayloadCheck::off;

  /// A link on which nothing of ours is acknowledged for this long, or for 16 of its round trips where that is longer,
  /// is given up if another one shows that the peer lives; 10 ms … 60 s. Far above every scheduling delay of a busy
  /// host.
  std::chrono::milliseconds stall{200};
  RetryPolicy retry{};  ///< what becomes of operations whose links break

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
  /// HIXL_JOB, HIXL_LINKS, HIXL_TCP_LINKS, HIXL_MAX_BANDWIDTH, HIXL_BIND, HIXL_ADVERTISE (lists with commas),
  /// HIXL_POOLING, HIXL_INSECURE, HIXL_DIAG, HIXL_POLL, HIXL_PAYLOAD_CHECK, HIXL_RDMA_DEVICES, HIXL_RDMA_TRAFFIC_CLASS,
  /// HIXL_RDMA_SERVICE_LEVEL, HIXL_RDMA_TIMEOUT, HIXL_RDMA_RETRY, HIXL_RDMA_VISIBILITY (read or ack).
  [[nodiscard]] static Result<RuntimeOptions> from_environment();
};

}  // namespace hixl
