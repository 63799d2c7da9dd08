// SPDX-License-Identifier: Apache-2.0
//
// hixl::RuntimeOptions: ranges.
#include <hixl/options.hpp>

#include "base/log.hpp"

namespace hixl {

namespace {

/// Names the option in the log; the error carries its value and limit.
Result<void> outside(const char* option, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  log::error("option {} is {}; it must be {} to {}", option, value, low, high);
  return fail(ErrorCode::invalid_argument,
              {.stage = Stage::options, .length = value, .limit = value < low ? low : high});
}

}  // namespace

Result<void> RuntimeOptions::validate() const {
  struct Range {
    const char* option;
    std::uint64_t value, low, high;
  };
  const auto ms = [](std::chrono::milliseconds time) { return static_cast<std::uint64_t>(time.count()); };
  const Range ranges[] = {
      {"world_size", world_size, 1, 65536},
      {"tcp_links", tcp_links, 0, k_tcp_links_max},
      {"stall (ms)", ms(stall), 10, 60'000},
      {"retry.count", retry.count, 0, 100},
      {"retry.pause (ms)", ms(retry.pause), 0, 10'000},
      {"retry.pause_max (ms)", ms(retry.pause_max), 0, 60'000},
      {"tx_depth", tx_depth, 1, 1024},
      {"rx_depth", rx_depth, 1, 1024},
      {"max_inline", max_inline, 0, 256},
      {"rdma.service_level", rdma.service_level, 0, 15},
      {"rdma.timeout", rdma.timeout, 1, 21},
      {"rdma.retry", rdma.retry, 0, 7},
      {"rdma.rnr_retry", rdma.rnr_retry, 0, 6},
      {"rdma.threads", rdma.threads, 1, 16},
      {"chunk_bytes", chunk_bytes, 4U << 10U, 4U << 20U},
      {"requests_max", requests_max, 2, 131072},
      {"regions_max", regions_max, 1, 1U << 20U},
      {"peers_max", peers_max, 1, 65536},
      {"hbm_bytes", hbm_bytes, 0, std::uint64_t{1} << 40U},
      {"default_timeout (ms)", ms(default_timeout), 1, 3'600'000},
      {"connect_timeout (ms)", ms(connect_timeout), 10, 600'000},
      {"lease (ms)", lease.count() == 0 ? 500 : ms(lease), 500, 60'000},
      {"spin_us", spin_us, 0, 10'000},
      {"copy_engines", copy_engines, 1, 8},
      {"sweep_period (ms)", sweep_period.count() == 0 ? 10 : ms(sweep_period), 10, 3'600'000},
      {"sweep_age (ms)", ms(sweep_age), 0, 86'400'000},
  };
  for (const Range& range : ranges) {
    if (range.value < range.low || range.value > range.high) {
      return outside(range.option, range.value, range.low, range.high);
    }
  }
  for (const std::uint64_t limit : max_bandwidth) {
    if (limit != 0 && limit < k_bandwidth_min)
      return outside("max_bandwidth (bytes/s)", limit, k_bandwidth_min, UINT64_MAX);
  }
  if (rank >= world_size) {
    return fail(ErrorCode::rank_out_of_range, {.rank = rank, .stage = Stage::options, .limit = world_size});
  }
  if (guest && (host_store || store.starts_with("file:"))) {
    log::error("a guest (options.guest) joins a store that somebody else hosts, and not a file");
    return fail(ErrorCode::invalid_argument, {.rank = rank, .stage = Stage::options});
  }
  if (store.empty() && (world_size > 1 || host_store)) {
    log::error("a world of {} ranks needs a rendezvous store: set options.store, HIXL_STORE or MASTER_ADDR",
               world_size);
    return fail(ErrorCode::invalid_argument, {.rank = rank, .stage = Stage::rendezvous});
  }
  if (sweep_period.count() > 0 && sweep_hook.function == nullptr) {
    log::error("option sweep_period is set and sweep_hook has no function");
    return fail(ErrorCode::invalid_argument, {.rank = rank, .stage = Stage::options});
  }
  if (bind.empty()) return fail(ErrorCode::invalid_argument, {.rank = rank, .stage = Stage::bind});
  return {};
}

}  // namespace hixl
