// SPDX-License-Identifier: Apache-2.0
//
// What a runtime tells about itself, as JSON. The one file of the library that includes nlohmann-json.
#include <hixl/inspect_text.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace hixl {

namespace {

using Json = nlohmann::ordered_json;

/// Never throws for bytes that are no UTF-8: they come out as U+FFFD.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json hex(std::uint64_t value) { return fmt::format("{:#x}", value); }

Json rank_json(Rank rank) { return rank == k_no_rank ? Json() : Json(rank); }

Json error_json(const Error& error) {
  if (error.code == ErrorCode::ok) return {};
  const ErrorDetail& detail = error.detail;
  return {{"code", name(error.code)},
          {"number", static_cast<std::uint32_t>(error.code)},
          {"message", error.message()},
          {"rank", rank_json(detail.rank)},
          {"address", hex(detail.address)},
          {"length", detail.length},
          {"nearest_base", hex(detail.nearest_base)},
          {"nearest_length", detail.nearest_length},
          {"limit", detail.limit},
          {"os_error", detail.os_error}};
}

Json rights_json(Rights rights) {
  Json all = Json::array();
  if (includes(rights, Rights::read)) all.push_back("read");
  if (includes(rights, Rights::write)) all.push_back("write");
  if (includes(rights, Rights::atomic)) all.push_back("atomic");
  return all;
}

Json key_json(RegionKey key) { return {{"id", key.id}, {"generation", key.generation}}; }

template <class Values>
Json by_kind(const Values& values) {
  Json all = Json::object();
  for (std::size_t kind = 0; kind < k_link_kinds; ++kind) {
    all[std::string(name(static_cast<LinkKind>(kind)))] = values[kind];
  }
  return all;
}

Json link_json(const LinkInfo& link) {
  return {{"rank", rank_json(link.rank)},
          {"kind", name(link.kind)},
          {"name", description(link.kind)},
          {"id", link.id},
          {"incarnation", hex(link.incarnation)},
          {"session", link.session},
          {"generation", link.generation},
          {"up", link.up},
          {"chosen", link.chosen},
          {"windows", link.windows},
          {"other_memory", link.other_memory},
          {"device_memory", link.device_memory},
          {"words", link.words},
          {"state", link.state},
          {"reason", link.reason},
          {"bytes_out", link.bytes_out},
          {"bytes_in", link.bytes_in},
          {"in_flight", link.in_flight},
          {"bytes_in_flight", link.bytes_in_flight},
          {"busy_ns", link.busy.count()},
          {"rate", link.rate},
          {"round_trip_ns", link.round_trip.count()},
          {"share", link.share},
          {"given_back", link.given_back},
          {"stalls", link.stalls},
          {"failures", link.failures},
          {"last_error", error_json(link.last_error)}};
}

Json own_json(const OwnRegion& item) {
  return {{"key", key_json(item.region.key)},
          {"base", hex(item.region.address())},
          {"size", item.region.size},
          {"state", name(item.state)},
          {"rights", rights_json(item.rights)},
          {"tag", item.tag},
          {"references", item.references},
          {"pins", item.pins},
          {"age_ns", item.age.count()},
          {"window", item.region.window},
          {"kind", name(item.region.kind)},
          {"page_bytes", item.region.page_bytes},
          {"spilled_bytes", item.region.spilled_bytes},
          {"numa_node", item.region.numa_node >= 0 ? Json(item.region.numa_node) : Json()}};
}

Json peer_json(const PeerRegion& item) {
  return {
      {"rank", rank_json(item.rank)},
      {"incarnation", hex(item.incarnation)},
      {"key", key_json(item.key)},
      {"base", hex(item.base)},
      {"size", item.size},
      {"rights", rights_json(item.rights)},
      {"tag", item.tag},
      {"kind", name(item.kind)},
      {"mapped", item.mapped},
      {"retired", item.retired},
      {"link", item.reached ? Json{{"kind", name(item.link)}, {"name", description(item.link)}, {"id", item.link_id}}
                            : Json()}};
}

Json operation_json(const OperationInfo& item) {
  return {{"id", hex(item.id)},
          {"verb", name(item.verb)},
          {"rank", rank_json(item.rank)},
          {"state", name(item.state)},
          {"signal", item.signal},
          {"told", item.told},
          {"bytes", item.bytes},
          {"done_bytes", item.done_bytes},
          {"age_ns", item.age.count()},
          {"deadline_left_ns", item.deadline_left.count()},
          {"live", by_kind(item.live)},
          {"user_data", hex(item.user_data)},
          {"error", error_json(item.error)}};
}

template <class Items, class Make>
Json list(const Items& items, Make&& make) {
  Json all = Json::array();
  for (const auto& item : items) all.push_back(make(item));
  return all;
}

}  // namespace

std::string to_json(const Counters& counters) {
  return dump({{"bytes_out", by_kind(counters.bytes_out)},
               {"bytes_in", by_kind(counters.bytes_in)},
               {"operations", counters.operations},
               {"lane_operations", counters.lane_operations},
               {"failed", counters.failed},
               {"failed_unseen", counters.failed_unseen},
               {"coalesced", counters.coalesced},
               {"copies", counters.copies},
               {"staging_bytes", counters.staging_bytes},
               {"fallbacks", counters.fallbacks},
               {"link_failures", counters.link_failures},
               {"retries", counters.retries},
               {"corrupt_chunks", counters.corrupt_chunks},
               {"peers_lost", counters.peers_lost},
               {"callback_errors", counters.callback_errors},
               {"completions_dropped", counters.completions_dropped},
               {"hbm_bytes", counters.hbm_bytes},
               {"spilled_bytes", counters.spilled_bytes},
               {"held_bytes", counters.held_bytes}});
}

std::string to_json(std::span<const LinkInfo> links) { return dump(list(links, link_json)); }

std::string to_json(const RegionDump& regions) {
  return dump({{"own", list(regions.own, own_json)}, {"peers", list(regions.peers, peer_json)}});
}

std::string to_json(std::span<const OperationInfo> operations) { return dump(list(operations, operation_json)); }

std::string to_json(const Result<void>& result) {
  return dump({{"ok", result.has_value()}, {"error", result ? Json() : error_json(result.error())}});
}

}  // namespace hixl
