// SPDX-License-Identifier: Apache-2.0
//
// What a runtime tells about itself, as text for people: a heading, and one aligned line a row.
#include <hixl/inspect_text.hpp>

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

namespace hixl {

namespace {

/// Columns as wide as their widest cell; the last one is ragged.
class Table {
 public:
  Table(std::initializer_list<const char*> heads) { rows_.emplace_back(heads.begin(), heads.end()); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] std::string text() const {
    std::vector<std::size_t> widths(rows_.front().size());
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string all;
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i + 1 < row.size(); ++i) all += fmt::format("{:<{}}  ", row[i], widths[i]);
      all += row.back() + "\n";
    }
    return all;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string bytes_text(std::uint64_t bytes) {
  constexpr const char* k_units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024 && unit + 1 < std::size(k_units); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, k_units[unit]);
}

std::string time_text(std::chrono::nanoseconds time) {
  const double us = std::chrono::duration<double, std::micro>(time).count();
  const double size = us < 0 ? -us : us;
  if (size < 1e3) return fmt::format("{:.1f} us", us);
  if (size < 1e6) return fmt::format("{:.1f} ms", us / 1e3);
  return fmt::format("{:.1f} s", us / 1e6);
}

std::string rights_text(Rights rights) {
  std::string text;
  text += includes(rights, Rights::read) ? 'r' : '-';
  text += includes(rights, Rights::write) ? 'w' : '-';
  text += includes(rights, Rights::atomic) ? 'a' : '-';
  return text;
}

std::string rank_text(Rank rank) { return rank == k_no_rank ? "-" : std::to_string(rank); }

std::string takes_text(const LinkInfo& link) {
  std::string text;
  const auto add = [&text](bool there, const char* what) {
    if (there) text += (text.empty() ? "" : ", ") + std::string(what);
  };
  add(link.windows, "windows");
  add(link.other_memory, "other memory");
  add(link.device_memory, "device memory");
  add(link.words, "signals");
  return text.empty() ? "-" : text;
}

std::string kind_text(const Region& region) {
  std::string text(name(region.kind));
  if (region.window) text += ", window";
  if (region.numa_node >= 0) text += fmt::format(", node {}", region.numa_node);
  if (region.spilled_bytes > 0) text += fmt::format(", {} spilled", bytes_text(region.spilled_bytes));
  return text;
}

std::string live_text(const OperationInfo& operation) {
  std::string text;
  for (std::size_t kind = 0; kind < k_link_kinds; ++kind) {
    if (operation.live[kind] == 0) continue;
    text += fmt::format("{}{} x{}", text.empty() ? "" : ", ", name(static_cast<LinkKind>(kind)), operation.live[kind]);
  }
  return text.empty() ? "-" : text;
}

std::string end_text(const OperationInfo& operation) {
  if (operation.error.code != ErrorCode::ok) return operation.error.message();
  if (operation.state != OperationState::ended) return "-";
  return operation.told ? "success, told to a callback or queue" : "success";
}

}  // namespace

std::string_view name(RegionState state) noexcept {
  switch (state) {
    case RegionState::open:
      return "OPEN";
    case RegionState::retiring:
      return "RETIRING";
    case RegionState::held:
      return "HELD";
  }
  return "UNKNOWN";
}

std::string_view name(OperationVerb verb) noexcept {
  switch (verb) {
    case OperationVerb::put:
      return "put";
    case OperationVerb::get:
      return "get";
    case OperationVerb::batch:
      return "batch";
    case OperationVerb::atomic:
      return "atomic";
    case OperationVerb::flush:
      return "flush";
    case OperationVerb::fence:
      return "fence";
    case OperationVerb::join:
      return "join";
    case OperationVerb::lane:
      return "lane";
  }
  return "unknown";
}

std::string_view name(OperationState state) noexcept {
  switch (state) {
    case OperationState::mailbox:
      return "MAILBOX";
    case OperationState::waiting:
      return "WAITING";
    case OperationState::ready:
      return "READY";
    case OperationState::posted:
      return "POSTED";
    case OperationState::fencing:
      return "FENCING";
    case OperationState::ended:
      return "ENDED";
  }
  return "UNKNOWN";
}

std::string to_text(const Counters& counters) {
  Table table({"COUNTER", "VALUE"});
  for (std::size_t kind = 0; kind < k_link_kinds; ++kind) {
    if (counters.bytes_out[kind] + counters.bytes_in[kind] == 0) continue;
    table.add({fmt::format("bytes out, {}", description(static_cast<LinkKind>(kind))),
               std::to_string(counters.bytes_out[kind])});
    table.add({fmt::format("bytes in, {}", description(static_cast<LinkKind>(kind))),
               std::to_string(counters.bytes_in[kind])});
  }
  const std::pair<const char*, std::uint64_t> rows[] = {
      {"operations ended", counters.operations},
      {"of these in the caller's thread", counters.lane_operations},
      {"failed", counters.failed},
      {"failed, and nobody looked", counters.failed_unseen},
      {"batch entries joined", counters.coalesced},
      {"intermediate copies", counters.copies},
      {"staging bytes", counters.staging_bytes},
      {"fallbacks to a slower link", counters.fallbacks},
      {"link failures", counters.link_failures},
      {"chunks tried again", counters.retries},
      {"chunks that arrived corrupt", counters.corrupt_chunks},
      {"peers lost", counters.peers_lost},
      {"callbacks that threw", counters.callback_errors},
      {"completions dropped", counters.completions_dropped},
      {"device memory bytes", counters.hbm_bytes},
      {"spilled bytes", counters.spilled_bytes},
      {"held bytes", counters.held_bytes},
  };
  for (const auto& [what, value] : rows) table.add({what, std::to_string(value)});
  return table.text();
}

std::string to_text(std::span<const LinkInfo> links) {
  Table table({"RANK", "LINK", "STATE", "TAKES", "OUT", "IN", "IN FLIGHT", "SHARE", "RATE", "FAILURES", "REASON"});
  for (const LinkInfo& link : links) {
    std::string reason = link.reason;
    if (link.up && link.failures > 0) reason += "; last failure: " + link.last_error.message();
    std::string name(description(link.kind));
    if (link.id % 256 != 0) name += fmt::format(" #{}", link.id % 256);  // the kind is above, the count below
    table.add({rank_text(link.rank), std::move(name), link.state, takes_text(link), bytes_text(link.bytes_out),
               bytes_text(link.bytes_in), fmt::format("{} ({})", link.in_flight, bytes_text(link.bytes_in_flight)),
               link.up ? fmt::format("{} %", link.share) : std::string("-"),
               link.rate == 0 ? std::string("-") : bytes_text(link.rate) + "/s", std::to_string(link.failures),
               std::move(reason)});
  }
  return table.text();
}

std::string to_text(const RegionDump& regions) {
  Table own({"REGION", "ADDRESS", "SIZE", "STATE", "RIGHTS", "TAG", "REFERENCES", "PINS", "AGE", "MEMORY"});
  for (const OwnRegion& item : regions.own) {
    own.add({fmt::format("{}.{}", item.region.key.id, item.region.key.generation),
             fmt::format("{:#x}", item.region.address()), std::to_string(item.region.size),
             std::string(name(item.state)), rights_text(item.rights), std::to_string(item.tag),
             std::to_string(item.references), std::to_string(item.pins), time_text(item.age), kind_text(item.region)});
  }
  Table peers({"RANK", "REGION", "ADDRESS", "SIZE", "RIGHTS", "TAG", "MEMORY", "LINK"});
  for (const PeerRegion& item : regions.peers) {
    std::string link = item.reached ? std::string(description(item.link)) : "no link stands";
    if (item.retired) link = "retired by its rank";
    peers.add({rank_text(item.rank), fmt::format("{}.{}", item.key.id, item.key.generation),
               fmt::format("{:#x}", item.base), std::to_string(item.size), rights_text(item.rights),
               std::to_string(item.tag), std::string(name(item.kind)) + (item.mapped ? ", mapped" : ""),
               std::move(link)});
  }
  return fmt::format("own regions: {}, the newest first\n{}regions of peers: {}, by rank and address\n{}",
                     regions.own.size(), own.text(), regions.peers.size(), peers.text());
}

std::string to_text(std::span<const OperationInfo> operations) {
  Table table({"REQUEST", "VERB", "RANK", "STATE", "BYTES", "DONE", "AGE", "LEFT", "LINKS", "USER DATA", "END"});
  for (const OperationInfo& item : operations) {
    const bool lane = item.verb == OperationVerb::lane;
    const bool open = !lane && item.state != OperationState::ended;
    table.add(
        {lane ? "-" : fmt::format("{:x}", item.id), fmt::format("{}{}", name(item.verb), item.signal ? "+signal" : ""),
         rank_text(item.rank), std::string(name(item.state)), lane ? "-" : std::to_string(item.bytes),
         lane ? "-" : std::to_string(item.done_bytes), lane ? "-" : time_text(item.age),
         open ? time_text(item.deadline_left) : "-", live_text(item), std::to_string(item.user_data), end_text(item)});
  }
  return table.text();
}

std::string to_text(const Result<void>& result) { return result ? "OK\n" : result.error().message() + "\n"; }

}  // namespace hixl
