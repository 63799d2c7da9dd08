// SPDX-License-Identifier: Apache-2.0
//
// hixl::RuntimeOptions::from_environment(): what launchers say, in their own words. Nothing is guessed: two launchers
// that contradict each other, half a pair, a number outside its range are errors whose log line names the variable.
#include <hixl/options.hpp>

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/log.hpp"
#include "runtime/address.hpp"

namespace hixl {

namespace {

constexpr std::uint32_t k_world_size_max = 65'536;
constexpr std::uint32_t k_port_max = 65'535;

/// An empty variable counts as none.
const char* get(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? text : nullptr;
}

tl::unexpected<Error> refuse(ErrorDetail detail = {}) {
  detail.stage = Stage::options;
  return fail(ErrorCode::invalid_argument, detail);
}

Result<std::vector<LinkKind>> kinds(std::string_view text) {
  std::vector<LinkKind> found;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    if (word == "auto" || word.empty()) continue;
    bool known = false;
    for (std::size_t i = 0; i < k_link_kinds; ++i) {
      const auto kind = static_cast<LinkKind>(i);
      if (word != name(kind)) continue;
      found.push_back(kind);
      known = true;
    }
    if (!known) {
      log::error("HIXL_LINKS names \"{}\"; the kinds are hccs, pcie, roce, ub, tcp, or auto", word);
      return refuse();
    }
  }
  return found;
}

Result<bool> flag(const char* variable, std::string_view text) {
  if (text == "1" || text == "true") return true;
  if (text == "0" || text == "false" || text.empty()) return false;
  log::error("{}=\"{}\" is neither 0 nor 1", variable, text);
  return refuse();
}

Result<PollMode> poll_mode(const char* variable, std::string_view text) {
  if (text == "adaptive") return PollMode::adaptive;
  if (text == "busy") return PollMode::busy;
  if (text == "event") return PollMode::event;
  log::error("{}=\"{}\"; the modes are adaptive, busy and event", variable, text);
  return refuse();
}

Result<RdmaVisibility> rdma_visibility(const char* variable, std::string_view text) {
  if (text == "read") return RdmaVisibility::read;
  if (text == "ack") return RdmaVisibility::ack;
  log::error("{}=\"{}\" is neither read nor ack", variable, text);
  return refuse();
}

Result<PayloadCheck> check_of_payload(const char* variable, std::string_view text) {
  if (text == "off") return PayloadCheck::off;
  if (text == "crc32c") return PayloadCheck::crc32c;
  log::error("{}=\"{}\" is neither off nor crc32c", variable, text);
  return refuse();
}

Result<Pooling> pooling_named(std::string_view text) {
  if (text == "best_kind") return Pooling::best_kind;
  if (text == "all_kinds") return Pooling::all_kinds;
  log::error("HIXL_POOLING=\"{}\"; it is best_kind or all_kinds", text);
  return refuse();
}

/// Decimal digits and nothing else.
template <class Number = std::uint32_t>
Result<Number> number(const char* variable, std::string_view text, Number low, Number high) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    log::error("{}=\"{}\" is not a number from {} to {}", variable, text, low, high);
    return refuse({.limit = high});
  }
  if (value < low || value > high) {
    log::error("{}={} must be {} to {}", variable, value, low, high);
    return refuse({.length = value, .limit = value < low ? low : high});
  }
  return value;
}

Result<std::vector<std::uint64_t>> numbers(const char* variable, std::string_view text) {
  std::vector<std::uint64_t> all;
  for (bool more = !text.empty(); more;) {
    const std::size_t comma = text.find(',');
    const auto value = number<std::uint64_t>(variable, text.substr(0, comma), 0, UINT64_MAX);
    if (!value) return fail(value.error());
    all.push_back(*value);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return all;
}

// ---- who we are ----

/// What one launcher calls a process' place.
struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
};
constexpr Names k_own{"hixl_run", "HIXL_RANK", "HIXL_WORLD_SIZE"};
constexpr Names k_torchrun{"torchrun", "RANK", "WORLD_SIZE"};
constexpr Names k_open_mpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
constexpr Names k_slurm{"Slurm", "SLURM_PROCID", "SLURM_NTASKS"};
constexpr Names k_pmi{"PMI", "PMI_RANK", "PMI_SIZE"};

struct Place {
  const Names* names = nullptr;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
};

/// Nothing: that launcher did not start this process (or says only half, which other programs do as well).
Result<std::optional<Place>> place_by(const Names& names) {
  const char* const rank_text = get(names.rank);
  const char* const size_text = get(names.size);
  if (rank_text == nullptr || size_text == nullptr) return std::optional<Place>();
  const auto size = number<std::uint32_t>(names.size, size_text, 1, k_world_size_max);
  if (!size) return fail(size.error());
  const auto rank = number<std::uint32_t>(names.rank, rank_text, 0, k_world_size_max - 1);
  if (!rank) return fail(rank.error());
  if (*rank >= *size) {
    log::error("{}={} must be below {}={}", names.rank, *rank, names.size, *size);
    return fail(ErrorCode::rank_out_of_range, {.rank = *rank, .stage = Stage::options, .limit = *size});
  }
  return std::optional(Place{&names, *rank, *size});
}

/// torchrun started by Slurm, one on each node: Slurm counts the nodes' agents, torchrun their workers, and torchrun
/// says what Slurm called its agent.
bool nested(const Place& inner, const Place& outer) {
  if (inner.names != &k_torchrun || outer.names != &k_slurm) return false;
  const char* const group = get("GROUP_RANK");
  const char* const groups = get("GROUP_WORLD_SIZE");
  return group != nullptr && groups != nullptr && std::to_string(outer.rank) == group &&
         std::to_string(outer.size) == groups;
}

/// Our own names silence all others; among those, whoever started this process last is not to be known, so that they
/// must agree.
Result<Place> find_place() {
  const bool own_rank = get(k_own.rank) != nullptr;
  if (own_rank != (get(k_own.size) != nullptr)) {
    log::error("{} is set and {} is not", own_rank ? k_own.rank : k_own.size, own_rank ? k_own.size : k_own.rank);
    return refuse();
  }
  Place first;
  for (const Names* names : {&k_own, &k_torchrun, &k_open_mpi, &k_slurm, &k_pmi}) {
    const auto place = place_by(*names);
    if (!place) return fail(place.error());
    if (!*place) continue;
    if (names == &k_own) return **place;
    if (first.names == nullptr) first = **place;
    if (nested(first, **place)) continue;
    const bool ranks_differ = (*place)->rank != first.rank;
    if (!ranks_differ && (*place)->size == first.size) continue;
    log::error("{}={} ({}) contradicts {}={} ({}); set {} and {} to say which is meant",
               ranks_differ ? first.names->rank : first.names->size, ranks_differ ? first.rank : first.size,
               first.names->launcher, ranks_differ ? names->rank : names->size,
               ranks_differ ? (*place)->rank : (*place)->size, names->launcher, k_own.rank, k_own.size);
    return refuse(
        {.length = ranks_differ ? (*place)->rank : (*place)->size, .limit = ranks_differ ? first.rank : first.size});
  }
  return first;
}

// ---- where the others are ----

/// A name that all ranks of this job read the same and other jobs do not; empty where the launcher has none.
std::string job_of(const Place& place) {
  if (const char* text = get("HIXL_JOB")) return text;
  const auto joined = [](const char* launcher, std::initializer_list<const char*> variables) -> std::string {
    std::string name = launcher;
    for (const char* variable : variables) {
      const char* const text = get(variable);
      if (text == nullptr) return {};
      name.append("/").append(text);
    }
    return name;
  };
  if (place.names == &k_torchrun) return joined("torchrun", {"MASTER_ADDR", "MASTER_PORT"});
  if (place.names == &k_open_mpi) return joined("ompi", {"PMIX_NAMESPACE"});
  if (place.names == &k_slurm) return joined("slurm", {"SLURM_JOB_ID", "SLURM_STEP_ID"});
  if (place.names == &k_pmi) return joined("pmi", {"PMI_JOBID"});
  return {};
}

/// Whether the launcher says that all its processes are on this host.
bool all_here(const Place& place) {
  const auto equals = [](const char* variable, std::uint32_t value) {
    const char* const text = get(variable);
    return text != nullptr && std::to_string(value) == text;
  };
  if (place.names == &k_torchrun) return equals("LOCAL_WORLD_SIZE", place.size);
  if (place.names == &k_open_mpi) return equals("OMPI_COMM_WORLD_LOCAL_SIZE", place.size);
  if (place.names == &k_slurm) return equals("SLURM_STEP_NUM_NODES", 1);
  if (place.names == &k_pmi) return equals("MPI_LOCALNRANKS", place.size);
  return false;
}

Result<void> find_store(const Place& place, RuntimeOptions& options) {
  std::uint32_t port = k_store_port;
  if (const char* text = get("HIXL_PORT")) {
    const auto value = number<std::uint32_t>("HIXL_PORT", text, 1, k_port_max);
    if (!value) return fail(value.error());
    port = *value;
  }
  if (const char* text = get("HIXL_STORE")) {
    options.store = text;
    return {};
  }
  if (options.world_size == 1) return {};
  if (const char* host = get("MASTER_ADDR")) {
    const auto address = runtime::Address::of_host(host, static_cast<std::uint16_t>(port));
    if (!address) {
      log::error("MASTER_ADDR=\"{}\": {}; it is a name, an IPv4 or an IPv6 address", host, what(address.error().code));
      return fail(address.error());
    }
    if (const char* theirs = get("MASTER_PORT"); theirs != nullptr && std::to_string(port) == theirs) {
      log::error("MASTER_PORT={} is torch's own, and the store would be there too; set HIXL_PORT to another port",
                 theirs);
      return refuse({.length = port});
    }
    options.store = "tcp://" + address->text();
  } else if (place.names != nullptr && all_here(place) && !options.job.empty()) {
    options.store = "unix:@hixl-store-" + std::to_string(::geteuid()) + "-" + options.job;
    if (!runtime::Address::parse(options.store)) {
      log::error("the name of the job, \"{}\", is too long for a local name; set HIXL_STORE", options.job);
      return refuse({.length = options.job.size()});
    }
  } else {
    return {};  // validate() says so if the world has others
  }
  options.host_store = options.rank == 0;
  return {};
}

Result<void> find_rdma(RdmaOptions& rdma) {
  struct Number {
    const char* variable;
    std::uint8_t& value;
    std::uint32_t low, high;
  };
  for (const Number& one : std::initializer_list<Number>{{"HIXL_RDMA_TRAFFIC_CLASS", rdma.traffic_class, 0, 255},
                                                         {"HIXL_RDMA_SERVICE_LEVEL", rdma.service_level, 0, 15},
                                                         {"HIXL_RDMA_TIMEOUT", rdma.timeout, 1, 21},
                                                         {"HIXL_RDMA_RETRY", rdma.retry, 0, 7}}) {
    const char* const text = get(one.variable);
    if (text == nullptr) continue;
    const auto value = number<std::uint32_t>(one.variable, text, one.low, one.high);
    if (!value) return fail(value.error());
    one.value = static_cast<std::uint8_t>(*value);
  }
  if (const char* text = get("HIXL_RDMA_VISIBILITY")) {
    const auto value = rdma_visibility("HIXL_RDMA_VISIBILITY", text);
    if (!value) return fail(value.error());
    rdma.visibility = *value;
  }
  if (const char* text = get("HIXL_RDMA_DEVICES")) rdma.devices = text;
  return {};
}

}  // namespace

Result<RuntimeOptions> RuntimeOptions::from_environment() {
  RuntimeOptions options;
  const auto place = find_place();
  if (!place) return fail(place.error());
  if (place->names != nullptr) {
    options.rank = place->rank;
    options.world_size = place->size;
  }
  options.job = job_of(*place);
  if (const auto found = find_store(*place, options); !found) return fail(found.error());
  if (const char* text = get("HIXL_LINKS")) {
    auto value = kinds(text);
    if (!value) return fail(value.error());
    options.links = std::move(*value);
  }
  if (const char* text = get("HIXL_TCP_LINKS")) {
    const auto value = number<std::uint32_t>("HIXL_TCP_LINKS", text, 0, k_tcp_links_max);
    if (!value) return fail(value.error());
    options.tcp_links = *value;
  }
  if (const char* text = get("HIXL_POOLING")) {
    const auto value = pooling_named(text);
    if (!value) return fail(value.error());
    options.pooling = *value;
  }
  if (const char* text = get("HIXL_MAX_BANDWIDTH")) {
    auto value = numbers("HIXL_MAX_BANDWIDTH", text);
    if (!value) return fail(value.error());
    options.max_bandwidth = std::move(*value);
  }
  if (const char* text = get("HIXL_INSECURE")) {
    const auto value = flag("HIXL_INSECURE", text);
    if (!value) return fail(value.error());
    options.insecure = *value;
  }
  if (const char* text = get("HIXL_POLL")) {
    const auto value = poll_mode("HIXL_POLL", text);
    if (!value) return fail(value.error());
    options.poll = *value;
  }
  if (const char* text = get("HIXL_PAYLOAD_CHECK")) {
    const auto value = check_of_payload("HIXL_PAYLOAD_CHECK", text);
    if (!value) return fail(value.error());
    options.payload_check = *value;
  }
  if (const auto found = find_rdma(options.rdma); !found) return fail(found.error());
  if (const char* text = get("HIXL_DIAG")) options.diagnosis = text;
  if (const char* text = get("HIXL_BIND")) options.bind = text;
  if (const char* text = get("HIXL_ADVERTISE")) options.advertise = text;
  return options;
}

}  // namespace hixl
